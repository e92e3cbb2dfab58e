//! Counters of a list.

use std::sync::atomic::AtomicU64;

/// Outcomes of queries for names on a list.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    /// Queries that the list answered.
    pub blocked: AtomicU64,
    /// Queries that it let through although another list has the name.
    pub passed: AtomicU64,
}
