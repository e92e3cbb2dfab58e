//! Zone transfers of a cluster: the answers to queries for each of its names.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use super::answer::Teller;
use super::index::{Entry, Index};
use super::labels::{full_name, is_reverse};
use super::rules::{Rules, Schema};
use super::stage::Kubernetes;
use crate::config::Pods;
use crate::dns::name::{NAME_MAXIMUM, Name, is_at_or_below};
use crate::dns::parts::take_apart;
use crate::dns::records::Section;
use crate::dns::suffix_map::SuffixMap;
use crate::dns::transfer::Record;
use crate::dns::{CLASS_IN, MESSAGE_MAXIMUM, QUESTION_TAIL, rtype};
use crate::transfer::{Asked, Contents, Reply};
use dnsweir_answer::identity::Identity;
use dnsweir_answer::{Question, Resolution};

impl Kubernetes {
    /// The reply to a transfer request; `None` if the zone may not be transferred or nothing is known yet.
    pub fn transfer(&self, asked: &Asked<'_>) -> Option<Reply> {
        let outgoing = self.outgoing.as_ref()?;
        let snapshot = self.snapshot(&Name::lowercased(asked.name));
        let is_one = asked.name == self.rules.domain.as_bytes() || is_reverse(asked.name);
        (is_one && snapshot.index.complete)
            .then(|| outgoing.answer(|| Arc::new(snapshot) as Arc<dyn Contents>, asked))
    }

    /// The current state as a zone.
    pub(super) fn snapshot(&self, zone: &Name) -> Snapshot {
        let state = &self.cluster.state;
        Snapshot {
            index: state.index.load_full(),
            hosts: state.hosts.load_full(),
            rules: Arc::clone(&self.rules),
            zone: zone.clone(),
        }
    }
}

/// A zone as it was at one time.
pub struct Snapshot {
    pub(super) index: Arc<Index>,
    pub(super) hosts: Arc<Vec<IpAddr>>,
    pub(super) rules: Arc<Rules>,
    pub(super) zone: Name,
}

impl Contents for Snapshot {
    fn soa(&self) -> Record {
        let mut soa = self.say(self.zone.as_bytes(), &[rtype::SOA]);
        soa.pop().unwrap_or_else(|| Record {
            owner: self.zone.as_bytes().into(),
            rtype: rtype::SOA,
            ttl: 0,
            data: Box::default(),
        })
    }

    fn batches(&self) -> Box<dyn Iterator<Item = Vec<Record>> + '_> {
        let zone = self.zone.as_bytes();
        let apex = std::iter::once_with(move || self.say(zone, &[rtype::NS]));
        if is_reverse(zone) {
            let names = self.index.addresses().map(reverse_name);
            let names = names.filter(move |name| is_at_or_below(name, zone));
            return Box::new(apex.chain(names.map(|name| self.say(&name, &[rtype::PTR]))));
        }
        let schema = [
            (&b"\x0bdns-version"[..], &[rtype::TXT][..]),
            (b"\x02ns\x03dns", &[rtype::A, rtype::AAAA]),
        ];
        let schema = schema
            .into_iter()
            .map(move |(labels, types)| self.say(&[labels, zone].concat(), types));
        let services = self.index.services();
        let services = services.map(|(name, entry)| self.of_service(name, entry));
        let pods = self.index.pods().filter(|_| self.rules.pods == Pods::Verified);
        let pods = pods.map(move |(namespace, address)| {
            let name = pod_name(namespace, address, zone);
            self.say(&name, &[rtype::A, rtype::AAAA])
        });
        Box::new(apex.chain(schema).chain(services).chain(pods))
    }
}

