//! Zones that are had from other servers (RFC 5936, RFC 1995, RFC 1996).
//!
//! One thread for each stage follows its zones ([`follow`]): it asks the primaries ([`primary`]) whether there is something new, takes all
//! of it or what has changed ([`incoming`]), and puts the zone, checked as one from a file is, in the place of the one that queries
//! are answered from ([`state`]). What was had last is served until it expires.

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
