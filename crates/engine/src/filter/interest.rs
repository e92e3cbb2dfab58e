//! What a filter requests: its manifest in a form that is quick to check for every query.

use std::sync::Arc;

use super::bindings::dnsweir::filter::types::Manifest;
use super::details::Details;
use super::outcomes::Outcomes;
use crate::dns::name::Name;
use crate::dns::suffix_map::SuffixMap;

/// The calls that a filter requests. Others cost it nothing, and the proxy next to nothing.
#[derive(Debug, Clone)]
pub struct Interest {
    /// The query phase.
    pub queries: bool,
    /// The response phase.
    pub responses: bool,
    /// The outcomes of queries for which it receives events.
    pub events: Outcomes,
    /// Whether responses and events include the message.
    pub messages: bool,
    /// The details of queries that it requests.
    pub details: Details,
    /// Whether it may request lookups before it decides.
    pub asks: bool,
    /// The sources that it may send queries to, by name.
    pub sources: Arc<[Arc<str>]>,
    /// None: all.
    qtypes: Option<Box<[u64; 1024]>>,
    /// None: all.
    suffixes: Option<SuffixMap<()>>,
}

/// Maximum sources that a manifest may name.
const SOURCES: usize = 256;

impl Interest {
    /// No interest in anything.
    pub(super) fn none() -> Interest {
        Interest {
            queries: false,
            responses: false,
            events: Outcomes::NONE,
            messages: false,
            details: Details::default(),
            asks: false,
            sources: Arc::default(),
            qtypes: None,
            suffixes: None,
        }
    }

    /// # Errors
    ///
    /// Returns which suffix is not a name, or which limit is exceeded.
    pub(super) fn new(manifest: &Manifest) -> Result<Interest, String> {
        let qtypes = (!manifest.qtypes.is_empty()).then(|| {
            let mut set = Box::new([0; 1024]);
            for qtype in &manifest.qtypes {
                set[usize::from(qtype >> 6)] |= 1 << (qtype & 63);
            }
            set
        });
        if manifest.sources.len() > SOURCES {
            return Err(format!(
                "it names {} sources, and {SOURCES} are allowed",
                manifest.sources.len()
            ));
        }
        let mut all = manifest.suffixes.is_empty();
        let mut suffixes = SuffixMap::default();
        for text in &manifest.suffixes {
            let name = Name::parse(text).map_err(|error| format!("the suffix {text:?} is {error}"))?;
            all |= name == Name::ROOT;
            suffixes.insert(name.as_bytes(), ());
        }
        Ok(Interest {
            queries: manifest.queries,
            responses: manifest.responses,
            events: Outcomes::heard(manifest),
            messages: manifest.messages,
            details: Details::new(&manifest.details)?,
            asks: manifest.asks,
            sources: manifest
                .sources
                .iter()
                .map(|name| Arc::from(name.as_str()))
                .collect(),
            qtypes,
            suffixes: (!all).then_some(suffixes),
        })
    }

    /// Whether the filter handles queries of this type for this lowercase wire-format name.
    #[inline]
    pub fn covers(&self, qtype: u16, name: &[u8]) -> bool {
        let type_wanted = match &self.qtypes {
            None => true,
            Some(set) => set[usize::from(qtype >> 6)] >> (qtype & 63) & 1 == 1,
        };
        type_wanted
            && self
                .suffixes
                .as_ref()
                .is_none_or(|suffixes| suffixes.longest(name).is_some())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interest(qtypes: &[u16], suffixes: &[&str]) -> Result<Interest, String> {
        Interest::new(&Manifest {
            qtypes: qtypes.to_vec(),
            suffixes: suffixes.iter().map(|text| text.to_string()).collect(),
            queries: true,
            responses: false,
            events: false,
            messages: false,
            tables: Vec::new(),
            details: Vec::new(),
            asks: false,
            sources: Vec::new(),
            outcomes: Vec::new(),
        })
    }

    fn covers(interest: &Interest, qtype: u16, name: &str) -> bool {
        interest.covers(qtype, Name::parse(name).unwrap().as_bytes())
    }

    #[test]
    fn an_empty_manifest_covers_everything() {
        let all = interest(&[], &[]).unwrap();
        assert!(covers(&all, 0, "."));
        assert!(covers(&all, 65535, "a.example."));
        let root = interest(&[], &["example.", "."]).unwrap();
        assert!(covers(&root, 1, "."));
        assert!(covers(&root, 1, "other."));
    }

    #[test]
    fn suffixes_end_at_labels() {
        let some = interest(&[], &["cluster.local", "b.EXAMPLE.org."]).unwrap();
        for inside in [
            "cluster.local.",
            "a.cluster.local.",
            "x.y.b.example.org.",
            "b.example.org",
        ] {
            assert!(covers(&some, 1, inside), "{inside}");
        }
        for outside in [
            ".",
            "local.",
            "mycluster.local.",
            "example.org.",
            "c.example.org.",
            "com.",
        ] {
            assert!(!covers(&some, 1, outside), "{outside}");
        }
    }

    #[test]
    fn types_are_told_apart() {
        let some = interest(&[1, 28, 65535], &[]).unwrap();
        for (qtype, wanted) in [
            (0, false),
            (1, true),
            (2, false),
            (28, true),
            (65, false),
            (65535, true),
        ] {
            assert_eq!(covers(&some, qtype, "example."), wanted, "{qtype}");
        }
    }

    #[test]
    fn a_suffix_that_is_no_name_is_refused() {
        let error = interest(&[], &["fine.", "a..b"]).unwrap_err();
        assert!(error.contains("\"a..b\""), "{error}");
    }
}
