//! Loads a [`Config`] from a file. Sections are decoded in an order that lets each be checked against those
//! it depends on, whatever their order in the file.

use std::collections::BTreeMap;
use std::mem;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use kdl::{KdlEntry, KdlNode};

use super::config_block::{self, ConfigNode};
use super::decode::{Decoder, arguments, block, child, document, named_nodes};
use super::error::{Report, Source, Span};
use super::files::read_source;
use super::filter::Limits;
use super::filters::Filters;
use super::module::{Builtins, Module};
use super::node::Node;
use super::syntax;
use super::upstream::Encryption;
use super::whole::{Config, FILE};
use super::zone;
use super::{address, admin, clients, encrypted, include, source, tsig};

/// Reads the configuration at `path` and every file it names. `builtins` are the filters that
/// `module "builtin:NAME"` may name.
///
/// # Errors
/// Every mistake in it, or that the file cannot be read.
pub fn load(path: &Path, builtins: Builtins<'_>) -> Result<Config, Report> {
    let loaded = read_source(path).and_then(|source| decode_source(&source, folder(path), builtins));
    let mut config = loaded.map_err(|report| report.with_files(&[path.to_owned()]))?;
    config.files.insert(0, path.to_owned());
    Ok(config)
}

/// Like [`load`], for a text. Errors call it `name`; relative paths start at `folder`.
///
/// # Errors
/// Every mistake in it.
pub fn parse(name: &str, text: &str, folder: &Path, builtins: Builtins<'_>) -> Result<Config, Report> {
    decode_source(&Source::new(name, text), folder, builtins)
}

fn decode_source(source: &Source, folder: &Path, builtins: Builtins<'_>) -> Result<Config, Report> {
    include::document(source, folder, |decoder, source, nodes| {
        decode(decoder, source, nodes, builtins)
    })
}

/// The folder at which relative paths in a file start.
fn folder(path: &Path) -> &Path {
    path.parent().unwrap_or(Path::new(""))
}

/// Reads a file with the contents of a filter's `config` block.
///
/// # Errors
/// Every mistake in it, or that the file cannot be read.
pub fn load_block(path: &Path) -> Result<(Source, Vec<ConfigNode>), Report> {
    let source = read_source(path)?;
    let nodes = document(&source, folder(path), |decoder, nodes| {
        decoder.files.limit_data(Limits::default().data);
        config_block::nodes(decoder, nodes)
    })?;
    Ok((source, nodes))
}

/// Returns the module files that the configuration at `path` names, even if they are missing or it is
/// invalid.
///
/// # Errors
/// When the file cannot be read or is not KDL.
pub fn modules(path: &Path) -> Result<Vec<PathBuf>, Report> {
    let named = |filter: &KdlNode| {
        let name = arguments(child(block(filter), "module")?).next()?;
        match Module::parse(name.value().as_string()?, folder(path)) {
            Ok(Module::File(file)) => Some(file),
            Ok(Module::Builtin(_) | Module::Artifact(_)) | Err(_) => None,
        }
    };
    nodes_of(path, |nodes| {
        named_nodes(nodes, "filter").filter_map(named).collect()
    })
}

/// What `look` finds in the configuration at `path`, valid or not.
fn nodes_of<T>(path: &Path, look: impl FnOnce(&[KdlNode]) -> T) -> Result<T, Report> {
    include::document(&read_source(path)?, folder(path), |_, _, nodes| look(nodes))
}

/// Returns the addresses that the configuration at `path` listens on, even if it is otherwise invalid.
///
/// # Errors
/// When the file cannot be read or is not KDL.
pub fn listeners(path: &Path) -> Result<Vec<(SocketAddr, Option<Encryption>)>, Report> {
    let address = |entry: &KdlEntry| encrypted::listener(entry.value()).ok();
    nodes_of(path, |nodes| {
        let entries = named_nodes(nodes, "listen").flat_map(arguments);
        entries.filter_map(address).collect()
    })
}