impl Snapshot {
    /// The records of a service, its endpoints and its ports.
    fn of_service(&self, service: &[u8], entry: &Entry) -> Vec<Record> {
        let own = |label: &[u8]| full_name(label, service, &Schema::Cluster, self.zone.as_bytes());
        let mut names: BTreeSet<Vec<u8>> = own(b"").into_iter().collect();
        let endpoints = entry.slices().flat_map(|(endpoints, _)| endpoints);
        names.extend(endpoints.filter_map(|endpoint| own(&endpoint.label)));
        let ports = entry.service.iter().flat_map(|service| service.ports.iter());
        for port in ports
            .chain(entry.endpoint_ports())
            .filter(|port| !port.name.is_empty())
        {
            let mut labels = Vec::new();
            for label in [&port.name, &port.protocol] {
                labels.push(1 + label.len() as u8);
                labels.push(b'_');
                labels.extend(label);
            }
            names.extend(own(b"").map(|own| [&labels[..], &own].concat()));
        }
        let names = names.iter().filter(|name| name.len() <= NAME_MAXIMUM);
        names
            .flat_map(|name| self.say(name, &[rtype::A, rtype::AAAA, rtype::SRV]))
            .collect()
    }

    /// The records that queries for these types get.
    fn say(&self, name: &[u8], types: &[u16]) -> Vec<Record> {
        let teller = Teller {
            index: &self.index,
            rules: &self.rules,
            hosts: &self.hosts,
        };
        let mut records = Vec::new();
        for &qtype in types {
            let question = Question {
                name,
                qtype,
                qclass: CLASS_IN,
                flags: 0,
                dnssec_ok: false,
                subnet: None,
                signed: None,
                room: MESSAGE_MAXIMUM,
                client: Ipv4Addr::UNSPECIFIED.into(),
                identity: &Identity::Unknown,
                zone: &self.zone,
                zones: &SuffixMap::default(),
                tap: None,
                direct: false,
                traced: false,
            };
            match teller.answer(&question) {
                Resolution::Answer { answer, .. } => {
                    let parts = take_apart(&answer.message, name.len() + QUESTION_TAIL).unwrap_or_default();
                    let said = parts.into_iter().filter(|part| part.section == Section::Answer);
                    records.extend(said.map(|part| Record {
                        owner: part.owner.to_ascii_lowercase().into(),
                        rtype: part.rtype,
                        ttl: part.ttl,
                        data: part.data.into_owned().into(),
                    }));
                }
                Resolution::Alias(alias) => {
                    // The one target of an external name, with the zone's TTL.
                    let found = alias.targets.first().zip(alias.ttl);
                    records.extend(found.map(|(target, ttl)| Record {
                        owner: name.into(),
                        rtype: rtype::CNAME,
                        ttl,
                        data: target.clone(),
                    }));
                    // It is the same for all types.
                    return records;
                }
                _ => {}
            }
        }
        records
    }
}

/// The name of a pod's address, with hyphens in place of dots and colons.
fn pod_name(namespace: &[u8], address: IpAddr, zone: &[u8]) -> Vec<u8> {
    let label = address.to_string().replace(['.', ':'], "-");
    let mut name = vec![label.len() as u8];
    name.extend(label.into_bytes());
    name.push(namespace.len() as u8);
    name.extend(namespace);
    name.extend(b"\x03pod");
    name.extend(zone);
    name
}

/// The reverse name of an address (RFC 1035 section 3.5, RFC 3596 section 2.5).
fn reverse_name(address: IpAddr) -> Vec<u8> {
    let (labels, end): (Vec<String>, &[u8]) = match address {
        IpAddr::V4(four) => (
            four.octets().iter().rev().map(ToString::to_string).collect(),
            b"\x07in-addr\x04arpa\0",
        ),
        IpAddr::V6(six) => {
            let nibbles = six
                .octets()
                .into_iter()
                .rev()
                .flat_map(|octet| [octet & 15, octet >> 4]);
            (
                nibbles.map(|nibble| format!("{nibble:x}")).collect(),
                b"\x03ip6\x04arpa\0",
            )
        }
    };
    let mut name = Vec::new();
    for label in labels {
        name.push(label.len() as u8);
        name.extend(label.into_bytes());
    }
    name.extend(end);
    name
}
