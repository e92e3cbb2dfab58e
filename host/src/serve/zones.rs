//! Which zone owns a name: the one with the longest suffix that matches.

use crate::dns::name::Name;
use crate::dns::special::{self, Special};
use crate::dns::suffix_map::SuffixMap;

/// What a zone's names lead to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ZoneMatch {
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
pub struct Zones(SuffixMap<ZoneMatch>);

impl Zones {
    /// The zones of all pipelines, in their order, and the special-use names they leave alone; if `local`, also the
    /// zones that are served locally on demand.
    pub fn new<'a>(pipelines: impl Iterator<Item = &'a [Name]>, local: bool) -> Zones {
        let mut zones = SuffixMap::default();
        for (pipeline, names) in pipelines.enumerate() {
            for (zone, name) in names.iter().enumerate() {
                zones.insert(name.as_bytes(), ZoneMatch::Pipeline { pipeline, zone });
            }
        }
        // After the configuration, which may claim their names.
        let on_demand = local.then(special::local).into_iter().flatten();
        for (name, special) in special::ALWAYS.into_iter().chain(on_demand) {
            if let Ok(name) = Name::parse(name) {
                zones.insert(name.as_bytes(), ZoneMatch::Special(special));
            }
        }
        Zones(zones)
    }

    /// The owner of a question about a lowercased wire name.
    // Every query comes here from one place; left to itself, the compiler makes a call of it.
    #[inline(always)]
    pub fn find(&self, name: &[u8], qtype: u16) -> Option<ZoneMatch> {
        match self.0.longest(name).copied() {
            Some(ZoneMatch::Special(special)) if special.leaves(name, qtype) => self.find_above(name, qtype),
            owner => owner,
        }
    }

    /// The owner of a question that is answered above its zone's cut.
    #[cold]
    fn find_above(&self, name: &[u8], qtype: u16) -> Option<ZoneMatch> {
        let above = name.get(1 + usize::from(*name.first()?)..)?;
        self.find(above, qtype)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dns::rtype;

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
        let zones = Zones::new(pipelines.iter().map(Vec::as_slice), true);
        let find = |name: &str, qtype| zones.find(Name::parse(name).unwrap().as_bytes(), qtype);
        for (name, expected) in [
            ("cluster.local", ZoneMatch::Pipeline { pipeline: 0, zone: 0 }),
            ("a.b.cluster.local", ZoneMatch::Pipeline { pipeline: 0, zone: 0 }),
            ("1.10.in-addr.arpa", ZoneMatch::Pipeline { pipeline: 0, zone: 1 }),
            ("xcluster.local", ZoneMatch::Pipeline { pipeline: 1, zone: 0 }),
            (".", ZoneMatch::Pipeline { pipeline: 1, zone: 0 }),
            ("localhost", ZoneMatch::Special(Special::Loopback)),
            ("x.localhost", ZoneMatch::Special(Special::Loopback)),
            ("x.a.localhost", ZoneMatch::Pipeline { pipeline: 2, zone: 0 }),
            ("x.onion", ZoneMatch::Special(Special::Nonexistent)),
            (
                "_dns.resolver.arpa",
                ZoneMatch::Special(Special::Bare("resolver.arpa.")),
            ),
            ("x.home.arpa", ZoneMatch::Special(Special::Empty("home.arpa."))),
            (
                "1.31.172.in-addr.arpa",
                ZoneMatch::Special(Special::Empty("31.172.in-addr.arpa.")),
            ),
        ] {
            assert_eq!(find(name, rtype::PTR), Some(expected), "{name}");
        }
        // RFC 8375 section 4: what is at the cut is asked above it.
        let root = Some(ZoneMatch::Pipeline { pipeline: 1, zone: 0 });
        assert_eq!(find("home.arpa", rtype::DS), root);
        assert_ne!(find("x.home.arpa", rtype::DS), root);
        let some = Zones::new([names(&["a"])].iter().map(Vec::as_slice), false);
        let find = |name: &str| some.find(Name::parse(name).unwrap().as_bytes(), rtype::A);
        assert_eq!((find("b"), find("home.arpa")), (None, None));
        assert!(find("resolver.arpa").is_some(), "always");
        assert!(find(&"a.".repeat(127)).is_some());
    }
}
