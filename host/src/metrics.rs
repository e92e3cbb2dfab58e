//! What `/metrics` shows: the counters that the modules keep, added up and named.
//!
//! Nothing is counted here. Each scrape reads the counters as they are; `docs/metrics.md` lists them.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;

use crate::cache::Kind;
use crate::ceiling;
use crate::dns::rcode_text;
use crate::histogram::Histogram;
use crate::listen::{self, Accounts};
use crate::serve::counters::{PROTO_FAMILY, TYPES, ZoneCounters, ZoneOnServer};
use crate::serve::gate;
use crate::source::forward::{Counters, Reason};
use crate::state::State;
use crate::{node, output};

/// The content type of [`render`]'s text.
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// All metrics in OpenMetrics text.
pub fn render(state: &Arc<State>) -> String {
    let mut registry = Registry::with_prefix("dnsweir");
    registry.register_collector(Box::new(Scrape(Arc::clone(state))));
    let mut text = String::new();
    // Writing to a string does not fail.
    let _ = prometheus_client::encoding::text::encode(&mut text, &registry);
    text
}

struct Scrape(Arc<State>);

impl fmt::Debug for Scrape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Scrape")
    }
}

impl Collector for Scrape {
    fn encode(&self, mut encoder: DescriptorEncoder) -> fmt::Result {
        process(&self.0, &mut encoder)?;
        network(&self.0, &mut encoder)?;
        zones(&self.0, &mut encoder)?;
        cache(&self.0, &mut encoder)?;
        forward(&self.0, &mut encoder)?;
        filters(&self.0, &mut encoder)
    }
}

/// One metric: its name and help, and its samples one by one.
struct Family<'a>(MetricEncoder<'a>);

impl Family<'_> {
    fn counter<'a>(
        encoder: &'a mut DescriptorEncoder,
        name: &'a str,
        help: &str,
    ) -> Result<Family<'a>, fmt::Error> {
        Ok(Family(encoder.encode_descriptor(
            name,
            help,
            None,
            MetricType::Counter,
        )?))
    }

    fn gauge<'a>(
        encoder: &'a mut DescriptorEncoder,
        name: &'a str,
        help: &str,
    ) -> Result<Family<'a>, fmt::Error> {
        Ok(Family(encoder.encode_descriptor(
            name,
            help,
            None,
            MetricType::Gauge,
        )?))
    }

    fn histogram<'a>(
        encoder: &'a mut DescriptorEncoder,
        name: &'a str,
        help: &str,
    ) -> Result<Family<'a>, fmt::Error> {
        Ok(Family(encoder.encode_descriptor(
            name,
            help,
            None,
            MetricType::Histogram,
        )?))
    }

    fn count(&mut self, labels: &impl EncodeLabelSet, value: u64) -> fmt::Result {
        self.0
            .encode_family(labels)?
            .encode_counter::<NoLabelSet, u64, f64>(&value, None)
    }

    fn seconds(&mut self, labels: &impl EncodeLabelSet, value: f64) -> fmt::Result {
        self.0
            .encode_family(labels)?
            .encode_counter::<NoLabelSet, f64, f64>(&value, None)
    }

    fn level(&mut self, labels: &impl EncodeLabelSet, value: u64) -> fmt::Result {
        self.0.encode_family(labels)?.encode_gauge(&value)
    }

    /// The level of a metric of the whole process.
    fn total(&mut self, value: u64) -> fmt::Result {
        self.0.encode_gauge(&value)
    }

    fn distribution<'h, const BUCKETS: usize>(
        &mut self,
        labels: &impl EncodeLabelSet,
        histograms: impl Iterator<Item = &'h Histogram<BUCKETS>>,
    ) -> fmt::Result {
        let (sum, buckets) = Histogram::total(histograms);
        let count = buckets.iter().map(|(_, count)| count).sum();
        self.0
            .encode_family(labels)?
            .encode_histogram::<NoLabelSet>(sum, count, &buckets, None)
    }
}

