//! The question that a source is asked.

use std::net::IpAddr;
use std::sync::Arc;

use crate::dns::edns::ClientSubnet;
use crate::dns::name::{Name, is_at_or_below};
use crate::dns::suffix_map::SuffixMap;
use crate::dnstap::Tap;
use crate::identity::Identity;

/// A question, and what matters about its client.
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
    /// Whether DNSSEC records are requested.
    pub dnssec_ok: bool,
    /// The EDNS client subnet that upstreams are sent; usually none.
    pub subnet: Option<ClientSubnet>,
    /// The whole message, if it is signed and so must be relayed unchanged (RFC 5625 section 4.5).
    pub signed: Option<&'a [u8]>,
    /// The largest useful answer in bytes. Answers that the proxy itself writes fit; a truncated one has TC
    /// set.
    pub room: usize,
    /// The client whose share of the limits it uses.
    pub client: IpAddr,
    /// Who that client is; unknown if the configuration does not identify pods.
    pub identity: &'a Identity,
    /// The zone of the configuration that the name belongs to.
    pub zone: &'a Name,
    /// The length in bytes of each zone's name, by name: configured zones and special ones.
    pub zones: &'a SuffixMap<usize>,
    /// The dnstap logger, if any.
    pub tap: Option<&'a Arc<Tap>>,
    /// Whether a client asked, rather than the proxy on the way to another answer.
    pub direct: bool,
    /// Whether a trace was requested.
    pub traced: bool,
}

impl Question<'_> {
    /// Whether `name`, which the source has if it is at or below `origin`, belongs to the zone that was asked
    /// and to no closer one (RFC 1034 section 4.3.2, step 2).
    pub fn stays_with(&self, origin: &Name, name: &[u8]) -> bool {
        let closest = || self.zones.longest(name).copied().unwrap_or_default();
        is_at_or_below(name, origin.as_bytes()) && closest() <= self.zone.as_bytes().len()
    }
}
