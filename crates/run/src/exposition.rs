//! Builds `/metrics`: adds up and names the counters that the modules keep.
//!
//! Nothing is counted here: each scrape reads the current counters. `docs/reference/metrics.md` lists them.

mod coredns;
mod format;
mod process;

use std::sync::atomic::{AtomicU64, Ordering};

use crate::dnstap::Tap;
use crate::listen::{ClientConnections, CloseReason, Handshake};
use crate::metrics::Metrics;
use crate::state::State;
use crate::{ceiling, log, node, nodecache, output};
pub use format::Format;
pub(crate) use format::media_range;

/// Help text of the counter of suppressed log lines.
pub const LEFT_OUT: &str = "Log lines left out because there were many of their kind in a short time";

/// Returns all metrics: under our names, under CoreDNS's, and those of any process.
pub fn all(state: &State) -> [(&'static str, Metrics); 3] {
    let ours = collect(state);
    let theirs = coredns::metrics(&ours);
    [("dnsweir", ours), ("coredns", theirs), of_process()]
}

/// Returns the metrics of any process.
pub fn of_process() -> (&'static str, Metrics) {
    let mut metrics = Metrics::default();
    process::show(&mut metrics);
    ("process", metrics)
}

/// Collects all our metrics.
pub(crate) fn collect(state: &State) -> Metrics {
    let mut metrics = Metrics::default();
    own(state, &mut metrics);
    network(state, &mut metrics);
    state.deliveries.show(&mut metrics);
    state.shared.show(&mut metrics);
    let generation = state.generation.read();
    for source in &generation.sources {
        source.upkeep().show(&mut metrics);
    }
    if let Some(pods) = &generation.pods {
        pods.show(&mut metrics);
    }
    let help = "1 if the previous module of a filter is in use because the new one failed";
    let reverted = metrics.gauge("filter_reverted", help);
    for filter in &generation.config.filters {
        reverted.add(&[("filter", &filter.name)], filter.reverted.is_some().into());
    }
    for loaded in &generation.filters {
        loaded.filter.show(&mut metrics);
    }
    metrics
}

fn get(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

/// Adds those of the whole process: its configuration, output, connections, and memory.
fn own(state: &State, metrics: &mut Metrics) {
    metrics
        .gauge("build_info", "Build information; the value is always 1")
        .add(&[("version", env!("CARGO_PKG_VERSION"))], 1);
    let help = "Number of the running configuration, starting at 1";
    metrics
        .gauge("generation", help)
        .add(&[], state.generation.read().number);
    let reloads = metrics.counter("reloads", "Configuration reloads, by result");
    reloads.add(&[("result", "ok")], get(&state.reloads));
    reloads.add(&[("result", "failed")], get(&state.failed_reloads));
    reloads.add(&[("result", "reverted")], get(&state.reverted_reloads));
    let help = "Unusable config maps of kube-dns, with `dnsweir node-cache`";
    metrics
        .counter("config_map_errors", help)
        .add(&[], get(&nodecache::CONFIG_MAP_ERRORS));
    let help = "Lines of output dropped because nothing read the stream in time";
    for (stream, lines) in output::dropped() {
        metrics
            .counter("output_lines_dropped", help)
            .add(&[("stream", stream)], lines);
    }
    metrics
        .counter("log_lines_left_out", LEFT_OUT)
        .add(&[], log::left_out());
    tcp(&state.connections, metrics);
    let generation = state.generation.read();
    if let Some(tap) = &generation.tap {
        dnstap(tap, metrics);
    }
    let identity = generation.config.listen.identity.as_ref();
    certificate(identity.and_then(|identity| identity.expires), metrics);
    drop(generation);
    let help = "Upper bound of the process's memory under its configuration, by part";
    let ceiling = metrics.gauge("memory_ceiling_bytes", help);
    for (part, octets) in &state.ceiling.read().parts {
        ceiling.add(&[("part", part)], *octets as u64);
    }
    let help = "Memory limit of the process's control group (its container); 0 if there is none";
    let limit = ceiling::memory_limit().unwrap_or_default() as u64;
    metrics.gauge("memory_limit_bytes", help).add(&[], limit);
    let resident = ceiling::resident().unwrap_or_default() as u64;
    metrics
        .gauge("memory_resident_bytes", "Resident memory of the process")
        .add(&[], resident);
    let help = "Times a worker was unresponsive for a second";
    metrics.counter("worker_hangs", help).add(&[], get(&state.hangs));
}

fn tcp(connections: &ClientConnections, metrics: &mut Metrics) {
    let mut gauge = |name, help, value: usize| metrics.gauge(name, help).add(&[], value as u64);
    gauge(
        "tcp_connections",
        "Open client connections",
        connections.connections(),
    );
    let help = "Maximum number of open client connections";
    gauge("tcp_limit_connections", help, connections.connections_maximum());
    let help = "Memory held for client connections: unanswered queries and unread replies";
    gauge("tcp_bytes", help, connections.octets());
    let help = "Maximum memory for client connections";
    gauge("tcp_limit_bytes", help, connections.octets_maximum());
    let closed = metrics.counter("tcp_closed", "Client connections closed by the proxy, by reason");
    for reason in CloseReason::ALL {
        closed.add(&[("reason", reason.as_str())], connections.closed(reason));
    }
    let handshakes = metrics.counter("tls_handshakes", "TLS handshakes with clients, by outcome");
    for outcome in Handshake::ALL {
        handshakes.add(&[("outcome", outcome.as_str())], connections.handshakes(outcome));
    }
}

/// Adds the expiry of the certificate that clients are shown.
fn certificate(expires: Option<i64>, metrics: &mut Metrics) {
    if let Some(expires) = expires {
        let help = "Expiry of the listeners' certificate, in seconds since 1970";
        metrics
            .gauge("listen_certificate_expiry_timestamp_seconds", help)
            .add_signed(&[], expires);
    }
}

/// Adds the outcomes of dnstap messages.
fn dnstap(tap: &Tap, metrics: &mut Metrics) {
    let (written, slow, unread) = tap.metrics();
    let help = "Messages sent to the reader of dnstap";
    metrics.counter("dnstap_messages", help).add(&[], written);
    let help = "Messages dropped because the reader of dnstap was too slow or not connected";
    let dropped = metrics.counter("dnstap_messages_dropped", help);
    dropped.add(&[("reason", "slow")], slow);
    dropped.add(&[("reason", "unread")], unread);
}

fn network(state: &State, metrics: &mut Metrics) {
    let node = &state.node;
    let help = "Errors while setting up or checking the node's network, by kind";
    let errors = metrics.counter("node_errors", help);
    for kind in node::Kind::ALL {
        errors.add(&[("kind", kind.label())], node.errors(kind));
    }
    let help = "Times a link, address or rule was found missing or changed and was restored";
    metrics.counter("node_repairs", help).add(&[], get(&node.repairs));
    let help = "Packets matched by the rules that direct queries to the proxy, as of the last check";
    let packets = metrics.counter("node_rule_packets", help);
    let generation = state.generation.read();
    let has_rules = generation.config.node.as_ref().is_some_and(|node| node.iptables);
    drop(generation);
    // Without rules, a count of 0 would look as if nobody asked.
    if has_rules {
        packets.add(&[], node.rule_packets());
    }
    let help = "Packets that bypassed the proxy because its heartbeat had stopped, as of the last check";
    metrics
        .counter("node_unheard_packets", help)
        .add(&[], get(&node.unheard_packets));
    let help =
        "Problems on this node that keep its network from being set up as configured; the log names them";
    metrics
        .gauge("node_obstacles", help)
        .add(&[], get(&node.obstacles));
    let help = "1 if another dnsweir has also managed this node's network for more than two minutes";
    let beside = node.beside.read().is_some();
    metrics.gauge("node_beside", help).add(&[], u64::from(beside));
    let help = "1 if this process has stopped listening because another dnsweir answers on all its addresses";
    let aside = node.aside.load(Ordering::Relaxed);
    metrics.gauge("node_aside", help).add(&[], u64::from(aside));
    let help = "Listeners whose rules apply only while their heartbeat continues";
    metrics
        .gauge("node_heartbeats", help)
        .add(&[], node.heartbeats.read().len() as u64);
    let help = "Self-tests of listeners, by result";
    let tests = metrics.counter("node_selftests", help);
    for verdict in node::Verdict::ALL {
        tests.add(&[("result", verdict.label())], node.self_test.count(verdict));
    }
    let help = "Listeners that the last self-test asked; 0 if it is off or not possible";
    metrics
        .gauge("node_selftest_listeners", help)
        .add(&[], node.self_test.listeners() as u64);
    let help = "Listeners that would not have answered a pod at the last self-test";
    metrics
        .gauge("node_selftest_failures", help)
        .add(&[], node.self_test.failures().len() as u64);
}
