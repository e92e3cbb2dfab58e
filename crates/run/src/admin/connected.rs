//! Connections to a listener other than those for queries. At the limit, the client with the most loses one,
//! so that no client with many connections keeps others out.

use std::cmp::Reverse;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};

use parking_lot::Mutex;
use tokio::net::TcpStream;
use tokio::task::AbortHandle;

use crate::listen::client_network;

/// The connections of a listener.
pub struct Connected {
    /// The most connections.
    connections: usize,
    /// The most bytes that they may hold in total.
    octets: usize,
    /// The oldest first.
    open: Mutex<Vec<(Arc<Guest>, AbortHandle)>>,
    /// How many were closed to make room.
    dismissed: AtomicU64,
}

/// One connection.
#[derive(Debug)]
pub struct Guest {
    /// Its client's address or network.
    network: IpAddr,
    /// Whether the client is this host, where kubelets are.
    is_own: bool,
    /// Whether a complete request came through it.
    has_asked: AtomicBool,
    /// Bytes that it holds.
    octets: AtomicUsize,
    is_dismissed: AtomicBool,
}

impl Guest {
    fn new(client: IpAddr, server: IpAddr) -> Guest {
        let (client, server) = (client.to_canonical(), server.to_canonical());
        Guest {
            network: client_network(client),
            is_own: client == server || client.is_loopback(),
            has_asked: AtomicBool::new(false),
            octets: AtomicUsize::new(0),
            is_dismissed: AtomicBool::new(false),
        }
    }

    /// Records that a complete request came through it.
    pub fn asks(&self) {
        self.has_asked.store(true, Relaxed);
    }

    /// Records that it no longer holds anything.
    pub fn release(&self) {
        self.octets.store(0, Relaxed);
    }

    fn octets(&self) -> usize {
        self.octets.load(Relaxed)
    }
}

impl Connected {
    /// Creates an empty set with this many connections and bytes at most.
    pub fn new(connections: usize, octets: usize) -> Connected {
        Connected {
            connections,
            octets,
            open: Mutex::default(),
            dismissed: AtomicU64::new(0),
        }
    }

    /// Returns how many connections were closed to make room.
    pub fn dismissed(&self) -> u64 {
        self.dismissed.load(Relaxed)
    }

    /// Serves a connection on the calling runtime, until its room is needed. The caller yields after each, so
    /// that a request that has already arrived is answered.
    pub fn serve<S>(&self, stream: TcpStream, serve: impl FnOnce(TcpStream, Arc<Guest>) -> S)
    where
        S: Future<Output = ()> + Send + 'static,
    {
        let (Ok(client), Ok(server)) = (stream.peer_addr(), stream.local_addr()) else {
            // It is gone already.
            return;
        };
        let guest = Arc::new(Guest::new(client.ip(), server.ip()));
        self.enter(Arc::clone(&guest), || {
            tokio::spawn(serve(stream, guest)).abort_handle()
        });
    }

    fn enter(&self, guest: Arc<Guest>, begin: impl FnOnce() -> AbortHandle) {
        let mut open = self.open.lock();
        open.retain(|(_, task)| !task.is_finished());
        while open.len() >= self.connections {
            let of = |network| open.iter().filter(|(one, _)| one.network == network).count();
            let with = |network| of(network) + usize::from(network == guest.network);
            // Among equals, the oldest.
            let first = open.iter().enumerate().min_by_key(|(_, (one, _))| {
                (
                    one.is_own,
                    Reverse(with(one.network)),
                    one.has_asked.load(Relaxed),
                )
            });
            let Some(at) = first.map(|(at, _)| at) else { return };
            self.dismiss(&open.remove(at));
        }
        open.push((guest, begin()));
    }

    /// Counts `more` bytes held by a connection. Beyond the limit, the client that holds most loses its
    /// largest connection; false if that is this one.
    pub fn hold(&self, guest: &Guest, more: usize) -> bool {
        let open = self.open.lock();
        guest.octets.fetch_add(more, Relaxed);
        while open.iter().map(|(one, _)| one.octets()).sum::<usize>() > self.octets {
            let of = |network| {
                let its = open.iter().filter(|(one, _)| one.network == network);
                its.map(|(one, _)| one.octets()).sum::<usize>()
            };
            let most = open.iter().max_by_key(|(one, _)| (of(one.network), one.octets()));
            let Some(most) = most else { break };
            self.dismiss(most);
        }
        !guest.is_dismissed.load(Relaxed)
    }

    fn dismiss(&self, (guest, task): &(Arc<Guest>, AbortHandle)) {
        guest.is_dismissed.store(true, Relaxed);
        guest.release();
        task.abort();
        self.dismissed.fetch_add(1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SERVER: &str = "10.0.0.1";

    struct Listening {
        connected: Connected,
        runtime: tokio::runtime::Runtime,
    }

    impl Listening {
        fn new(connections: usize, octets: usize) -> Listening {
            Listening {
                connected: Connected::new(connections, octets),
                runtime: tokio::runtime::Builder::new_current_thread().build().unwrap(),
            }
        }

        fn enter(&self, client: &str) -> Arc<Guest> {
            let guest = Arc::new(Guest::new(client.parse().unwrap(), SERVER.parse().unwrap()));
            let begin = || self.runtime.spawn(std::future::pending::<()>()).abort_handle();
            self.connected.enter(Arc::clone(&guest), begin);
            guest
        }
    }

    fn gone(guests: &[&Arc<Guest>]) -> Vec<bool> {
        let is_gone = |guest: &&Arc<Guest>| guest.is_dismissed.load(Relaxed);
        guests.iter().map(is_gone).collect()
    }

    #[test]
    fn the_oldest_of_whoever_has_most_makes_room() {
        let listening = Listening::new(4, 0);
        let (one, two) = (listening.enter("10.0.0.2"), listening.enter("10.0.0.3"));
        let (three, four) = (listening.enter("10.0.0.3"), listening.enter("10.0.0.4"));
        for _ in 0..100 {
            listening.enter("10.0.0.3");
        }
        assert_eq!(gone(&[&one, &two, &three, &four]), [false, true, true, false]);
        // If all clients have equally many, the oldest without a request goes.
        one.asks();
        listening.enter("10.0.0.5");
        listening.enter("10.0.0.6");
        assert_eq!(gone(&[&one, &four]), [false, true]);
        assert_eq!(listening.connected.dismissed(), 102);
    }

    #[test]
    fn the_host_itself_comes_last() {
        let listening = Listening::new(3, 0);
        let own = [SERVER, "127.0.0.1", SERVER].map(|client| listening.enter(client));
        let other = listening.enter("10.0.0.2");
        assert_eq!(
            gone(&[&own[0], &own[1], &own[2], &other]),
            [true, false, false, false]
        );
        listening.enter("10.0.0.3");
        assert_eq!(gone(&[&own[1], &own[2], &other]), [false, false, true]);
    }

    #[test]
    fn whoever_holds_most_loses_a_connection() {
        let listening = Listening::new(8, 1000);
        let calm = listening.enter("10.0.0.2");
        let many = [(); 4].map(|()| listening.enter("10.0.0.3"));
        assert!(listening.connected.hold(&calm, 300));
        assert!(many[..3].iter().all(|guest| listening.connected.hold(guest, 200)));
        assert!(
            listening.connected.hold(&many[3], 150),
            "another one of them goes"
        );
        assert_eq!(
            many.iter()
                .filter(|guest| guest.is_dismissed.load(Relaxed))
                .count(),
            1
        );
        assert!(!listening.connected.hold(&calm, 2000), "more than there is");
    }
}
