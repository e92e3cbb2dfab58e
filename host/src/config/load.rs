//! From a file to a [`Config`]: every section decoded, in an order that lets each be checked
//! against those it depends on, whatever the order on the page.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use kdl::{KdlEntry, KdlNode};

use super::decode::{Mistakes, arguments, block, child, document, named_nodes, text, whole};
use super::error::{Diagnostic, Report, Source, Span};
use super::files::{Files, read_source};
use super::filter::Filters;
use super::module::{Builtins, Module};
use super::signatures::Signatures;
use super::units::{duration, s, size};
use super::{
    Config, ConfigNode, Encryption, Listen, Zone, address, admin, clients, config_block, dnstap, encrypted,
    forward, include, listen, node, pods, registries, service_entries, signatures, source, tsig, zone,
};

/// What may stand in a file.
pub(super) const SECTIONS: [&str; 19] = [
    "listen",
    "clients",
    "admin",
    "control",
    "dnstap",
    "await-upstreams",
    "workers",
    "cache-memory",
    "waiting-queries",
    "registries",
    "signatures",
    "tsig",
    "filters",
    "filter",
    "zone",
    "source",
    "local-zones",
    "node",
    "pods",
];

/// Those of which there may be more than one.
pub(super) const REPEATED: [&str; 4] = ["tsig", "filter", "zone", "source"];

/// Default of `workers`, at most: a cache beside the workloads of a node is not to take it over.
const MOST_WORKERS: usize = 4;

/// Default of `cache-memory`, in bytes.
const CACHE_MEMORY: usize = 32 * 1024 * 1024;

/// Default of `waiting-queries`: a node's pods may wait for a name that is slow, together with all their processes.
pub const WAITING_QUERIES: usize = 8192;

/// Reads the configuration at `path` and everything it names. `builtins` are the filters that
/// `module "builtin:NAME"` may name.
///
/// # Errors
/// Every mistake in it, or that it cannot be read.
pub fn load(path: &Path, builtins: Builtins<'_>) -> Result<Config, Report> {
    let source = read_source(path)?;
    let mut config = decode_source(&source, folder(path), builtins)?;
    config.files.insert(0, path.to_owned());
    Ok(config)
}

/// Like [`load`], for a text that is shown as `name` and whose relative paths begin at `folder`.
///
/// # Errors
/// Every mistake in it.
pub fn parse(name: &str, text: &str, folder: &Path, builtins: Builtins<'_>) -> Result<Config, Report> {
    decode_source(&Source::new(name, text), folder, builtins)
}

fn decode_source(source: &Source, folder: &Path, builtins: Builtins<'_>) -> Result<Config, Report> {
    let decoded = include::document(source, folder, |mistakes, source, files, nodes| {
        let mut config = decode(mistakes, source, nodes, folder, builtins)?;
        config.files.splice(0..0, files);
        Some(config)
    });
    // It is only missing where something else is wrong.
    decoded?.ok_or_else(|| Report::new(source.clone(), Vec::new()))
}

/// Where relative paths in a file begin.
fn folder(path: &Path) -> &Path {
    path.parent().unwrap_or(Path::new(""))
}

/// Reads a file that holds what a filter's `config` block holds.
///
/// # Errors
/// Every mistake in it, or that it cannot be read.
pub fn load_block(path: &Path) -> Result<(Source, Vec<ConfigNode>), Report> {
    let source = read_source(path)?;
    let nodes = document(&source, |mistakes, nodes| {
        config_block::nodes(mistakes, &mut Files::new(folder(path)), nodes)
    })?;
    Ok((source, nodes))
}

/// The module files that the configuration at `path` names, whether or not they are there and whatever else
/// is wrong with it.
///
/// # Errors
/// When it cannot be read, or is no KDL.
pub fn modules(path: &Path) -> Result<Vec<PathBuf>, Report> {
    let named = |filter: &KdlNode| {
        let name = arguments(child(block(filter), "module")?).next()?;
        match Module::parse(name.value().as_string()?, folder(path)) {
            Ok(Module::File(file)) => Some(file),
            Ok(Module::Builtin(_) | Module::Artifact(_)) | Err(_) => None,
        }
    };
    include::document(&read_source(path)?, folder(path), |_, _, _, nodes| {
        named_nodes(nodes, "filter").filter_map(named).collect()
    })
}

