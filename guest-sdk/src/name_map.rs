//! A map from names to values, with lookup by name, suffix or wildcard.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use crate::{Name, NameBuf};

/// A map from names to values, with fast lookup by name and by suffix.
///
/// ```
/// use dnsweir_filter::{NameBuf, NameMap};
/// # fn main() -> Result<(), dnsweir_filter::NameError> {
/// let mut owners = NameMap::new();
/// owners.insert("svc.cluster.local".parse()?, "cluster");
/// owners.insert("dev.svc.cluster.local".parse()?, "dev");
/// let asked: NameBuf = "api.dev.svc.cluster.local".parse()?;
/// let found: Vec<_> = owners.suffixes(&asked).map(|(_, owner)| *owner).collect();
/// assert_eq!(found, ["dev", "cluster"]);
/// # Ok(()) }
/// ```
///
/// The hash is fast but not keyed. That is safe for names from a configuration; do not fill a map with names
/// that clients choose.
#[derive(Debug, Clone)]
pub struct NameMap<V> {
    names: HashMap<NameBuf, V, BuildHasherDefault<WireHasher>>,
    /// A bit for each length in bytes that a name in the map has, so that few suffixes of a name need to be
    /// hashed.
    lengths: [u64; 4],
}

impl<V> NameMap<V> {
    /// An empty map.
    pub fn new() -> NameMap<V> {
        NameMap {
            names: HashMap::default(),
            lengths: [0; 4],
        }
    }

    /// Inserts a value, and returns the one it replaced.
    pub fn insert(&mut self, name: NameBuf, value: V) -> Option<V> {
        self.note(&name);
        self.names.insert(name, value)
    }

    /// The value under exactly this name.
    #[inline]
    pub fn get<'b>(&self, name: impl Into<Name<'b>>) -> Option<&V> {
        let wire = name.into().as_wire();
        let (word, bit) = position(wire);
        if self.lengths[word] & bit == 0 {
            return None;
        }
        self.find(wire)
    }

    fn find(&self, wire: &[u8]) -> Option<&V> {
        self.names.get(wire)
    }

    fn note(&mut self, name: &NameBuf) {
        let (word, bit) = position(name.as_name().as_wire());
        self.lengths[word] |= bit;
    }

    /// The value under exactly this name, inserted first if there is none.
    pub fn entry(&mut self, name: NameBuf) -> &mut V
    where
        V: Default,
    {
        self.note(&name);
        self.names.entry(name).or_default()
    }

    /// Every name in the map that the given name is at or below, the longest first.
    pub fn suffixes<'m, 'b>(&'m self, name: impl Into<Name<'b>>) -> impl Iterator<Item = (Name<'b>, &'m V)> {
        // An empty map matches nothing.
        let mut next = (!self.is_empty()).then(|| name.into());
        std::iter::from_fn(move || {
            while let Some(suffix) = next {
                next = suffix.parent();
                if let Some(value) = self.get(suffix) {
                    return Some((suffix, value));
                }
            }
            None
        })
    }

    /// The value under this name, or else under the closest wildcard above it. Unlike in a zone, a name
    /// between the two hides nothing.
    ///
    /// ```
    /// use dnsweir_filter::{NameBuf, NameMap};
    /// # fn main() -> Result<(), dnsweir_filter::NameError> {
    /// let mut services = NameMap::new();
    /// services.insert("*.mesh.test".parse()?, "any");
    /// services.insert("db.mesh.test".parse()?, "db");
    /// let matching = |name: &str| services.matching(&name.parse::<NameBuf>().ok()?).copied();
    /// assert_eq!(matching("db.mesh.test"), Some("db"));
    /// assert_eq!(matching("x.db.mesh.test"), Some("any"));
    /// assert_eq!(matching("mesh.test"), None);
    /// # Ok(()) }
    /// ```
    pub fn matching<'b>(&self, name: impl Into<Name<'b>>) -> Option<&V> {
        let name = name.into();
        if let Some(value) = self.get(name) {
            return Some(value);
        }
        // A label takes at least two bytes in wire format, as many as the asterisk label that replaces its
        // end.
        let mut wire = name.as_wire().to_vec();
        let mut at = 0;
        for label in name.labels() {
            at += 1 + label.len();
            wire[at - 2..at].copy_from_slice(b"\x01*");
            let (word, bit) = position(&wire[at - 2..]);
            if self.lengths[word] & bit != 0
                && let Some(value) = self.find(&wire[at - 2..])
            {
                return Some(value);
            }
        }
        None
    }

    /// All names and values, in arbitrary order.
    pub fn iter(&self) -> impl Iterator<Item = (&NameBuf, &V)> {
        self.names.iter()
    }

    /// The number of names.
    pub fn len(&self) -> usize {
        self.names.len()
    }

    /// Whether the map is empty.
    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }
}

