//! How what is known of a cluster is told.

use crate::config::{self, Pods};
use crate::dns::name::{Name, is_at_or_below};
use dnsweir_answer::Fallthrough;
use dnsweir_answer::Question;

/// What the names of a domain are made of.
pub enum Schema {
    /// `SERVICE.NAMESPACE.svc`, and whatever else the specification has.
    Cluster,
    /// The same for services of several clusters.
    ClusterSet,
    /// `SERVICE.NAMESPACE`, by the addresses that the services have outside of the cluster.
    External {
        /// Whether services without such an address have their endpoints there, if they are headless.
        headless: bool,
        /// The label, in wire format, below which the zone itself has its names.
        apex: Box<[u8]>,
    },
}

impl Schema {
    /// What stands between a service's name and the domain, in wire format.
    pub fn middle(&self) -> &'static [u8] {
        match self {
            Schema::Cluster | Schema::ClusterSet => b"\x03svc",
            Schema::External { .. } => b"",
        }
    }

    /// What the name of the zone's server begins with, and that of whom to write to about it.
    pub(crate) fn people(&self) -> [Vec<u8>; 2] {
        let (server, person) = (b"\x03ns1".as_slice(), b"\x0ahostmaster".as_slice());
        match self {
            Schema::External { apex, .. } => [[server, apex].concat(), [person, apex].concat()],
            _ => [b"\x02ns\x03dns".to_vec(), person.to_vec()],
        }
    }
}

/// How what is known is told.
pub struct Rules {
    /// What services' names end in.
    pub domain: Name,
    /// Other domains, and what is in them.
    others: Vec<(Name, Schema)>,
    /// Which names of pods there are.
    pub pods: Pods,
    /// Whether services without endpoints do not exist.
    pub ignore_empty_services: bool,
    /// In seconds.
    pub ttl: u32,
    /// What pods search for names in after the domains of the cluster, in wire format; none: they search by themselves.
    pub autopath: Option<Box<[Name]>>,
    fallthrough: Fallthrough,
}

impl Rules {
    /// Those of a configuration.
    pub fn new(config: &config::Kubernetes) -> Rules {
        Rules {
            domain: Name::parse(&config.domain).unwrap_or(Name::ROOT),
            others: others(config),
            pods: config.pods,
            ignore_empty_services: config.ignore_empty_services,
            // An hour at most.
            ttl: config.ttl.as_secs() as u32,
            autopath: config.autopath.as_ref().map(|domains| {
                let names = domains.iter().filter_map(|domain| Name::parse(domain).ok());
                names.collect()
            }),
            fallthrough: Fallthrough::new(&config.fallthrough),
        }
    }

    /// The zone that a name is in, in wire format, and what is in it; none: it is in none.
    pub fn zone<'a>(&'a self, question: &'a Question<'_>) -> Option<(&'a [u8], &'a Schema)> {
        let domain = [(self.domain.as_bytes(), &Schema::Cluster)];
        let others = self.others.iter().map(|(name, schema)| (name.as_bytes(), schema));
        let all = domain.into_iter().chain(others);
        let around = all.filter(|(zone, _)| is_at_or_below(question.name, zone));
        around.max_by_key(|(zone, _)| zone.len()).or_else(|| {
            let zone = question.zone.as_bytes();
            is_at_or_below(question.name, zone).then_some((zone, &Schema::Cluster))
        })
    }

    /// The domain of services' outside addresses: the first, if there is any.
    pub fn external(&self) -> Option<(&[u8], &Schema)> {
        let mut others = self.others.iter();
        let found = others.find(|(_, schema)| matches!(schema, Schema::External { .. }));
        found.map(|(name, schema)| (name.as_bytes(), schema))
    }

    /// Whether a name that does not exist is left to the next stage.
    pub(crate) fn falls_through(&self, name: &[u8]) -> bool {
        self.fallthrough.covers(name)
    }
}

/// The domains besides that of the cluster itself.
fn others(config: &config::Kubernetes) -> Vec<(Name, Schema)> {
    let external = config.external.iter().flat_map(|external| {
        let apex = [&[external.apex.len() as u8], external.apex.as_bytes()].concat();
        external.zones.iter().map(move |zone| {
            let schema = Schema::External {
                headless: external.headless,
                apex: apex.clone().into(),
            };
            (zone, schema)
        })
    });
    let sets = config.multicluster.iter().map(|zone| (zone, Schema::ClusterSet));
    let parsed = external
        .chain(sets)
        .filter_map(|(zone, schema)| Some((Name::parse(zone).ok()?, schema)));
    parsed.collect()
}
