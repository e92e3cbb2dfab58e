//! The same metrics under CoreDNS's names, where they mean the same, so that dashboards and alerts for
//! node-cache and CoreDNS keep working.
//!
//! The names and labels are those of CoreDNS 1.15.0. Where dnsweir makes no distinction, a label is empty: a
//! cache and its upstreams belong to no listener, and there are no views. What dnsweir does not measure is
//! missing; docs/reference/metrics.md lists both.

use crate::metrics::{Kind, Metric, Metrics};

/// One of our metrics under one of CoreDNS's names.
struct Alias {
    ours: &'static str,
    theirs: &'static str,
    help: &'static str,
    /// Our labels and theirs. Our other labels are summed over.
    labels: &'static [(&'static str, &'static str)],
    /// Labels that only CoreDNS has.
    constant: &'static [(&'static str, &'static str)],
}

/// Labels of a server and a zone.
const SERVED: &[(&str, &str)] = &[("server", "server"), ("zone", "zone")];

/// The label of a zone's cache.
const CACHED: &[(&str, &str)] = &[("zone", "zones")];

const NO_VIEW: &[(&str, &str)] = &[("view", "")];
const CACHE: &[(&str, &str)] = &[("server", ""), ("view", "")];
const WHOLE_CACHE: &[(&str, &str)] = &[("server", ""), ("zones", ""), ("view", "")];
const FORWARD: &[(&str, &str)] = &[("proxy_name", "forward")];

const fn alias(
    ours: &'static str,
    theirs: &'static str,
    help: &'static str,
    labels: &'static [(&'static str, &'static str)],
    constant: &'static [(&'static str, &'static str)],
) -> Alias {
    Alias {
        ours,
        theirs,
        help,
        labels,
        constant,
    }
}

/// Two of our metrics may map to one of theirs; their values are added up.
const ALIASES: &[Alias] = &[
    alias(
        "build_info",
        "build_info",
        "Build information",
        &[("version", "version")],
        &[("revision", ""), ("goversion", "")],
    ),
    alias(
        "requests",
        "dns_requests",
        "Queries received",
        &[
            ("server", "server"),
            ("zone", "zone"),
            ("proto", "proto"),
            ("family", "family"),
            ("type", "type"),
        ],
        NO_VIEW,
    ),
    alias(
        "request_duration_seconds",
        "dns_request_duration_seconds",
        "Time from receiving a query to sending its response",
        SERVED,
        NO_VIEW,
    ),
    alias(
        "responses",
        "dns_responses",
        "Responses sent",
        &[("server", "server"), ("zone", "zone"), ("rcode", "rcode")],
        &[("view", ""), ("plugin", "")],
    ),
    alias(
        "cache_hits",
        "cache_hits",
        "Queries answered from a fresh entry",
        &[("zone", "zones"), ("type", "type")],
        CACHE,
    ),
    alias(
        "cache_misses",
        "cache_misses",
        "Queries for which there was no fresh entry",
        CACHED,
        CACHE,
    ),
    alias(
        "cache_hits",
        "cache_requests",
        "Queries that came to the cache",
        CACHED,
        CACHE,
    ),
    alias(
        "cache_misses",
        "cache_requests",
        "Queries that came to the cache",
        CACHED,
        CACHE,
    ),
    alias(
        "cache_prefetches",
        "cache_prefetch",
        "Entries refreshed before they expired",
        CACHED,
        CACHE,
    ),
    alias(
        "cache_stale",
        "cache_served_stale",
        "Answers served after their TTL",
        CACHED,
        CACHE,
    ),
    alias(
        "cache_entries",
        "cache_entries",
        "Entries in the cache",
        &[("type", "type")],
        WHOLE_CACHE,
    ),
    alias(
        "cache_evictions",
        "cache_evictions",
        "Entries evicted to make room for others",
        &[("type", "type")],
        WHOLE_CACHE,
    ),
    alias(
        "forward_request_duration_seconds",
        "proxy_request_duration_seconds",
        "Time from sending a query to its reply",
        &[("to", "to")],
        &[("proxy_name", "forward"), ("rcode", "")],
    ),
    alias(
        "forward_failed_probes",
        "proxy_healthcheck_failures",
        "Probes without an answer",
        &[("to", "to")],
        FORWARD,
    ),
    alias(
        "forward_rejects",
        "forward_max_concurrent_rejects",
        "Queries rejected because as many as `concurrent` allows were in flight",
        &[],
        &[],
    ),
    // Until 1.13; dashboards still use it.
    alias(
        "forward_requests",
        "forward_requests",
        "Queries sent to an upstream",
        &[("to", "to")],
        &[],
    ),
    alias(
        "node_errors",
        "nodecache_setup_errors",
        "Errors while setting up or checking the node's network",
        &[("kind", "errortype")],
        &[],
    ),
];

