//! Client identity: maps a client's address to the pod that has it.
//!
//! [`NodePods`] follows the pods of one node and their namespaces in its own thread. It publishes each new
//! state as a [`table`]; queries read the current one and never wait. An address belongs to a pod only while
//! nothing from the API server contradicts that; in doubt it is [`Identity::Unknown`].

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
