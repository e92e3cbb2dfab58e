//! Values by name; a lookup finds the longest name at or above the one looked up.

use std::hash::BuildHasher;

use foldhash::fast::FixedState;
use hashbrown::HashTable;

/// A map from names to values; a lookup returns the value of the longest suffix in the map.
///
/// A lookup walks the name once and hashes only suffixes as long as some name in the map, so that ten
/// thousand names cost as much as one, and an unrelated name costs next to nothing. The names come from an
/// operator or a filter, not from clients, so the hash needs no random key.
#[derive(Debug, Clone)]
pub struct SuffixMap<V> {
    table: HashTable<(Box<[u8]>, V)>,
    hasher: FixedState,
    /// Bit n: some name is n bytes long. No name is longer than 255 (RFC 1035 section 2.3.4).
    lengths: [u64; 4],
    /// The root's value, for names without any other match.
    root: Option<V>,
}

impl<V> Default for SuffixMap<V> {
    fn default() -> SuffixMap<V> {
        SuffixMap {
            table: HashTable::new(),
            hasher: FixedState::with_seed(0),
            lengths: [0; 4],
            root: None,
        }
    }
}

impl<V> SuffixMap<V> {
    /// Inserts a value under a lowercased wire name, unless there is one: the first to claim a name keeps it.
    pub fn insert(&mut self, name: &[u8], value: V) {
        if let [0] = name {
            self.root.get_or_insert(value);
            return;
        }
        if self.get(name).is_none() {
            let (word, bit) = place(name);
            self.lengths[word] |= bit;
            let hasher = &self.hasher;
            self.table
                .insert_unique(hasher.hash_one(name), (name.into(), value), |(name, _)| {
                    hasher.hash_one(&**name)
                });
        }
    }

    /// The value of the longest name in the map that `name`, a lowercased wire name, is at or below.
    #[inline]
    pub fn longest(&self, name: &[u8]) -> Option<&V> {
        let mut rest = name;
        while let [length @ 1..=255, tail @ ..] = rest {
            let (word, bit) = place(rest);
            if self.lengths[word] & bit != 0
                && let Some(value) = self.get(rest)
            {
                return Some(value);
            }
            rest = tail.get(usize::from(*length)..)?;
        }
        self.root.as_ref()
    }

    /// The value of exactly this name; does not find the root's.
    pub fn get(&self, name: &[u8]) -> Option<&V> {
        let found = self
            .table
            .find(self.hasher.hash_one(name), |(known, _)| **known == *name);
        found.map(|(_, value)| value)
    }
}

/// The word and bit for a name's length.
fn place(name: &[u8]) -> (usize, u64) {
    (name.len() >> 6 & 3, 1 << (name.len() & 63))
}

#[cfg(test)]
mod tests {
    use super::super::name::Name;
    use super::*;

    fn wire(text: &str) -> Name {
        Name::parse(text).unwrap()
    }

    #[test]
    fn the_longest_name_wins_and_ends_at_a_label() {
        let mut map = SuffixMap::default();
        for name in ["local", "cluster.local", "b.example.org", "cluster.local"] {
            map.insert(wire(name).as_bytes(), name.len());
        }
        let longest = |name: &str| map.longest(wire(name).as_bytes()).copied();
        for (name, expected) in [
            ("cluster.local", Some(13)),
            ("a.cluster.local", Some(13)),
            ("mycluster.local", Some(5)),
            ("local", Some(5)),
            ("x.y.b.example.org", Some(13)),
            ("c.example.org", None),
            ("org", None),
            (".", None),
        ] {
            assert_eq!(longest(name), expected, "{name}");
        }
    }

    #[test]
    fn the_root_is_what_is_left() {
        let mut map = SuffixMap::default();
        map.insert(&[0], "root");
        map.insert(&[0], "later");
        map.insert(wire("a").as_bytes(), "a");
        assert_eq!(map.longest(wire("b.a").as_bytes()), Some(&"a"));
        assert_eq!(map.longest(wire("b").as_bytes()), Some(&"root"));
        assert_eq!(map.longest(&[0]), Some(&"root"));
    }

    #[test]
    fn the_longest_and_the_deepest_name_fit() {
        let deep = wire(&"a.".repeat(127));
        let mut map = SuffixMap::default();
        map.insert(deep.as_bytes(), ());
        assert!(map.longest(deep.as_bytes()).is_some());
        assert!(map.longest(&deep.as_bytes()[2..]).is_none());
    }

    #[test]
    fn what_is_no_name_has_no_value() {
        let mut map = SuffixMap::default();
        map.insert(&[0], ());
        assert!(map.longest(b"\x05abc").is_none());
    }
}
