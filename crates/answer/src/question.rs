//! What a source is asked.

use std::net::IpAddr;
use std::sync::Arc;

use crate::dns::edns::ClientSubnet;
use crate::dns::name::{Name, is_at_or_below};
use crate::dns::suffix_map::SuffixMap;
use crate::dnstap::Tap;

/// A question, and what matters about who asks it.
#[derive(Debug, Clone, Copy)]
pub struct Question<'a> {
    /// Lowercased, in wire format.
    pub name: &'a [u8],
    /// The type.
    pub qtype: u16,
    /// The class.
    pub qclass: u16,
    /// The second 16 bits of the client's header: RD and CD matter.
    pub flags: u16,
    /// Whether DNSSEC records are wanted.
    pub dnssec_ok: bool,
    /// What upstreams are told of where the client is; as a rule nothing.
    pub subnet: Option<ClientSubnet>,
    /// The whole message, if it is signed and may only be relayed as it is (RFC 5625 section 4.5).
    pub signed: Option<&'a [u8]>,
    /// Octets of an answer that are of use. One that the proxy writes itself has no more, and TC where something is missing.
    pub room: usize,
    /// Whose share of what is bounded it takes.
    pub client: IpAddr,
    /// The zone of the configuration that the name belongs to.
    pub zone: &'a Name,
    /// The octets of each zone's name, by name: of those that the configuration has, and of special ones.
    pub zones: &'a SuffixMap<usize>,
    /// Who is told of messages, if anybody is.
    pub tap: Option<&'a Arc<Tap>>,
    /// Whether a client asked it, and not the proxy on the way to another answer.
    pub direct: bool,
    /// Whether somebody wants to read what happened.
    pub traced: bool,
}

impl Question<'_> {
    /// Whether another name, which is at or below `origin` if it is the source's, belongs to the zone that was asked, and to none
    /// that is closer to it (RFC 1034 section 4.3.2, step 2).
    pub fn stays_with(&self, origin: &Name, name: &[u8]) -> bool {
        let closest = || self.zones.longest(name).copied().unwrap_or_default();
        is_at_or_below(name, origin.as_bytes()) && closest() <= self.zone.as_bytes().len()
    }
}
