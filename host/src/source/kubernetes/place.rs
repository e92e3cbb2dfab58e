//! What a name of a cluster's domain stands for: the schema of the Kubernetes DNS specification, version 1.1.0, and
//! where it says nothing, what CoreDNS makes of it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::index::{Entry, Holder, Index};
use super::objects::{Endpoint, Port, ServiceKind, Slice, undashed};
use super::rules::Rules;
use crate::config::Pods;

/// Labels of the longest name that stands for something: `_port._protocol.service.namespace.svc`.
const MOST_LABELS: usize = 5;

/// What is at a name.
#[derive(Debug)]
pub enum Place<'i> {
    /// Nothing, and nothing below it.
    Nowhere,
    /// No record, but others have names below it.
    Empty,
    /// The zone itself.
    Apex,
    /// The addresses of who answers for the zone.
    NameServer,
    /// The version of the schema.
    Version,
    /// Another name, in wire format.
    Alias(&'i [u8]),
    /// Addresses and ports.
    Services(Vec<Found<'i>>),
    /// The address of a pod.
    Pod(IpAddr),
    /// The names of who has an address, in wire format.
    Pointers(Vec<Vec<u8>>),
}

/// An address, and a port there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Found<'i> {
    /// The address.
    pub address: IpAddr,
    /// The port, if it has a number.
    pub port: Option<u16>,
    /// The labels in wire format that the address is known by in front of `svc`: what SRV records name.
    pub label: Option<&'i [u8]>,
    /// Those of its service.
    pub service: &'i [u8],
}

/// A name's labels below its zone, from the left.
pub struct Labels<'a> {
    name: &'a [u8],
    begins: [usize; MOST_LABELS + 1],
    count: usize,
}

impl<'a> Labels<'a> {
    /// Those of `name` before `end`; none if there are too many for anything.
    pub fn read(name: &'a [u8], end: usize) -> Option<Labels<'a>> {
        let mut labels = Labels {
            name,
            begins: [0; MOST_LABELS + 1],
            count: 0,
        };
        let mut at = 0;
        while at < end {
            if labels.count == MOST_LABELS {
                return None;
            }
            labels.count += 1;
            at += 1 + usize::from(name[at]);
            labels.begins[labels.count] = at;
        }
        Some(labels)
    }

    /// The label at this place from the right, without its length.
    fn get(&self, from_right: usize) -> &'a [u8] {
        match self.count.checked_sub(from_right + 1) {
            Some(index) => &self.name[self.begins[index] + 1..self.begins[index + 1]],
            None => &[],
        }
    }

    /// In wire format, those from one place to another, both counted from the right.
    fn wire(&self, from: usize, to: usize) -> &'a [u8] {
        &self.name[self.begins[self.count - from - 1]..self.begins[self.count - to]]
    }
}

impl Index {
    /// What is at a name whose labels before its zone are these.
    pub fn place<'i>(&'i self, rules: &Rules, labels: &Labels<'_>) -> Place<'i> {
        match (labels.count, labels.get(0), labels.get(1)) {
            (0, ..) => Place::Apex,
            (1, b"svc" | b"pod" | b"dns", _) => Place::Empty,
            (1, b"dns-version", _) => Place::Version,
            (2, b"dns", b"ns") => Place::NameServer,
            (2.., b"svc" | b"pod", namespace) if !self.has_namespace(namespace) => Place::Nowhere,
            (_, b"pod", _) if rules.pods == Pods::Disabled => Place::Nowhere,
            (2, b"svc" | b"pod", _) => Place::Empty,
            (3.., b"pod", namespace) => self.pod(rules, labels.get(2), namespace),
            (3.., b"svc", _) => match self.service(labels.wire(2, 1)) {
                Some(entry) => self.in_service(rules, entry, labels),
                None => Place::Nowhere,
            },
            _ => Place::Nowhere,
        }
    }

