//! `ServiceEntry` objects, reduced to what DNS answers need.

use std::net::IpAddr;

use serde::Deserialize;

use super::host_name::{HostName, Malformed};
use super::rules::Rules;
use crate::api_server::{Object, Reading};

/// Their API group.
pub const GROUP: &str = "networking.istio.io";

/// The supported versions. They agree in everything that is read here.
pub(crate) const VERSIONS: [&str; 3] = ["v1", "v1beta1", "v1alpha3"];

/// The `exportTo` value for all namespaces.
const EVERYWHERE: &str = "*";

/// The resolution of an entry whose clients know the address already.
const NONE: &str = "NONE";

/// The object, reduced to the fields that are read.
pub type ServiceEntry = Object<Spec, Status>;

/// The specification of the object.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Spec {
    #[serde(default)]
    hosts: Vec<String>,
    #[serde(default)]
    addresses: Vec<String>,
    #[serde(default)]
    export_to: Vec<String>,
    #[serde(default)]
    resolution: Option<String>,
}

/// The status of the object.
#[derive(Debug, Clone, Default, Deserialize)]
pub struct Status {
    #[serde(default)]
    addresses: Vec<Assigned>,
}

/// An address that Istio assigned to a host.
#[derive(Debug, Clone, Default, Deserialize)]
struct Assigned {
    #[serde(default)]
    value: String,
    #[serde(default)]
    host: String,
}

/// What is known of an object.
#[derive(Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its precedence over other objects.
    pub rank: Rank,
    /// Its hosts.
    pub hosts: Box<[Host]>,
}

/// Precedence among objects with the same host: the oldest, then the first by name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rank {
    created: Option<i64>,
    /// `NAMESPACE/NAME`
    pub name: Box<str>,
}

/// A host name and its addresses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Host {
    /// The name.
    pub name: HostName,
    /// Its addresses; if empty, it gets one of each configured range.
    pub addresses: Box<[IpAddr]>,
}

impl Entry {
    /// Reads an object as far as the rules permit; `refuse` is called for each host that they do not.
    pub fn read(
        object: ServiceEntry,
        rules: &Rules,
        refuse: impl Fn(&str),
    ) -> Result<Reading<Entry>, Malformed> {
        let ServiceEntry {
            metadata,
            spec,
            status,
        } = object;
        let (created, spec) = (metadata.created(), spec.unwrap_or_default());
        let is_everywhere = spec.export_to.is_empty() || spec.export_to.iter().any(|to| to == EVERYWHERE);
        let namespace = metadata.namespace.unwrap_or_default();
        if !is_everywhere || !rules.are_for(&namespace) {
            return Ok(Reading::Nothing);
        }
        let object = format!("{namespace}/{}", metadata.name.unwrap_or_default());
        let status = status.unwrap_or_default();
        let own = addresses(spec.addresses.iter().map(String::as_str));
        let has_own = !spec.addresses.is_empty();
        let mut hosts = Vec::new();
        for host in &spec.hosts {
            let name = HostName::read(host)?;
            if !rules.want(&name) {
                continue;
            }
            if let Some(why) = rules.refusal(&name) {
                refuse(&format!("{name} of {object} is left out: {why}"));
                continue;
            }
            let assigned = status.addresses.iter();
            let assigned = assigned.filter(|assigned| assigned.host.is_empty() || assigned.host == *host);
            let addresses = match has_own {
                true => own.clone(),
                false => addresses(assigned.map(|assigned| &*assigned.value)),
            };
            // Networks are no answer, and clients that must know the address already get none from a range.
            let is_known = spec.resolution.as_deref().unwrap_or(NONE) == NONE;
            let is_new = !hosts.iter().any(|known: &Host| known.name == name);
            if is_new && (!addresses.is_empty() || !has_own && !is_known) {
                hosts.push(Host { name, addresses });
            }
        }
        if hosts.is_empty() {
            return Ok(Reading::Nothing);
        }
        Ok(Reading::Present(Entry {
            rank: Rank {
                created,
                name: object.into(),
            },
            hosts: hosts.into(),
        }))
    }
}

/// The valid addresses without duplicates; a /32 or /128 counts as one.
fn addresses<'a>(texts: impl Iterator<Item = &'a str>) -> Box<[IpAddr]> {
    let mut found: Vec<IpAddr> = Vec::new();
    for text in texts {
        let (address, length) = match text.split_once('/') {
            Some((address, length)) => (address, Some(length)),
            None => (text, None),
        };
        let Ok(address) = address.parse::<IpAddr>() else {
            continue;
        };
        let width = if address.is_ipv4() { "32" } else { "128" };
        if length.is_none_or(|length| length == width) && !found.contains(&address) {
            found.push(address);
        }
    }
    found.into()
}
