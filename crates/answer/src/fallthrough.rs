//! `fallthrough`: names that are passed on to the zone's next stage if the source does not have them.

use crate::dns::name::Name;
use crate::dns::suffix_map::SuffixMap;

/// These names, and all below them.
pub struct Fallthrough(SuffixMap<()>);

impl Fallthrough {
    /// Creates the set. The configuration has already checked the names.
    pub fn new(names: &[String]) -> Fallthrough {
        let mut map = SuffixMap::default();
        for name in names.iter().filter_map(|name| Name::parse(name).ok()) {
            map.insert(name.as_bytes(), ());
        }
        Fallthrough(map)
    }

    /// Whether `name` is passed on to the next stage.
    pub fn covers(&self, name: &[u8]) -> bool {
        self.0.longest(name).is_some()
    }
}
