//! What `/metrics` shows of a list.

use std::sync::atomic::Ordering::Relaxed;

use super::state::State;
use crate::metrics::Metrics;

/// Adds what `/metrics` shows of a list.
pub(crate) fn show(state: &State, metrics: &mut Metrics) {
    let list = &*state.config.name;
    let labels = [("list", list)];
    let help = "Queries that a list decided about";
    let queries = metrics.counter("list_queries", help);
    for (result, count) in [
        ("blocked", &state.counters.blocked),
        ("passed", &state.counters.passed),
    ] {
        queries.add(&[("list", list), ("result", result)], count.load(Relaxed));
    }
    let help = "Attempts to read a list";
    let reads = metrics.counter("list_reads", help);
    let attempts = &state.attempts;
    for (result, count) in [
        ("new", &attempts.new),
        ("unchanged", &attempts.unchanged),
        ("failed", &attempts.failed),
    ] {
        reads.add(&[("list", list), ("result", result)], count.load(Relaxed));
    }
    let known = state.known.load();
    let numbers = known.as_ref().map_or([0; 3], |known| {
        [
            known.rules.names() as u64,
            known.rules.octets() as u64,
            known.skipped,
        ]
    });
    let what = [
        ("list_names", "Names of a list"),
        ("list_memory_bytes", "Memory that the names of a list take, about"),
        ("list_skipped_lines", "Lines of a list that cannot be used"),
    ];
    for ((name, help), number) in what.into_iter().zip(numbers) {
        metrics.gauge(name, help).shared(&labels, number);
    }
    if let Some(age) = attempts.age() {
        let help = "Time since a list was read, or found unchanged";
        metrics
            .gauge("list_age_seconds", help)
            .least(&labels, age.as_secs());
    }
}
