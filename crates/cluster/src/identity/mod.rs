//! Who asks: a client's address, as the pod that has it.
//!
//! [`NodePods`] follows the pods of one node, and the namespace of each of them, in a thread of its own. What is known becomes a
//! [`table`], which the next one replaces; a query reads the table of the moment and waits for nothing. An address is somebody's
//! only while the API server has said nothing to the contrary: what is in doubt is [`Identity::Unknown`].

mod bounds;
mod counters;
mod objects;
mod roster;
mod show;
mod state;
mod table;
mod watch;

#[cfg(test)]
mod tests;

pub use bounds::{DESCRIPTORS, FIXED_OCTETS};
pub use watch::NodePods;