impl<V> Default for NameMap<V> {
    fn default() -> NameMap<V> {
        NameMap::new()
    }
}

/// The word and bit for a name's length, which is at most 255 bytes.
fn position(wire: &[u8]) -> (usize, u64) {
    (wire.len() >> 6 & 3, 1 << (wire.len() & 63))
}

/// Multiplies and rotates eight bytes at a time, as rustc's own hash tables do.
#[derive(Debug, Clone, Copy, Default)]
struct WireHasher(u64);

impl WireHasher {
    fn add(&mut self, word: u64) {
        self.0 = (self.0.rotate_left(5) ^ word).wrapping_mul(0x517c_c1b7_2722_0a95);
    }
}

impl Hasher for WireHasher {
    fn write(&mut self, octets: &[u8]) {
        let (words, rest) = octets.as_chunks();
        for word in words {
            self.add(u64::from_le_bytes(*word));
        }
        self.add(rest.iter().fold(0, |all, &octet| all << 8 | u64::from(octet)));
    }

    /// Skips the length that precedes a slice: wire names need none, since they end with a zero byte.
    fn write_usize(&mut self, _: usize) {}

    fn finish(&self) -> u64 {
        // The high bits are the best mixed, but the hash table indexes by the low ones.
        self.0.rotate_left(26)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_closest_wildcard_matches() {
        let mut map = NameMap::new();
        for name in ["*", "*.test", "*.a.test", "a.test", "*.*.b.test"] {
            map.insert(name.parse().unwrap(), name);
        }
        for (name, found) in [
            ("a.test", Some("a.test")),
            ("x.a.test", Some("*.a.test")),
            ("x.y.a.test", Some("*.a.test")),
            ("*.a.test", Some("*.a.test")),
            ("x.*.b.test", Some("*.*.b.test")),
            ("x.b.test", Some("*.test")),
            ("other", Some("*")),
            (".", None),
        ] {
            let name: NameBuf = name.parse().unwrap();
            assert_eq!(map.matching(&name).copied(), found, "{name}");
        }
    }

    #[test]
    fn finds_names_and_suffixes() {
        let mut map = NameMap::new();
        for number in 0..10_000 {
            map.insert(format!("host-{number}.example.org").parse().unwrap(), number);
        }
        map.insert(NameBuf::root(), -1);
        for number in [0, 17, 9_999] {
            let name: NameBuf = format!("a.b.host-{number}.example.org").parse().unwrap();
            assert_eq!(map.get(&name), None);
            let found: Vec<_> = map
                .suffixes(&name)
                .map(|(at, value)| (at.to_string(), *value))
                .collect();
            assert_eq!(
                found,
                [(format!("host-{number}.example.org."), number), (".".into(), -1)]
            );
        }
        *map.entry("new.test".parse().unwrap()) += 5;
        assert_eq!(map.get(&"new.test".parse().unwrap()), Some(&5));
        assert_eq!(map.len(), 10_002);
    }
}
