//! The rules for answers from a cluster.

use crate::config::{self, Pods};
use crate::dns::name::{Name, is_at_or_below};
use dnsweir_answer::Fallthrough;
use dnsweir_answer::Question;

/// The name schema of a domain.
pub enum Schema {
    /// `SERVICE.NAMESPACE.svc`, and the rest of the specification.
    Cluster,
    /// The same for multi-cluster services.
    ClusterSet,
    /// `SERVICE.NAMESPACE`, with the services' addresses outside the cluster.
    External {
        /// Whether headless services without such an address get their endpoints' addresses.
        headless: bool,
        /// The label, in wire format, above the zone's own names.
        apex: Box<[u8]>,
    },
}

impl Schema {
    /// The labels between a service's name and the domain, in wire format.
    pub fn middle(&self) -> &'static [u8] {
        match self {
            Schema::Cluster | Schema::ClusterSet => b"\x03svc",
            Schema::External { .. } => b"",
        }
    }

    /// The first labels of the SOA record's server name and mailbox.
    pub(crate) fn people(&self) -> [Vec<u8>; 2] {
        let (server, person) = (b"\x03ns1".as_slice(), b"\x0ahostmaster".as_slice());
        match self {
            Schema::External { apex, .. } => [[server, apex].concat(), [person, apex].concat()],
            _ => [b"\x02ns\x03dns".to_vec(), person.to_vec()],
        }
    }
}

/// The rules for answers from a cluster.
pub struct Rules {
    /// The cluster's domain.
    pub domain: Name,
    /// Other domains, and their schemas.
    others: Vec<(Name, Schema)>,
    /// Which names of pods exist.
    pub pods: Pods,
    /// Whether services without endpoints do not exist.
    pub ignore_empty_services: bool,
    /// In seconds.
    pub ttl: u32,
    /// Domains that pods search after the cluster's; `None` if their search is left to them.
    pub autopath: Option<Box<[Name]>>,
    fallthrough: Fallthrough,
}

impl Rules {
    /// The rules of a configuration.
    pub fn new(config: &config::Kubernetes) -> Rules {
        Rules {
            domain: Name::parse(&config.domain).unwrap_or(Name::ROOT),
            others: others(config),
            pods: config.pods,
            ignore_empty_services: config.ignore_empty_services,
            // At most an hour.
            ttl: config.ttl.as_secs() as u32,
            autopath: config.autopath.as_ref().map(|domains| {
                let names = domains.iter().filter_map(|domain| Name::parse(domain).ok());
                names.collect()
            }),
            fallthrough: Fallthrough::new(&config.fallthrough),
        }
    }

    /// The innermost zone of a name, in wire format, and its schema; `None` if it is in none.
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

    /// The first domain of services' outside addresses, if any.
    pub fn external(&self) -> Option<(&[u8], &Schema)> {
        let mut others = self.others.iter();
        let found = others.find(|(_, schema)| matches!(schema, Schema::External { .. }));
        found.map(|(name, schema)| (name.as_bytes(), schema))
    }

    /// Returns whether a nonexistent name is passed to the next stage.
    pub(crate) fn falls_through(&self, name: &[u8]) -> bool {
        self.fallthrough.covers(name)
    }
}

/// The domains other than the cluster's own.
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
