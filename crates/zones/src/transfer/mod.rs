//! Zone transfers: all of a zone, for other servers of it (RFC 5936, RFC 1995).
//!
//! [`Outgoing`] decides who gets a zone, [`stream`] sends it, and [`secondaries`] tells secondaries that there is something new
//! (RFC 1996). What a source has to say comes as [`Contents`]: the zone as it was when the transfer began.

mod asked;
mod contents;
mod counters;
mod outgoing;
mod place;
mod secondaries;
mod signed;
mod stream;

#[cfg(test)]
mod tests;

pub use asked::Asked;
pub(crate) use contents::is_newer;
pub use contents::{Contents, serial};
pub use outgoing::{Outgoing, Reply};
pub use place::AT_ONCE;
pub use secondaries::{notify, notify_all};
pub use signed::say_signed;
pub use stream::Transfer;

/// The most sockets that NOTIFY messages of one zone take.
pub fn sockets(config: &Option<crate::config::Transfer>) -> usize {
    config.as_ref().map_or(0, |transfer| transfer.notify.len())
}
