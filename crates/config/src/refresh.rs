//! `refresh { … }`: the sources of a filter's data, read while the proxy runs.

use std::path::PathBuf;
use std::time::Duration;

use kdl::{KdlEntry, KdlNode};

use super::decode::{Decoder, arguments, block, child, named_nodes, text};
use super::location::{self, Access, Location, SOURCE};
use super::units::{duration, ms, s};
use super::words::words;

words! {
    /// `refresh { every "1h"; wait "10s"; source … }`
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Refresh in REFRESH(0..=0): r#"refresh { every "1h"; source "list" "https://lists.example/ads.txt" }"#,
        then read_sources;

    /// Time between refreshes.
    one "every" every: Duration = "1h" in duration(s(1)..=s(30 * 86_400));
    /// How long a start, or a reload that changes the filter, waits for the first refresh.
    one "wait" wait: Duration = "10s" in duration(ms(0)..=s(3600));
    /// A name for the filter, and a file, a folder or a URL.
    hands "source" sources: Vec<RefreshSource> = ("required") in location::SOURCE, "a name and a place, up to 64 of them";
}

/// The most sources of one filter.
const SOURCES: usize = 64;

/// `source "NAME" "FILE, FOLDER OR URL" size="64MiB"`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefreshSource {
    /// Its name in the filter.
    pub name: String,
    /// Where it is.
    pub origin: RefreshOrigin,
    /// Size limit in bytes, over all files of a folder.
    pub size: usize,
}

/// Where a source is.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum RefreshOrigin {
    /// A file, or a folder whose files are all read.
    Path(PathBuf),
    /// A URL.
    Location(Box<Location>),
}

impl Default for RefreshOrigin {
    fn default() -> RefreshOrigin {
        RefreshOrigin::Path(PathBuf::new())
    }
}

impl Refresh {
    /// The total size limit of its sources, in bytes.
    pub fn source_octets(&self) -> usize {
        self.sources.iter().map(|source| source.size).sum()
    }
}

fn read_sources(decoder: &mut Decoder, node: &KdlNode, refresh: &mut Refresh) {
    let nodes = block(node);
    let sources = &mut refresh.sources;
    for node in named_nodes(nodes, "source") {
        let Some(source) = source(decoder, node) else {
            continue;
        };
        if sources.iter().any(|known| known.name == source.name) {
            let problem = format!("there are two sources {:?}", source.name);
            decoder.report(node, problem, "give one of them another name");
        }
        sources.push(source);
    }
    if child(nodes, "source").is_none() {
        decoder.report(node, "this `refresh` has no source", SOURCE.shape.help());
    }
    if sources.len() > SOURCES {
        let problem = format!("{} sources are more than the {SOURCES} allowed", sources.len());
        decoder.report(node, problem, "put files into one folder");
    }
}

fn source(decoder: &mut Decoder, node: &KdlNode) -> Option<RefreshSource> {
    let access = SOURCE.read(decoder, node);
    let name = decoder.argument(node, text)?;
    let entry = arguments(node).nth(1)?;
    let (origin, size) = origin(decoder, node, access, entry)?;
    Some(RefreshSource { name, origin, size })
}

/// Decodes the path or URL in `entry`, a value of `node`, and returns it with its size limit in bytes.
pub(super) fn origin(
    decoder: &mut Decoder,
    node: &KdlNode,
    access: Access,
    entry: &KdlEntry,
) -> Option<(RefreshOrigin, usize)> {
    let written = decoder.value("source", entry, text)?;
    let size = access.size;
    if location::is_url(&written) {
        let location = location::decode(decoder, node, access, &written, entry.into())?;
        return Some((RefreshOrigin::Location(Box::new(location)), size));
    }
    for property in node.entries().iter().filter(|entry| entry.name().is_some()) {
        let is_size = property.name().is_some_and(|name| name.value() == "size");
        if !is_size {
            decoder.report(property, "this is for sources that are fetched", "remove it");
        }
    }
    Some((RefreshOrigin::Path(decoder.files.at(written)), size))
}
