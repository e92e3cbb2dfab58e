//! Counters, and limits that rest on counting.
//!
//! Crates report their counts as [`metrics`]; only the program turns them into a format. [`histogram`] counts
//! durations and [`ranking`] finds the most frequent keys, both in a fixed amount of memory. [`admission`]
//! limits how many requests are in progress, and [`attempts`] how often a failed operation is retried.

#![forbid(unsafe_code)]

pub mod admission;
pub mod attempts;
pub mod histogram;
pub mod metrics;
pub mod ranking;
