//! From a file to a [`Config`]: every section decoded, in an order that lets each be checked
//! against those it depends on, whatever the order on the page.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::thread;

use kdl::KdlNode;

use super::decode::{Mistakes, arguments, block, child, whole};
use super::error::{Diagnostic, Report, Source, Span};
use super::filter::Filters;
use super::module::Modules;
use super::units::{duration, s, size};
use super::{Config, Zone, clients, forward, listen, node, syntax, zone};

/// What may stand in a file.
pub(super) const SECTIONS: [&str; 11] = [
    "listen",
    "clients",
    "admin",
    "await-upstreams",
    "workers",
    "cache-memory",
    "waiting-queries",
    "filter",
    "zone",
    "local-zones",
    "node",
];

/// Those of which there may be more than one.
const REPEATED: [&str; 2] = ["filter", "zone"];

/// Default of `workers`, at most: a cache beside the workloads of a node is not to take it over.
const MOST_WORKERS: usize = 4;

/// Default of `cache-memory`, in bytes.
const CACHE_MEMORY: usize = 32 * 1024 * 1024;

/// Default of `waiting-queries`: a node's pods may wait for a name that is slow, together with all their processes.
pub const WAITING_QUERIES: usize = 8192;

/// Reads the configuration at `path` and everything it names. `builtins` are the names that
/// `module "builtin:NAME"` may have.
///
/// # Errors
/// Every mistake in it, or that it cannot be read.
pub fn load(path: &Path, builtins: &[&str]) -> Result<Config, Report> {
    let name = path.display().to_string();
    let unreadable = |error: io::Error| {
        let source = Source::new(name.clone(), "");
        let problem = format!("the configuration {name} cannot be read: {error}");
        Report::new(source, vec![Diagnostic::new(Span::default(), problem)])
    };
    let bytes = read(path).map_err(unreadable)?;
    let text = String::from_utf8(bytes).map_err(|error| {
        // The replacement keeps everything before the mistake in its place.
        let start = error.utf8_error().valid_up_to();
        let source = Source::new(name.clone(), String::from_utf8_lossy(error.as_bytes()));
        let span = Span {
            start,
            length: char::REPLACEMENT_CHARACTER.len_utf8(),
        };
        let foreign = Diagnostic::new(span, "this is not UTF-8");
        Report::new(source, vec![foreign.help("save the file in UTF-8")])
    })?;
    let folder = path.parent().unwrap_or(Path::new(""));
    let mut config = parse(&name, &text, folder, builtins)?;
    config.files.insert(0, path.to_owned());
    Ok(config)
}

/// The module files that the configuration at `path` names, whether or not they are there and whatever else
/// is wrong with it.
///
/// # Errors
/// When it cannot be read, or is no KDL.
pub fn modules(path: &Path) -> Result<Vec<PathBuf>, Report> {
    let name = path.display().to_string();
    let failed = |text: &str, diagnostics| Report::new(Source::new(name.clone(), text), diagnostics);
    let text = fs::read_to_string(path).map_err(|error| {
        let problem = format!("the configuration {name} cannot be read: {error}");
        failed("", vec![Diagnostic::new(Span::default(), problem)])
    })?;
    let document = syntax::document(&text).map_err(|diagnostics| failed(&text, diagnostics))?;
    let filters = document
        .nodes()
        .iter()
        .filter(|node| node.name().value() == "filter");
    let modules = filters.filter_map(|node| {
        let module = arguments(child(block(node), "module")?)
            .next()?
            .value()
            .as_string()?;
        let file = (!module.starts_with("builtin:")).then_some(module)?;
        Some(path.parent().unwrap_or(Path::new("")).join(file))
    });
    Ok(modules.collect())
}

/// Whether the configuration at `path` has a `node` section, whatever else is wrong with it.
pub fn keeps_network(path: &Path) -> bool {
    let text = read(path).ok().and_then(|bytes| String::from_utf8(bytes).ok());
    text.and_then(|text| syntax::document(&text).ok())
        .is_some_and(|document| child(document.nodes(), "node").is_some())
}

/// Like [`load`], for a text that is shown as `name` and whose relative paths begin at `folder`.
///
/// # Errors
/// Every mistake in it.
pub fn parse(name: &str, text: &str, folder: &Path, builtins: &[&str]) -> Result<Config, Report> {
    let source = Source::new(name, text);
    let document = match syntax::document(text) {
        Ok(document) => document,
        Err(diagnostics) => return Err(Report::new(source, diagnostics)),
    };
    decode(&source, document.nodes(), folder, builtins)
        .map_err(|mistakes| Report::new(source, mistakes.into_diagnostics()))
}

