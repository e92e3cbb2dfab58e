//! `fallthrough`: which names that a source does not have are left to the zone's next stage.

use crate::dns::name::Name;
use crate::dns::suffix_map::SuffixMap;

/// Those names, and all below them.
pub struct Fallthrough(SuffixMap<()>);

impl Fallthrough {
    /// The names have been checked with the configuration.
    pub fn new(names: &[String]) -> Fallthrough {
        let mut map = SuffixMap::default();
        for name in names.iter().filter_map(|name| Name::parse(name).ok()) {
            map.insert(name.as_bytes(), ());
        }
        Fallthrough(map)
    }

    /// Whether this one is left to the next stage.
    pub fn covers(&self, name: &[u8]) -> bool {
        self.0.longest(name).is_some()
    }
}