/// Whether the configuration at `path`, valid or not, has a `node` section; `None` if it cannot be parsed.
pub fn keeps_network(path: &Path) -> Option<bool> {
    nodes_of(path, |nodes| child(nodes, "node").is_some()).ok()
}

/// Returns the admin addresses of a configuration that may not be KDL at all: those in the last line that
/// starts with `admin` and can be parsed.
pub fn admin_addresses(path: &Path) -> Vec<SocketAddr> {
    let Ok(source) = read_source(path) else {
        return Vec::new();
    };
    let of_line = |line: &str| {
        let parsed = line
            .trim_start()
            .starts_with("admin")
            .then(|| syntax::document(line))?
            .ok()?;
        let node = child(parsed.nodes(), "admin")?;
        let addresses: Vec<SocketAddr> = arguments(node).filter_map(admin::address_of).collect();
        (!addresses.is_empty()).then_some(addresses)
    };
    source.text().lines().rev().find_map(of_line).unwrap_or_default()
}

/// Decodes the whole configuration. If there are mistakes, the result must not be used.
fn decode(decoder: &mut Decoder, source: &Source, nodes: &[KdlNode], builtins: Builtins<'_>) -> Config {
    decoder.check_block(nodes, None, FILE.shape.children, FILE.shape.repeated);
    let mut config = (FILE.fields)(decoder, &KdlNode::new("file"), nodes);
    check_presence(decoder, nodes);
    decoder.around.past_us = config.node.iter().flat_map(Node::past_us).copied().collect();
    decoder.around.pods = config.pods.is_some();

    let mut filters = Filters::new(builtins, &config.signatures, config.filters_folder.as_deref());
    filters.decode_all(decoder, nodes);
    decoder.around.keys = tsig::decode(decoder, named_nodes(nodes, "tsig"));
    let mut names = zone::Names::default();
    config.zones = named_nodes(nodes, "zone")
        .map(|node| zone::decode(decoder, &mut filters, &mut names, node))
        .collect();
    zone::note_taken(&mut config.zones);
    config.sources = source::decode_named(decoder, named_nodes(nodes, "source"));
    // Without zones, everything would be reported as unused; so would a filter whose `use` is misspelled.
    if !config.zones.is_empty() && !decoder.has_unknown_nodes() {
        filters.refuse_unused(decoder);
    }
    config.filters = filters.into_all();
    config.clients =
        child(nodes, "clients").map(|node| clients::decode(decoder, &clients::CLIENTS.shape, node));
    config.cache_memory_written = child(nodes, "cache-memory").is_some();
    config.files = decoder.files.order().to_vec();
    config.unusable = mem::take(&mut decoder.files.unusable);
    config.interfaces = interfaces(nodes, mem::take(&mut decoder.files.interfaces));
    config.source = source.clone();
    config
}

/// The interfaces in the scopes of addresses, and those `found` in files, with their indexes.
fn interfaces(nodes: &[KdlNode], mut found: Vec<String>) -> BTreeMap<String, Option<u32>> {
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
    written(nodes, &mut found);
    let numbers = found.into_iter().map(|name| {
        let number = address::interface_index(&name);
        (name, number)
    });
    numbers.collect()
}

/// Reports missing sections, unless a section is unknown: it may be the missing one, misspelled.
fn check_presence(decoder: &mut Decoder, nodes: &[KdlNode]) {
    let is_known = |node: &KdlNode| FILE.shape.children.contains(&node.name().value());
    let listen = "write the addresses to listen on: listen \"127.0.0.1\"";
    let zone = "write which names to answer: zone \".\" { forward \"/etc/resolv.conf\" }";
    for (section, help) in [("listen", listen), ("zone", zone)] {
        if child(nodes, section).is_none() && nodes.iter().all(is_known) {
            decoder.report(Span::default(), format!("there is no `{section}`"), help);
        }
    }
}
