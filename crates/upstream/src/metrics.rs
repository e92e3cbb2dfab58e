//! The metrics of `forward`, per upstream.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use super::counters::{Counters, Reason};
use super::forwarder::Forwarder;
use crate::config::Protocol;
use dnsweir_counts::metrics::Metrics;

/// A counter exposed as is: name, help text and accessor.
type Plain = (&'static str, &'static str, fn(&Counters) -> &AtomicU64);

const PLAIN: [Plain; 6] = [
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
        "Queries sent without EDNS because the upstream rejects or ignores it",
        |counters| &counters.without_edns,
    ),
    (
        "forward_strays",
        "Messages that matched no outstanding query, late or forged",
        |counters| &counters.strays,
    ),
];

impl Forwarder {
    /// Adds each upstream's metrics. Stages that name the same upstream share its series.
    pub(super) fn show_upstreams(&self, metrics: &mut Metrics) {
        for upstream in &self.upstreams {
            let to = upstream.address.to_string();
            let (to, counters) = (("to", &*to), &upstream.counters);
            let requests = metrics.counter("forward_requests", "Queries sent to upstreams");
            let (udp, connections) = (counters.udp.load(Relaxed), counters.tcp.load(Relaxed));
            match self.config.protocol {
                Protocol::Udp | Protocol::Tcp => {
                    requests.add(&[to, ("proto", "udp")], udp);
                    requests.add(&[to, ("proto", "tcp")], connections);
                }
                Protocol::Encrypted(encryption) => {
                    requests.add(&[to, ("proto", encryption.word())], connections)
                }
            }
            if let Some(secured) = &upstream.secured {
                let help = "TLS handshakes with upstreams that succeeded, by whether they resumed an earlier session";
                let handshakes = metrics.counter("forward_tls_handshakes", help);
                handshakes.add(&[to, ("resumed", "false")], secured.full.load(Relaxed));
                handshakes.add(&[to, ("resumed", "true")], secured.resumed.load(Relaxed));
                handshakes.add(&[to, ("resumed", "unknown")], secured.unknown.load(Relaxed));
                if let Some(expires) = secured.expires() {
                    let help = "Expiry of the upstream's last certificate, in seconds since 1970";
                    metrics
                        .gauge("forward_certificate_expiry_timestamp_seconds", help)
                        .least(&[to], expires);
                }
            }
            let help = "Time from sending a query to an upstream to its reply";
            metrics
                .histogram("forward_request_duration_seconds", help)
                .add_durations(&[to], &counters.durations);
            let failures = metrics.counter("forward_failures", "Upstream queries that failed, by reason");
            for (reason, count) in Reason::ALL.iter().zip(&counters.failures) {
                failures.add(&[to, ("reason", reason.as_str())], count.load(Relaxed));
            }
            let help = "1 if the upstream is in use, 0 if it failed its probe or loops back";
            metrics
                .gauge("forward_healthy", help)
                .all(&[to], upstream.healthy());
            let help = "1 if queries to the upstream come back to the proxy";
            metrics
                .gauge("forward_looping", help)
                .any(&[to], upstream.looping());
            for (name, help, of) in PLAIN {
                metrics.counter(name, help).add(&[to], of(counters).load(Relaxed));
            }
        }
    }
}
