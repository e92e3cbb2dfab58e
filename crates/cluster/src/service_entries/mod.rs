//! Answers for the hosts of Istio's `ServiceEntry` objects; all other names go to the next stage.
//!
//! One thread [follows](follower) them and keeps a [`table`] of hosts, of which queries read the current
//! state. A host has the addresses in its entry, or those that Istio assigned, or else one of each configured
//! [`range`]: every proxy computes the same one, and no two hosts share one.

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
