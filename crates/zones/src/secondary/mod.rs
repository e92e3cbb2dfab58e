//! Zones fetched from other servers (RFC 5936, RFC 1995, RFC 1996).
//!
//! One thread per stage follows its zones ([`follow`]): it asks the primaries ([`primary`]) for a new
//! version, fetches the whole zone or the changes ([`incoming`]), and replaces the zone that queries are
//! answered from ([`state`]), after the same checks as for a zone file. The last version is served until it
//! expires.

mod counters;
mod follow;
mod incoming;
mod notified;
mod pace;
mod primary;
mod stage;
mod state;

#[cfg(test)]
mod tests;

pub use notified::{AskedNotify, Notified};
pub use stage::{Secondary, Served, most_octets, most_sockets};
