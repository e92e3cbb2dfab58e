//! Which zone owns a name: the one with the longest suffix that matches.

use crate::dns::name::Name;
use crate::dns::special::{self, Special};
use crate::dns::suffix_map::SuffixMap;

/// What a zone's names lead to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Owner {
    /// A pipeline of the configuration, and which of its zones it was.
    Pipeline {
        /// Index of the pipeline.
        pipeline: usize,
        /// Index among the pipeline's zones.
        zone: usize,
    },
    /// Answered by the proxy itself.
    Special(Special),
}

/// Suffixes and their owners.
pub struct Zones(SuffixMap<Owner>);

impl Zones {
    /// The zones of all pipelines, in their order, and the special-use names they leave alone.
    pub fn new<'a>(pipelines: impl Iterator<Item = &'a [Name]>) -> Zones {
        let mut zones = SuffixMap::default();
        for (pipeline, names) in pipelines.enumerate() {
            for (zone, name) in names.iter().enumerate() {
                zones.insert(name.as_bytes(), Owner::Pipeline { pipeline, zone });
            }
        }
        // After the configuration, which may claim their names.
        for (name, special) in special::ZONES {
            zones.insert(name, Owner::Special(special));
        }
        Zones(zones)
    }

    /// The owner of a lowercased wire name.
    #[inline]
    pub fn find(&self, name: &[u8]) -> Option<Owner> {
        self.0.longest(name).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_suffix_wins() {
        let names = |texts: &[&str]| {
            texts
                .iter()
                .map(|text| Name::parse(text).unwrap())
                .collect::<Vec<_>>()
        };
        let pipelines = [
            names(&["cluster.local", "10.in-addr.arpa"]),
            names(&["."]),
            names(&["a.localhost"]),
        ];
        let zones = Zones::new(pipelines.iter().map(Vec::as_slice));
        for (name, expected) in [
            ("cluster.local", Owner::Pipeline { pipeline: 0, zone: 0 }),
            ("a.b.cluster.local", Owner::Pipeline { pipeline: 0, zone: 0 }),
            ("1.10.in-addr.arpa", Owner::Pipeline { pipeline: 0, zone: 1 }),
            ("xcluster.local", Owner::Pipeline { pipeline: 1, zone: 0 }),
            (".", Owner::Pipeline { pipeline: 1, zone: 0 }),
            ("localhost", Owner::Special(Special::Loopback)),
            ("x.localhost", Owner::Special(Special::Loopback)),
            ("x.a.localhost", Owner::Pipeline { pipeline: 2, zone: 0 }),
            ("x.onion", Owner::Special(Special::Nonexistent)),
        ] {
            assert_eq!(
                zones.find(Name::parse(name).unwrap().as_bytes()),
                Some(expected),
                "{name}"
            );
        }
        let some = Zones::new([names(&["a"])].iter().map(Vec::as_slice));
        assert_eq!(some.find(Name::parse("b").unwrap().as_bytes()), None);
        let longest = Name::parse(&"a.".repeat(127)).unwrap();
        assert!(some.find(longest.as_bytes()).is_some());
    }
}
