//! State shared by all workers.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::admission::Room;
use crate::cache::{Cache, Flights, KeyHasher};
use crate::config::Config;
use crate::source::forward::Quota;
use dnsweir_answer::Resolution;
use dnsweir_os::clock::{Clock, Uptime};

use super::counters::CounterTable;
use super::gate::Ledger;
use super::lookup_octets::LookupOctets;
use super::observed::Observed;
use super::trace::TraceSink;

/// State shared by all workers.
pub struct Shared {
    /// Cached answers of all zones.
    pub cache: Cache,
    /// Questions being asked upstream.
    pub(super) flights: Arc<Flights<Resolution>>,
    /// Places of waiting client queries.
    pub waiting: Arc<Room>,
    /// Bytes held by filters' lookups.
    pub(super) lookup_octets: LookupOctets,
    /// The quota of sockets to upstreams.
    pub upstream_sockets: Arc<Quota>,
    /// Hashes questions for the cache and for remembered verdicts.
    pub(super) hasher: KeyHasher,
    /// Hashes the routes that filters set, which keep cached answers and queries in flight apart. Randomly
    /// seeded, since clients may choose the input.
    pub(super) routes: std::hash::RandomState,
    /// Every worker's counters.
    pub counters: CounterTable,
    /// The most frequent names and clients, and recent failures.
    pub observed: Observed,
    /// Recent query rates of clients.
    pub(super) ledger: Ledger,
    /// All listeners there have ever been; a listener's index is its position here.
    pub(super) servers: parking_lot::Mutex<Vec<Arc<str>>>,
    /// Starts when this is created.
    clock: Clock,
    /// When an unreachable upstream last recovered: [`Uptime`] in microseconds.
    recovered: AtomicU64,
    /// Receives a trace of every query.
    pub(super) trace_sink: Option<TraceSink>,
}

impl Shared {
    /// Creates an empty state; `cache_memory` is in bytes. Tracing every query costs more than answering it:
    /// only the tools have a sink.
    pub fn new(cache_memory: usize, trace_sink: Option<TraceSink>) -> Arc<Shared> {
        Arc::new(Shared {
            cache: Cache::new(cache_memory),
            flights: Flights::new(),
            waiting: Room::new(Config::default().waiting_queries),
            lookup_octets: LookupOctets::new(),
            upstream_sockets: Quota::new(usize::MAX),
            hasher: KeyHasher::new(),
            routes: Default::default(),
            counters: CounterTable::default(),
            observed: Observed::default(),
            ledger: Ledger::default(),
            servers: Default::default(),
            clock: Clock::start(),
            recovered: AtomicU64::new(0),
            trace_sink,
        })
    }

    /// Reads the clock of the workers and of the cache.
    pub fn now(&self) -> Uptime {
        self.clock.now()
    }

    /// Forgets failures and allows stale answers to be refreshed, because an unreachable upstream has
    /// recovered.
    pub fn forget_failures(&self) {
        self.recovered.store(self.now().as_micros(), Ordering::Relaxed);
        let count = self.cache.forget_failures();
        tracing::debug!(count, "an upstream has recovered: forgot what had failed");
    }

    /// When that last happened; [`Uptime::START`] if never.
    pub(super) fn recovered(&self) -> Uptime {
        Uptime::from_micros(self.recovered.load(Ordering::Relaxed))
    }

    /// The index of a listener's address, as in [`Client::server`](super::Client::server).
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
