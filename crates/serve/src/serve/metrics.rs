//! Metrics of queries and of the cache.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use crate::cache::Kind;
use crate::dns::rcode_text;
use crate::metrics::Metrics;

use super::counters::{FAMILIES, TRANSPORTS, TYPES, ZoneCounters, ZoneOnServer};
use super::gate::Reason;
use super::stores::Shared;

/// A counter that is exported by zone: name, help, and its place.
type Plain = (&'static str, &'static str, fn(&ZoneCounters) -> &AtomicU64);

const PLAIN: [Plain; 8] = [
    (
        "cache_misses",
        "Queries for which the cache had no fresh entry",
        |counters| &counters.misses,
    ),
    (
        "cache_stale",
        "Answers served after their TTL had expired",
        |counters| &counters.stale,
    ),
    (
        "cache_prefetches",
        "Cache entries refreshed before they expired",
        |counters| &counters.prefetches,
    ),
    (
        "cache_coalesced",
        "Queries that shared an upstream query already in flight",
        |counters| &counters.coalesced,
    ),
    (
        "forward_rejects",
        "Queries rejected because too many upstream queries were in flight",
        |counters| &counters.rejects,
    ),
    (
        "forward_displaced",
        "Queries abandoned in flight to make room for others",
        |counters| &counters.displaced,
    ),
    (
        "waiting_rejects",
        "Queries rejected because too many were already waiting",
        |counters| &counters.waiting_rejects,
    ),
    (
        "waiting_displaced",
        "Waiting queries abandoned to make room for others",
        |counters| &counters.waiting_displaced,
    ),
];

impl Shared {
    /// Adds the metrics of queries and of the cache.
    pub fn show(&self, metrics: &mut Metrics) {
        // They are exported even before the first query.
        metrics.counter("requests", "Queries received");
        metrics.counter("responses", "Responses sent");
        metrics.counter(
            "refused",
            "Queries refused by access control or rate limits, by reason",
        );
        let help = "Time from receiving a query to sending its response";
        metrics.histogram("request_duration_seconds", help);
        metrics.counter("cache_hits", "Queries answered from a fresh cache entry");
        for (name, help, _) in PLAIN {
            metrics.counter(name, help);
        }
        for zone in self.counters.by_zone() {
            for counters in &zone.workers {
                show_queries(&zone, counters, metrics);
                show_zone(&zone.zone, counters, metrics);
            }
        }
        let waiting = metrics.gauge(
            "waiting_queries",
            "Client queries waiting for an upstream, a lookup or the end of a delay",
        );
        waiting.add(&[], self.waiting.inside() as u64);
        self.show_cache(metrics);
    }

    fn show_cache(&self, metrics: &mut Metrics) {
        let stats = self.cache.stats();
        for kind in Kind::ALL {
            let (label, stats) = ([("type", kind.as_str())], stats.kind(kind));
            let entries = metrics.gauge("cache_entries", "Entries in the cache");
            entries.add(&label, stats.entries);
            let evictions = metrics.counter("cache_evictions", "Entries evicted to make room for others");
            evictions.add(&label, stats.evictions);
        }
        let bytes = metrics.gauge("cache_bytes", "Memory used by the cache");
        bytes.add(&[], stats.bytes);
        let limit = metrics.gauge("cache_limit_bytes", "Maximum memory for the cache");
        limit.add(&[], stats.limit_bytes);
    }
}

/// A worker's counts of a zone on a listener, without zeros.
fn show_queries(on: &ZoneOnServer, counters: &ZoneCounters, metrics: &mut Metrics) {
    let (server, zone) = (("server", &*on.server), ("zone", &*on.zone));
    let mut add = |name, labels: &[(&'static str, &str)], count: &AtomicU64| {
        let count = count.load(Relaxed);
        if count > 0 {
            metrics
                .counter(name, "")
                .add(&[&[server, zone], labels].concat(), count);
        }
    };
    for (proto, by_family) in TRANSPORTS.iter().zip(&counters.requests) {
        for (family, by_type) in FAMILIES.iter().zip(by_family) {
            for (at, count) in by_type.iter().enumerate() {
                let qtype = TYPES.get(at).map_or("other", |(_, name)| name);
                let labels = [("proto", *proto), ("family", family), ("type", qtype)];
                add("requests", &labels, count);
            }
        }
    }
    for (rcode, count) in counters.responses.iter().enumerate() {
        let text = match rcode + 1 < counters.responses.len() {
            true => rcode_text(rcode as u16),
            false => "other".into(),
        };
        add("responses", &[("rcode", &text)], count);
    }
    for ((_, reason), count) in Reason::ALL.iter().zip(&counters.refused) {
        add("refused", &[("reason", reason)], count);
    }
    metrics
        .histogram("request_duration_seconds", "")
        .add_durations(&[server, zone], &counters.durations);
}

/// Counts that are exported without listener and worker.
fn show_zone(zone: &str, counters: &ZoneCounters, metrics: &mut Metrics) {
    let zone = ("zone", zone);
    for kind in Kind::ALL {
        metrics.counter("cache_hits", "").add(
            &[zone, ("type", kind.as_str())],
            counters.hits[kind.index()].load(Relaxed),
        );
    }
    for (name, help, of) in PLAIN {
        metrics
            .counter(name, help)
            .add(&[zone], of(counters).load(Relaxed));
    }
}
