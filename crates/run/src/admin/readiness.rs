//! Whether the proxy is to be asked.

use std::sync::atomic::Ordering;

use crate::state::State;

/// What an operator may want to know of a proxy that is ready, a line each: that it does not run what the file says.
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

/// What keeps the proxy from being asked; nothing: it is ready. A filter that is suspended later does not, unless the
/// configuration says so: its `on-error` says what its queries get, and no other node would do better. Nor do upstreams that fall silent
/// later; but those that lead back to us do, since another process on this node may be asking better ones.
pub(super) fn not_ready(state: &State) -> Vec<String> {
    let mut reasons = own_reasons(state);
    // Whoever asks cannot choose whom: a successor shall not count as ready because its predecessor is.
    let predecessors = state.predecessors.read();
    if predecessors.iter().any(|them| them.have_been_followed()) {
        reasons.push("another process is taking over".to_string());
    }
    if state.node.aside.load(Ordering::Relaxed) {
        reasons.push("another process answers in place of this one".to_string());
    }
    reasons
}

/// What keeps this process from being asked, whatever others beside it do.
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