/// The addresses that the configuration at `path` listens on, whatever else is wrong with it.
///
/// # Errors
/// When it cannot be read, or is no KDL.
pub fn listeners(path: &Path) -> Result<Vec<(SocketAddr, Option<Encryption>)>, Report> {
    let address = |entry: &KdlEntry| encrypted::listener(entry.value()).ok();
    include::document(&read_source(path)?, folder(path), |_, _, _, nodes| {
        let entries = named_nodes(nodes, "listen").flat_map(arguments);
        entries.filter_map(address).collect()
    })
}

/// Whether the configuration at `path` has a `node` section, whatever else is wrong with it.
pub fn keeps_network(path: &Path) -> bool {
    read_source(path)
        .and_then(|source| {
            include::document(&source, folder(path), |_, _, _, nodes| {
                child(nodes, "node").is_some()
            })
        })
        .unwrap_or(false)
}

/// The whole configuration; none, or one that is not to be used, if there are mistakes.
fn decode(
    mistakes: &mut Mistakes,
    source: &Source,
    nodes: &[KdlNode],
    folder: &Path,
    builtins: Builtins<'_>,
) -> Option<Config> {
    mistakes.check_block(nodes, None, &SECTIONS, &REPEATED);
    check_presence(mistakes, nodes);
    let mut files = Files::new(folder);
    let (listen, listeners) = decode_listen(mistakes, &mut files, nodes).unzip();
    let listeners = listeners.unwrap_or_default();
    let node = child(nodes, "node").map(|node| node::decode(mistakes, &listeners, node));

    let signatures = signatures::decode(mistakes, &mut files, nodes);
    let mut filters = decode_filters(mistakes, &mut files, nodes, builtins, &signatures);
    let tsig = tsig::decode(mistakes, &mut files, named_nodes(nodes, "tsig"));
    let (mut unusable_servers, mut in_files) = (Vec::new(), Vec::new());
    // Without zones everything is unused.
    let (mut names, mut unused) = (zone::Names::default(), Mistakes::default());
    let mut place = forward::Place {
        folder,
        listeners: &listeners,
        node: node.as_ref(),
        files: &mut files.met,
        unusable: &mut unusable_servers,
        interfaces: &mut in_files,
        keys: &tsig,
    };
    let mut zones: Vec<Zone> = named_nodes(nodes, "zone")
        .map(|node| zone::decode(mistakes, &mut filters, &mut names, &mut place, node))
        .collect();
    service_entries::note_taken(&mut zones);
    let sources = source::decode_named(mistakes, &mut place, named_nodes(nodes, "source"));
    let filters = filters.finish(if zones.is_empty() { &mut unused } else { mistakes });

    Some(Config {
        clients: child(nodes, "clients").map(|node| clients::decode(mistakes, &clients::CLIENTS, node)),
        admin: admin::decode(mistakes, nodes, &listeners),
        control: control(mistakes, folder, nodes),
        dnstap: dnstap::decode(mistakes, folder, nodes),
        await_upstreams: await_upstreams(mistakes, nodes),
        workers: workers(mistakes, nodes),
        cache_memory: cache_memory(mistakes, nodes),
        waiting_queries: waiting_queries(mistakes, nodes),
        local_zones: mistakes.switch(nodes, "local-zones"),
        registries: registries::decode(mistakes, folder, nodes),
        listen: listen?,
        filters,
        zones,
        sources,
        node,
        pods: pods::decode(mistakes, folder, nodes),
        files: files.met.into_order(),
        unusable: unusable_servers,
        interfaces: interfaces(nodes, in_files),
        signatures,
        source: source.clone(),
    })
}

