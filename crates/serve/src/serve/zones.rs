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
    disputed: Option<Box<SuffixMap<Owners>>>,
    /// The length in bytes of each of these names, by name.
    pub lengths: SuffixMap<usize>,
}

/// The owners of a name, which may have different zones for different queries.
struct Owners {
    /// Those for some queries, the closest first.
    some: Vec<Part>,
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
            zones.disputed = Some(Box::new(disputed(of_some, &of_all)));
        }
        zones
    }

    /// The owner of a lower-case name in wire format; `asker` is called only if owners depend on it.
    // Every query takes this path, which has one caller; without the hint, the compiler does not inline it.
    #[inline(always)]
    pub fn find(&self, name: &[u8], asker: impl Fn() -> Asker) -> Option<ZoneMatch> {
        match &self.disputed {
            Some(disputed) => find_disputed(disputed, name, &asker()),
            None => self.owners.longest(name).copied(),
        }
    }

    /// Whether the zone that answers a question depends on the client or the listener. For DS, it may be that of
    /// the name above.
    pub(crate) fn depends_on_asker(&self, name: &[u8], qtype: u16) -> bool {
        let by_query = |name: &[u8]| {
            let owners = self.disputed.as_ref();
            let owners = owners.and_then(|disputed| disputed.longest(name));
            owners.is_some_and(|owners| !owners.some.is_empty())
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

/// All owners, where some are only for some queries.
fn disputed(of_some: HashMap<Vec<u8>, Vec<Part>>, of_all: &[(Vec<u8>, ZoneMatch)]) -> SuffixMap<Owners> {
    let mut disputed = SuffixMap::default();
    for (name, mut some) in of_some {
        some.sort_by_key(|part| Reverse(part.closeness()));
        let others = of_all.iter().find(|(known, _)| *known == name);
        let others = others.map(|(_, owner)| *owner);
        disputed.insert(&name, Owners { some, others });
    }
    // Names that are taken already stay.
    for (name, owner) in of_all {
        let (some, others) = (Vec::new(), Some(*owner));
        disputed.insert(name, Owners { some, others });
    }
    disputed
}

/// The owner of a name for this client and listener.
#[inline(never)]
fn find_disputed(disputed: &SuffixMap<Owners>, name: &[u8], asker: &Asker) -> Option<ZoneMatch> {
    let mut name = name;
    loop {
        let owners = disputed.longest(name)?;
        let part = owners.some.iter().find(|part| part.has(asker));
        match part.map(|part| part.owner).or(owners.others) {
            None => name = above(name)?,
            owner => return owner,
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

    /// A pipeline's zones, its listeners and its networks.
    type Written<'a> = (&'a [&'a str], &'a [SocketAddr], &'a [Network]);

    fn zones(pipelines: &[Written<'_>], local: bool) -> Zones {
        let parse = |texts: &[&str]| texts.iter().map(|text| name(text)).collect::<Vec<Name>>();
        let names: Vec<_> = pipelines.iter().map(|(texts, ..)| parse(texts)).collect();
        let of_pipelines = pipelines.iter().zip(&names);
        let of_pipelines = of_pipelines.map(|(&(_, on, from), names)| OfPipeline { names, on, from });
        Zones::new(of_pipelines, local)
    }

    fn name(text: &str) -> Name {
        Name::parse(text).unwrap()
    }

    fn listener(port: u16) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], port))
    }

    fn network(text: &str, length: u8) -> Network {
        Network::of(text.parse().unwrap(), length).unwrap()
    }

    fn somebody() -> Asker {
        Asker {
            listener: None,
            client: [192, 0, 2, 1].into(),
        }
    }

    /// The pipeline that owns a name; 99: the proxy itself.
    fn owner(zones: &Zones, text: &str, asker: Asker) -> Option<usize> {
        let owner = zones.find(name(text).as_bytes(), || asker)?;
        Some(match owner {
            ZoneMatch::Pipeline { pipeline, .. } => pipeline,
            ZoneMatch::Special(_) => 99,
        })
    }

    #[test]
    fn the_longest_suffix_wins() {
        let all = zones(
            &[
                (&["cluster.local", "10.in-addr.arpa"], &[], &[]),
                (&["."], &[], &[]),
                (&["a.localhost"], &[], &[]),
            ],
            true,
        );
        let find = |text: &str| all.find(name(text).as_bytes(), somebody);
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
        let above = |text: &str| all.find_above_cut(name(text).as_bytes(), &somebody());
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
        let some = zones(&[(&["a"], &[], &[])], false);
        let find = |text: &str| owner(&some, text, somebody());
        assert_eq!((find("b"), find("home.arpa")), (None, None));
        assert!(find("resolver.arpa").is_some(), "always");
        assert!(find(&"a.".repeat(127)).is_some());
    }

    #[test]
    fn a_name_may_have_an_owner_for_each_listener() {
        let zones = zones(
            &[
                (&["."], &[listener(1)], &[]),
                (&["a.example"], &[listener(1), listener(2)], &[]),
                (&["b.a.example"], &[listener(2)], &[]),
                (&["localhost"], &[listener(3)], &[]),
                (&["example"], &[], &[]),
            ],
            false,
        );
        let find = |name: &str, port| {
            let mut asker = somebody();
            asker.listener = Some(listener(port));
            owner(&zones, name, asker)
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
        let ten = network("10.0.0.0", 8);
        let zones = zones(
            &[
                (&["a.example"], &[], &[ten, network("2001:db8::", 32)]),
                (&["a.example"], &[], &[network("10.1.0.0", 16)]),
                (&["a.example"], &[listener(53)], &[network("10.1.2.0", 24)]),
                (&["a.example"], &[], &[]),
                (&["b.example"], &[], &[ten]),
                (&["example"], &[], &[]),
            ],
            false,
        );
        let find = |name: &str, client: &str, listener| {
            let client = client.parse().unwrap();
            owner(&zones, name, Asker { listener, client })
        };
        for (client, listener, owner) in [
            ("10.2.0.1", None, 0),
            ("2001:db8::1", None, 0),
            ("10.1.2.3", None, 1),
            ("10.1.2.3", Some(listener(53)), 2),
            ("192.0.2.1", Some(listener(53)), 3),
        ] {
            assert_eq!(find("x.a.example", client, listener), Some(owner), "{client}");
        }
        assert_eq!(find("b.example", "10.0.0.1", None), Some(4));
        // For other clients it has no zone, but its parent has.
        assert_eq!(find("b.example", "192.0.2.1", None), Some(5));
    }

    /// Below a zone of some clients, the zone above matters only for DS.
    #[test]
    fn a_zone_of_all_clients_is_theirs_wherever_it_stands() {
        let zones = zones(
            &[
                (&["a.example"], &[], &[network("10.0.0.0", 8)]),
                (&["a.example"], &[], &[]),
                (&["b.a.example"], &[], &[]),
            ],
            false,
        );
        for (text, qtype, depends) in [
            ("a.example", rtype::A, true),
            ("x.a.example", rtype::A, true),
            ("b.a.example", rtype::A, false),
            ("x.b.a.example", rtype::A, false),
            ("b.a.example", rtype::DS, true),
            ("example", rtype::DS, false),
        ] {
            let found = zones.depends_on_asker(name(text).as_bytes(), qtype);
            assert_eq!(found, depends, "{text} {qtype}");
        }
    }
}
