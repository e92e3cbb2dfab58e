//! Answers a question from a zone.

use std::sync::Arc;

use super::lookup::{Found, ending, find, wildcard};
use super::message::Message;
use super::proof;
use crate::dns::name::{NAME_MAXIMUM, is_at_or_below, skip_plain};
use crate::dns::records::Section;
use crate::dns::{rcode, rtype};
use crate::zonefile::{Chain, Node, Set, Zone};
use dnsweir_answer::{Alias, Question, Resolution};

/// The longest chain of aliases that is followed. The client must ask for the rest.
const MOST_ALIASES: usize = 11;

/// The outcome of looking up a name.
enum Next {
    /// The answer is complete, with this rcode.
    Done(u16),
    /// Continue with another name.
    Alias(Vec<u8>),
}

/// Types whose data names hosts whose records may be of use.
const NAMES_HOSTS: [u16; 5] = [rtype::NS, rtype::MX, rtype::SRV, rtype::SVCB, rtype::HTTPS];

/// An answer under construction.
struct Teller<'z, 'q> {
    zone: &'z Zone,
    question: &'q Question<'q>,
    message: Message<'z, 'q>,
    /// The records that name hosts whose addresses may be of use.
    hosts: Hosts<'z>,
}

/// Records that name hosts.
enum Hosts<'z> {
    None,
    /// Records of the answer (RFC 1035 section 3.3), and their owner.
    Of(Vec<u8>, &'z Set),
    /// The servers of a delegated zone, whose addresses may lie below the cut, too, and its name.
    Glue(Vec<u8>, &'z Set),
}

/// The zone's answer to a question for a name in it.
pub fn answer(zone: &Zone, question: &Question<'_>) -> Resolution {
    let mut teller = Teller {
        zone,
        question,
        message: Message::new(question),
        hosts: Hosts::None,
    };
    let mut name = question.name.to_vec();
    let mut met: Vec<Vec<u8>> = Vec::new();
    let rcode = loop {
        match teller.tell(&name, met.is_empty()) {
            Next::Done(rcode) => break rcode,
            Next::Alias(target) => {
                met.push(std::mem::replace(&mut name, target.to_ascii_lowercase()));
                if met.contains(&name) || met.len() > MOST_ALIASES {
                    break rcode::NOERROR;
                }
                if !question.stays_with(&zone.origin, &name) {
                    return lead(teller.finish(rcode::NOERROR), question, target);
                }
            }
        }
    };
    teller.finish(rcode)
}

/// Handles an answer whose last alias leads to another zone: the target is resolved next (RFC 1034 section
/// 4.3.2, step 3a), unless the answer must be signed, which requires all of it here.
fn lead(so_far: Resolution, question: &Question<'_>, target: Vec<u8>) -> Resolution {
    match so_far {
        Resolution::Answer { answer, .. } if question.signed.is_none() => {
            Resolution::Alias(Arc::new(Alias {
                targets: [target.into()].into(),
                ttl: None,
                so_far: Some(answer),
            }))
        }
        whole => whole,
    }
}

impl<'z> Teller<'z, '_> {
    /// Answers for a name; `first` means that it is the one asked for.
    fn tell(&mut self, name: &[u8], first: bool) -> Next {
        match find(self.zone, name) {
            // The parent's side of a cut belongs to this zone (RFC 4035 section 3.1.4.1).
            Found::Delegation(length, node) if self.question.qtype == rtype::DS && length == name.len() => {
                self.at(name, name, node, None)
            }
            Found::Delegation(length, node) => {
                self.refer(ending(name, length), node, first);
                Next::Done(rcode::NOERROR)
            }
            Found::Dname(length, node) => self.redirect(name, length, node),
            Found::Node(node) => self.at(name, name, node, None),
            Found::Wildcard { node, encloser } => {
                let own = wildcard(ending(name, encloser));
                self.at(name, &own, node, Some(encloser))
            }
            Found::Nothing { encloser } => {
                self.push_soa();
                if self.question.dnssec_ok {
                    proof::name_error(&mut self.message, self.zone, name, encloser);
                }
                Next::Done(rcode::NXDOMAIN)
            }
        }
    }

    /// Answers from a node; with `encloser`, a wildcard's node, for a name below the one of this length.
    fn at(&mut self, name: &[u8], own: &[u8], node: &'z Node, encloser: Option<usize>) -> Next {
        let qtype = self.question.qtype;
        let cname = node.set(rtype::CNAME).filter(|_| qtype != rtype::CNAME);
        let set = node.set(qtype);
        let signatures = qtype == rtype::RRSIG && self.push_signatures(name, node);
        if (signatures || set.or(cname).is_some())
            && self.question.dnssec_ok
            && let Some(encloser) = encloser
        {
            proof::expansion(&mut self.message, self.zone, name, encloser);
        }
        if signatures {
            return Next::Done(rcode::NOERROR);
        }
        let Some(set) = set.or(cname) else {
            self.push_soa();
            if self.question.dnssec_ok {
                proof::no_data(&mut self.message, self.zone, name, own, encloser);
            }
            return Next::Done(rcode::NOERROR);
        };
        self.message.push(Section::Answer, name, set);
        match set.rtype {
            rtype::CNAME if qtype != rtype::CNAME => Next::Alias(set.data[0].to_vec()),
            _ => {
                // Records of other types are not examined, however many there are.
                if NAMES_HOSTS.contains(&set.rtype) {
                    self.hosts = Hosts::Of(name.to_vec(), set);
                }
                Next::Done(rcode::NOERROR)
            }
        }
    }

    /// Adds all signatures at a name, for queries for RRSIG. Returns whether there are any.
    fn push_signatures(&mut self, name: &[u8], node: &'z Node) -> bool {
        let mut signed = node
            .sets
            .iter()
            .filter(|set| !set.signatures.is_empty())
            .peekable();
        let any = signed.peek().is_some();
        signed.for_each(|set| self.message.push_signatures(name, set));
        any
    }

    /// Refers to the servers of another zone (RFC 1034 section 4.3.2, step 3b; RFC 4035 section 3.1.4).
    fn refer(&mut self, cut: &[u8], node: &'z Node, first: bool) {
        let Some(servers) = node.set(rtype::NS) else {
            return;
        };
        self.message.authoritative = !first;
        self.message.push(Section::Authority, cut, servers);
        if self.question.dnssec_ok && !matches!(self.zone.chain, Chain::None) {
            match node.set(rtype::DS) {
                Some(signers) => {
                    self.message.push(Section::Authority, cut, signers);
                }
                None => proof::no_signers(&mut self.message, self.zone, cut),
            }
        }
        self.hosts = Hosts::Glue(cut.to_vec(), servers);
    }

    /// Synthesizes a CNAME from a DNAME (RFC 6672 section 3.1).
    fn redirect(&mut self, name: &[u8], length: usize, node: &'z Node) -> Next {
        let Some(set) = node.set(rtype::DNAME) else {
            return Next::Done(rcode::SERVFAIL);
        };
        let owner = ending(name, length);
        let again = !self.message.push(Section::Answer, owner, set);
        // One that leads below itself would be followed without end.
        if again && is_at_or_below(&set.data[0].to_ascii_lowercase(), owner) {
            return Next::Done(rcode::NOERROR);
        }
        let before = &name[..name.len() - length];
        let target = [before, &set.data[0]].concat();
        if target.len() > NAME_MAXIMUM {
            return Next::Done(rcode::YXDOMAIN);
        }
        self.message.push_alias(name, set.ttl, &target);
        match self.question.qtype {
            rtype::CNAME => Next::Done(rcode::NOERROR),
            _ => Next::Alias(target),
        }
    }

    /// Adds the SOA record, which limits how long a denial may be cached (RFC 2308 section 3).
    fn push_soa(&mut self) {
        let apex = self.zone.origin.as_bytes();
        if let Some(soa) = self.zone.node(apex).and_then(|node| node.set(rtype::SOA)) {
            let ttl = soa.ttl.min(proof::minimum(soa));
            self.message.push_with_ttl(Section::Authority, apex, soa, ttl);
        }
    }

    /// Writes the answer, with those addresses of the hosts named in its records that the zone has.
    fn finish(self, rcode: u16) -> Resolution {
        let Teller {
            zone, message, hosts, ..
        } = self;
        let (owner, set, glue) = match hosts {
            Hosts::None => return message.finish(rcode, std::iter::empty(), |_| [None; 3]),
            Hosts::Of(owner, set) => (owner, set, false),
            Hosts::Glue(cut, set) => (cut, set, true),
        };
        let owner = &owner[..];
        // The addresses of servers at or below the cut are nowhere else, so they are first (RFC 9471 section
        // 3.1).
        let passes: &[bool] = if glue { &[true, false] } else { &[false] };
        let hosts = passes.iter().flat_map(|&needed| {
            let hosts = set.data.iter();
            let hosts = hosts.filter_map(move |data| host(set.rtype, data, owner));
            let hosts = hosts.filter(move |host| (glue && is_at_or_below(host, owner)) == needed);
            hosts.map(move |host| (host, needed))
        });
        let delegates = set.rtype == rtype::NS;
        message.finish(rcode, hosts, |host| {
            let node = match glue {
                true => zone.node(host),
                false => with_addresses(zone, host, delegates),
            };
            // RFC 9460 section 4.1: for a target, its service bindings as well.
            let bindings = matches!(set.rtype, rtype::SVCB | rtype::HTTPS) && *host != *owner;
            let bindings = bindings.then_some(set.rtype);
            [Some(rtype::A), Some(rtype::AAAA), bindings].map(|rtype| node?.set(rtype?))
        })
    }
}

