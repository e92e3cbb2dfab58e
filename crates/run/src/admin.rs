//! The admin address over HTTP: `/health`, `/ready`, `/metrics`, `/status`, and a page for a browser.
//!
//! Served by the main thread, which answers no query. It is read-only. Health and metrics are open to
//! everyone who can connect. What clients ask is private: it is shown on loopback addresses only, unless
//! configured otherwise.

mod addressed;
mod compressed;
mod connected;
mod problems;
mod readiness;
mod server;
mod status;

use std::net::SocketAddr;
use std::sync::Arc;

pub use hyper::StatusCode;
use hyper::header::{CONTENT_SECURITY_POLICY, HeaderMap, HeaderValue, VARY};

use crate::exposition::{self, Format};
use crate::metrics::Metrics;
use crate::plain_text::escape_json;
use crate::state::State;
pub use connected::{Connected, Guest};
pub(crate) use problems::follow as follow_problems;
pub(crate) use readiness::own_reasons;
use readiness::{not_ready, notes};
pub use server::{CONNECTIONS, Listener, Reply, Server, text, typed};

/// The page for a browser: one file, without a build step.
const PAGE: &str = include_str!("admin/page.html");

/// Answers a request for a path that came in `at` this address.
pub fn reply(at: SocketAddr, path: &str, headers: &HeaderMap, state: &Arc<State>) -> Reply {
    match path {
        "/health" => match state.ailment() {
            Some(why) => text(StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n")),
            None => text(StatusCode::OK, "ok\n".into()),
        },
        "/ready" => match not_ready(state) {
            reasons if reasons.is_empty() => text(StatusCode::OK, format!("ready\n{}", notes(state))),
            reasons => text(StatusCode::SERVICE_UNAVAILABLE, reasons.join("\n") + "\n"),
        },
        "/metrics" => metrics(headers, &exposition::all(state)),
        "/" | "/status" => {
            let admin = state.generation.read().config.admin.clone();
            if !admin.status {
                let none =
                    "this address has only /health, /ready and /metrics, because `admin` has status=#false\n";
                return text(StatusCode::NOT_FOUND, none.into());
            }
            match (addressed::refusal(headers, admin.host.as_deref()), path) {
                (Some(refusal), _) => refusal,
                (None, "/") => page(),
                (None, _) => status(state, admin.queries.unwrap_or(at.ip().is_loopback())),
            }
        }
        _ => text(
            StatusCode::NOT_FOUND,
            "not found; this address has /, /health, /ready, /metrics and /status\n".into(),
        ),
    }
}

/// Returns metrics in the format that a request accepts, each set with its name prefix.
pub fn metrics(headers: &HeaderMap, all: &[(&str, Metrics)]) -> Reply {
    let format = Format::wanted(headers);
    let mut page = typed(StatusCode::OK, format.content_type(), format.write(all));
    page.headers_mut()
        .insert(VARY, HeaderValue::from_static("Accept"));
    page
}

/// Returns the status, with or without clients' queries.
fn status(state: &State, queries: bool) -> Reply {
    let status = serde_json::to_string_pretty(&status::status(state, queries)).unwrap_or_default();
    // Names of objects and messages of servers are untrusted. Writing to a String does not fail.
    let mut plain = String::with_capacity(status.len());
    let _ = escape_json(&mut plain, &status);
    typed(StatusCode::OK, "application/json", plain + "\n")
}

/// Returns the page for a browser. It requests /status and /metrics of this address, and nothing else.
fn page() -> Reply {
    let mut page = typed(StatusCode::OK, "text/html; charset=utf-8", PAGE.into());
    let policy = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'; \
                  img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
    page.headers_mut()
        .insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(policy));
    page
}
