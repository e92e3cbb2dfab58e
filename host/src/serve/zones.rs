//! Which zone owns a name: the one with the longest suffix that matches.

use std::collections::HashMap;
use std::net::SocketAddr;

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

/// What a suffix leads to: one owner, or a list of them, of which each has listeners of its own.
#[derive(Debug, Clone, Copy)]
enum Owner {
    One(ZoneMatch),
    ByListener(usize),
}

/// Suffixes and their owners.
#[derive(Default)]
pub struct Zones {
    owners: SuffixMap<ZoneMatch>,
    /// All of them once more where some are only for some listeners: then this is asked, and not the other.
    disputed: Option<Box<Disputed>>,
}

/// Suffixes whose owners may depend on the listener.
#[derive(Default)]
struct Disputed {
    owners: SuffixMap<Owner>,
    by_listener: Vec<ByListener>,
}

/// The owners of a name that different listeners have different zones for.
struct ByListener {
    of: Vec<(SocketAddr, ZoneMatch)>,
    /// Where the others lead, unless it is where the name above leads.
    others: Option<ZoneMatch>,
}

/// A pipeline's zones, and the listeners that they are for; none: all.
pub type OfPipeline<'a> = (&'a [Name], &'a [SocketAddr]);

impl Zones {
    /// The zones of all pipelines, in their order, and the special-use names they leave alone; if `local`, also the
    /// zones that are served locally on demand.
    pub fn new<'a>(pipelines: impl Iterator<Item = OfPipeline<'a>>, local: bool) -> Zones {
        let mut zones = Zones::default();
        let mut disputed = Disputed::default();
        let mut own = |name: &[u8], owner: ZoneMatch| {
            zones.owners.insert(name, owner);
            disputed.owners.insert(name, Owner::One(owner));
        };
        let mut of_some: HashMap<Vec<u8>, ByListener> = HashMap::new();
        for (pipeline, (names, listeners)) in pipelines.enumerate() {
            for (zone, name) in names.iter().enumerate() {
                let owner = ZoneMatch::Pipeline { pipeline, zone };
                if listeners.is_empty() {
                    own(name.as_bytes(), owner);
                    continue;
                }
                let owners = of_some.entry(name.as_bytes().to_vec()).or_insert(ByListener {
                    of: Vec::new(),
                    others: None,
                });
                owners
                    .of
                    .extend(listeners.iter().map(|listener| (*listener, owner)));
            }
        }
        // After the configuration, which may claim their names.
        let on_demand = local.then(special::local).into_iter().flatten();
        for (name, special) in special::ALWAYS.into_iter().chain(on_demand) {
            let Ok(name) = Name::parse(name) else { continue };
            match of_some.get_mut(name.as_bytes()) {
                Some(owners) => owners.others = Some(ZoneMatch::Special(special)),
                None => own(name.as_bytes(), ZoneMatch::Special(special)),
            }
        }
        for (name, owners) in of_some {
            let index = disputed.by_listener.len();
            disputed.owners.insert(&name, Owner::ByListener(index));
            disputed.by_listener.push(owners);
        }
        if !disputed.by_listener.is_empty() {
            zones.disputed = Some(Box::new(disputed));
        }
        zones
    }

    /// The owner of a question about a lowercased wire name that came to a listener.
    // Every query comes here from one place; left to itself, the compiler makes a call of it.
    #[inline(always)]
    pub fn find(
        &self,
        name: &[u8],
        qtype: u16,
        listener: impl Fn() -> Option<SocketAddr>,
    ) -> Option<ZoneMatch> {
        if let Some(disputed) = &self.disputed {
            return disputed.find(name, qtype, listener());
        }
        match self.owners.longest(name).copied() {
            Some(ZoneMatch::Special(special)) if special.leaves(name, qtype) => self.find_above(name, qtype),
            owner => owner,
        }
    }

    /// The owner of a question that is answered above its zone's cut.
    #[cold]
    fn find_above(&self, name: &[u8], qtype: u16) -> Option<ZoneMatch> {
        self.find(above(name)?, qtype, || None)
    }
}

impl Disputed {
    /// The same where owners depend on the listener.
    #[inline(never)]
    fn find(&self, name: &[u8], qtype: u16, listener: Option<SocketAddr>) -> Option<ZoneMatch> {
        let owner = match self.owners.longest(name).copied()? {
            Owner::One(owner) => Some(owner),
            Owner::ByListener(index) => {
                let owners = self.by_listener.get(index)?;
                let of_listener = owners.of.iter().find(|(of, _)| Some(*of) == listener);
                of_listener.map(|(_, owner)| *owner).or(owners.others)
            }
        };
        match owner {
            Some(ZoneMatch::Special(special)) if special.leaves(name, qtype) => {
                self.find(above(name)?, qtype, listener)
            }
            None => self.find(above(name)?, qtype, listener),
            owner => owner,
        }
    }
}

/// A name without its first label; none: it is the root.
fn above(name: &[u8]) -> Option<&[u8]> {
    name.get(1 + usize::from(*name.first()?)..)
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
        let zones = Zones::new(pipelines.iter().map(|names| (&names[..], &[][..])), true);
        let find = |name: &str, qtype| zones.find(Name::parse(name).unwrap().as_bytes(), qtype, || None);
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
        let only = names(&["a"]);
        let some = Zones::new([(&only[..], &[][..])].into_iter(), false);
        let find = |name: &str| some.find(Name::parse(name).unwrap().as_bytes(), rtype::A, || None);
        assert_eq!((find("b"), find("home.arpa")), (None, None));
        assert!(find("resolver.arpa").is_some(), "always");
        assert!(find(&"a.".repeat(127)).is_some());
    }

    #[test]
    fn a_name_may_have_an_owner_for_each_listener() {
        let names = |text: &str| vec![Name::parse(text).unwrap()];
        let listener = |port: u16| SocketAddr::from(([127, 0, 0, 1], port));
        let pipelines = [
            (names("."), vec![listener(1)]),
            (names("a.example"), vec![listener(1), listener(2)]),
            (names("b.a.example"), vec![listener(2)]),
            (names("localhost"), vec![listener(3)]),
            (names("example"), vec![]),
        ];
        let of_pipelines = pipelines.iter().map(|(names, on)| (&names[..], &on[..]));
        let zones = Zones::new(of_pipelines, false);
        let find = |name: &str, port| {
            let name = Name::parse(name).unwrap();
            match zones.find(name.as_bytes(), rtype::A, || Some(listener(port))) {
                Some(ZoneMatch::Pipeline { pipeline, .. }) => Some(pipeline),
                Some(ZoneMatch::Special(_)) => Some(99),
                None => None,
            }
        };
        for (name, owners) in [
            ("x.org", [Some(0), None, None]),
            ("x.a.example", [Some(1), Some(1), Some(4)]),
            ("x.y.b.a.example", [Some(1), Some(2), Some(4)]),
            ("example", [Some(4); 3]),
            ("x.localhost", [Some(99), Some(99), Some(3)]),
        ] {
            assert_eq!([1, 2, 3].map(|port| find(name, port)), owners, "{name}");
        }
    }
}
