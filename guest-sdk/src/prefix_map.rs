//! A map from address prefixes to values, with longest-prefix lookup.

use std::net::IpAddr;

use crate::Prefix;

/// A map from address prefixes to values; the longest matching prefix decides.
///
/// ```
/// use dnsweir_filter::{Prefix, PrefixMap};
/// # fn main() -> Result<(), dnsweir_filter::PrefixError> {
/// let mut tenants = PrefixMap::new();
/// tenants.insert("10.0.0.0/8".parse()?, "office");
/// tenants.insert("10.9.0.0/16".parse()?, "guests");
/// assert_eq!(tenants.get([10, 9, 1, 1].into()), Some(&"guests"));
/// assert_eq!(tenants.get([192, 0, 2, 1].into()), None);
/// # Ok(()) }
/// ```
///
/// Lookups try one prefix after the other, which is as fast as anything else for a few dozen.
#[derive(Debug, Clone)]
pub struct PrefixMap<V>(Vec<(Prefix, V)>);

impl<V> PrefixMap<V> {
    /// An empty map.
    pub fn new() -> PrefixMap<V> {
        PrefixMap(Vec::new())
    }

    /// Inserts a value. Of two with the same prefix, the first one wins.
    pub fn insert(&mut self, prefix: Prefix, value: V) {
        let longer = |(known, _): &(Prefix, V)| known.length() >= prefix.length();
        let at = self.0.partition_point(longer);
        self.0.insert(at, (prefix, value));
    }

    /// The value under the longest prefix that contains an address.
    pub fn get(&self, address: IpAddr) -> Option<&V> {
        let mut prefixes = self.0.iter();
        let (_, value) = prefixes.find(|(prefix, _)| prefix.contains(address))?;
        Some(value)
    }

    /// Whether the map is empty.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl<V> Default for PrefixMap<V> {
    fn default() -> PrefixMap<V> {
        PrefixMap::new()
    }
}

impl<V> Extend<(Prefix, V)> for PrefixMap<V> {
    fn extend<T: IntoIterator<Item = (Prefix, V)>>(&mut self, prefixes: T) {
        for (prefix, value) in prefixes {
            self.insert(prefix, value);
        }
    }
}
