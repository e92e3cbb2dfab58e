//! Answers for the hosts of Istio's `ServiceEntry` objects, and leaves all other names to the next stage.
//!
//! One thread [follows](follower) them and keeps a [`table`] of hosts, which queries read as it is at the moment. A host has the
//! addresses that its entry says, or those that Istio assigned, or else one of a configured [`range`]: every proxy finds the same one by
//! itself, and no two hosts have one together.

mod entry;
mod follower;
mod host_name;
mod range;
mod rules;
mod stage;
mod table;

#[cfg(test)]
mod tests;

pub use stage::{MOST_SOCKETS, ServiceEntries};
