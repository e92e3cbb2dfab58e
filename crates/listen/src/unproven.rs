//! Handshakes over QUIC of clients that have not shown that they are where they say (RFC 9000 section 8.1).
//!
//! Anybody can write anybody's address on a first datagram. So such a handshake is no connection of that address, takes nobody's
//! place, and there are few of them: beyond, a client first shows its address, which costs it a round trip and us nothing.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use super::client_connections::ClientConnections;

/// Such handshakes at a time, over all workers: their memory is that of so many connections.
pub(crate) const UNPROVEN: usize = 16;

/// One such handshake, while it is under way.
pub(crate) struct Unproven(Arc<ClientConnections>);

impl ClientConnections {
    /// Room for one more; none: there are enough.
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
