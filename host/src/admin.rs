//! The admin address over HTTP: `/health`, `/ready`, `/metrics`, `/status`, and a page for a browser.
//!
//! Served by the main thread, which answers no query. It shows; nothing can be changed through it.

mod server;
mod status;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use hyper::StatusCode;
use hyper::header::CONTENT_SECURITY_POLICY;

use crate::metrics;
use crate::state::State;
pub use server::{CONNECTIONS, Listener, Reply, Server, text, typed};

/// What a browser shows: one file, without anything to build.
const PAGE: &str = include_str!("admin/page.html");

/// What the proxy shows of itself at a path.
pub fn reply(path: &str, state: &Arc<State>) -> Reply {
    match path {
        // Whoever restarts what is not healthy is meant to: a worker that hangs does not come back often.
        "/health" if state.hanging.load(Ordering::Relaxed) > 0 => text(
            StatusCode::SERVICE_UNAVAILABLE,
            "a worker is unresponsive\n".into(),
        ),
        "/health" => text(StatusCode::OK, "ok\n".into()),
        "/ready" => match not_ready(state) {
            reasons if reasons.is_empty() => text(StatusCode::OK, format!("ready\n{}", notes(state))),
            reasons => text(StatusCode::SERVICE_UNAVAILABLE, reasons.join("\n") + "\n"),
        },
        "/" => page(),
        "/metrics" => typed(StatusCode::OK, metrics::CONTENT_TYPE, metrics::render(state)),
        "/status" => {
            let status = serde_json::to_string_pretty(&status::status(state)).unwrap_or_default();
            typed(StatusCode::OK, "application/json", status + "\n")
        }
        _ => text(
            StatusCode::NOT_FOUND,
            "there are /, /health, /ready, /metrics and /status\n".into(),
        ),
    }
}

/// The page for a browser. It asks this address for /status and /metrics, and nobody for anything else.
fn page() -> Reply {
    let mut page = typed(StatusCode::OK, "text/html; charset=utf-8", PAGE.into());
    let policy = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'; \
                  img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
    page.headers_mut().insert(
        CONTENT_SECURITY_POLICY,
        hyper::header::HeaderValue::from_static(policy),
    );
    page
}

/// What an operator may want to know of a proxy that is ready, a line each: that it does not run what the file says.
fn notes(state: &State) -> String {
    let error = state.reload_error.lock();
    let first = error.as_deref().and_then(|error| error.lines().next());
    first.map_or_else(String::new, |line| {
        format!("the last reload did not take effect: {line}\n")
    })
}

/// What keeps the proxy from being asked; nothing: it is ready. A filter that is suspended later does not, unless the
/// configuration says so: its `on-error` says what its queries get, and no other node would do better. Nor do upstreams that fall silent
/// later; but those that lead back to us do, since another process on this node may be asking better ones.
fn not_ready(state: &State) -> Vec<String> {
    let mut reasons = Vec::new();
    if !state.serving.load(Ordering::Relaxed) {
        reasons.push("listeners are not open yet".to_string());
    }
    // Whoever asks cannot choose whom: a successor shall not count as ready because its predecessor is.
    let predecessors = state.predecessors.read();
    if predecessors.iter().any(|them| them.have_been_followed()) {
        reasons.push("another process is taking over".to_string());
    }
    if state.node.failing() {
        reasons.push("the node's network could not be set up: the log says why".to_string());
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
    let filters = generation.filters.iter().zip(&generation.config.filters);
    let suspended = filters
        .filter(|(filter, config)| config.unready && filter.counters().suspended.load(Ordering::Relaxed) > 0);
    reasons.extend(suspended.map(|(filter, _)| format!("the filter {:?} is suspended", filter.name())));
    reasons
}