/// The host that a record's data names, in lower case.
fn host(of: u16, data: &[u8], owner: &[u8]) -> Option<Vec<u8>> {
    let at = match of {
        rtype::NS => 0,
        rtype::MX => 2,
        rtype::SRV => 6,
        rtype::SVCB | rtype::HTTPS => return target(data, owner),
        _ => return None,
    };
    let host = data.get(at..)?;
    (skip_plain(host, 0) == Ok(host.len())).then(|| host.to_ascii_lowercase())
}

/// The target of a service binding. Without a target, it is the owner (RFC 9460 section 2.5.2); an alias
/// without one means that there is no service (section 2.5.1).
fn target(data: &[u8], owner: &[u8]) -> Option<Vec<u8>> {
    let (priority, rest) = data.split_at_checked(2)?;
    let target = &rest[..skip_plain(rest, 0).ok()?];
    match (target, priority) {
        ([0], [0, 0]) => None,
        ([0], _) => Some(owner.to_vec()),
        _ => Some(target.to_ascii_lowercase()),
    }
}

/// The node with the addresses of a host named in a record, which is of type NS if it `delegates`.
fn with_addresses<'z>(zone: &'z Zone, host: &[u8], delegates: bool) -> Option<&'z Node> {
    if !is_at_or_below(host, zone.origin.as_bytes()) {
        return None;
    }
    match find(zone, host) {
        Found::Node(node) | Found::Wildcard { node, .. } => Some(node),
        Found::Delegation(length, _) if delegates && length <= host.len() => zone.node(host),
        _ => None,
    }
}
