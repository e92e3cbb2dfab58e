//! Finds the zone that owns a name: the one with the longest matching suffix.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};

use crate::config::Network;
use crate::dns::name::Name;
use crate::dns::rtype;
use crate::dns::special::{self, Special};
use crate::dns::suffix_map::SuffixMap;

/// The owner of a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ZoneMatch {
    /// A pipeline of the configuration, and one of its zones.
    Pipeline {
        /// Index of the pipeline.
        pipeline: usize,
        /// Index among the pipeline's zones.
        zone: usize,
    },
    /// Answered by the proxy itself.
    Special(Special),
}

/// The owner of a suffix, or a list of owners that are each for some queries.
#[derive(Debug, Clone, Copy)]
enum Owner {
    One(ZoneMatch),
    ByQuery(usize),
}

/// The client and the listener of a query.
#[derive(Debug, Clone, Copy)]
pub struct Asker {
    /// The address that received the query, if any.
    pub listener: Option<SocketAddr>,
    /// The client's address.
    pub client: IpAddr,
}

/// Suffixes and their owners.
#[derive(Default)]
pub struct Zones {
    owners: SuffixMap<ZoneMatch>,
    /// All owners again, if some are only for some queries: then this is used instead of `owners`.
    disputed: Option<Box<Disputed>>,
    /// The length in bytes of each of these names, by name.
    pub lengths: SuffixMap<usize>,
}

/// Suffixes whose owners may depend on the client and the listener.
#[derive(Default)]
struct Disputed {
    owners: SuffixMap<Owner>,
    by_query: Vec<ByQuery>,
}

/// The owners of a name that has different zones for different queries.
struct ByQuery {
    of: Vec<Part>,
    /// The owner for all other queries; `None`: that of the parent name.
    others: Option<ZoneMatch>,
}

/// The queries that a zone is for: to this listener, from this network; `None` means any.
struct Part {
    listener: Option<SocketAddr>,
    network: Option<Network>,
    owner: ZoneMatch,
}

impl Part {
    fn has(&self, asker: &Asker) -> bool {
        self.listener
            .is_none_or(|listener| Some(listener) == asker.listener)
            && self.network.is_none_or(|network| network.contains(asker.client))
    }

    /// The part with the smallest network takes precedence.
    fn closeness(&self) -> (Option<u8>, bool) {
        (
            self.network.map(|network| network.length),
            self.listener.is_some(),
        )
    }
}

/// A pipeline's zones, and the queries that they are for.
pub struct OfPipeline<'a> {
    pub names: &'a [Name],
    /// The listeners; empty: all.
    pub on: &'a [SocketAddr],
    /// The client networks; empty: all.
    pub from: &'a [Network],
}

impl OfPipeline<'_> {
    /// The queries that they are for, one part per combination; empty: all.
    fn parts(&self, owner: ZoneMatch) -> Vec<Part> {
        if self.on.is_empty() && self.from.is_empty() {
            return Vec::new();
        }
        let parts = some_or_all(self.on).into_iter().flat_map(|listener| {
            let networks = some_or_all(self.from).into_iter();
            networks.map(move |network| Part {
                listener,
                network,
                owner,
            })
        });
        parts.collect()
    }
}

/// Each element of a list, or `None` for all if it is empty.
fn some_or_all<T: Copy>(list: &[T]) -> Vec<Option<T>> {
    match list {
        [] => vec![None],
        list => list.iter().copied().map(Some).collect(),
    }
}

