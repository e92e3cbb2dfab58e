//! What answers queries that neither a filter nor the cache did.

pub mod forward;