    /// What is at the name of an address in a reverse zone.
    pub fn reverse<'i>(&'i self, rules: &Rules, name: &[u8]) -> Place<'i> {
        let Some(address) = address_of(name) else {
            return Place::Nowhere;
        };
        let domain = rules.domain.as_bytes();
        let mut names: Vec<Vec<u8>> = Vec::new();
        for holder in self.holders(address) {
            match holder {
                Holder::Service(service) if self.exposes(&service.name) => {
                    return Place::Pointers(full_name(None, &service.name, domain).into_iter().collect());
                }
                Holder::Endpoint(slice) if self.exposes(&slice.service) => {
                    let those = slice
                        .endpoints
                        .iter()
                        .filter(|endpoint| endpoint.address == address);
                    names.extend(those.filter_map(|one| full_name(Some(&one.label), &slice.service, domain)));
                }
                _ => {}
            }
        }
        names.sort_unstable();
        names.dedup();
        match names.is_empty() {
            true => Place::Nowhere,
            false => Place::Pointers(names),
        }
    }

    /// Whether the namespace of a service is one that is known.
    fn exposes(&self, service: &[u8]) -> bool {
        let after = 1 + service.first().map_or(0, |&length| usize::from(length));
        self.has_namespace(service.get(after + 1..).unwrap_or_default())
    }

    fn pod<'i>(&'i self, rules: &Rules, label: &[u8], namespace: &[u8]) -> Place<'i> {
        match undashed(label) {
            Some(address) if rules.pods == Pods::Insecure || self.has_pod(namespace, address) => {
                Place::Pod(address)
            }
            _ => Place::Nowhere,
        }
    }

    /// What is at a service's name, or below it.
    fn in_service<'i>(&'i self, rules: &Rules, entry: &'i Entry, labels: &Labels<'_>) -> Place<'i> {
        let Some(service) = &entry.service else {
            return Place::Nowhere;
        };
        let label = labels.get(3);
        let found: Vec<Found<'i>> = match (&service.kind, labels.count) {
            (ServiceKind::External(target), 3) => return Place::Alias(target),
            (ServiceKind::External(_) | ServiceKind::Nothing, _) => return Place::Nowhere,
            (ServiceKind::Cluster(_), _)
                if rules.ignore_empty_services && entry.endpoints().next().is_none() =>
            {
                return Place::Nowhere;
            }
            (ServiceKind::Cluster(addresses), 3 | 5) => {
                let ports = matching(&service.ports, labels);
                let all = ports.flat_map(|port| addresses.iter().map(move |&address| (address, port)));
                all.map(|(address, port)| Found {
                    address,
                    port,
                    label: None,
                    service: &service.name,
                })
                .collect()
            }
            (ServiceKind::Headless, 3 | 5) => of_endpoints(entry.endpoints(), &service.name, labels),
            (_, _) => of_endpoints(entry.labelled(label), &service.name, labels),
        };
        if !found.is_empty() {
            return Place::Services(found);
        }
        let mut ports: Box<dyn Iterator<Item = &Port>> = match &service.kind {
            ServiceKind::Headless => Box::new(entry.endpoint_ports()),
            _ => Box::new(service.ports.iter()),
        };
        match (label.strip_prefix(b"_"), labels.count) {
            // Names of ports stand below it.
            (Some(protocol), 4) if ports.any(|port| *port.protocol == *protocol && !port.name.is_empty()) => {
                Place::Empty
            }
            // A service that has no address yet.
            (_, 3) if matches!(service.kind, ServiceKind::Cluster(_)) => Place::Empty,
            _ => Place::Nowhere,
        }
    }
}

/// The numbers of those ports that a name asks for: all of them, unless it says which.
fn matching<'p>(ports: &'p [Port], labels: &Labels<'_>) -> impl Iterator<Item = Option<u16>> + use<'p> {
    let wanted = (labels.count == MOST_LABELS).then(|| {
        let bare = |label: &[u8]| label.strip_prefix(b"_").unwrap_or(label).to_vec();
        (bare(labels.get(4)), bare(labels.get(3)))
    });
    // Without ports there is one address all the same.
    let none = (ports.is_empty() && wanted.is_none()).then_some(None);
    let those = ports.iter().filter(move |port| {
        let is = |(name, protocol): &(Vec<u8>, Vec<u8>)| *port.name == **name && *port.protocol == **protocol;
        wanted.as_ref().is_none_or(is)
    });
    those.map(|port| port.number).chain(none)
}