impl Zones {
    /// Maps the zones of all pipelines, in their order, and the special-use names that they leave free; with
    /// `local`, also the zones that are served locally on demand.
    pub fn new<'a>(pipelines: impl Iterator<Item = OfPipeline<'a>>, local: bool) -> Zones {
        let mut zones = Zones::default();
        // In order of precedence.
        let mut of_all: Vec<(Vec<u8>, ZoneMatch)> = Vec::new();
        let mut of_some: HashMap<Vec<u8>, Vec<Part>> = HashMap::new();
        for (pipeline, written) in pipelines.enumerate() {
            for (zone, name) in written.names.iter().enumerate() {
                let owner = ZoneMatch::Pipeline { pipeline, zone };
                let parts = written.parts(owner);
                match parts.is_empty() {
                    true => of_all.push((name.as_bytes().to_vec(), owner)),
                    false => of_some.entry(name.as_bytes().to_vec()).or_default().extend(parts),
                }
            }
        }
        // After the configuration, which takes precedence.
        let on_demand = local.then(special::local).into_iter().flatten();
        for (name, special) in special::ALWAYS.into_iter().chain(on_demand) {
            let Ok(name) = Name::parse(name) else { continue };
            of_all.push((name.as_bytes().to_vec(), ZoneMatch::Special(special)));
        }
        for (name, owner) in &of_all {
            zones.owners.insert(name, *owner);
        }
        for name in of_some.keys().chain(of_all.iter().map(|(name, _)| name)) {
            zones.lengths.insert(name, name.len());
        }
        if !of_some.is_empty() {
            zones.disputed = Some(Box::new(Disputed::new(of_some, &of_all)));
        }
        zones
    }

    /// The owner of a lower-case name in wire format; `asker` is called only if owners depend on it.
    // Every query takes this path, which has one caller; without the hint, the compiler does not inline it.
    #[inline(always)]
    pub fn find(&self, name: &[u8], asker: impl Fn() -> Asker) -> Option<ZoneMatch> {
        match &self.disputed {
            Some(disputed) => disputed.find(name, &asker()),
            None => self.owners.longest(name).copied(),
        }
    }

    /// Whether the zone that answers a question depends on the client or the listener. For DS, it may be that of
    /// the name above.
    pub(crate) fn depends_on_asker(&self, name: &[u8], qtype: u16) -> bool {
        let by_query = |name: &[u8]| {
            self.disputed
                .as_ref()
                .and_then(|disputed| disputed.owners.longest(name))
                .is_some_and(|owner| matches!(owner, Owner::ByQuery(_)))
        };
        by_query(name) || qtype == rtype::DS && above(name).is_some_and(by_query)
    }

    /// The owner of a DS question. DS records are on the parent side of a zone cut (RFC 4035 section 3.1.4.1;
    /// RFC 8375 section 4 says the same of `home.arpa.`). If no pipeline owns the parent, the zone itself
    /// answers what it knows.
    #[cold]
    #[inline(never)]
    pub(crate) fn find_above_cut(&self, name: &[u8], asker: &Asker) -> Option<ZoneMatch> {
        let of = |name| self.find(name, || *asker);
        let own = of(name);
        let leaves = match own {
            Some(ZoneMatch::Special(special)) => special.leaves(),
            Some(ZoneMatch::Pipeline { .. }) => true,
            None => false,
        };
        match above(name)
            .filter(|_| leaves && self.lengths.get(name).is_some())
            .and_then(of)
        {
            Some(above @ ZoneMatch::Pipeline { .. }) => Some(above),
            _ => own,
        }
    }
}

impl Disputed {
    fn new(of_some: HashMap<Vec<u8>, Vec<Part>>, of_all: &[(Vec<u8>, ZoneMatch)]) -> Disputed {
        let mut disputed = Disputed::default();
        for (name, mut of) in of_some {
            of.sort_by_key(|part| Reverse(part.closeness()));
            let others = of_all.iter().find(|(known, _)| *known == name);
            let others = others.map(|(_, owner)| *owner);
            disputed
                .owners
                .insert(&name, Owner::ByQuery(disputed.by_query.len()));
            disputed.by_query.push(ByQuery { of, others });
        }
        // Names that are taken already stay.
        for (name, owner) in of_all {
            disputed.owners.insert(name, Owner::One(*owner));
        }
        disputed
    }

    /// The same, where owners depend on the client and the listener.
    #[inline(never)]
    fn find(&self, name: &[u8], asker: &Asker) -> Option<ZoneMatch> {
        let owner = match self.owners.longest(name).copied()? {
            Owner::One(owner) => Some(owner),
            Owner::ByQuery(index) => {
                let owners = self.by_query.get(index)?;
                let part = owners.of.iter().find(|part| part.has(asker));
                part.map(|part| part.owner).or(owners.others)
            }
        };
        match owner {
            None => self.find(above(name)?, asker),
            owner => owner,
        }
    }
}

