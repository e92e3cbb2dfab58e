//! Writes the answer for what is at a name.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::sync::Arc;

use super::index::Index;
use super::labels::{Labels, full_name, is_reverse};
use super::message::{ADDITIONAL, ANSWER, AUTHORITY, Message, Owner, pointer_to};
use super::place::{Found, MOST_FOUND, Place, name_servers};
use super::rules::{Rules, Schema};
use crate::dns::name::{NAME_MAXIMUM, Name, is_at_or_below};
use crate::dns::{HEADER, edns::ExtendedError, rcode, rtype};
use dnsweir_answer::{Alias, Question, Resolution};

/// The root, in wire format.
const ROOT: &[u8] = b"\0";

/// The data of the `dns-version` TXT record.
const VERSION: &[u8] = b"\x051.1.0";

/// Its TTL in seconds, which the schema fixes.
const VERSION_TTL: u32 = 28_800;

/// Upper bound on the SOA record's TTL, in seconds.
const SOA_TTL: u32 = 300;

/// The SOA record's refresh, retry and expire timers for secondaries, in seconds.
const SOA_TIMERS: [u32; 3] = [7200, 1800, 86_400];

/// Answers questions from an index.
pub struct Teller<'a> {
    pub index: &'a Index,
    pub rules: &'a Rules,
    /// The addresses of this host.
    pub hosts: &'a [IpAddr],
}

/// A question, and where its zone begins in the name.
struct Asked<'a> {
    question: &'a Question<'a>,
    /// Name, type and class in wire format.
    section: Vec<u8>,
    zone_at: usize,
    schema: &'a Schema,
}

impl Asked<'_> {
    fn zone(&self) -> &[u8] {
        &self.question.name[self.zone_at..]
    }
}

