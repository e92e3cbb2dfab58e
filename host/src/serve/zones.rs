//! Which zone owns a name: the one with the longest suffix that matches.

use std::hash::BuildHasher;

use foldhash::fast::FixedState;
use hashbrown::HashTable;

use crate::dns::name::{Name, suffixes};
use crate::dns::special::{self, Special};

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

/// Suffixes and their owners. A lookup costs one hash for each number of labels that some zone has, so
/// ten thousand zones cost what one does.
pub struct Zones {
    table: HashTable<(Box<[u8]>, Owner)>,
    hasher: FixedState,
    /// Bit n: some zone has n labels.
    lengths: u128,
}

impl Zones {
    /// The zones of all pipelines, in their order, and the special-use names they leave alone.
    pub fn new<'a>(pipelines: impl Iterator<Item = &'a [Name]>) -> Zones {
        let mut zones = Zones {
            table: HashTable::new(),
            hasher: FixedState::with_seed(0),
            lengths: 0,
        };
        for (pipeline, names) in pipelines.enumerate() {
            for (zone, name) in names.iter().enumerate() {
                zones.insert(name.as_bytes(), Owner::Pipeline { pipeline, zone });
            }
        }
        for (name, special) in special::ZONES {
            zones.insert(name, Owner::Special(special));
        }
        zones
    }

    /// The owner of a lowercased wire name.
    pub fn find(&self, name: &[u8]) -> Option<Owner> {
        let labels = suffixes(name).count() - 1;
        for (at, suffix) in suffixes(name).enumerate() {
            if self.lengths >> (labels - at) & 1 == 0 {
                continue;
            }
            let found = self
                .table
                .find(self.hasher.hash_one(suffix), |(zone, _)| **zone == *suffix);
            if let Some((_, owner)) = found {
                return Some(*owner);
            }
        }
        None
    }

    /// The first to claim a name keeps it: the configuration comes before the special-use names.
    fn insert(&mut self, name: &[u8], owner: Owner) {
        self.lengths |= 1 << (suffixes(name).count() - 1);
        let hash = self.hasher.hash_one(name);
        if self.table.find(hash, |(zone, _)| **zone == *name).is_none() {
            let hasher = &self.hasher;
            self.table
                .insert_unique(hash, (name.into(), owner), |(zone, _)| hasher.hash_one(&**zone));
        }
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