/// A name without its first label; `None` for the root.
fn above(name: &[u8]) -> Option<&[u8]> {
    name.get(1 + usize::from(*name.first()?)..)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn somebody() -> Asker {
        Asker {
            listener: None,
            client: [192, 0, 2, 1].into(),
        }
    }

    fn of_all(names: &[Name]) -> OfPipeline<'_> {
        OfPipeline {
            names,
            on: &[],
            from: &[],
        }
    }

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
        let zones = Zones::new(pipelines.iter().map(|names| of_all(names)), true);
        let find = |name: &str| zones.find(Name::parse(name).unwrap().as_bytes(), somebody);
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
            assert_eq!(find(name), Some(expected), "{name}");
        }
        // RFC 4035 section 3.1.4.1, RFC 8375 section 4: DS at a zone cut is asked above it.
        let above = |name: &str| zones.find_above_cut(Name::parse(name).unwrap().as_bytes(), &somebody());
        let root = Some(ZoneMatch::Pipeline { pipeline: 1, zone: 0 });
        assert_eq!(above("home.arpa"), root);
        assert_ne!(above("x.home.arpa"), root);
        assert_eq!(above("cluster.local"), root);
        assert_eq!(above("a.cluster.local"), find("a.cluster.local"));
        assert_eq!(above("."), root);
        // RFC 6761 section 6.3, RFC 7686 section 2: such names are never asked upstream, and neither is their
        // delegation.
        assert_eq!(above("localhost"), find("localhost"));
        assert_eq!(
            above("a.localhost"),
            find("a.localhost"),
            "what is above it is special"
        );
        let only = names(&["a"]);
        let some = Zones::new([of_all(&only)].into_iter(), false);
        let find = |name: &str| some.find(Name::parse(name).unwrap().as_bytes(), somebody);
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
        let of_pipelines = pipelines
            .iter()
            .map(|(names, on)| OfPipeline { names, on, from: &[] });
        let zones = Zones::new(of_pipelines, false);
        let find = |name: &str, port| {
            let name = Name::parse(name).unwrap();
            let asker = || Asker {
                listener: Some(listener(port)),
                ..somebody()
            };
            match zones.find(name.as_bytes(), asker) {
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

    #[test]
    fn a_name_may_have_an_owner_for_each_network() {
        let names = |text: &str| vec![Name::parse(text).unwrap()];
        let network = |text: &str, length| Network::of(text.parse().unwrap(), length).unwrap();
        let listener = SocketAddr::from(([127, 0, 0, 1], 53));
        let pipelines = [
            (
                names("a.example"),
                vec![],
                vec![network("10.0.0.0", 8), network("2001:db8::", 32)],
            ),
            (names("a.example"), vec![], vec![network("10.1.0.0", 16)]),
            (names("a.example"), vec![listener], vec![network("10.1.2.0", 24)]),
            (names("a.example"), vec![], vec![]),
            (names("b.example"), vec![], vec![network("10.0.0.0", 8)]),
            (names("example"), vec![], vec![]),
        ];
        let of_pipelines = pipelines
            .iter()
            .map(|(names, on, from)| OfPipeline { names, on, from });
        let zones = Zones::new(of_pipelines, false);
        let find = |name: &str, client: &str, listener| {
            let client = client.parse().unwrap();
            match zones.find(Name::parse(name).unwrap().as_bytes(), || Asker {
                listener,
                client,
            }) {
                Some(ZoneMatch::Pipeline { pipeline, .. }) => pipeline,
                other => panic!("{other:?}"),
            }
        };
        for (client, listener, owner) in [
            ("10.2.0.1", None, 0),
            ("2001:db8::1", None, 0),
            ("10.1.2.3", None, 1),
            ("10.1.2.3", Some(listener), 2),
            ("192.0.2.1", Some(listener), 3),
        ] {
            assert_eq!(find("x.a.example", client, listener), owner, "{client}");
        }
        assert_eq!(find("b.example", "10.0.0.1", None), 4);
        // For other clients it has no zone, but its parent has.
        assert_eq!(find("b.example", "192.0.2.1", None), 5);
    }

    /// Below a zone of some clients, the zone above matters only for DS.
    #[test]
    fn a_zone_of_all_clients_is_theirs_wherever_it_stands() {
        let names = |text: &str| vec![Name::parse(text).unwrap()];
        let network = vec![Network::of("10.0.0.0".parse().unwrap(), 8).unwrap()];
        let pipelines = [
            (names("a.example"), network),
            (names("a.example"), vec![]),
            (names("b.a.example"), vec![]),
        ];
        let of_pipelines = pipelines
            .iter()
            .map(|(names, from)| OfPipeline { names, on: &[], from });
        let zones = Zones::new(of_pipelines, false);
        for (name, qtype, depends) in [
            ("a.example", rtype::A, true),
            ("x.a.example", rtype::A, true),
            ("b.a.example", rtype::A, false),
            ("x.b.a.example", rtype::A, false),
            ("b.a.example", rtype::DS, true),
            ("example", rtype::DS, false),
        ] {
            let name = Name::parse(name).unwrap();
            assert_eq!(
                zones.depends_on_asker(name.as_bytes(), qtype),
                depends,
                "{name} {qtype}"
            );
        }
    }
}
