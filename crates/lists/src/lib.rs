//! Block lists: names that are blocked, or answered with other records than their own.
//!
//! [`Lists`] is the source. One thread per source reads its lists ([`follow`]): line by line, in any [`line`]
//! syntax, or as a zone of [`policies`]. The names go into [`rules`], kept in a [`table`] by their [`hash`].
//! Queries are answered from the last version read ([`stage`]). Remote lists are fetched through [`Fetch`],
//! which the caller supplies.

#![forbid(unsafe_code)]

mod answer;
mod counters;
mod fetch;
mod follow;
mod hash;
mod line;
mod policies;
mod read;
mod rules;
mod show;
mod stage;
mod state;
mod table;

#[cfg(test)]
mod tests;

use dnsweir_config as config;
use dnsweir_counts::{attempts, metrics};
use dnsweir_os::{background, watch};
use dnsweir_wire::dns;

pub use fetch::{Fetch, Fetched};
pub use stage::{Known, Lists, MOST_SOCKETS, most_octets};
