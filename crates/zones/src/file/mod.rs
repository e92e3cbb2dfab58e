//! Authoritative answers from zone files.
//!
//! A zone was read with the configuration and never changes: a new configuration has a new one. [`lookup`]
//! finds what a name leads to (RFC 1034 section 4.3.2), [`proof`] the records that prove that something does
//! not exist, and [`answer`] writes both into the answer.

mod answer;
mod lookup;
mod message;
mod proof;
mod stage;
mod transfer;

#[cfg(test)]
mod tests;

pub use stage::{File, most_octets, say};