/// The interfaces that addresses are written with, here and in the files that are named, and their numbers.
fn interfaces(nodes: &[KdlNode], in_files: Vec<String>) -> BTreeMap<String, Option<u32>> {
    fn written(nodes: &[KdlNode], found: &mut Vec<String>) {
        for node in nodes.iter().filter(|node| node.name().value() != "config") {
            let texts = node
                .entries()
                .iter()
                .filter_map(|entry| entry.value().as_string());
            let addresses = texts.map(|text| text.rsplit_once("//").map_or(text, |(_, address)| address));
            found.extend(addresses.filter_map(address::scope).map(str::to_owned));
            written(block(node), found);
        }
    }
    let mut found = in_files;
    written(nodes, &mut found);
    let numbers = found.into_iter().map(|name| {
        let number = address::interface_index(&name);
        (name, number)
    });
    numbers.collect()
}

/// Where clients ask.
fn decode_listen(
    mistakes: &mut Mistakes,
    files: &mut Files<'_>,
    nodes: &[KdlNode],
) -> Option<(Listen, listen::Listeners)> {
    let mut files = encrypted::Files {
        folder: files.folder,
        met: &mut files.met,
    };
    Some(listen::decode(mistakes, &mut files, child(nodes, "listen")?))
}

fn control(mistakes: &mut Mistakes, folder: &Path, nodes: &[KdlNode]) -> Option<PathBuf> {
    let path = mistakes.scalar(nodes, "control \"/run/dnsweir/control\"", text)?;
    Some(folder.join(path))
}

/// Those with a node, and those that a zone uses and that a folder has.
fn decode_filters<'a>(
    mistakes: &mut Mistakes,
    files: &mut Files<'_>,
    nodes: &[KdlNode],
    builtins: Builtins<'a>,
    signatures: &'a Signatures,
) -> Filters<'a> {
    let in_folder = mistakes.scalar(nodes, "filters \"/etc/dnsweir/filters\"", text);
    let mut filters = Filters::new(
        builtins,
        signatures,
        in_folder.map(|name| files.folder.join(name)),
    );
    for node in named_nodes(nodes, "filter") {
        filters.decode(mistakes, files, node);
    }
    for node in named_nodes(nodes, "zone").flat_map(|zone| named_nodes(block(zone), "use")) {
        if let Some(name) = arguments(node).next() {
            filters.decode_used(mistakes, files, name);
        }
    }
    filters
}

/// Reports sections without which nothing can be served. One whose name nobody knows may be the one that is missing.
fn check_presence(mistakes: &mut Mistakes, nodes: &[KdlNode]) {
    if nodes.iter().any(|node| !SECTIONS.contains(&node.name().value())) {
        return;
    }
    for (section, help) in [
        ("listen", "write the addresses to listen on: listen \"127.0.0.1\""),
        (
            "zone",
            "write which names to answer: zone \".\" { forward \"/etc/resolv.conf\" }",
        ),
    ] {
        if child(nodes, section).is_none() {
            let missing = Diagnostic::new(Span::default(), format!("there is no `{section}`"));
            mistakes.push(missing.help(help));
        }
    }
}

fn await_upstreams(mistakes: &mut Mistakes, nodes: &[KdlNode]) -> Duration {
    let written = mistakes.scalar(nodes, "await-upstreams \"10s\"", duration(s(0)..=s(600)));
    written.unwrap_or(s(10))
}

fn workers(mistakes: &mut Mistakes, nodes: &[KdlNode]) -> usize {
    let written = mistakes.scalar(nodes, "workers 2", whole(1..=256));
    written.unwrap_or_else(default_workers)
}

fn cache_memory(mistakes: &mut Mistakes, nodes: &[KdlNode]) -> usize {
    let written = mistakes.scalar(nodes, "cache-memory \"32MiB\"", size(1 << 20..=64 << 30));
    written.unwrap_or(CACHE_MEMORY)
}

fn waiting_queries(mistakes: &mut Mistakes, nodes: &[KdlNode]) -> usize {
    let written = mistakes.scalar(nodes, "waiting-queries 8192", whole(16..=1_000_000));
    written.unwrap_or(WAITING_QUERIES)
}

fn default_workers() -> usize {
    thread::available_parallelism()
        .map_or(1, usize::from)
        .min(MOST_WORKERS)
}
