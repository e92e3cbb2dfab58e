//! Authoritative answers from zone files.
//!
//! The zone has been read with the configuration, and never changes: another configuration has another one. [`lookup`]
//! finds what is at a name (RFC 1034 section 4.3.2), [`proof`] what proves that something is not there, and [`answer`]
//! writes both down.

mod answer;
mod lookup;
mod message;
mod proof;
mod stage;
mod transfer;

#[cfg(test)]
mod tests;

pub use stage::{File, most_octets, say};