fn get(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

fn process(state: &State, encoder: &mut DescriptorEncoder) -> fmt::Result {
    let mut family = Family::gauge(encoder, "build_info", "Build information; the value is always 1")?;
    family.level(&[("version", env!("CARGO_PKG_VERSION"))], 1)?;
    let help = "Number of the running configuration, starting at 1";
    let mut family = Family::gauge(encoder, "generation", help)?;
    family.total(state.generation.read().number)?;
    let mut family = Family::counter(encoder, "reloads", "Configuration reloads, by result")?;
    family.count(&[("result", "ok")], get(&state.reloads))?;
    family.count(&[("result", "failed")], get(&state.failed_reloads))?;
    let help = "Lines of output dropped because nothing read the stream in time";
    let mut family = Family::counter(encoder, "output_lines_dropped", help)?;
    for (stream, lines) in output::dropped() {
        family.count(&[("stream", stream)], lines)?;
    }
    let mut family = Family::gauge(encoder, "tcp_connections", "Open client connections")?;
    family.total(state.accounts.connections() as u64)?;
    tcp(&state.accounts, encoder)?;
    memory(state, encoder)
}

fn memory(state: &State, encoder: &mut DescriptorEncoder) -> fmt::Result {
    let help = "Upper bound of the process's memory under its configuration, by part";
    let mut family = Family::gauge(encoder, "memory_ceiling_bytes", help)?;
    for (part, octets) in &state.ceiling.read().parts {
        family.level(&[("part", *part)], *octets as u64)?;
    }
    let mut family = Family::gauge(encoder, "memory_resident_bytes", "Resident memory of the process")?;
    family.total(ceiling::resident().unwrap_or_default() as u64)
}

fn tcp(accounts: &Accounts, encoder: &mut DescriptorEncoder) -> fmt::Result {
    let help = "Maximum number of open client connections";
    let mut family = Family::gauge(encoder, "tcp_limit_connections", help)?;
    family.total(accounts.connections_maximum() as u64)?;
    let help = "Memory held for client connections: unanswered queries and unread replies";
    let mut family = Family::gauge(encoder, "tcp_bytes", help)?;
    family.total(accounts.octets() as u64)?;
    let help = "Maximum memory for client connections";
    let mut family = Family::gauge(encoder, "tcp_limit_bytes", help)?;
    family.total(accounts.octets_maximum() as u64)?;
    let help = "Client connections closed by the proxy, by reason";
    let mut family = Family::counter(encoder, "tcp_closed", help)?;
    for reason in listen::Reason::ALL {
        family.count(&[("reason", reason.as_str())], accounts.closed(reason))?;
    }
    Ok(())
}

fn network(state: &State, encoder: &mut DescriptorEncoder) -> fmt::Result {
    let help = "Errors while setting up or checking the node's network, by kind";
    let mut family = Family::counter(encoder, "node_errors", help)?;
    for kind in node::Kind::ALL {
        family.count(&[("kind", kind.label())], state.node.errors(kind))?;
    }
    let help = "Times a link, address or rule was found missing or changed and was restored";
    let mut family = Family::counter(encoder, "node_repairs", help)?;
    family
        .0
        .encode_counter::<NoLabelSet, u64, f64>(&get(&state.node.repairs), None)?;
    let help = "Packets matched by the rules that direct queries to the proxy, as of the last check";
    let mut family = Family::counter(encoder, "node_rule_packets", help)?;
    family
        .0
        .encode_counter::<NoLabelSet, u64, f64>(&get(&state.node.rule_packets), None)?;
    let help = "Packets that bypassed the proxy because its heartbeat had stopped, as of the last check";
    let mut family = Family::counter(encoder, "node_unheard_packets", help)?;
    family
        .0
        .encode_counter::<NoLabelSet, u64, f64>(&get(&state.node.unheard_packets), None)?;
    let help =
        "Problems on this node that keep its network from being set up as configured; the log names them";
    let mut family = Family::gauge(encoder, "node_obstacles", help)?;
    family.total(get(&state.node.obstacles))?;
    let help = "Listeners whose rules apply only while their heartbeat continues";
    let mut family = Family::gauge(encoder, "node_heartbeats", help)?;
    family.total(state.node.heartbeats.read().len() as u64)?;
    let help = "Times a worker was unresponsive for a second";
    let mut family = Family::counter(encoder, "worker_hangs", help)?;
    family
        .0
        .encode_counter::<NoLabelSet, u64, f64>(&get(&state.hangs), None)
}

fn zones(state: &State, encoder: &mut DescriptorEncoder) -> fmt::Result {
    let zones = state.shared.counters.by_zone();
    let sum = |counters: &[Arc<ZoneCounters>], of: &dyn Fn(&ZoneCounters) -> u64| -> u64 {
        counters.iter().map(|counters| of(counters)).sum()
    };

    let mut family = Family::counter(encoder, "requests", "Queries received")?;
    for ZoneOnServer {
        server,
        zone,
        workers: counters,
    } in &zones
    {
        for (proto_family, (proto, ip)) in PROTO_FAMILY.iter().enumerate() {
            for qtype in 0..=TYPES.len() {
                let count = sum(counters, &|counters| get(&counters.requests[proto_family][qtype]));
                if count > 0 {
                    let name = TYPES.get(qtype).map_or("other", |(_, name)| name);
                    let labels = [
                        ("server", &**server),
                        ("zone", zone),
                        ("proto", proto),
                        ("family", ip),
                        ("type", name),
                    ];
                    family.count(&labels, count)?;
                }
            }
        }
    }

    let mut family = Family::counter(encoder, "responses", "Responses sent")?;
    for ZoneOnServer {
        server,
        zone,
        workers: counters,
    } in &zones
    {
        let rcodes = counters.first().map_or(0, |counters| counters.responses.len());
        for rcode in 0..rcodes {
            let count = sum(counters, &|counters| get(&counters.responses[rcode]));
            if count > 0 {
                let text = if rcode + 1 == rcodes {
                    "other".to_string()
                } else {
                    rcode_text(rcode as u16)
                };
                family.count(&[("server", &**server), ("zone", zone), ("rcode", &text)], count)?;
            }
        }
    }

    let help = "Queries turned away by access control or rate limits, by reason";
    let mut family = Family::counter(encoder, "refused", help)?;
    for ZoneOnServer {
        server,
        zone,
        workers: counters,
    } in &zones
    {
        for (at, (_, reason)) in gate::Reason::ALL.iter().enumerate() {
            let count = sum(counters, &|counters| get(&counters.refused[at]));
            if count > 0 {
                let labels = [("server", &**server), ("zone", zone), ("reason", *reason)];
                family.count(&labels, count)?;
            }
        }
    }

    let help = "Time from receiving a query to sending its response";
    let mut family = Family::histogram(encoder, "request_duration_seconds", help)?;
    for ZoneOnServer {
        server,
        zone,
        workers: counters,
    } in &zones
    {
        let durations = counters.iter().map(|counters| &counters.durations);
        family.distribution(&[("server", &**server), ("zone", zone)], durations)?;
    }

    let by_zone = by_zone_name(&zones);
    let mut family = Family::counter(encoder, "cache_hits", "Queries answered from a fresh cache entry")?;
    for (zone, counters) in &by_zone {
        for kind in Kind::ALL {
            let count = counters
                .iter()
                .map(|counters| get(&counters.hits[kind.index()]))
                .sum();
            family.count(&[("zone", *zone), ("type", kind.as_str())], count)?;
        }
    }
    type Counted = (&'static str, &'static str, fn(&ZoneCounters) -> &AtomicU64);
    const PLAIN: [Counted; 8] = [
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
    for (name, help, of) in PLAIN {
        let mut family = Family::counter(encoder, name, help)?;
        for (zone, counters) in &by_zone {
            let count = counters.iter().map(|counters| get(of(counters))).sum();
            family.count(&[("zone", *zone)], count)?;
        }
    }
    let help = "Client queries waiting for an upstream";
    let mut family = Family::gauge(encoder, "waiting_queries", help)?;
    family.total(state.shared.waiting.len() as u64)
}

/// What listener and worker do not matter for.
fn by_zone_name(zones: &[ZoneOnServer]) -> std::collections::BTreeMap<&str, Vec<&ZoneCounters>> {
    let mut by_zone = std::collections::BTreeMap::<&str, Vec<&ZoneCounters>>::new();
    for ZoneOnServer {
        zone,
        workers: counters,
        ..
    } in zones
    {
        by_zone
            .entry(zone)
            .or_default()
            .extend(counters.iter().map(|counters| &**counters));
    }
    by_zone
}

fn cache(state: &State, encoder: &mut DescriptorEncoder) -> fmt::Result {
    let stats = state.shared.cache.stats();
    let mut family = Family::gauge(encoder, "cache_entries", "Entries in the cache")?;
    for kind in Kind::ALL {
        family.level(&[("type", kind.as_str())], stats.kind(kind).entries)?;
    }
    let mut family = Family::gauge(encoder, "cache_bytes", "Memory used by the cache")?;
    family.total(stats.bytes)?;
    let mut family = Family::gauge(encoder, "cache_limit_bytes", "Maximum memory for the cache")?;
    family.total(stats.limit_bytes)?;
    let help = "Entries evicted to make room for others";
    let mut family = Family::counter(encoder, "cache_evictions", help)?;
    for kind in Kind::ALL {
        family.count(&[("type", kind.as_str())], stats.kind(kind).evictions)?;
    }
    Ok(())
}

fn forward(state: &State, encoder: &mut DescriptorEncoder) -> fmt::Result {
    let generation = state.generation.read();
    let mut upstreams = std::collections::BTreeMap::<String, Vec<_>>::new();
    for upstream in generation
        .sources
        .iter()
        .filter_map(|source| source.forwarder())
        .flat_map(|forwarder| forwarder.upstreams())
    {
        upstreams
            .entry(upstream.address.to_string())
            .or_default()
            .push(Arc::clone(upstream));
    }
    let mut family = Family::counter(encoder, "forward_requests", "Queries sent to upstreams")?;
    for (to, upstreams) in &upstreams {
        let (udp, tcp) = upstreams.iter().fold((0, 0), |(udp, tcp), one| {
            (udp + get(&one.counters.udp), tcp + get(&one.counters.tcp))
        });
        family.count(&[("to", &**to), ("proto", "udp")], udp)?;
        family.count(&[("to", &**to), ("proto", "tcp")], tcp)?;
    }
    let help = "Time from sending a query to an upstream to its reply";
    let mut family = Family::histogram(encoder, "forward_request_duration_seconds", help)?;
    for (to, upstreams) in &upstreams {
        let durations = upstreams.iter().map(|one| &one.counters.durations);
        family.distribution(&[("to", &**to)], durations)?;
    }
    let help = "Upstream queries that failed, by reason";
    let mut family = Family::counter(encoder, "forward_failures", help)?;
    for (to, upstreams) in &upstreams {
        for (at, reason) in Reason::ALL.iter().enumerate() {
            let count = upstreams.iter().map(|one| get(&one.counters.failures[at])).sum();
            family.count(&[("to", &**to), ("reason", reason.as_str())], count)?;
        }
    }
    let help = "1 if the upstream is in use, 0 if it failed its probe or loops back";
    let mut family = Family::gauge(encoder, "forward_healthy", help)?;
    for (to, upstreams) in &upstreams {
        family.level(
            &[("to", &**to)],
            u64::from(upstreams.iter().all(|one| one.healthy())),
        )?;
    }
    let help = "1 if queries to the upstream come back to the proxy";
    let mut family = Family::gauge(encoder, "forward_looping", help)?;
    for (to, upstreams) in &upstreams {
        family.level(
            &[("to", &**to)],
            u64::from(upstreams.iter().any(|one| one.looping())),
        )?;
    }
    type Counted = (&'static str, &'static str, fn(&Counters) -> &AtomicU64);
    const PLAIN: [Counted; 6] = [
        (
            "forward_failed_probes",
            "Probes without an answer, or answered with SERVFAIL or REFUSED",
            |counters| &counters.failed_probes,
        ),
        (
            "forward_loops",
            "Loop probes that came back to the proxy",
            |counters| &counters.loops,
        ),
        (
            "forward_hedges",
            "Hedged queries: sent while an earlier attempt was still unanswered",
            |counters| &counters.hedges,
        ),
        (
            "forward_truncated",
            "Truncated UDP answers, retried over TCP",
            |counters| &counters.truncated,
        ),
        (
            "forward_without_edns",
            "Queries sent without EDNS because the upstream does not handle it",
            |counters| &counters.without_edns,
        ),
        (
            "forward_strays",
            "Messages that matched no outstanding query, late or forged",
            |counters| &counters.strays,
        ),
    ];
    for (name, help, of) in PLAIN {
        let mut family = Family::counter(encoder, name, help)?;
        for (to, upstreams) in &upstreams {
            let count = upstreams.iter().map(|one| get(of(&one.counters))).sum();
            family.count(&[("to", &**to)], count)?;
        }
    }
    Ok(())
}

fn filters(state: &State, encoder: &mut DescriptorEncoder) -> fmt::Result {
    let generation = state.generation.read();
    let filters = || {
        generation
            .filters
            .iter()
            .map(|filter| (filter.name(), filter.counters()))
    };

    let mut family = Family::counter(encoder, "filter_calls", "Calls into a filter, by phase")?;
    for (name, counters) in filters() {
        for (phase, counters) in counters.phases() {
            family.count(&[("filter", name), ("phase", phase)], get(&counters.calls))?;
        }
    }
    let mut family = Family::counter(encoder, "filter_seconds", "Time spent inside a filter, by phase")?;
    for (name, counters) in filters() {
        for (phase, counters) in counters.phases() {
            let seconds = get(&counters.nanoseconds) as f64 / 1e9;
            family.seconds(&[("filter", name), ("phase", phase)], seconds)?;
        }
    }
    let help = "Queries, responses and events passed to a filter";
    let mut family = Family::counter(encoder, "filter_items", help)?;
    for (name, counters) in filters() {
        for (phase, counters) in counters.phases() {
            family.count(&[("filter", name), ("phase", phase)], get(&counters.items))?;
        }
    }
    let help = "Queries, responses and events on which a filter failed";
    let mut family = Family::counter(encoder, "filter_failed", help)?;
    for (name, counters) in filters() {
        for (phase, counters) in counters.phases() {
            family.count(&[("filter", name), ("phase", phase)], get(&counters.failed))?;
        }
    }
    let mut family = Family::counter(encoder, "filter_verdicts", "Verdicts on queries, by kind")?;
    for (name, counters) in filters() {
        let verdicts = &counters.verdicts;
        for (verdict, count) in [
            ("pass", &verdicts.pass),
            ("rewrite", &verdicts.rewrite),
            ("answer", &verdicts.answer),
            ("alias", &verdicts.alias),
            ("refuse", &verdicts.refuse),
            ("drop", &verdicts.drop),
        ] {
            family.count(&[("filter", name), ("verdict", verdict)], get(count))?;
        }
    }
    let help = "Queries decided by a remembered verdict, without a call";
    let mut family = Family::counter(encoder, "filter_remembered", help)?;
    for (name, counters) in filters() {
        family.count(&[("filter", name)], get(&counters.remembered))?;
    }
    let help = "Calls that trapped, exceeded a limit or returned an invalid result";
    let mut family = Family::counter(encoder, "filter_traps", help)?;
    for (name, counters) in filters() {
        let traps = &counters.traps;
        for (reason, count) in [
            ("trap", &traps.trap),
            ("time", &traps.time),
            ("memory", &traps.memory),
            ("garbage", &traps.garbage),
        ] {
            family.count(&[("filter", name), ("reason", reason)], get(count))?;
        }
    }
    let help = "Instances started to replace a failed one";
    let mut family = Family::counter(encoder, "filter_restarts", help)?;
    for (name, counters) in filters() {
        family.count(&[("filter", name)], get(&counters.restarts))?;
    }
    let help = "Workers on which the filter is suspended";
    let mut family = Family::gauge(encoder, "filter_suspended", help)?;
    for (name, counters) in filters() {
        family.level(&[("filter", name)], get(&counters.suspended))?;
    }
    let help = "Peak memory of any instance of the filter";
    let mut family = Family::gauge(encoder, "filter_memory_bytes", help)?;
    for (name, counters) in filters() {
        family.level(&[("filter", name)], get(&counters.memory))?;
    }
    let help = "Lines printed by the filter and dropped because nothing read them in time";
    let mut family = Family::counter(encoder, "filter_lines_dropped", help)?;
    for (name, counters) in filters() {
        family.count(&[("filter", name)], get(&counters.lines_dropped))?;
    }
    let mut family = Family::counter(encoder, "filter_counter", "Counters kept by the filter itself")?;
    for (filter, counters) in filters() {
        for (name, value) in counters.own.snapshot() {
            family.count(&[("filter", filter), ("name", &*name)], value)?;
        }
    }
    Ok(())
}
