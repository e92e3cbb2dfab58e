//! What forwarding may hold at most, for all that clients ask and upstreams send: sockets and octets.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

use super::failure::Fault;
use super::tcp;
use crate::config;

/// Octets that a query under way holds: itself, twice, and an answer of the size that upstreams are told to keep to
/// over UDP. Larger ones come over TCP, where the connection's share covers them.
pub(super) const QUERY_OCTETS: usize = 4 * 1024;
/// Octets that an attempt holds: what waits for the reply, and its part of a socket.
pub(super) const ATTEMPT_OCTETS: usize = 2 * 1024;

impl config::Forward {
    /// The most sockets that this stage has open at once, over all workers: one for each query under way, and for
    /// each worker and upstream what is kept for the next ones. [`PROBE_SOCKETS`](super::PROBE_SOCKETS) come on
    /// top, once for the whole process.
    pub fn most_sockets(&self, workers: usize) -> usize {
        self.concurrent + workers * self.upstreams.len() * (1 + self.connections)
    }

    /// The most octets that this stage holds for queries under way and in the buffers of its connections, over all
    /// workers. What the clients are owed is not among them.
    pub fn most_octets(&self, workers: usize) -> usize {
        let connections = workers * self.upstreams.len() * self.connections;
        let query = QUERY_OCTETS + self.attempts as usize * ATTEMPT_OCTETS;
        self.concurrent * query + connections * tcp::CONNECTION_OCTETS
    }
}

/// The sockets that may be open at once, over all workers.
#[derive(Debug)]
pub(super) struct Quota {
    open: AtomicUsize,
    limit: usize,
}

impl Quota {
    /// None is open yet.
    pub fn new(limit: usize) -> Arc<Self> {
        Arc::new(Self {
            open: AtomicUsize::new(0),
            limit,
        })
    }

    #[cfg(test)]
    pub fn open(&self) -> usize {
        self.open.load(Relaxed)
    }

    /// Room for one socket, until it is dropped.
    pub fn take(self: &Arc<Self>) -> Result<Place, Fault> {
        let place = Place(self.clone());
        if self.open.fetch_add(1, Relaxed) < self.limit {
            Ok(place)
        } else {
            Err(Fault::Busy)
        }
    }
}

/// Room for one socket.
#[derive(Debug)]
pub(super) struct Place(Arc<Quota>);

impl Drop for Place {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_sockets_than_allowed() {
        let quota = Quota::new(2);
        let places: Vec<_> = (0..2).map(|_| quota.take().unwrap()).collect();
        assert_eq!(quota.take().unwrap_err(), Fault::Busy);
        drop(places);
        assert!(quota.take().is_ok());
    }
}
