//! What a filter wants to see: its manifest, ready to be asked about every query.

use foldhash::fast::RandomState;
use hashbrown::HashMap;

use super::bindings::dnsweir::filter::types::Manifest;
use crate::dns::name::Name;

/// Labels in the longest name: one octet each and its length, and the root (RFC 1035 section 2.3.4).
const LABELS: usize = 128;

/// Which calls a filter wants. Whatever it does not want costs it nothing, and the proxy next to nothing.
#[derive(Debug, Clone)]
pub struct Interest {
    /// The query phase.
    pub queries: bool,
    /// The response phase.
    pub responses: bool,
    /// The event phase.
    pub events: bool,
    /// Whether responses are to carry the message.
    pub messages: bool,
    /// None: all.
    qtypes: Option<Box<[u64; 1024]>>,
    /// None: all.
    suffixes: Option<Suffix>,
}

/// A node of the trie of suffixes, keyed by label from the root down.
#[derive(Debug, Clone, Default)]
struct Suffix {
    /// Whether the name that leads here is one of the suffixes, and so all below it.
    whole: bool,
    below: HashMap<Box<[u8]>, Suffix, RandomState>,
}

impl Interest {
    /// Interest in nothing.
    pub(super) fn none() -> Interest {
        Interest {
            queries: false,
            responses: false,
            events: false,
            messages: false,
            qtypes: None,
            suffixes: None,
        }
    }

    /// # Errors
    ///
    /// Says which suffix is no name.
    pub(super) fn new(manifest: &Manifest) -> Result<Interest, String> {
        let qtypes = (!manifest.qtypes.is_empty()).then(|| {
            let mut set = Box::new([0; 1024]);
            for qtype in &manifest.qtypes {
                set[usize::from(qtype >> 6)] |= 1 << (qtype & 63);
            }
            set
        });
        let mut trie = Suffix::default();
        for text in &manifest.suffixes {
            let name = Name::parse(text).map_err(|error| format!("the suffix {text:?} is {error}"))?;
            trie.insert(name.as_bytes());
        }
        // A trie whose root is whole lets everything through, too.
        let suffixes = (!manifest.suffixes.is_empty() && !trie.whole).then_some(trie);
        Ok(Interest {
            queries: manifest.queries,
            responses: manifest.responses,
            events: manifest.events,
            messages: manifest.messages,
            qtypes,
            suffixes,
        })
    }

    /// Whether the filter looks at queries of this type for this name, a lowercased wire name.
    #[inline]
    pub fn covers(&self, qtype: u16, name: &[u8]) -> bool {
        let type_wanted = match &self.qtypes {
            None => true,
            Some(set) => set[usize::from(qtype >> 6)] >> (qtype & 63) & 1 == 1,
        };
        type_wanted && self.suffixes.as_ref().is_none_or(|trie| trie.covers(name))
    }
}

impl Suffix {
    fn insert(&mut self, name: &[u8]) {
        let mut node = self;
        for label in from_the_top(name, &mut [0; LABELS]) {
            node = node.below.entry(Box::from(label)).or_default();
        }
        node.whole = true;
    }

    /// One lookup per label, from the top: a name under another top-level domain costs one.
    fn covers(&self, name: &[u8]) -> bool {
        let mut node = self;
        for label in from_the_top(name, &mut [0; LABELS]) {
            match node.below.get(label) {
                None => return false,
                Some(next) if next.whole => return true,
                Some(next) => node = next,
            }
        }
        false
    }
}

/// The labels of a wire name, the last one first and without the root's. `starts` is room to work in.
fn from_the_top<'a>(name: &'a [u8], starts: &'a mut [u8; LABELS]) -> impl Iterator<Item = &'a [u8]> {
    let mut count = 0;
    let mut at = 0;
    while let Some(&length) = name.get(at).filter(|&&length| length != 0) {
        if count == LABELS {
            break;
        }
        starts[count] = at as u8;
        count += 1;
        at += 1 + usize::from(length);
    }
    starts[..count].iter().rev().map(|&start| {
        let start = usize::from(start);
        name.get(start + 1..start + 1 + usize::from(name[start]))
            .unwrap_or_default()
    })
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
    fn the_longest_and_the_deepest_name_fit() {
        let deep = "a.".repeat(127);
        let some = interest(&[], &[&deep]).unwrap();
        assert!(covers(&some, 1, &deep));
        assert!(!covers(&some, 1, &deep[2..]));
    }

    #[test]
    fn a_suffix_that_is_no_name_is_refused() {
        let error = interest(&[], &["fine.", "a..b"]).unwrap_err();
        assert!(error.contains("\"a..b\""), "{error}");
    }
}
