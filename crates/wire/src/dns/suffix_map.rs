//! Values under names, found for every name at or below: the longest one wins.

use std::hash::BuildHasher;

use foldhash::fast::FixedState;
use hashbrown::HashTable;

/// A map from names to values, asked with a name for the value of its longest suffix that has one.
///
/// A lookup walks the name once and hashes only suffixes as long as some name of the map, so that ten thousand
/// names cost what one does, and a name that has nothing to do with the map costs next to nothing. The names are
/// an operator's or a filter's, not a client's: the hash needs no key.
#[derive(Debug, Clone)]
pub struct SuffixMap<V> {
    table: HashTable<(Box<[u8]>, V)>,
    hasher: FixedState,
    /// Bit n: some name has n octets. No name has more than 255 (RFC 1035 section 2.3.4).
    lengths: [u64; 4],
    /// The root's value, which every name comes to that comes to no other.
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
    /// Puts a value under a lowercased wire name, unless there is one already: the first to claim a name keeps it.
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

    /// The value under the longest name that `name`, a lowercased wire name, is at or below.
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

    /// The value under this very name; the root's is that of no name.
    pub fn get(&self, name: &[u8]) -> Option<&V> {
        let found = self
            .table
            .find(self.hasher.hash_one(name), |(known, _)| **known == *name);
        found.map(|(_, value)| value)
    }
}

/// Where a name's length has its bit.
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