/// Returns these metrics under CoreDNS's names.
pub(super) fn metrics(ours: &Metrics) -> Metrics {
    let mut theirs = Metrics::default();
    for alias in ALIASES {
        let found = ours.all().iter().find(|metric| metric.name == alias.ours);
        if let Some(metric) = found {
            add(alias, metric, &mut theirs);
        }
    }
    reloads(ours, &mut theirs);
    theirs
}

fn add(alias: &Alias, metric: &Metric, theirs: &mut Metrics) {
    let into = match metric.kind {
        Kind::Counter => theirs.counter(alias.theirs, alias.help),
        Kind::Gauge => theirs.gauge(alias.theirs, alias.help),
        Kind::Histogram => theirs.histogram(alias.theirs, alias.help),
    };
    for (labels, sample) in &metric.samples {
        let mut named: Vec<(&str, String)> = Vec::new();
        for (our_name, their_name) in alias.labels {
            let value = labels.iter().find(|(name, _)| name == our_name);
            named.push((
                their_name,
                value.map_or_else(String::new, |(name, value)| spelled(name, value)),
            ));
        }
        let named = named.iter().map(|(name, value)| (*name, value.as_str()));
        let all: Vec<(&str, &str)> = named.chain(alias.constant.iter().copied()).collect();
        into.add_sample(&all, sample.clone());
    }
}

/// Converts a label value to CoreDNS's spelling.
fn spelled(name: &str, value: &str) -> String {
    match (name, value) {
        // All of these come over UDP and TCP.
        ("server", address) => format!("dns://{address}"),
        ("family", "ipv4") => "1".to_owned(),
        ("family", "ipv6") => "2".to_owned(),
        // CoreDNS caches failures with denials, for the same time.
        ("type", "failure") => "denial".to_owned(),
        ("kind", "deadline") => "iptables".to_owned(),
        _ => value.to_owned(),
    }
}

/// Adds failed reloads; CoreDNS has no counter for the others.
fn reloads(ours: &Metrics, theirs: &mut Metrics) {
    let Some(reloads) = ours.all().iter().find(|metric| metric.name == "reloads") else {
        return;
    };
    let failed = theirs.counter("reload_failed", "Reloads that failed");
    for (labels, sample) in &reloads.samples {
        if labels.iter().any(|(_, value)| value == "failed") {
            failed.add_sample(&[], sample.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::Sample;

    #[test]
    fn what_means_the_same_has_their_names() {
        let mut ours = Metrics::default();
        let requests = ours.counter("requests", "Queries");
        for (kind, count) in [("A", 2), ("AAAA", 3)] {
            let server = ("server", "[::1]:53");
            requests.add(
                &[
                    server,
                    ("zone", "."),
                    ("proto", "udp"),
                    ("family", "ipv6"),
                    ("type", kind),
                ],
                count,
            );
        }
        let hits = ours.counter("cache_hits", "Hits");
        for (kind, count) in [("success", 5), ("denial", 7), ("failure", 11)] {
            hits.add(&[("zone", "."), ("type", kind)], count);
        }
        ours.counter("cache_misses", "Misses").add(&[("zone", ".")], 13);
        ours.counter("reloads", "Reloads")
            .add(&[("result", "failed")], 17);
        ours.gauge("tcp_bytes", "Only ours").add(&[], 1);

        let theirs = metrics(&ours);
        let shown: Vec<String> = theirs
            .all()
            .iter()
            .flat_map(|metric| {
                metric.samples.iter().map(|(labels, sample)| {
                    let labels: Vec<_> = labels
                        .iter()
                        .map(|(name, value)| format!("{name}={value}"))
                        .collect();
                    let Sample::Whole(number) = sample else {
                        panic!("{sample:?}")
                    };
                    format!("{} {} {number}", metric.name, labels.join(","))
                })
            })
            .collect();
        assert_eq!(
            shown,
            [
                "dns_requests server=dns://[::1]:53,zone=.,proto=udp,family=2,type=A,view= 2",
                "dns_requests server=dns://[::1]:53,zone=.,proto=udp,family=2,type=AAAA,view= 3",
                "cache_hits zones=.,type=denial,server=,view= 18",
                "cache_hits zones=.,type=success,server=,view= 5",
                "cache_misses zones=.,server=,view= 13",
                "cache_requests zones=.,server=,view= 36",
                "reload_failed  17",
            ]
        );
    }
}
