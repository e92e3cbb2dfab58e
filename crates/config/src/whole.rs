//! The root of a configuration.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use super::address::interface_index;
use super::admin::{self, Admin};
use super::clients::{self, Clients};
use super::data::Data;
use super::decode::whole;
use super::dnstap::{self, Dnstap};
use super::error::{Diagnostic, Report, Source};
use super::filter::{self, Filter};
use super::include;
use super::listen::{self, Listen};
use super::node::{self, Node};
use super::pods::{self, NodePods};
use super::registries::{self, Registries};
use super::signatures::{self, Signatures};
use super::source::{self, NamedSource, SourceConfig};
use super::tsig;
use super::units::{duration, s, size};
use super::words::words;
use super::zone::{self, Stage, Zone};

words! {
    /// A complete, valid configuration.
    #[derive(Debug, Clone)]
    pub struct Config in FILE(0..=0): "";

    /// Addresses to listen on.
    table "listen" listen: Listen = ("required") in listen::LISTEN, "addresses";
    /// What happens to queries for some names.
    hands "zone" zones: Vec<Zone> = ("required") in zone::ZONE, "names";
    /// A WebAssembly filter that zones can use.
    hands "filter" filters: Vec<Filter> = none in filter::FILTER, "a name";
    /// Upstreams that filters may send queries to.
    hands "source" sources: Vec<NamedSource> = none in source::SOURCE, "a name";
    /// A folder with the modules of filters that have no `module`.
    file "filters" filters_folder: Option<PathBuf> = ("none": "/etc/dnsweir/filters"), "a path";
    /// Which clients may ask, and how much, unless a listener has its own `clients`.
    hand "clients" clients: Option<Clients> = ("private networks and the node's own") in clients::CLIENTS;
    /// Addresses for metrics and health checks.
    table "admin" admin: Admin = ("none") in admin::ADMIN, "addresses";
    /// A unix socket for `dnsweir cache`, `log-level` and `health`.
    file "control" control: Option<PathBuf> = ("none": "/run/dnsweir/control"), "a path";
    /// Where DNS messages are logged.
    table "dnstap" dnstap: Option<Dnstap> = none in dnstap::DNSTAP, "a place";
    /// How long `/ready` may fail after a start until an upstream of each zone has answered.
    one "await-upstreams" await_upstreams: Duration = "10s" in duration(s(0)..=s(600));
    /// Number of threads that answer queries.
    one "workers" workers: usize = ("as many as processors, at most 4": 2, else default_workers()) in whole(1..=256);
    /// Size of the cache that all zones share; smaller if the [memory limit](limits.md#memory) requires it.
    one "cache-memory" cache_memory: usize = "32MiB" in size(1 << 20..=64 << 30);
    // Enough for all processes of a node's pods to wait for a slow name.
    /// How many client queries may wait for upstreams at a time, over all zones and workers.
    one "waiting-queries" waiting_queries: usize = 8192 in whole(16..=1_000_000);
    /// Answer private reverse zones locally (RFC 6303).
    switch "local-zones" local_zones: bool = off;
    /// How modules are pulled.
    table "registries" registries: Registries = ("none") in registries::REGISTRIES;
    /// Which signatures modules need.
    table "signatures" signatures: Signatures = ("none") in signatures::SIGNATURES;
    /// Identifies the pod that sends a query.
    table "pods" pods: Option<NodePods> = none in pods::PODS;
    /// The node's network.
    table "node" node: Option<Node> = none in node::NODE;
    by hand {
        /// A secret shared with other servers of a zone.
        hands "tsig" = none in tsig::TSIG, "a name";
        /// Inserts other files here; also allowed in any block except `config`.
        hands "include" = none in include::INCLUDE, "files or folders";
    }
    besides {
        /// Whether `cache-memory` is set. If not, it shrinks to fit a memory limit.
        cache_memory_written: bool;
        /// Every file whose change is a change of the configuration: the configuration itself, modules, files
        /// used as values for filters, resolv.conf.
        files: Vec<PathBuf>;
        /// The name servers of a resolv.conf that cannot be used, or not yet, with the reason as text.
        unusable: Vec<String>;
        /// The interfaces that addresses name, each with its index at load time.
        interfaces: BTreeMap<String, Option<u32>>;
        /// The text, for errors found later.
        source: Source;
    }
}

/// Upper limit of the default of `workers`: a cache must not take over the node from its workloads.
const MOST_WORKERS: usize = 4;

fn default_workers() -> usize {
    thread::available_parallelism()
        .map_or(1, usize::from)
        .min(MOST_WORKERS)
}

impl Config {
    /// All sources: those in zones and the named ones.
    pub fn sources(&self) -> impl Iterator<Item = &SourceConfig> {
        let stages = self.zones.iter().flat_map(|zone| &zone.stages);
        let of_zones = stages.filter_map(|stage| match stage {
            Stage::Source(source) => Some(source),
            Stage::Filter(_) | Stage::Cache(_) => None,
        });
        of_zones.chain(self.sources.iter().map(|named| &named.source))
    }

    /// The current indexes of its interfaces. If they changed, so did the addresses.
    pub fn interfaces_now(&self) -> BTreeMap<String, Option<u32>> {
        let names = self.interfaces.keys();
        names.map(|name| (name.clone(), interface_index(name))).collect()
    }

    /// The data of all filters, without duplicates.
    pub fn data(&self) -> Vec<&Arc<Data>> {
        let mut all: Vec<&Arc<Data>> = Vec::new();
        for data in self.filters.iter().flat_map(Filter::data) {
            if !all.contains(&data) {
                all.push(data);
            }
        }
        all
    }

    /// A configuration that serves nothing, in place before the first one is brought up.
    pub fn nothing(workers: usize) -> Config {
        Config {
            workers,
            await_upstreams: Duration::ZERO,
            cache_memory: 0,
            waiting_queries: 0,
            listen: Listen {
                tcp_connections_per_client: 0,
                tcp_memory: 0,
                ..Listen::default()
            },
            ..Config::default()
        }
    }

    /// Reports mistakes that are only found outside this crate, such as a filter that rejects its `config`
    /// block or an address that cannot be bound. [`Filter::config_place`] gives the spans for the former.
    pub fn report(&self, diagnostics: Vec<Diagnostic>) -> Report {
        Report::new(self.source.clone(), diagnostics)
    }
}
