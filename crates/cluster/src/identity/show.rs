//! What `/ready`, `/status` and `/metrics` show of identities.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use super::watch::NodePods;
use crate::config::spell_duration;
use crate::metrics::Metrics;

impl NodePods {
    /// Why queries should not come here yet.
    pub fn not_ready(&self) -> Option<String> {
        if self.state.arrival.has_come() || !self.loading.is_awaited() {
            return None;
        }
        let why = self.problem();
        let why = why.unwrap_or_else(|| "the first list is in progress".into());
        Some(format!("this node's pods are not known yet: {why}"))
    }

    /// Why the API server cannot be followed, if so.
    fn problem(&self) -> Option<String> {
        let state = &self.state;
        state.pods.problem().or_else(|| state.namespaces.problem())
    }

    /// Its part of `/status`.
    pub fn status(&self) -> String {
        let state = &self.state;
        let (pods, namespaces) = (
            state.pods.objects.load(Relaxed),
            state.namespaces.objects.load(Relaxed),
        );
        let heard = match state.pods.heard_at() {
            Some(heard) => format!(
                "last message {} ago",
                spell_duration(Duration::from_secs(heard.elapsed().as_secs()))
            ),
            None => "no message yet".into(),
        };
        let problem = self
            .problem()
            .map_or_else(String::new, |problem| format!("; {problem}"));
        let node = &self.config.node;
        format!("node {node}: {pods} pods in {namespaces} namespaces; {heard}{problem}")
    }

    /// Adds its part of `/metrics`.
    pub fn show(&self, metrics: &mut Metrics) {
        let state = &self.state;
        let help = "Queries by client: a pod in this namespace, the host, or unknown";
        let queries = metrics.counter("pod_queries", help);
        for (identity, namespace, count) in state.counters.read() {
            queries.add(&[("identity", identity), ("namespace", &namespace)], count);
        }
        for (kind, of) in [("pods", &state.pods), ("namespaces", &state.namespaces)] {
            let labels = [("kind", kind)];
            let objects = metrics.gauge("pod_objects", "Known pods of the node, and their namespaces");
            objects.add(&labels, of.objects.load(Relaxed) as u64);
            let lists = metrics.counter("pod_lists", "Lists of the node's pods, or of a namespace");
            lists.add(&labels, of.lists.load(Relaxed));
            let events = metrics.counter("pod_events", "Changes and bookmarks received");
            events.add(&labels, of.events.load(Relaxed));
            let failures = metrics.counter("pod_failures", "Lists and watches that failed");
            failures.add(&labels, of.failures.load(Relaxed));
            let help = "Objects without annotations or labels because there is no memory for them, and objects beyond the limits";
            metrics
                .counter("pod_refused_objects", help)
                .add(&labels, of.refused.load(Relaxed));
        }
        let help = "Approximate memory used by the node's pods and their namespaces";
        metrics
            .gauge("pod_memory_bytes", help)
            .add(&[], state.octets.load(Relaxed) as u64);
        if let Some(heard) = state.pods.heard_at() {
            let help = "Seconds since the last message from the API server about the node's pods";
            metrics
                .gauge("pod_silence_seconds", help)
                .add(&[], heard.elapsed().as_secs());
        }
    }
}
