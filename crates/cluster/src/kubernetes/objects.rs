//! The objects of a cluster, reduced to what DNS answers need.

use std::collections::HashSet;
use std::net::{IpAddr, Ipv6Addr};

use crate::api_server::{Metadata, Reading, resources};
use crate::dns::name::{LABEL_MAXIMUM, Name};

/// The label that names the service of an endpoint slice.
const SERVICE_OF_SLICE: &str = "kubernetes.io/service-name";

/// The cluster IP of a headless service.
const HEADLESS: &str = "None";

/// The most ports and the most addresses of a service or slice; the rest is left out.
pub(crate) const MOST_PORTS: usize = 1000;
pub(crate) const MOST_ADDRESSES: usize = 5000;

/// The labels of `service.namespace` in wire format, without the root: a query's name contains them as they
/// are, so a lookup copies nothing.
pub type ServiceName = Box<[u8]>;

/// A service.
#[derive(Debug, PartialEq, Eq)]
pub struct Service {
    /// Its name.
    pub name: ServiceName,
    /// What its name stands for.
    pub kind: ServiceKind,
    /// Its ports.
    pub ports: Box<[Port]>,
    /// Its addresses outside the cluster.
    pub outside: Outside,
    /// What was left out of it, for the log.
    pub left_out: Option<Box<str>>,
}

/// Where a service is reached from outside: `externalIPs`, or its load balancer's addresses or host name.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Outside {
    /// Addresses, without duplicates.
    pub addresses: Box<[IpAddr]>,
    /// A host name, in wire format, if there is no address.
    pub host: Option<Box<[u8]>>,
}

/// What a service's name stands for.
#[derive(Debug, PartialEq, Eq)]
pub enum ServiceKind {
    /// Its own addresses, without duplicates.
    Cluster(Box<[IpAddr]>),
    /// Its endpoints.
    Headless,
    /// Another name, in wire format.
    External(Box<[u8]>),
    /// Nothing that DNS can express: its external name is an address.
    Nothing,
}

/// A port of a service or of its endpoints.
#[derive(Debug, PartialEq, Eq)]
pub struct Port {
    /// Its label in queries, without the underscore; empty if it has none.
    pub name: Box<[u8]>,
    /// The protocol's label in queries, without the underscore.
    pub protocol: Box<[u8]>,
    /// Its number, if it has one.
    pub number: Option<u16>,
}

/// Some of a service's endpoints: the ready ones.
#[derive(Debug, PartialEq, Eq)]
pub struct Slice {
    /// The service they belong to.
    pub service: ServiceName,
    /// The ports of each endpoint.
    pub ports: Box<[Port]>,
    /// Sorted by label.
    pub endpoints: Box<[Endpoint]>,
    /// What was left out of it, for the log.
    pub left_out: Option<Box<str>>,
}

/// An address of an endpoint.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Endpoint {
    /// The label in front of the service's name, in lower case and wire format.
    pub label: Box<[u8]>,
    /// The address.
    pub address: IpAddr,
}

/// A pod.
#[derive(Debug, PartialEq, Eq)]
pub struct Pod {
    /// The label of its namespace.
    pub namespace: Box<[u8]>,
    /// Its addresses.
    pub addresses: Box<[IpAddr]>,
    /// Whether it uses its node's addresses.
    pub on_host: bool,
}

/// A namespace.
#[derive(Debug, PartialEq, Eq)]
pub struct Namespace {
    /// Its label.
    pub label: Box<[u8]>,
}

/// Why an object cannot be read. Its last valid version is kept.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what} {text:?} is not valid in DNS")]
pub struct Malformed {
    what: &'static str,
    text: String,
}

/// Which objects are of interest, and how they are read.
#[derive(Debug, Default)]
pub struct Interest {
    /// Only these namespaces; all if empty.
    pub namespaces: Vec<String>,
    /// Whether an endpoint without a hostname gets its pod's name.
    pub endpoint_pod_names: bool,
}

