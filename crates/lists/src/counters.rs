//! What is counted of a list.

use std::sync::atomic::AtomicU64;

/// What became of queries for names of a list.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    /// Those that the list decided about.
    pub blocked: AtomicU64,
    /// Those that it let through although another one has the name.
    pub passed: AtomicU64,
}
