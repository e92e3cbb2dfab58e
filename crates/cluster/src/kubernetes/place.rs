//! What a name in a cluster's domain stands for, by the Kubernetes DNS specification 1.1.0, or CoreDNS where
//! that is silent.

use std::net::IpAddr;

use super::index::{Entry, Holder, Index};
use super::labels::{Front, Labels, address_of, full_name};
use super::objects::{Endpoint, Port, Service, ServiceKind, Slice, undashed};
use super::rules::{Rules, Schema};
use crate::config::Pods;

/// The most addresses with ports found at a name: more than any message holds, even with duplicates.
pub(crate) const MOST_FOUND: usize = 10_000;

/// What is at a name.
#[derive(Debug)]
pub enum Place<'i> {
    /// Nothing, and nothing below it.
    Nowhere,
    /// No records, but there are names below.
    Empty,
    /// The zone itself.
    Apex,
    /// The addresses of the zone's name server.
    NameServer,
    /// The version of the DNS schema.
    Version,
    /// An alias: another name, in wire format.
    Alias(&'i [u8]),
    /// Addresses and ports.
    Services(Vec<Found<'i>>),
    /// A load balancer's name.
    Balanced {
        /// The name, in wire format.
        target: &'i [u8],
        /// The ports' numbers.
        ports: Vec<u16>,
    },
    /// The address of a pod.
    Pod(IpAddr),
    /// The names of what has an address, in wire format.
    Pointers(Vec<Vec<u8>>),
}

/// An address and a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Found<'i> {
    /// The address.
    pub address: IpAddr,
    /// The port, if it has a number.
    pub port: Option<u16>,
    /// The labels in front of the service's name, in wire format, that SRV records use for the address.
    pub label: &'i [u8],
    /// The labels of its service.
    pub service: &'i [u8],
}

impl Index {
    /// Looks up the name whose labels below its zone are these.
    pub fn place<'i>(&'i self, rules: &Rules, schema: &Schema, labels: &Labels<'_>) -> Place<'i> {
        match schema {
            Schema::Cluster => self.in_cluster(rules, labels),
            Schema::ClusterSet => self.in_set(rules, labels),
            Schema::External { headless, apex } => self.outside(*headless, apex, labels),
        }
    }

    fn in_cluster<'i>(&'i self, rules: &Rules, labels: &Labels<'_>) -> Place<'i> {
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
                Some(entry) => in_service(rules, entry, &labels.front(3)),
                None => Place::Nowhere,
            },
            _ => Place::Nowhere,
        }
    }

    /// Looks up a name of multi-cluster services (KEP-1645): after an endpoint's label comes its cluster's.
    fn in_set<'i>(&'i self, rules: &Rules, labels: &Labels<'_>) -> Place<'i> {
        match (labels.count, labels.get(0), labels.get(1)) {
            (0, ..) => Place::Apex,
            (1, b"svc" | b"dns", _) => Place::Empty,
            (1, b"dns-version", _) => Place::Version,
            (2, b"dns", b"ns") => Place::NameServer,
            (2.., b"svc", namespace) if !self.has_namespace(namespace) => Place::Nowhere,
            (2, b"svc", _) => Place::Empty,
            (3.., b"svc", _) => match self.import(labels.wire(2, 1)) {
                Some(entry) => {
                    let mut front = labels.front(3);
                    front.is_port &= front.labels.iter().any(|label| label.starts_with(b"_"));
                    match in_service(rules, entry, &front) {
                        Place::Nowhere if front.is_cluster_of(entry) => Place::Empty,
                        place => place,
                    }
                }
                None => Place::Nowhere,
            },
            _ => Place::Nowhere,
        }
    }

    /// Looks up a name of services' outside addresses, as CoreDNS's *k8s_external* does.
    fn outside<'i>(&'i self, headless: bool, apex: &[u8], labels: &Labels<'_>) -> Place<'i> {
        let is_apex = |label: &[u8]| apex.get(1..) == Some(label);
        match (labels.count, labels.get(0), labels.get(1)) {
            (0, ..) => Place::Apex,
            (1, label, _) if is_apex(label) => Place::Empty,
            (2, label, b"ns1") if is_apex(label) => Place::NameServer,
            (_, label, _) if is_apex(label) => Place::Nowhere,
            (_, namespace, _) if !self.has_namespace(namespace) => Place::Nowhere,
            (1, ..) => Place::Empty,
            (2..=4, ..) => match self.service(labels.wire(1, 0)) {
                Some(entry) => of_outside(entry, &labels.front(2), headless),
                None => Place::Nowhere,
            },
            _ => Place::Nowhere,
        }
    }

    /// Looks up an address's name in a reverse zone.
    pub fn reverse<'i>(&'i self, rules: &Rules, name: &[u8]) -> Place<'i> {
        let Some(address) = address_of(name) else {
            return Place::Nowhere;
        };
        let domain = rules.domain.as_bytes();
        let mut names: Vec<Vec<u8>> = Vec::new();
        let mut outside: Vec<Vec<u8>> = Vec::new();
        for holder in self.holders(address) {
            if names.len() >= MOST_FOUND {
                break;
            }
            match holder {
                Holder::Service(service) if self.exposes(&service.name) => {
                    let name = full_name(b"", &service.name, &Schema::Cluster, domain);
                    return Place::Pointers(name.into_iter().collect());
                }
                Holder::Endpoint(slice) if self.exposes(&slice.service) => {
                    let those = slice
                        .endpoints
                        .iter()
                        .filter(|endpoint| endpoint.address == address);
                    names.extend(
                        those.filter_map(|one| {
                            full_name(&one.label, &slice.service, &Schema::Cluster, domain)
                        }),
                    );
                }
                Holder::Outside(service) if self.exposes(&service.name) => {
                    let zone = rules.external();
                    outside
                        .extend(zone.and_then(|(zone, schema)| full_name(b"", &service.name, schema, zone)));
                }
                _ => {}
            }
        }
        // Names inside the cluster take precedence.
        if names.is_empty() {
            names = outside;
        }
        names.sort_unstable();
        names.dedup();
        match names.is_empty() {
            true => Place::Nowhere,
            false => Place::Pointers(names),
        }
    }

    /// Returns whether a service's namespace is known.
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
}