impl Interest {
    pub fn covers(&self, namespace: Option<&String>) -> bool {
        self.namespaces.is_empty() || namespace.is_some_and(|namespace| self.namespaces.contains(namespace))
    }

    /// Reads a namespace.
    pub fn namespace(&self, object: resources::Namespace) -> Result<Reading<Namespace>, Malformed> {
        let name = object.metadata.name;
        if !self.covers(name.as_ref()) {
            return Ok(Reading::Nothing);
        }
        let label = label("the name", name.as_deref().unwrap_or_default())?;
        Ok(Reading::Present(Namespace { label }))
    }

    /// Reads a service.
    pub fn service(&self, object: resources::Service) -> Result<Reading<Service>, Malformed> {
        let metadata = object.metadata;
        if !self.covers(metadata.namespace.as_ref()) {
            return Ok(Reading::Nothing);
        }
        let name = service_name(metadata.name.as_deref(), metadata.namespace.as_deref())?;
        let spec = object.spec.unwrap_or_default();
        let mut left_out = LeftOut::default();
        let kind = kind(&spec, &mut left_out)?;
        let outside = Outside::read(&spec, object.status, &mut left_out);
        let ports = spec.ports.unwrap_or_default();
        let ports = left_out
            .bounded(&ports, MOST_PORTS, "ports")
            .iter()
            .map(Port::read);
        Ok(Reading::Present(Service {
            name,
            kind,
            ports: ports.collect::<Result<_, _>>()?,
            outside,
            left_out: left_out.told(&metadata),
        }))
    }

    /// Reads an endpoint slice.
    pub fn slice(&self, object: resources::EndpointSlice) -> Result<Reading<Slice>, Malformed> {
        self.slice_of(object, SERVICE_OF_SLICE, None)
    }

    /// Reads an endpoint slice that names its service in one label, and its cluster in another.
    pub(crate) fn slice_of(
        &self,
        object: resources::EndpointSlice,
        service_in: &str,
        cluster_in: Option<&str>,
    ) -> Result<Reading<Slice>, Malformed> {
        let metadata = object.metadata;
        if !self.covers(metadata.namespace.as_ref()) {
            return Ok(Reading::Nothing);
        }
        let label_of = |name| metadata.labels.as_ref()?.get(name);
        let Some(service) = label_of(service_in) else {
            return Ok(Reading::Nothing);
        };
        let cluster = cluster_in.and_then(label_of);
        let cluster = cluster.map(|cluster| label("the cluster", cluster)).transpose()?;
        let mut left_out = LeftOut::default();
        let ports = object.ports.unwrap_or_default();
        let ports = left_out
            .bounded(&ports, MOST_PORTS, "ports")
            .iter()
            .map(Port::read);
        let mut slice = Slice {
            service: service_name(Some(service), metadata.namespace.as_deref())?,
            ports: ports.collect::<Result<_, _>>()?,
            endpoints: Box::default(),
            left_out: None,
        };
        let endpoints = object.endpoints.unwrap_or_default();
        let ready = endpoints.iter().filter(|endpoint| is_ready(endpoint));
        let addresses = ready.flat_map(|endpoint| {
            let addresses = endpoint.addresses.iter().flatten();
            addresses.map(move |address| (endpoint, address))
        });
        let addresses: Vec<_> = addresses.collect();
        let mut read = Vec::new();
        for (endpoint, address) in left_out.bounded(&addresses, MOST_ADDRESSES, "addresses") {
            // Skips FQDN endpoints, which predate services with external names.
            let Ok(address) = address.parse() else { continue };
            let own = self.label_of(endpoint, address)?;
            let label = match &cluster {
                Some(cluster) => wire([&*own, cluster]),
                None => wire([&*own]),
            };
            read.push(Endpoint { label, address });
        }
        slice.left_out = left_out.told(&metadata);
        read.sort_unstable();
        read.dedup();
        slice.endpoints = read.into();
        Ok(Reading::Present(slice))
    }

