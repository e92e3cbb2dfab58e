//! `kubernetes` as a source of answers.

use std::net::SocketAddr;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::spawn_local;
use tokio::time::sleep;

use super::answer::Teller;
use super::rules::Rules;
use super::stage::Kubernetes;
use super::state::State;
use super::transfer::Snapshot;
use crate::background::Loading;
use crate::metrics::Metrics;
use crate::transfer::{Contents, Outgoing, notify, say_signed};
use dnsweir_answer::{Awaited, Question, Resolution, Status, Upkeep};

/// The shortest time between two NOTIFY messages to a secondary.
const BETWEEN: Duration = Duration::from_secs(5);

/// Notifies a secondary of changes, several at a time, while the source exists.
async fn tell_of_changes(
    outgoing: Weak<Outgoing>,
    state: Weak<State>,
    rules: Arc<Rules>,
    mut changes: watch::Receiver<u32>,
    secondary: SocketAddr,
) {
    while changes.wait_for(|serial| *serial != 0).await.is_ok() {
        let Some((outgoing, state)) = outgoing.upgrade().zip(state.upgrade()) else {
            return;
        };
        let zone = rules.domain.clone();
        let snapshot = Snapshot {
            index: state.index.load_full(),
            hosts: state.hosts.load_full(),
            rules: Arc::clone(&rules),
            zone,
        };
        notify(&outgoing, &snapshot.soa(), secondary).await;
        drop((outgoing, state));
        sleep(BETWEEN).await;
        if changes.changed().await.is_err() {
            return;
        }
    }
}

impl Kubernetes {
    /// Answers a question.
    #[inline]
    pub fn immediate(&self, question: &Question<'_>) -> Resolution {
        say_signed(self.outgoing.as_ref(), question, || self.say(question))
    }

    #[inline]
    fn say(&self, question: &Question<'_>) -> Resolution {
        let state = &self.cluster.state;
        let (index, hosts) = (state.index.load(), state.hosts.load());
        let teller = Teller {
            index: &index,
            rules: &self.rules,
            hosts: &hosts,
        };
        teller.answer(question)
    }

    /// Starts notifying secondaries. Only the first call has an effect; it must come from a `LocalRuntime`.
    fn begin_to_notify(&self) {
        let Some(outgoing) = self.outgoing.as_ref().filter(|outgoing| outgoing.begins()) else {
            return;
        };
        for &secondary in &outgoing.config().notify {
            let changes = self.cluster.state.serial.subscribe();
            let (outgoing, rules) = (Arc::downgrade(outgoing), Arc::clone(&self.rules));
            let state = Arc::downgrade(&self.cluster.state);
            spawn_local(tell_of_changes(outgoing, state, rules, changes, secondary));
        }
    }
}

impl Upkeep for Kubernetes {
    fn word(&self) -> &'static str {
        "kubernetes"
    }

    fn status(&self) -> Status {
        let state = &self.cluster.state;
        let counts = state.kinds.iter().map(|&kind| {
            let count = state.of(kind).objects.load(Relaxed);
            format!("{count} {}", kind.as_str())
        });
        let counts: Vec<String> = counts.collect();
        let heard = state.heard();
        let problem = state
            .problem()
            .map_or_else(String::new, |problem| format!("; {problem}"));
        Status {
            text: format!("{}: {}; {heard}{problem}", self.text, counts.join(", ")),
            upstreams: Vec::new(),
        }
    }

    fn show(&self, metrics: &mut Metrics) {
        let state = &self.cluster.state;
        let domain = self.rules.domain.to_string();
        let cluster = ("cluster", &*domain);
        for &kind in &state.kinds {
            let (of, labels) = (state.of(kind), [cluster, ("kind", kind.as_str())]);
            let objects = metrics.gauge("kubernetes_objects", "Known objects of the cluster");
            objects.shared(&labels, of.objects.load(Relaxed) as u64);
            let lists = metrics.counter("kubernetes_lists", "Lists of all objects of a kind");
            lists.shared(&labels, of.lists.load(Relaxed));
            let events = metrics.counter("kubernetes_events", "Changes and bookmarks received");
            events.shared(&labels, of.events.load(Relaxed));
            let help = "Lists and watches that failed";
            metrics
                .counter("kubernetes_failures", help)
                .shared(&labels, of.failures.load(Relaxed));
            let help = "Objects ignored because they are malformed or there is no memory, and objects cut at a limit";
            metrics
                .counter("kubernetes_refused_objects", help)
                .shared(&labels, of.refused.load(Relaxed));
        }
        let help = "Approximate memory used by the known objects";
        let octets = state.octets.load(Relaxed) as u64;
        metrics
            .gauge("kubernetes_memory_bytes", help)
            .shared(&[cluster], octets);
        if let Some(silence) = state.silence() {
            let help = "Seconds since the last message from the API server, for the stalest kind of objects";
            metrics
                .gauge("kubernetes_silence_seconds", help)
                .shared(&[cluster], silence.as_secs());
        }
        let serial = state.index.load().serial;
        let help = "Serial of the SOA record";
        metrics
            .gauge("kubernetes_serial", help)
            .shared(&[cluster], serial.into());
        if let Some(outgoing) = &self.outgoing {
            outgoing.show(&domain, metrics);
        }
    }

    /// Starts following the cluster.
    fn load(&self) {
        if self.loading.begins() {
            self.cluster.begin();
        }
    }

    fn begin(&self) {
        self.load();
        self.begin_to_notify();
    }

    fn loading(&self) -> Option<&Loading> {
        Some(&self.loading)
    }

    /// Waits until everything has been listed once.
    fn ready(&self) -> Awaited<'_> {
        Box::pin(self.cluster.state.arrival.wait())
    }

    fn missing(&self) -> Option<String> {
        let state = &self.cluster.state;
        let why = state
            .problem()
            .unwrap_or_else(|| "the first list is in progress".into());
        (!state.arrival.has_come()).then(|| format!("nothing is known of the cluster yet: {why}"))
    }
}
