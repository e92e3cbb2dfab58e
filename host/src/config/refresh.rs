//! `refresh { … }`: what a filter's data is made of while the proxy runs.

use std::path::{Path, PathBuf};
use std::time::Duration;

use kdl::KdlNode;

use super::decode::{Mistakes, Shape, arguments, block, child, head, named_nodes, text};
use super::error::{Diagnostic, Span};
use super::location::{self, Location};
use super::units::{duration, ms, s, size};

pub(super) const REFRESH: Shape = Shape {
    example: r#"refresh { every "1h"; source "list" "https://lists.example/ads.txt" }"#,
    arguments: 0..=0,
    properties: &[],
    children: &["every", "wait", "source"],
    repeated: &["source"],
};

pub(super) const SOURCE: Shape = Shape {
    example: r#"source "list" "https://lists.example/ads.txt""#,
    arguments: 2..=2,
    properties: location::PROPERTIES,
    children: &[],
    repeated: &[],
};

/// Sources of one filter.
const SOURCES: usize = 64;

/// Octets of a file or folder, unless written otherwise.
const SIZE: usize = 64 << 20;

/// `refresh { every "1h"; wait "10s"; source … }`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refresh {
    /// How long after one refresh the next one is.
    pub every: Duration,
    /// How long the proxy waits for the first one before it answers queries without it.
    pub wait: Duration,
    /// In the order they are written; no name occurs twice.
    pub sources: Vec<RefreshSource>,
}

/// `source "NAME" "FILE, FOLDER OR URL" size="64MiB"`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefreshSource {
    /// What the filter knows it by.
    pub name: String,
    /// Where it is.
    pub origin: RefreshOrigin,
    /// Octets of it that are taken, over all files of a folder.
    pub size: usize,
}

/// Where a source is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RefreshOrigin {
    /// A file, or a folder, of which every file is taken.
    Path(PathBuf),
    /// Somewhere else.
    Location(Box<Location>),
}

impl Refresh {
    /// The most octets that its sources have together.
    pub fn source_octets(&self) -> usize {
        self.sources.iter().map(|source| source.size).sum()
    }
}

/// Decodes `refresh`; relative paths begin at `folder`.
pub(super) fn decode(mistakes: &mut Mistakes, folder: &Path, node: &KdlNode) -> Option<Refresh> {
    mistakes.check(node, &REFRESH);
    let nodes = block(node);
    let every = mistakes.scalar(nodes, r#"every "1h""#, duration(s(1)..=s(30 * 86_400)));
    let wait = mistakes.scalar(nodes, r#"wait "10s""#, duration(ms(0)..=s(3600)));
    let mut sources: Vec<RefreshSource> = Vec::new();
    for node in named_nodes(nodes, "source") {
        let Some(source) = source(mistakes, folder, node) else {
            continue;
        };
        if sources.iter().any(|known| known.name == source.name) {
            let problem = format!("there are two sources {:?}", source.name);
            mistakes.push(Diagnostic::new(head(node), problem).help("give one of them another name"));
        }
        sources.push(source);
    }
    if child(nodes, "source").is_none() {
        let empty = Diagnostic::new(head(node), "this `refresh` has no source");
        mistakes.push(empty.help(format!("write: {}", SOURCE.example)));
    }
    if sources.len() > SOURCES {
        let problem = format!("{} sources are more than the {SOURCES} allowed", sources.len());
        mistakes.push(Diagnostic::new(head(node), problem).help("put files into one folder"));
    }
    Some(Refresh {
        every: every.unwrap_or(s(3600)),
        wait: wait.unwrap_or(s(10)),
        sources,
    })
}

fn source(mistakes: &mut Mistakes, folder: &Path, node: &KdlNode) -> Option<RefreshSource> {
    mistakes.check(node, &SOURCE);
    let name = mistakes.argument(node, text)?;
    let entry = arguments(node).nth(1)?;
    let written = mistakes.value("source", entry, text)?;
    if location::is_url(&written) {
        let location = location::decode(mistakes, folder, node, &written, entry.span().into())?;
        return Some(RefreshSource {
            name,
            size: location.size,
            origin: RefreshOrigin::Location(Box::new(location)),
        });
    }
    for property in node.entries().iter().filter(|entry| entry.name().is_some()) {
        let is_size = property.name().is_some_and(|name| name.value() == "size");
        if !is_size {
            let span = Span::from(property.span());
            mistakes.push(Diagnostic::new(span, "this is for sources that are fetched").help("remove it"));
        }
    }
    Some(RefreshSource {
        name,
        origin: RefreshOrigin::Path(folder.join(written)),
        size: mistakes.property(node, "size", size(1..=4 << 30)).unwrap_or(SIZE),
    })
}

#[cfg(test)]
mod tests {
    use super::super::tests::{config, problems};
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

    #[test]
    fn mistakes_are_found() {
        for (source, expected) in [
            ("", "this `refresh` has no source"),
            (r#"source "a""#, "`source` needs a value"),
            (r#"source "a" "b" ca="c""#, "this is for sources that are fetched"),
            (r#"source "a" "b"; source "a" "c""#, "there are two sources \"a\""),
            (
                r#"source "a" "ftp://x/""#,
                "\"ftp://x/\" is of a scheme that is not known",
            ),
            (
                r#"source "a" "https://u:p@x/""#,
                "\"https://u:p@x/\" has a password in it",
            ),
            (
                r#"source "a" "http://lists.example/""#,
                "\"http://lists.example/\" is not secure: anybody on the way can change what is sent",
            ),
            (
                r#"source "a" "http://lists.example/" plain=#true token-file="t""#,
                "\"http://lists.example/\" would be sent the token in clear text",
            ),
            (r#"source "a" "https://x/" plain=#true"#, "`plain` is for http://"),
            (
                r#"source "a" "https://x/" proxy="x""#,
                "`proxy`: \"x\" is not an HTTP proxy",
            ),
            (
                r#"source "a" "https://x/" address="x""#,
                "`address`: \"x\" is not an address",
            ),
            (
                r#"source "a" "https:///""#,
                "\"https:///\" is not a URL: empty host",
            ),
        ] {
            let found = problems(&text_with(&format!("refresh {{ {source} }}")));
            assert_eq!(found[0], expected, "{source}");
        }
    }
}