/// Looks up a service's name, or one below it.
fn in_service<'i>(rules: &Rules, entry: &'i Entry, front: &Front<'_>) -> Place<'i> {
    let Some(service) = &entry.service else {
        return Place::Nowhere;
    };
    let is_whole = front.count == 0 || front.is_port;
    let found = match (&service.kind, front.count) {
        (ServiceKind::External(target), 0) => return Place::Alias(target),
        (ServiceKind::External(_) | ServiceKind::Nothing, _) => return Place::Nowhere,
        (ServiceKind::Cluster(_), _) if rules.ignore_empty_services && !entry.has_endpoints() => {
            return Place::Nowhere;
        }
        (ServiceKind::Cluster(addresses), _) if is_whole => of_addresses(addresses, service, front),
        (ServiceKind::Headless, _) if is_whole => of_endpoints(entry.slices(), &service.name, front),
        (_, _) => of_endpoints(entry.labelled(front.wire), &service.name, front),
    };
    if !found.is_empty() {
        return Place::Services(found);
    }
    let ports: Box<dyn Iterator<Item = &Port>> = match &service.kind {
        ServiceKind::Headless => Box::new(entry.endpoint_ports()),
        _ => Box::new(service.ports.iter()),
    };
    match front.count {
        1 if front.is_protocol_of(ports) => Place::Empty,
        // The service has no address yet.
        0 if matches!(service.kind, ServiceKind::Cluster(_)) => Place::Empty,
        _ => Place::Nowhere,
    }
}

/// Looks up the outside name of a service, or one below it.
fn of_outside<'i>(entry: &'i Entry, front: &Front<'_>, headless: bool) -> Place<'i> {
    let Some(service) = &entry.service else {
        return Place::Nowhere;
    };
    let outside = &service.outside;
    if let Some(target) = &outside.host {
        let ports: Vec<u16> = matching(&service.ports, front).flatten().collect();
        return match front.count {
            0 => Place::Balanced { target, ports },
            2 if !ports.is_empty() => Place::Balanced { target, ports },
            1 if front.is_protocol_of(service.ports.iter()) => Place::Empty,
            _ => Place::Nowhere,
        };
    }
    let has_endpoints = headless && service.kind == ServiceKind::Headless;
    let found = match (outside.addresses.is_empty(), front.count) {
        (false, 0 | 2) => of_addresses(&outside.addresses, service, front),
        (true, 0 | 2) if has_endpoints => of_endpoints(entry.slices(), &service.name, front),
        (true, 1) if headless => of_endpoints(entry.labelled(front.wire), &service.name, front),
        _ => Vec::new(),
    };
    if !found.is_empty() {
        return Place::Services(found);
    }
    let below_ports = match outside.addresses.is_empty() {
        false => front.is_protocol_of(service.ports.iter()),
        true => has_endpoints && front.is_protocol_of(entry.endpoint_ports()),
    };
    match front.count {
        1 if below_ports => Place::Empty,
        _ => Place::Nowhere,
    }
}