    /// Reads a pod.
    pub fn pod(&self, object: resources::Pod) -> Result<Reading<Pod>, Malformed> {
        let metadata = object.metadata;
        if !self.covers(metadata.namespace.as_ref()) {
            return Ok(Reading::Nothing);
        }
        // A pod that is being deleted keeps its address until it is gone.
        if metadata.is_ending() {
            return Ok(Reading::Unchanged);
        }
        let namespace = label("the namespace", metadata.namespace.as_deref().unwrap_or_default())?;
        let on_host = object.spec.and_then(|spec| spec.host_network).unwrap_or(false);
        let status = object.status.unwrap_or_default();
        let all = status.pod_ips.unwrap_or_default();
        let all = all.into_iter().filter_map(|one| one.ip).chain(status.pod_ip);
        let mut addresses: Vec<IpAddr> = all.filter_map(|address| address.parse().ok()).collect();
        addresses.sort_unstable();
        addresses.dedup();
        Ok(match addresses.is_empty() {
            true => Reading::Nothing,
            false => Reading::Present(Pod {
                namespace,
                addresses: addresses.into(),
                on_host,
            }),
        })
    }

    /// The label of an endpoint: its hostname, else its pod's name if wanted and valid, else its address.
    fn label_of(&self, endpoint: &resources::Endpoint, address: IpAddr) -> Result<Box<[u8]>, Malformed> {
        if let Some(hostname) = endpoint.hostname.as_deref().filter(|name| !name.is_empty()) {
            return label("the hostname", hostname);
        }
        let pod = endpoint
            .target_ref
            .as_ref()
            .and_then(|target| target.name.as_deref());
        match pod.map(|pod| label("the pod", pod)) {
            Some(Ok(label)) if self.endpoint_pod_names => Ok(label),
            _ => Ok(dashed(address)),
        }
    }
}

impl Outside {
    fn read(
        spec: &resources::ServiceSpec,
        status: Option<resources::ServiceStatus>,
        left_out: &mut LeftOut,
    ) -> Outside {
        let balancer = status.and_then(|status| status.load_balancer);
        let ingress = balancer.and_then(|balancer| balancer.ingress).unwrap_or_default();
        let own = spec.external_ips.iter().flatten();
        let balanced = ingress.iter().filter_map(|ingress| ingress.ip.as_ref());
        let mut met = HashSet::new();
        let all = own.chain(balanced).filter_map(|address| address.parse().ok());
        let all: Vec<IpAddr> = all.filter(|address| met.insert(*address)).collect();
        let addresses = left_out.bounded(&all, MOST_ADDRESSES, "outside addresses");
        // A CNAME excludes other records (RFC 1034 section 3.6.2).
        let mut hosts = ingress.iter().filter_map(|ingress| ingress.hostname.as_deref());
        let host = hosts.find_map(|host| Name::parse(host).ok());
        Outside {
            host: host
                .filter(|_| addresses.is_empty())
                .map(|host| host.as_bytes().into()),
            addresses: addresses.into(),
        }
    }
}

impl Port {
    pub fn read(port: &resources::Port) -> Result<Port, Malformed> {
        let name = match port.name.as_deref() {
            None | Some("") => Box::default(),
            Some(name) => label("the port", name)?,
        };
        Ok(Port {
            name,
            protocol: label("the protocol", port.protocol.as_deref().unwrap_or("TCP"))?,
            number: port.number(),
        })
    }
}

/// Returns whether an endpoint is ready; one without that condition counts as ready.
fn is_ready(endpoint: &resources::Endpoint) -> bool {
    let conditions = endpoint.conditions.as_ref();
    conditions.and_then(|conditions| conditions.ready).unwrap_or(true)
}

/// Notes about what exceeds an object's limits.
#[derive(Debug, Default)]
pub(crate) struct LeftOut(Vec<String>);

