//! Zone transfers: whole zones for other servers (RFC 5936, RFC 1995).
//!
//! [`Outgoing`] decides which clients may have a zone, [`stream`] sends it, and [`secondaries`] notifies
//! secondaries of changes (RFC 1996). A source provides [`Contents`]: the zone as it was when the transfer
//! began.

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

/// The most sockets for the NOTIFY messages of one zone.
pub fn sockets(config: &Option<crate::config::Transfer>) -> usize {
    config.as_ref().map_or(0, |transfer| transfer.notify.len())
}
