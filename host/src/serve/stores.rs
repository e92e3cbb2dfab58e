//! What all workers share.

use std::net::SocketAddr;
use std::sync::Arc;

use crate::admission::Room;
use crate::cache::{Cache, Flights, KeyHasher};
use crate::config;
use crate::source::Resolution;
use crate::source::forward::Quota;

use super::counters::CounterTable;
use super::gate::Ledger;
use super::held::LookupOctets;
use super::observed::Observed;
use super::trace::TraceSink;

/// Reads the clock that goes on while the machine sleeps: what was kept before it did is as old as it is to everybody else. The
/// kernel's vDSO answers for it as for the monotonic one. By the C library, as `Instant` does it, for which a simulation stands in.
fn clock() -> libc::timespec {
    let mut now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the time is written to `now`. It fails for clocks that are not there, and this one is since Linux 2.6.39.
    unsafe { libc::clock_gettime(libc::CLOCK_BOOTTIME, &raw mut now) };
    now
}

/// What all workers share.
pub struct Shared {
    /// Answers of all zones.
    pub cache: Cache,
    /// Questions that are being asked upstream.
    pub(super) flights: Arc<Flights<Resolution>>,
    /// Clients' queries that wait for something.
    pub waiting: Arc<Room>,
    /// What lookups of filters hold.
    pub(super) lookup_octets: LookupOctets,
    /// Sockets to upstreams.
    pub upstream_sockets: Arc<Quota>,
    /// Hashes questions for the cache and for remembered verdicts.
    pub(super) hasher: KeyHasher,
    /// Tells apart what the cache keeps, and what is under way, for each route that filters give queries. Clients may
    /// choose what goes in.
    pub(super) routes: std::hash::RandomState,
    /// Every worker's counters.
    pub counters: CounterTable,
    /// Who asks for what, and what went wrong.
    pub observed: Observed,
    /// How often clients asked lately.
    pub(super) ledger: Ledger,
    /// The listeners there have ever been; a listener's index is its place here.
    pub(super) servers: parking_lot::Mutex<Vec<Arc<str>>>,
    start: libc::timespec,
    /// Who wants to be told of every query.
    pub(super) trace_sink: Option<TraceSink>,
}

impl Shared {
    /// Nothing cached, nothing counted; `cache_memory` in bytes. A sink is told of every query, which
    /// costs more than answering it: there is one for the tools only.
    pub fn new(cache_memory: usize, trace_sink: Option<TraceSink>) -> Arc<Shared> {
        Arc::new(Shared {
            cache: Cache::new(cache_memory),
            flights: Flights::new(),
            waiting: Room::new(config::WAITING_QUERIES),
            lookup_octets: LookupOctets::default(),
            upstream_sockets: Quota::new(usize::MAX),
            hasher: KeyHasher::new(),
            routes: Default::default(),
            counters: CounterTable::default(),
            observed: Observed::default(),
            ledger: Ledger::default(),
            servers: Default::default(),
            start: clock(),
            trace_sink,
        })
    }

    /// Microseconds since the process started: the workers' clock.
    pub fn now(&self) -> u64 {
        let now = clock();
        let seconds = now.tv_sec - self.start.tv_sec;
        // It never goes back, so that what is borrowed from the seconds is there.
        (seconds * 1_000_000 + (now.tv_nsec - self.start.tv_nsec) / 1000) as u64
    }

    /// The time that the cache goes by: milliseconds since the process started.
    pub fn now_ms(&self) -> u64 {
        self.now() / 1000
    }

    /// The index that stands for a listener's address in [`Client::server`](super::Client::server).
    pub fn server(&self, address: SocketAddr) -> u16 {
        let label = address.to_string();
        let mut servers = self.servers.lock();
        let found = servers.iter().position(|known| **known == *label);
        let at = found.unwrap_or_else(|| {
            servers.push(label.into());
            servers.len() - 1
        });
        at as u16
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `/proc/uptime` counts the time that the machine slept.
    #[test]
    fn time_goes_on_while_the_machine_sleeps() {
        let uptime = || -> f64 {
            let uptime = std::fs::read_to_string("/proc/uptime").unwrap();
            uptime.split(' ').next().unwrap().parse().unwrap()
        };
        let shared = Shared::new(1 << 20, None);
        let started = shared.start.tv_sec as f64 + shared.start.tv_nsec as f64 / 1e9;
        let before = uptime();
        let now = started + shared.now() as f64 / 1e6;
        // It has two digits after the point.
        assert!((before..=uptime() + 0.01).contains(&now), "{before} {now}");
    }
}
