//! Which hosts an object may answer for: its author, with rights in one namespace, affects every client.

use crate::config;
use crate::dns::name::{Name, is_at_or_below};

use super::host_name::HostName;

/// Which hosts are accepted from objects.
#[derive(Debug, Clone, Default)]
pub struct Rules {
    /// Only objects in these namespaces count; all if empty.
    namespaces: Vec<String>,
    /// Only hosts at or below these; all if empty.
    hosts: Vec<Name>,
    /// Names that are answered elsewhere.
    taken: Vec<Name>,
}

impl Rules {
    /// The rules of a configuration.
    pub fn of(config: &config::ServiceEntries) -> Rules {
        let names = |texts: &[String]| texts.iter().filter_map(|text| Name::parse(text).ok()).collect();
        Rules {
            namespaces: config.namespaces.clone(),
            hosts: names(&config.hosts),
            taken: names(&config.taken),
        }
    }

    /// Returns whether objects of a namespace count.
    pub(crate) fn are_for(&self, namespace: &str) -> bool {
        self.namespaces.is_empty() || self.namespaces.iter().any(|known| known == namespace)
    }

    /// Returns whether a host is among the configured ones.
    pub(crate) fn want(&self, host: &HostName) -> bool {
        let is_below = |above: &Name| is_at_or_below(&host.name, above.as_bytes());
        self.hosts.is_empty() || self.hosts.iter().any(is_below)
    }

    /// Why no object may answer for a host, if so.
    pub fn refusal(&self, host: &HostName) -> Option<String> {
        // One label and the root.
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
