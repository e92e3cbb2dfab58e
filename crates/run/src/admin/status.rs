//! The JSON of `/status`.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::atomic::Ordering;

use serde::Serialize;

use crate::cache::Kind;
use crate::ceiling;
use crate::config::{self, Module};
use crate::dns::edns::extended_error_text;
use crate::dns::name::Text;
use crate::dns::rcode_text;
use crate::dns::text::type_text;
use crate::filter::{Filter, Outcomes};
use crate::serve::Shared;
use crate::serve::generation::{Generation, Stage};
use crate::serve::observed::Troubled;
use crate::state::State;

use super::problems::{Problem, problems};
use super::readiness::not_ready;

/// The whole status.
#[derive(Serialize)]
pub(super) struct Status {
    version: &'static str,
    uptime_seconds: u64,
    generation: u64,
    ready: bool,
    /// Current problems, most serious first: from failures elsewhere in this object, and from counters.
    problems: Vec<Problem>,
    not_ready: Vec<String>,
    reloads: Reloads,
    listen: Vec<String>,
    /// What of the configuration cannot be used, or not yet, and other processes with the same role.
    notes: Vec<String>,
    memory: MemoryStatus,
    cache: CacheStatus,
    zones: Vec<ZoneStatus>,
    filters: Vec<FilterStatus>,
    upstreams: Vec<UpstreamStatus>,
    /// Pods that may ask, if configured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pods: Option<String>,
    /// Absent if so configured, or if the address is not the host's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    queries: Option<QueriesStatus>,
}

#[derive(Serialize)]
struct Reloads {
    ok: u64,
    failed: u64,
    reverted: u64,
    /// Why the last one failed, if it did.
    error: Option<String>,
}

#[derive(Serialize)]
struct MemoryStatus {
    resident_bytes: Option<usize>,
    /// The most memory that the configuration allows, and its parts.
    ceiling_bytes: usize,
    ceiling_parts: BTreeMap<&'static str, usize>,
    /// Kernel memory of sockets, which is not included.
    kernel_bytes: usize,
    /// The memory limit of the process, if there is one.
    limit_bytes: Option<usize>,
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
    /// For a module from a registry: the digest of its manifest, and the key that signed it.
    #[serde(skip_serializing_if = "Option::is_none")]
    artifact: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    signed_by: Option<String>,
    /// Why it is not the one in the file, if it is not.
    #[serde(skip_serializing_if = "Option::is_none")]
    reverted: Option<String>,
    /// Why the last check of its tag failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pull_error: Option<String>,
    phases: Vec<&'static str>,
    /// What WASI access it is granted.
    wasi: Vec<String>,
    traps: u64,
    suspended_workers: u64,
    /// How many test cases it passed when it was loaded.
    test_cases: usize,
    /// The outcomes of its refreshes, if it has any.
    #[serde(skip_serializing_if = "Option::is_none")]
    refresh: Option<RefreshStatus>,
}

#[derive(Serialize)]
struct RefreshStatus {
    /// Names of the sources.
    sources: Vec<String>,
    published_bytes: usize,
    /// Time since the last success.
    age_seconds: Option<u64>,
    failures: u64,
    /// Why the last one failed, if it did.
    problem: Option<String>,
}

fn refresh_status(filter: &Filter) -> Option<RefreshStatus> {
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
    /// Its name in metrics.
    to: String,
    healthy: bool,
    looping: bool,
    /// Queries that timed out.
    unanswered: u64,
}

/// The most names and clients that are shown.
const SHOWN: usize = 20;

/// What clients ask, and what went wrong.
#[derive(Serialize)]
struct QueriesStatus {
    names: Vec<NameStatus>,
    clients: Vec<ClientStatus>,
    failed: Vec<TroubleStatus>,
    slow: Vec<TroubleStatus>,
}

#[derive(Serialize)]
struct NameStatus {
    name: String,
    per_second: f64,
}

#[derive(Serialize)]
struct ClientStatus {
    address: IpAddr,
    /// The pod behind the address now, if configured.
    #[serde(skip_serializing_if = "Option::is_none")]
    identity: Option<String>,
    per_second: f64,
}

