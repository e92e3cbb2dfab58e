//! Names that are blocked, or answered in another way than by whoever has them: lists as people have them.
//!
//! [`Lists`] is the source. One thread for each reads its lists ([`follow`]): a [`line`] at a time, in whatever syntax it is,
//! or a zone of [`policies`], into [`rules`], whose names are in a [`table`], by their [`hash`]. Queries are answered from what was read last ([`stage`]).
//! Who fetches lists from elsewhere, somebody else brings ([`Fetch`]).

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
use dnsweir_counts::{attempts, figures};
use dnsweir_os::{background, watch};
use dnsweir_wire::dns;

pub use fetch::{Fetch, Fetched};
pub use stage::{Known, Lists, MOST_SOCKETS, most_octets};
