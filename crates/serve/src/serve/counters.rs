//! A worker's counters for the queries of one zone on one listener.
//!
//! Each worker has its own, so that counting is a load and a store in its own cache line; readers add them
//! up.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::dns::Transport;
use crate::dns::rtype;
use crate::histogram::Histogram;

use super::asked::Client;
use super::gate::Reason;

/// Types with their own label, as in CoreDNS; others count as `other`.
pub const TYPES: [(u16, &str); 18] = [
    (rtype::A, "A"),
    (rtype::AAAA, "AAAA"),
    (rtype::MX, "MX"),
    (rtype::SOA, "SOA"),
    (rtype::CNAME, "CNAME"),
    (rtype::PTR, "PTR"),
    (rtype::TXT, "TXT"),
    (rtype::NS, "NS"),
    (rtype::DS, "DS"),
    (rtype::DNSKEY, "DNSKEY"),
    (rtype::RRSIG, "RRSIG"),
    (47, "NSEC"),
    (50, "NSEC3"),
    (rtype::SRV, "SRV"),
    (rtype::SVCB, "SVCB"),
    (rtype::HTTPS, "HTTPS"),
    (rtype::HINFO, "HINFO"),
    (rtype::ANY, "ANY"),
];

/// Labels of transports, in the order of [`Transport`].
pub const TRANSPORTS: [&str; 6] = ["udp", "tcp", "tls", "https", "quic", "internal"];
const _: () = assert!(Transport::Internal as usize + 1 == TRANSPORTS.len());

/// Labels of address families.
pub const FAMILIES: [&str; 2] = ["ipv4", "ipv6"];

/// How many rcodes have their own label; the last slot is for all others.
const RCODES: usize = 24;

/// Counters of one zone on one listener of one worker.
#[derive(Debug, Default)]
pub struct ZoneCounters {
    /// By transport, by family, then by type.
    pub requests: [[[AtomicU64; TYPES.len() + 1]; FAMILIES.len()]; TRANSPORTS.len()],
    /// By rcode; dropped queries are not responses.
    pub responses: [AtomicU64; RCODES + 1],
    /// Time from a query to its response.
    pub durations: Histogram<19>,
    /// Answers from the cache: success, denial, failure.
    pub hits: [AtomicU64; 3],
    /// Queries for which the cache had nothing fresh.
    pub misses: AtomicU64,
    /// Answers past their TTL (RFC 8767).
    pub stale: AtomicU64,
    /// Entries refreshed before they expired.
    pub prefetches: AtomicU64,
    /// Queries that waited for the upstream query of another.
    pub coalesced: AtomicU64,
    /// Queries refused because `forward`'s `concurrent` was reached.
    pub rejects: AtomicU64,
    /// Upstream queries displaced by others when `concurrent` was reached.
    pub displaced: AtomicU64,
    /// Queries that had no room to wait because `waiting-queries` was reached.
    pub waiting_rejects: AtomicU64,
    /// Waiting queries displaced by others when `waiting-queries` was reached.
    pub waiting_displaced: AtomicU64,
    /// Rejected queries, by reason ([`Reason::ALL`]).
    pub refused: [AtomicU64; Reason::ALL.len()],
}

/// Adds to a counter that only the calling worker writes.
#[inline]
pub fn add(counter: &AtomicU64, by: u64) {
    counter.store(
        counter.load(Ordering::Relaxed).wrapping_add(by),
        Ordering::Relaxed,
    );
}

impl ZoneCounters {
    /// Counts a received query.
    pub fn request(&self, client: &Client, qtype: u16) {
        let at = TYPES
            .iter()
            .position(|&(known, _)| known == qtype)
            .unwrap_or(TYPES.len());
        let family = usize::from(client.address.is_ipv6());
        add(&self.requests[client.transport as usize][family][at], 1);
    }

    /// Counts a rejected query.
    pub fn refuse(&self, reason: Reason) {
        add(&self.refused[reason as usize], 1);
    }

    /// Counts a reply sent `microseconds` after its query was received.
    pub fn response(&self, rcode: u16, microseconds: u64) {
        add(&self.responses[usize::from(rcode).min(RCODES)], 1);
        self.durations.observe(microseconds, add);
    }
}

/// A zone on a listener, with each worker's counters.
pub(crate) struct ZoneOnServer {
    /// The listener's address.
    pub server: Arc<str>,
    /// The zone's name.
    pub zone: Arc<str>,
    /// One for each worker that has used them.
    pub workers: Vec<Arc<ZoneCounters>>,
}

/// The key of counters: listener, zone, worker.
type CountersKey = (Arc<str>, Arc<str>, usize);

/// All counters. They outlive generations, so that a reload does not reset them.
#[derive(Debug, Default)]
pub struct CounterTable {
    counters: Mutex<HashMap<CountersKey, Arc<ZoneCounters>>>,
}

impl CounterTable {
    /// The counters of a zone on a listener for one worker; new ones start at 0.
    pub fn get(&self, server: &Arc<str>, zone: &Arc<str>, worker: usize) -> Arc<ZoneCounters> {
        let key = (Arc::clone(server), Arc::clone(zone), worker);
        Arc::clone(self.counters.lock().entry(key).or_default())
    }

    /// Returns all counters, grouped by listener and zone, in order.
    pub(crate) fn by_zone(&self) -> Vec<ZoneOnServer> {
        let mut groups = std::collections::BTreeMap::<_, Vec<_>>::new();
        for ((server, zone, _), counters) in self.counters.lock().iter() {
            groups
                .entry((Arc::clone(server), Arc::clone(zone)))
                .or_default()
                .push(Arc::clone(counters));
        }
        let groups = groups.into_iter();
        groups
            .map(|((server, zone), workers)| ZoneOnServer {
                server,
                zone,
                workers,
            })
            .collect()
    }
}
