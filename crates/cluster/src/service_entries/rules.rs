//! Which hosts an object may answer for: whoever may write one in some namespace answers for the names of every client.

use crate::config;
use crate::dns::name::{Name, is_at_or_below};

use super::host_name::HostName;

/// What is taken from objects.
#[derive(Debug, Clone, Default)]
pub struct Rules {
    /// The namespaces whose objects count; none: all.
    namespaces: Vec<String>,
    /// Only hosts at or below these; none: all.
    hosts: Vec<Name>,
    /// Names that others answer for.
    taken: Vec<Name>,
}

impl Rules {
    /// What the configuration says.
    pub fn of(config: &config::ServiceEntries) -> Rules {
        let names = |texts: &[String]| texts.iter().filter_map(|text| Name::parse(text).ok()).collect();
        Rules {
            namespaces: config.namespaces.clone(),
            hosts: names(&config.hosts),
            taken: names(&config.taken),
        }
    }

    /// Whether objects of a namespace count.
    pub(crate) fn are_for(&self, namespace: &str) -> bool {
        self.namespaces.is_empty() || self.namespaces.iter().any(|known| known == namespace)
    }

    /// Whether a host is one of those that are asked for.
    pub(crate) fn want(&self, host: &HostName) -> bool {
        let is_below = |above: &Name| is_at_or_below(&host.name, above.as_bytes());
        self.hosts.is_empty() || self.hosts.iter().any(is_below)
    }

    /// Why a host is nobody's to answer for, if it is not.
    pub fn refusal(&self, host: &HostName) -> Option<String> {
        // One label, and the root behind it.
        let is_label = host
            .name
            .first()
            .is_some_and(|&length| host.name.len() == usize::from(length) + 2);
        if is_label && host.wildcard {
            return Some("it is all names of a top-level domain".to_owned());
        } else if is_label {
            return Some("it has one label".to_owned());
        }
        let of = |above: &&Name| is_at_or_below(&host.name, above.as_bytes());
        let taken = self.taken.iter().find(of)?;
        Some(format!("{taken} is answered elsewhere"))
    }
}
