//! What a filter keys by client or address: a list that answers for the longest prefix of an address.

use std::net::IpAddr;

use crate::Prefix;

/// Values by prefix, of which the longest that an address has decides.
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
/// Prefixes are tried one after the other, which is as quick as anything else for some dozens.
#[derive(Debug, Clone)]
pub struct PrefixMap<V>(Vec<(Prefix, V)>);

impl<V> PrefixMap<V> {
    /// An empty map.
    pub fn new() -> PrefixMap<V> {
        PrefixMap(Vec::new())
    }

    /// Puts a value in. Of two with the same prefix, the first one holds.
    pub fn insert(&mut self, prefix: Prefix, value: V) {
        let longer = |(known, _): &(Prefix, V)| known.length() >= prefix.length();
        let at = self.0.partition_point(longer);
        self.0.insert(at, (prefix, value));
    }

    /// The value under the longest prefix that an address has.
    pub fn get(&self, address: IpAddr) -> Option<&V> {
        let mut prefixes = self.0.iter();
        let (_, value) = prefixes.find(|(prefix, _)| prefix.contains(address))?;
        Some(value)
    }

    /// Whether there is none.
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