/// The numbers of the ports that a name selects: all, unless it names one.
fn matching<'p>(ports: &'p [Port], front: &Front<'_>) -> impl Iterator<Item = Option<u16>> + use<'p> {
    let wanted = front.is_port.then(|| {
        let bare = |label: &[u8]| label.strip_prefix(b"_").unwrap_or(label).to_vec();
        front.labels.map(bare)
    });
    // Without ports, the addresses still have one entry each.
    let none = (ports.is_empty() && wanted.is_none()).then_some(None);
    let those = ports.iter().filter(move |port| {
        let is = |[name, protocol]: &[Vec<u8>; 2]| *port.name == **name && *port.protocol == **protocol;
        wanted.as_ref().is_none_or(is)
    });
    those.map(|port| port.number).chain(none)
}

/// The selected port numbers: each if ports were asked for, otherwise the first.
fn numbers(ports: &[Port], front: &Front<'_>) -> Vec<Option<u16>> {
    let wanted = if front.each_port { usize::MAX } else { 1 };
    matching(ports, front).take(wanted).collect()
}

fn of_addresses<'i>(addresses: &'i [IpAddr], service: &'i Service, front: &Front<'_>) -> Vec<Found<'i>> {
    let ports = numbers(&service.ports, front).into_iter();
    let all = ports.flat_map(|port| addresses.iter().map(move |&address| (address, port)));
    let all = all.map(|(address, port)| Found {
        address,
        port,
        label: b"",
        service: &service.name,
    });
    all.take(MOST_FOUND).collect()
}

fn of_endpoints<'i>(
    slices: impl Iterator<Item = (&'i [Endpoint], &'i [Port])>,
    service: &'i [u8],
    front: &Front<'_>,
) -> Vec<Found<'i>> {
    let mut all = Vec::new();
    for (endpoints, ports) in slices.filter(|(endpoints, _)| !endpoints.is_empty()) {
        let ports = numbers(ports, front);
        let found = endpoints.iter().flat_map(|endpoint| {
            ports.iter().map(|&port| Found {
                address: endpoint.address,
                port,
                label: &endpoint.label,
                service,
            })
        });
        all.extend(found.take(MOST_FOUND - all.len()));
    }
    all
}

/// The zone's name servers: the services that have this host's addresses as endpoints, with names and
/// addresses for this kind of zone. `None` if there are no such services.
pub fn name_servers<'i>(index: &'i Index, schema: &Schema, hosts: &[IpAddr]) -> Option<Vec<Found<'i>>> {
    let mut found = None;
    for &host in hosts {
        for holder in index.holders(host) {
            if let Holder::Endpoint(slice) = holder {
                let all: &mut Vec<_> = found.get_or_insert_default();
                let room = MOST_FOUND - all.len();
                all.extend(name_server(index, schema, slice).into_iter().take(room));
            }
        }
    }
    found
}

fn name_server<'i>(index: &'i Index, schema: &Schema, slice: &'i Slice) -> Vec<Found<'i>> {
    let entry = index.service(&slice.service);
    let Some(service) = entry.and_then(|entry| entry.service.as_deref()) else {
        return Vec::new();
    };
    let addresses = match (schema, &service.kind) {
        (Schema::Cluster | Schema::ClusterSet, ServiceKind::Headless)
        | (Schema::External { headless: true, .. }, ServiceKind::Headless) => {
            let endpoints = slice.endpoints.iter();
            return endpoints
                .map(|one| at(one.address, &one.label, &slice.service))
                .collect();
        }
        (Schema::Cluster | Schema::ClusterSet, ServiceKind::Cluster(addresses)) => addresses,
        (Schema::Cluster | Schema::ClusterSet, _) => return Vec::new(),
        (Schema::External { .. }, _) => &service.outside.addresses,
    };
    let addresses = addresses.iter();
    addresses
        .map(|&address| at(address, b"", &slice.service))
        .collect()
}

fn at<'i>(address: IpAddr, label: &'i [u8], service: &'i [u8]) -> Found<'i> {
    Found {
        address,
        port: None,
        label,
        service,
    }
}