fn of_endpoints<'i>(
    endpoints: impl Iterator<Item = (&'i Endpoint, &'i [Port])>,
    service: &'i [u8],
    labels: &Labels<'_>,
) -> Vec<Found<'i>> {
    let all = endpoints.flat_map(|(endpoint, ports)| {
        matching(ports, labels).map(move |port| Found {
            address: endpoint.address,
            port,
            label: Some(&endpoint.label),
            service,
        })
    });
    all.collect()
}

/// The name of a service or of an endpoint of it, in wire format, if it is not too long for one.
pub fn full_name(label: Option<&[u8]>, service: &[u8], domain: &[u8]) -> Option<Vec<u8>> {
    let label = label.unwrap_or_default();
    let length = 1 + label.len() + service.len() + 4 + domain.len();
    let mut name = Vec::with_capacity(length);
    if !label.is_empty() {
        name.push(label.len() as u8);
        name.extend(label);
    }
    name.extend(service);
    name.extend(b"\x03svc");
    name.extend(domain);
    (name.len() <= crate::dns::name::NAME_MAXIMUM).then_some(name)
}

/// Whether names that end like this are those of addresses.
pub fn is_reverse(name: &[u8]) -> bool {
    name.ends_with(b"\x07in-addr\x04arpa\0") || name.ends_with(b"\x03ip6\x04arpa\0")
}

/// The address whose name this is (RFC 1035 section 3.5, RFC 3596 section 2.5).
fn address_of(name: &[u8]) -> Option<IpAddr> {
    let labels = |end: &[u8]| {
        let mut rest = name.strip_suffix(end)?;
        let mut labels = Vec::new();
        while let Some((&length, after)) = rest.split_first() {
            let (label, after) = after.split_at_checked(usize::from(length))?;
            labels.push(std::str::from_utf8(label).ok()?);
            rest = after;
        }
        labels.reverse();
        Some(labels)
    };
    if let Some(labels) = labels(b"\x07in-addr\x04arpa\0") {
        let four: Ipv4Addr = labels.join(".").parse().ok()?;
        return Some(four.into());
    }
    let labels = labels(b"\x03ip6\x04arpa\0")?;
    if labels.len() != 32 || labels.iter().any(|label| label.len() != 1) {
        return None;
    }
    let six = u128::from_str_radix(&labels.concat(), 16).ok()?;
    Some(Ipv6Addr::from_bits(six).into())
}

/// Who answers for the zone: the services that the addresses of this host are endpoints of, by their names and addresses.
pub fn name_servers<'i>(index: &'i Index, hosts: &[IpAddr]) -> Vec<Found<'i>> {
    let mut found = Vec::new();
    for &host in hosts {
        for holder in index.holders(host) {
            if let Holder::Endpoint(slice) = holder {
                found.extend(name_server(index, slice));
            }
        }
    }
    found
}

fn name_server<'i>(index: &'i Index, slice: &'i Slice) -> Vec<Found<'i>> {
    let entry = index.service(&slice.service);
    let service = entry.and_then(|entry| entry.service.as_deref());
    let found = |address, label| Found {
        address,
        port: None,
        label,
        service: &slice.service,
    };
    match service.map(|service| &service.kind) {
        Some(ServiceKind::Cluster(addresses)) => {
            addresses.iter().map(|&address| found(address, None)).collect()
        }
        Some(ServiceKind::Headless) => {
            let endpoints = slice.endpoints.iter();
            endpoints
                .map(|one| found(one.address, Some(&one.label)))
                .collect()
        }
        _ => Vec::new(),
    }
}
