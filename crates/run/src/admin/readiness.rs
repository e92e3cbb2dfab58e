//! Decides whether the proxy is ready.

use std::sync::atomic::Ordering;

use crate::state::State;

/// Returns notes about a proxy that is ready, one per line: that it does not run what the file says.
pub(super) fn notes(state: &State) -> String {
    let error = state.reload_error.lock();
    let first = error.as_deref().and_then(|error| error.lines().next());
    let mut notes = first.map_or_else(String::new, |line| {
        format!("the last reload did not take effect: {line}\n")
    });
    let generation = state.generation.read();
    for why in generation
        .config
        .filters
        .iter()
        .filter_map(|filter| filter.reverted.as_ref())
    {
        notes.push_str(why);
        notes.push('\n');
    }
    notes
}

/// Returns why the proxy is not ready, or nothing. A filter that is suspended later does not count, unless
/// configured: `on-error` handles its queries, and no other node would do better. Nor do upstreams that fail
/// later; but a forwarding loop does, since another process on this node may be asking better upstreams.
pub(super) fn not_ready(state: &State) -> Vec<String> {
    let mut reasons = own_reasons(state);
    // A client cannot choose which process answers: a successor must not look ready because its predecessor
    // is.
    let predecessors = state.predecessors.read();
    if predecessors.iter().any(|them| them.have_been_followed()) {
        reasons.push("another process is taking over".to_string());
    }
    if state.node.aside.load(Ordering::Relaxed) {
        reasons.push("another process answers in place of this one".to_string());
    }
    reasons
}

/// Returns why this process is not ready, regardless of others beside it.
pub(crate) fn own_reasons(state: &State) -> Vec<String> {
    let mut reasons = Vec::new();
    if !state.serving.load(Ordering::Relaxed) {
        reasons.push("listeners are not open yet".to_string());
    }
    if state.node.failing() {
        reasons.push("the node's network could not be set up: the log has the reason".to_string());
    }
    let failures = state.node.self_test.failures();
    reasons.extend(failures.iter().map(ToString::to_string));
    let awaiting = state.awaiting.load(Ordering::Relaxed);
    let generation = state.generation.read();
    reasons.extend(
        generation
            .sources
            .iter()
            .filter_map(|source| source.not_ready(awaiting)),
    );
    reasons.extend(generation.pods.iter().filter_map(|pods| pods.not_ready()));
    let filters = generation.filters.iter().map(|loaded| &loaded.filter);
    let suspended = filters
        .zip(&generation.config.filters)
        .filter(|(filter, config)| config.unready && filter.counters().suspended.load(Ordering::Relaxed) > 0);
    reasons.extend(suspended.map(|(filter, _)| format!("the filter {:?} is suspended", filter.name())));
    reasons
}
