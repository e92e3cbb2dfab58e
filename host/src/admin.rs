//! The admin address over HTTP: `/health`, `/ready`, `/metrics`, `/status`, and a page for a browser.
//!
//! Served by the main thread, which answers no query. It shows; nothing can be changed through it.

mod server;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use hyper::StatusCode;
use hyper::header::CONTENT_SECURITY_POLICY;
use serde::Serialize;

use crate::cache::Kind;
use crate::ceiling;
use crate::config::{self, Module};
use crate::filter::Filter;
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
            let status = serde_json::to_string_pretty(&status(state)).unwrap_or_default();
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

#[derive(Serialize)]
struct Status {
    version: &'static str,
    uptime_seconds: u64,
    generation: u64,
    ready: bool,
    not_ready: Vec<String>,
    reloads: Reloads,
    listen: Vec<String>,
    memory: MemoryStatus,
    cache: CacheStatus,
    zones: Vec<ZoneStatus>,
    filters: Vec<FilterStatus>,
    upstreams: Vec<UpstreamStatus>,
}

#[derive(Serialize)]
struct Reloads {
    ok: u64,
    failed: u64,
    reverted: u64,
    /// Why the last one failed or was gone back from, if it was.
    error: Option<String>,
}

#[derive(Serialize)]
struct MemoryStatus {
    resident_bytes: Option<usize>,
    /// The most that it comes to by the configuration, and what that is the sum of.
    ceiling_bytes: usize,
    ceiling_parts: BTreeMap<&'static str, usize>,
    /// What the kernel may hold for sockets beside that.
    kernel_bytes: usize,
}

#[derive(Serialize)]
struct CacheStatus {
    bytes: u64,
    limit_bytes: u64,
    success: u64,
    denial: u64,
    failure: u64,
}

#[derive(Serialize)]
struct ZoneStatus {
    names: Vec<String>,
    stages: Vec<String>,
}

#[derive(Serialize)]
struct FilterStatus {
    name: String,
    module: String,
    /// SHA-256 of the module.
    digest: String,
    /// Of a module from a registry: the digest of its manifest, and the key that it is signed with.
    #[serde(skip_serializing_if = "Option::is_none")]
    artifact: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    signed_by: Option<String>,
    /// Why its tag was last looked at in vain.
    #[serde(skip_serializing_if = "Option::is_none")]
    pull_error: Option<String>,
    phases: Vec<&'static str>,
    /// What it is granted of WASI.
    wasi: Vec<String>,
    traps: u64,
    suspended_workers: u64,
    /// How many test cases it has passed to get here.
    test_cases: usize,
    /// What became of its refreshes, if it has any.
    #[serde(skip_serializing_if = "Option::is_none")]
    refresh: Option<RefreshStatus>,
}

#[derive(Serialize)]
struct RefreshStatus {
    /// Names of the sources.
    sources: Vec<String>,
    published_bytes: usize,
    /// Since one succeeded.
    age_seconds: Option<u64>,
    failures: u64,
    /// Why the last one failed, if it did.
    problem: Option<String>,
}

fn refresh_status(filter: &crate::filter::Filter) -> Option<RefreshStatus> {
    let (config, refreshes) = (filter.refresh_config()?, filter.refreshes());
    Some(RefreshStatus {
        sources: config.sources.iter().map(|source| source.name.clone()).collect(),
        published_bytes: filter.published_octets(),
        age_seconds: refreshes.age().map(|age| age.as_secs()),
        failures: refreshes.failed.load(Ordering::Relaxed),
        problem: refreshes.problem(),
    })
}

#[derive(Serialize)]
struct UpstreamStatus {
    address: String,
    healthy: bool,
    looping: bool,
}

fn memory_status(state: &State) -> MemoryStatus {
    let ceiling = state.ceiling.read();
    MemoryStatus {
        resident_bytes: ceiling::resident(),
        ceiling_bytes: ceiling.total(),
        ceiling_parts: ceiling.parts.iter().copied().collect(),
        kernel_bytes: ceiling.kernel,
    }
}

fn filter_status(state: &State, filter: &Filter, config: &config::Filter, test_cases: usize) -> FilterStatus {
    let counters = filter.counters();
    let traps = &counters.traps;
    let interest = filter.interest();
    let artifact = config.artifact.as_ref();
    let phases = [
        ("query", interest.queries),
        ("response", interest.responses),
        ("event", interest.events),
    ];
    FilterStatus {
        name: filter.name().to_string(),
        module: config.module.to_string(),
        digest: filter.digest().to_string(),
        artifact: artifact.map(|artifact| artifact.digest.clone()),
        signed_by: artifact.and_then(|artifact| artifact.signer.clone()),
        pull_error: match &config.module {
            Module::Artifact(reference) => state.deliveries.error(reference),
            _ => None,
        },
        phases: phases
            .into_iter()
            .filter(|(_, wanted)| *wanted)
            .map(|(phase, _)| phase)
            .collect(),
        wasi: config.wasi.words(),
        traps: [&traps.trap, &traps.time, &traps.memory, &traps.garbage]
            .map(|count| count.load(Ordering::Relaxed))
            .iter()
            .sum(),
        suspended_workers: counters.suspended.load(Ordering::Relaxed),
        test_cases,
        refresh: refresh_status(filter),
    }
}

fn status(state: &State) -> Status {
    use crate::serve::generation::Stage;

    let reasons = not_ready(state);
    let generation = state.generation.read();
    let stats = state.shared.cache.stats();
    let stage = |stage: &Stage| match stage {
        Stage::Filter { filter, .. } => format!("use {}", generation.filters[*filter].name()),
        Stage::Cache(_) => "cache".to_string(),
        Stage::Source(index) => generation.sources[*index].status().text,
    };
    let filters = generation
        .filters
        .iter()
        .zip(&generation.config.filters)
        .zip(&generation.test_cases)
        .map(|((filter, config), &test_cases)| filter_status(state, filter, config, test_cases));
    let upstreams = generation
        .sources
        .iter()
        .flat_map(|source| source.status().upstreams);
    Status {
        version: env!("CARGO_PKG_VERSION"),
        uptime_seconds: state.started.elapsed().unwrap_or_default().as_secs(),
        generation: generation.number,
        ready: reasons.is_empty(),
        not_ready: reasons,
        reloads: Reloads {
            ok: state.reloads.load(Ordering::Relaxed),
            failed: state.failed_reloads.load(Ordering::Relaxed),
            reverted: state.reverted_reloads.load(Ordering::Relaxed),
            error: state.reload_error.lock().clone(),
        },
        listen: generation
            .config
            .listen
            .addresses
            .iter()
            .map(ToString::to_string)
            .collect(),
        memory: memory_status(state),
        cache: CacheStatus {
            bytes: stats.bytes,
            limit_bytes: stats.limit_bytes,
            success: stats.kind(Kind::Success).entries,
            denial: stats.kind(Kind::Denial).entries,
            failure: stats.kind(Kind::Failure).entries,
        },
        zones: generation
            .pipelines
            .iter()
            .map(|pipeline| ZoneStatus {
                names: pipeline.zones.iter().map(ToString::to_string).collect(),
                stages: pipeline.stages.iter().map(stage).collect(),
            })
            .collect(),
        filters: filters.collect(),
        upstreams: upstreams
            .map(|upstream| UpstreamStatus {
                address: upstream.address,
                healthy: upstream.healthy,
                looping: upstream.looping,
            })
            .collect(),
    }
}