impl Teller<'_> {
    /// Answers a question.
    pub fn answer(&self, question: &Question<'_>) -> Resolution {
        let zone = self.rules.zone(question);
        let is_known = match zone {
            Some((_, Schema::ClusterSet)) => self.index.complete && self.index.imports_complete,
            _ => self.index.complete,
        };
        if !is_known {
            return Resolution::Failed {
                error: ExtendedError::NotReady,
                local: true,
            };
        }
        let Some((zone, schema)) = zone else {
            return Resolution::NotMine;
        };
        let mut section = question.name.to_vec();
        section.extend(question.qtype.to_be_bytes());
        section.extend(question.qclass.to_be_bytes());
        let asked = Asked {
            question,
            section,
            zone_at: question.name.len() - zone.len(),
            schema,
        };
        let place = match Labels::read(question.name, asked.zone_at, question.qtype == rtype::SRV) {
            // Service names are in the domain; below a reverse zone there are only addresses.
            Some(labels) if labels.count > 0 && is_reverse(question.name) => Place::Nowhere,
            // The root may be the stage's zone without being the cluster's domain.
            Some(labels) if zone.len() > 1 || self.rules.domain == Name::ROOT => {
                self.index.place(self.rules, schema, &labels)
            }
            _ => Place::Nowhere,
        };
        match place {
            Place::Nowhere if is_reverse(question.name) => {
                self.at(&asked, self.index.reverse(self.rules, question.name))
            }
            place => self.at(&asked, place),
        }
    }

    fn at(&self, asked: &Asked<'_>, place: Place<'_>) -> Resolution {
        let qtype = asked.question.qtype;
        let mut message = Message::new(&asked.section, asked.question.room, self.rules.ttl);
        match place {
            Place::Nowhere if let Some(targets) = self.search(asked) => {
                return Resolution::Alias(Arc::new(Alias {
                    targets,
                    ttl: None,
                    so_far: None,
                }));
            }
            Place::Nowhere if self.rules.falls_through(asked.question.name) => return Resolution::NotMine,
            Place::Nowhere => return self.deny(asked, message, rcode::NXDOMAIN),
            Place::Empty => {}
            Place::Alias(target) if qtype != rtype::CNAME => return self.alias(target),
            Place::Alias(target) => message.push(ANSWER, Owner::QUESTION, rtype::CNAME, target),
            Place::Apex if qtype == rtype::SOA => self.push_soa(asked, &mut message, ANSWER),
            Place::Apex if qtype == rtype::NS => self.push_name_servers(asked, &mut message),
            Place::Apex => {}
            Place::NameServer => {
                for address in self.name_server_addresses(asked.schema) {
                    push_asked_address(&mut message, qtype, address);
                }
            }
            Place::Version if qtype == rtype::TXT => {
                message.push_with_ttl(ANSWER, Owner::QUESTION, rtype::TXT, VERSION_TTL, VERSION);
            }
            Place::Version => {}
            Place::Balanced { target, ports } if qtype == rtype::SRV => {
                let weight = weight(ports.len());
                for port in ports {
                    let data = [&[0, 0], &weight[..], &port.to_be_bytes(), target].concat();
                    message.push(ANSWER, Owner::QUESTION, rtype::SRV, &data);
                }
            }
            Place::Balanced { target, .. } if qtype == rtype::CNAME => {
                message.push(ANSWER, Owner::QUESTION, rtype::CNAME, target);
            }
            Place::Balanced { target, .. } => return self.alias(target),
            Place::Pod(address) => push_asked_address(&mut message, qtype, address),
            Place::Services(found) if qtype == rtype::SRV => self.push_services(asked, &mut message, &found),
            Place::Services(found) => push_addresses(&mut message, qtype, &found),
            Place::Pointers(names) if qtype == rtype::PTR => {
                for name in names {
                    message.push(ANSWER, Owner::QUESTION, rtype::PTR, &name);
                }
            }
            Place::Pointers(_) => {}
        }
        if message.count(ANSWER) == 0 {
            return self.deny(asked, message, rcode::NOERROR);
        }
        answered(message, rcode::NOERROR)
    }

    fn alias(&self, target: &[u8]) -> Resolution {
        Resolution::Alias(Arc::new(Alias {
            targets: [target.into()].into(),
            ttl: Some(self.rules.ttl),
            so_far: None,
        }))
    }

    /// The remaining names of a pod's search list if the name is the first of its search, as in CoreDNS's
    /// *autopath*; otherwise `None`.
    ///
    /// The name must end in the asking pod's namespace, as its search list does, which also excludes a pod in
    /// another namespace that has taken over the address.
    fn search(&self, asked: &Asked<'_>) -> Option<Box<[Box<[u8]>]>> {
        let further = self.rules.autopath.as_ref()?;
        let Question { name, client, .. } = asked.question;
        let namespace = self
            .index
            .namespace_of(client.to_canonical())
            .filter(|_| asked.question.direct)?;
        let services = [b"\x03svc", asked.zone()].concat();
        let first = [&[namespace.len() as u8], namespace, &services].concat();
        let sought = name.len().checked_sub(first.len()).filter(|&sought| sought > 0)?;
        if !is_at_or_below(name, &first) {
            return None;
        }
        let cluster = [&*services, asked.zone()].into_iter();
        let domains = cluster.chain(further.iter().map(Name::as_bytes)).chain([ROOT]);
        let mut targets: Vec<Box<[u8]>> = domains
            .map(|domain| [&name[..sought], domain].concat())
            // A resolver leaves out names that are too long.
            .filter(|target| target.len() <= NAME_MAXIMUM)
            .map(Into::into)
            .collect();
        // The zone may be the root.
        targets.dedup();
        Some(targets.into())
    }

    /// Denies the name or the record type (RFC 2308 section 2).
    fn deny(&self, asked: &Asked<'_>, mut message: Message, rcode: u16) -> Resolution {
        self.push_soa(asked, &mut message, AUTHORITY);
        answered(message, rcode)
    }

    fn push_soa(&self, asked: &Asked<'_>, message: &mut Message, section: usize) {
        let zone = pointer_to(HEADER + asked.zone_at);
        let mut data = Vec::new();
        for people in asked.schema.people() {
            data.extend(people);
            data.extend(zone);
        }
        let [refresh, retry, expire] = SOA_TIMERS;
        for number in [self.index.serial, refresh, retry, expire, self.rules.ttl] {
            data.extend(number.to_be_bytes());
        }
        let owner = Owner::At(HEADER + asked.zone_at);
        message.push_with_ttl(section, owner, rtype::SOA, self.rules.ttl.min(SOA_TTL), &data);
    }

    /// Adds one SRV record per name and port, and the addresses of the names (RFC 2782).
    fn push_services(&self, asked: &Asked<'_>, message: &mut Message, all: &[Found<'_>]) {
        let weight = weight(all.len());
        let mut told = HashSet::new();
        let mut names = HashMap::new();
        for found in all {
            if message.is_full() {
                break;
            }
            let Some(port) = found.port.filter(|&port| told.insert((found.label, port))) else {
                continue;
            };
            let Some(name) = full_name(found.label, found.service, asked.schema, asked.zone()) else {
                continue;
            };
            let mut data = vec![0; 6];
            data[2..4].copy_from_slice(&weight);
            data[4..6].copy_from_slice(&port.to_be_bytes());
            let name_at = message.next_name(Owner::QUESTION, data.len());
            data.extend(&name);
            message.push(ANSWER, Owner::QUESTION, rtype::SRV, &data);
            names.entry(found.label).or_insert((name_at, name));
        }
        if all.len() >= MOST_FOUND {
            message.truncate();
        }
        let mut told = HashSet::new();
        for found in all
            .iter()
            .filter(|found| told.insert((found.label, found.address)))
        {
            if message.is_full() {
                break;
            }
            if let Some((name_at, name)) = names.get(&found.label) {
                let owner = name_at.map_or(Owner::Name(name), Owner::At);
                message.push_address(ADDITIONAL, owner, found.address);
            }
        }
    }

    fn push_name_servers(&self, asked: &Asked<'_>, message: &mut Message) {
        let zone = match is_reverse(asked.zone()) {
            true => self.rules.domain.as_bytes(),
            false => asked.zone(),
        };
        let own = [&asked.schema.people()[0], asked.zone()].concat();
        let found = match asked.schema {
            // The services with these addresses have no names in such a zone.
            Schema::External { .. } | Schema::ClusterSet => None,
            Schema::Cluster => name_servers(self.index, asked.schema, self.hosts),
        };
        let named = found.iter().flatten().filter_map(|found| {
            let name = full_name(found.label, found.service, asked.schema, zone)?;
            Some((name, found.address))
        });
        let mut glue: Vec<(Vec<u8>, IpAddr)> = named.collect();
        if glue.is_empty() {
            let addresses = self.name_server_addresses(asked.schema).into_iter();
            glue = addresses.map(|address| (own.clone(), address)).collect();
        }
        let mut told = HashSet::new();
        let names = glue.iter().map(|(name, _)| name);
        let names = names.chain(glue.is_empty().then_some(&own));
        for name in names.filter(|name| told.insert(*name)) {
            message.push(ANSWER, Owner::QUESTION, rtype::NS, name);
        }
        for (name, address) in &glue {
            message.push_address(ADDITIONAL, Owner::Name(name), *address);
        }
    }

    fn name_server_addresses(&self, schema: &Schema) -> Vec<IpAddr> {
        let mut addresses: Vec<IpAddr> = match name_servers(self.index, schema, self.hosts) {
            Some(found) if !found.is_empty() || matches!(schema, Schema::External { .. }) => {
                found.iter().map(|found| found.address).collect()
            }
            _ => self.hosts.to_vec(),
        };
        addresses.sort_unstable();
        addresses.dedup();
        addresses
    }
}

/// The weight of each of `count` SRV records (RFC 2782): an equal share of 100.
fn weight(count: usize) -> [u8; 2] {
    ((100 / count.max(1)).max(1) as u16).to_be_bytes()
}

/// Adds each address once. If more were found than any message holds, some may be missing.
fn push_addresses(message: &mut Message, qtype: u16, found: &[Found<'_>]) {
    let mut told = HashSet::new();
    for found in found.iter().filter(|found| told.insert(found.address)) {
        if message.is_full() {
            break;
        }
        push_asked_address(message, qtype, found.address);
    }
    if found.len() >= MOST_FOUND {
        message.truncate();
    }
}

fn push_asked_address(message: &mut Message, qtype: u16, address: IpAddr) {
    if matches!(
        (qtype, address),
        (rtype::A, IpAddr::V4(_)) | (rtype::AAAA, IpAddr::V6(_))
    ) {
        message.push_address(ANSWER, Owner::QUESTION, address);
    }
}

fn answered(message: Message, rcode: u16) -> Resolution {
    Resolution::Answer {
        answer: message.finish(rcode),
        authoritative: true,
    }
}
