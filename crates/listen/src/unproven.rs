//! QUIC handshakes of clients that have not proven their address (RFC 9000 section 8.1).
//!
//! Anyone can forge the source address of a first datagram. So such a handshake does not count for that
//! address and displaces no connection. Only few are allowed: beyond that, a client first has to prove its
//! address, which costs it a round trip and us nothing.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use super::client_connections::ClientConnections;

/// The most such handshakes at a time, over all workers; each takes the memory of a connection.
pub(crate) const UNPROVEN: usize = 16;

/// One such handshake, while it is in progress.
pub(crate) struct Unproven(Arc<ClientConnections>);

impl ClientConnections {
    /// Begins one more; `None` if there are already too many.
    pub(crate) fn begin_unproven(self: &Arc<Self>) -> Option<Unproven> {
        let more = |count| (count < UNPROVEN).then_some(count + 1);
        let begun = self.unproven.fetch_update(Relaxed, Relaxed, more);
        begun.is_ok().then(|| Unproven(Arc::clone(self)))
    }
}

impl Drop for Unproven {
    fn drop(&mut self) {
        self.0.unproven.fetch_sub(1, Relaxed);
    }
}
