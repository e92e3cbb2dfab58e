//! What all workers share.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::admission::Room;
use crate::cache::{Cache, Flights, KeyHasher};
use crate::config;
use crate::source::forward::Quota;
use dnsweir_answer::Resolution;
use dnsweir_os::boot_clock::since_boot;

use super::counters::CounterTable;
use super::gate::Ledger;
use super::held::LookupOctets;
use super::observed::Observed;
use super::trace::TraceSink;

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
    /// By the clock that goes on while the machine sleeps.
    start: Duration,
    /// When an upstream last recovered that could not be reached.
    recovered_ms: AtomicU64,
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
            start: since_boot(),
            recovered_ms: AtomicU64::new(0),
            trace_sink,
        })
    }

    /// Microseconds since the process started, those included in which the machine slept: the workers' clock.
    pub fn now(&self) -> u64 {
        (since_boot() - self.start).as_micros() as u64
    }

    /// The time that the cache goes by: milliseconds since the process started.
    pub fn now_ms(&self) -> u64 {
        self.now() / 1000
    }

    /// An upstream has recovered that could not be reached: what failed is asked anew, and what is stale may be refreshed.
    pub fn forget_failures(&self) {
        self.recovered_ms.store(self.now_ms(), Ordering::Relaxed);
        let count = self.cache.forget_failures();
        tracing::debug!(count, "an upstream has recovered: forgot what had failed");
    }

    /// When that last was, as [`Shared::now_ms`]; 0: never.
    pub(super) fn recovered_ms(&self) -> u64 {
        self.recovered_ms.load(Ordering::Relaxed)
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
