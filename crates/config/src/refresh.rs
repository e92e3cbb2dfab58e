//! `refresh { … }`: the sources of a filter's data, read while the proxy runs.

use std::path::PathBuf;
use std::time::Duration;

use kdl::{KdlEntry, KdlNode};

use super::decode::{Decoder, arguments, block, child, named_nodes, text};
use super::location::{self, Location, Properties, SOURCE};
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
    let properties = SOURCE.read(decoder, node);
    let name = decoder.argument(node, text)?;
    let entry = arguments(node).nth(1)?;
    let (origin, size) = origin(decoder, node, properties, entry)?;
    Some(RefreshSource { name, origin, size })
}

/// Decodes the path or URL in `entry`, a value of `node`, and returns it with its size limit in bytes.
pub(super) fn origin(
    decoder: &mut Decoder,
    node: &KdlNode,
    properties: Properties,
    entry: &KdlEntry,
) -> Option<(RefreshOrigin, usize)> {
    let written = decoder.value("source", entry, text)?;
    let size = properties.size;
    if location::is_url(&written) {
        let location = location::decode(decoder, node, properties, &written, entry.into())?;
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

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::tests::config;
    use super::*;

    fn text_with(refresh: &str) -> String {
        format!(
            "listen \"127.0.0.1\"\nzone \".\" {{ use \"f\"; forward \"192.0.2.1\" }}\n\
             filter \"f\" {{ module \"builtin:log\"; {refresh} }}"
        )
    }

    fn refresh(refresh: &str) -> Refresh {
        config(&text_with(refresh)).filters.remove(0).refresh.unwrap()
    }

    #[test]
    fn sources_are_files_folders_and_locations() {
        let found = refresh(
            r#"refresh { every "5m"; wait "1s"; source "a" "/etc/lists/"; source "b" "/etc/list" size="1MiB"
            source "c" "https://lists.example/ads" ca="/etc/ca.pem" token-file="/run/token" proxy="http://192.0.2.7:3128" \
                address="192.0.2.1" size="2MiB" time="5s"
            source "d" "http://127.0.0.1/" ; source "e" "http://lists.example/" plain=#true }"#,
        );
        assert_eq!((found.every, found.wait), (s(300), s(1)));
        let [a, b, c, d, e] = &found.sources[..] else {
            panic!()
        };
        assert_eq!(a.origin, RefreshOrigin::Path("/etc/lists/".into()));
        assert_eq!((a.size, b.size, c.size), (64 << 20, 1 << 20, 2 << 20));
        let RefreshOrigin::Location(location) = &c.origin else {
            panic!()
        };
        assert_eq!(location.url.as_str(), "https://lists.example/ads");
        assert_eq!(location.ca.as_deref(), Some(Path::new("/etc/ca.pem")));
        assert_eq!(location.token.as_deref(), Some(Path::new("/run/token")));
        assert_eq!(location.proxy.as_ref().unwrap().port(), Some(3128));
        assert_eq!(location.address, Some([192, 0, 2, 1].into()));
        assert_eq!(location.time, s(5));
        for other in [d, e] {
            assert!(matches!(other.origin, RefreshOrigin::Location(_)));
        }
        let found = refresh("refresh { source \"a\" \"b\" }");
        assert_eq!((found.every, found.wait), (s(3600), s(10)));
        assert_eq!(
            found.sources[0].origin,
            RefreshOrigin::Path("/nonexistent/b".into())
        );
    }
}