impl LeftOut {
    /// The first `most` items; notes how many are cut.
    pub fn bounded<'a, T>(&mut self, all: &'a [T], most: usize, what: &str) -> &'a [T] {
        if all.len() > most {
            self.0
                .push(format!("{} of {} {what}", all.len() - most, all.len()));
        }
        &all[..all.len().min(most)]
    }

    /// The notes with the object's name, or `None` if nothing was cut.
    pub fn told(&self, object: &Metadata) -> Option<Box<str>> {
        let (namespace, name) = (object.namespace.as_deref(), object.name.as_deref());
        let (namespace, name) = (namespace.unwrap_or_default(), name.unwrap_or_default());
        let told = format!("{namespace}/{name}: {} are left out", self.0.join(" and "));
        (!self.0.is_empty()).then(|| told.into())
    }
}

fn kind(spec: &resources::ServiceSpec, left_out: &mut LeftOut) -> Result<ServiceKind, Malformed> {
    if spec.kind.as_deref() == Some("ExternalName") {
        let target = spec.external_name.as_deref().unwrap_or_default();
        if target.parse::<IpAddr>().is_ok() {
            return Ok(ServiceKind::Nothing);
        }
        return match Name::parse(target) {
            Ok(name) => Ok(ServiceKind::External(name.as_bytes().into())),
            Err(_) => Err(malformed("the external name", target)),
        };
    }
    let mut addresses = spec.cluster_ips.clone().unwrap_or_default();
    if addresses.is_empty() {
        addresses.extend(spec.cluster_ip.clone());
    }
    if addresses.first().is_some_and(|first| first == HEADLESS) {
        return Ok(ServiceKind::Headless);
    }
    let addresses = left_out.bounded(&addresses, MOST_ADDRESSES, "addresses").iter();
    let addresses = addresses.filter_map(|address| address.parse().ok());
    Ok(ServiceKind::Cluster(addresses.collect()))
}

/// The label of an address.
pub fn dashed(address: IpAddr) -> Box<[u8]> {
    let mut text = address.to_string().replace(['.', ':'], "-");
    // A label does not end in a hyphen (RFC 1123 section 2.1).
    if text.ends_with('-') {
        text.push('0');
    }
    text.into_bytes().into()
}

/// The address that a label stands for.
pub(crate) fn undashed(label: &[u8]) -> Option<IpAddr> {
    let text = std::str::from_utf8(label).ok()?;
    if text.contains(['.', ':']) {
        return None;
    }
    let four = text.replace('-', ".").parse().ok();
    four.or_else(|| text.replace('-', ":").parse::<Ipv6Addr>().ok().map(IpAddr::V6))
}

/// The labels of a service and its namespace.
pub(crate) fn service_name(name: Option<&str>, namespace: Option<&str>) -> Result<ServiceName, Malformed> {
    let name = label("the name", name.unwrap_or_default())?;
    let namespace = label("the namespace", namespace.unwrap_or_default())?;
    Ok(wire([&*name, &namespace]))
}

/// Labels in wire format.
fn wire<const COUNT: usize>(labels: [&[u8]; COUNT]) -> Box<[u8]> {
    let labels = labels.iter();
    let wire: Vec<u8> = labels
        .flat_map(|label| std::iter::once(label.len() as u8).chain(label.iter().copied()))
        .collect();
    wire.into()
}

/// A label of letters, digits, hyphens and underscores, in lower case.
fn label(what: &'static str, text: &str) -> Result<Box<[u8]>, Malformed> {
    let allowed = |octet: u8| octet.is_ascii_alphanumeric() || octet == b'-' || octet == b'_';
    match text.len() {
        1.. if text.len() <= usize::from(LABEL_MAXIMUM) && text.bytes().all(allowed) => {
            Ok(text.to_ascii_lowercase().into_bytes().into())
        }
        _ => Err(malformed(what, text)),
    }
}

fn malformed(what: &'static str, text: &str) -> Malformed {
    Malformed {
        what,
        text: text.chars().take(80).collect(),
    }
}