#[derive(Serialize)]
struct TroubleStatus {
    /// Unix time in milliseconds.
    time: u64,
    client: IpAddr,
    name: String,
    #[serde(rename = "type")]
    qtype: String,
    rcode: String,
    milliseconds: f64,
    source: &'static str,
    /// Why (RFC 8914), if known.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

impl From<Troubled> for TroubleStatus {
    fn from(troubled: Troubled) -> TroubleStatus {
        TroubleStatus {
            time: troubled.at.as_millis(),
            client: troubled.client,
            name: Text(&troubled.name).to_string(),
            qtype: type_text(troubled.qtype),
            rcode: rcode_text(troubled.rcode),
            milliseconds: troubled.took as f64 / 1e3,
            source: troubled.origin.as_str(),
            error: troubled.error.map(extended_error_text),
        }
    }
}

fn queries_status(shared: &Shared, generation: &Generation) -> QueriesStatus {
    let (pods, own) = (&generation.pods, &generation.config.listen.addresses);
    let seen = shared.observed.read(SHOWN, shared.now());
    let named = seen.names.into_iter().map(|(name, per_second)| NameStatus {
        name: Text(&name).to_string(),
        per_second,
    });
    let clients = seen.clients.into_iter();
    QueriesStatus {
        names: named.collect(),
        clients: clients
            .map(|(address, per_second)| ClientStatus {
                address,
                identity: pods.as_ref().map(|pods| pods.identify(address, own).to_string()),
                per_second,
            })
            .collect(),
        failed: seen.failed.into_iter().map(TroubleStatus::from).collect(),
        slow: seen.slow.into_iter().map(TroubleStatus::from).collect(),
    }
}

fn memory_status(state: &State) -> MemoryStatus {
    let ceiling = state.ceiling.read();
    MemoryStatus {
        resident_bytes: ceiling::resident(),
        ceiling_bytes: ceiling.total(),
        ceiling_parts: ceiling.parts.iter().copied().collect(),
        kernel_bytes: ceiling.kernel,
        limit_bytes: ceiling::memory_limit(),
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
        ("event", interest.events != Outcomes::NONE),
    ];
    FilterStatus {
        name: filter.name().to_string(),
        module: config.module.to_string(),
        digest: filter.digest().to_string(),
        artifact: artifact.map(|artifact| artifact.digest.clone()),
        signed_by: artifact.and_then(|artifact| Some(artifact.signer.as_ref()?.name.clone())),
        reverted: config.reverted.clone(),
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

fn zone_statuses(generation: &Generation) -> Vec<ZoneStatus> {
    let stage = |stage: &Stage| match stage {
        Stage::Filter(used) => format!("use {}", generation.filters[used.filter].filter.name()),
        Stage::Cache(_) => "cache".to_string(),
        Stage::Source(index) => generation.sources[*index].upkeep().status().text,
    };
    let zones = generation.pipelines.iter().map(|pipeline| ZoneStatus {
        names: pipeline.zones.iter().map(ToString::to_string).collect(),
        stages: pipeline.stages.iter().map(stage).collect(),
    });
    zones.collect()
}

/// Collects the status, with or without clients' queries.
pub(super) fn status(state: &State, queries: bool) -> Status {
    let (reasons, problems) = (not_ready(state), problems(state));
    let generation = state.generation.read();
    let stats = state.shared.cache.stats();
    let filters = generation
        .filters
        .iter()
        .zip(&generation.config.filters)
        .map(|(loaded, config)| filter_status(state, &loaded.filter, config, loaded.test_cases));
    let upstreams = generation
        .sources
        .iter()
        .flat_map(|source| source.upkeep().status().upstreams);
    Status {
        version: env!("CARGO_PKG_VERSION"),
        uptime_seconds: state.started.elapsed().unwrap_or_default().as_secs(),
        generation: generation.number,
        ready: reasons.is_empty(),
        problems,
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
        notes: state.notes(),
        memory: memory_status(state),
        cache: CacheStatus {
            bytes: stats.bytes,
            limit_bytes: stats.limit_bytes,
            success: stats.kind(Kind::Success).entries,
            denial: stats.kind(Kind::Denial).entries,
            failure: stats.kind(Kind::Failure).entries,
        },
        zones: zone_statuses(&generation),
        filters: filters.collect(),
        upstreams: upstreams
            .map(|upstream| UpstreamStatus {
                address: upstream.address,
                to: upstream.to,
                healthy: upstream.healthy,
                looping: upstream.looping,
                unanswered: upstream.unanswered,
            })
            .collect(),
        pods: generation.pods.as_ref().map(|pods| pods.status()),
        queries: queries.then(|| queries_status(&state.shared, &generation)),
    }
}