fn decode(source: &Source, nodes: &[KdlNode], folder: &Path, builtins: &[&str]) -> Result<Config, Mistakes> {
    let mut mistakes = Mistakes::default();
    mistakes.check_block(nodes, None, &SECTIONS, &REPEATED);
    let sections = |name: &'static str| nodes.iter().filter(move |node| node.name().value() == name);

    let found = child(nodes, "listen").map(|node| listen::decode(&mut mistakes, node));
    if found.is_none() && !misspelt(nodes) {
        let missing = Diagnostic::new(Span::default(), "there is no `listen`");
        mistakes.push(missing.help("write where clients ask: listen \"127.0.0.1\""));
    }
    let (listen, listeners) = found.unzip();
    let listeners = listeners.unwrap_or_default();

    let clients = child(nodes, "clients").map(|node| clients::decode(&mut mistakes, &clients::CLIENTS, node));
    let admin = child(nodes, "admin").and_then(|node| listen::decode_admin(&mut mistakes, node, &listeners));
    let await_upstreams = mistakes.scalar(nodes, "await-upstreams \"10s\"", duration(s(0)..=s(600)));
    let workers = mistakes.scalar(nodes, "workers 2", whole(1..=256));
    let cache_memory = mistakes.scalar(
        nodes,
        "cache-memory \"32MiB\"",
        size(1024 * 1024..=64 * 1024 * 1024 * 1024),
    );
    let waiting_queries = mistakes.scalar(nodes, "waiting-queries 8192", whole(16..=1_000_000));
    let local_zones = mistakes.switch(nodes, "local-zones");
    let node = child(nodes, "node").map(|node| node::decode(&mut mistakes, &listeners, node));

    let mut filters = Filters::default();
    let mut modules = Modules::new(folder, builtins);
    for node in sections("filter") {
        filters.decode(&mut mistakes, &mut modules, node);
    }

    let mut files = modules.files;
    let mut names = zone::Names::default();
    let mut place = forward::Place {
        folder,
        listeners: &listeners,
        node: node.as_ref(),
        files: &mut files,
    };
    let zones: Vec<Zone> = sections("zone")
        .map(|node| zone::decode(&mut mistakes, &mut filters, &mut names, &mut place, node))
        .collect();
    if zones.is_empty() && !misspelt(nodes) {
        let missing = Diagnostic::new(Span::default(), "there is no `zone`");
        mistakes.push(
            missing.help("write whose queries are answered: zone \".\" { forward \"/etc/resolv.conf\" }"),
        );
    }
    // Without zones everything is unused.
    let filters = if zones.is_empty() {
        filters.finish(&mut Mistakes::default())
    } else {
        filters.finish(&mut mistakes)
    };

    match listen {
        Some(listen) if mistakes.is_empty() => Ok(Config {
            listen,
            clients,
            admin,
            await_upstreams: await_upstreams.unwrap_or(s(10)),
            workers: workers.unwrap_or_else(default_workers),
            cache_memory: cache_memory.unwrap_or(CACHE_MEMORY),
            waiting_queries: waiting_queries.unwrap_or(WAITING_QUERIES),
            filters,
            zones,
            local_zones,
            node,
            files,
            source: source.clone(),
        }),
        _ => Err(mistakes),
    }
}

/// Whether a section has a name that nobody knows: then it may be the one that is missing.
fn misspelt(nodes: &[KdlNode]) -> bool {
    nodes.iter().any(|node| !SECTIONS.contains(&node.name().value()))
}

fn default_workers() -> usize {
    thread::available_parallelism()
        .map_or(1, usize::from)
        .min(MOST_WORKERS)
}

/// The whole file, or one byte more than is allowed: the parser then says that it is too long.
fn read(path: &Path) -> io::Result<Vec<u8>> {
    if !fs::metadata(path)?.is_file() {
        return Err(io::Error::other("it is not a file"));
    }
    let mut bytes = Vec::new();
    File::open(path)?
        .take(syntax::MAX_TEXT as u64 + 1)
        .read_to_end(&mut bytes)?;
    Ok(bytes)
}
