//! How what is known of a cluster is told.

use crate::config::{self, Pods};
use crate::dns::name::Name;
use crate::source::fallthrough::Fallthrough;

/// How what is known is told.
pub struct Rules {
    /// What services' names end in.
    pub domain: Name,
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

    /// Whether a name that does not exist is left to the next stage.
    pub fn falls_through(&self, name: &[u8]) -> bool {
        self.fallthrough.covers(name)
    }
}
