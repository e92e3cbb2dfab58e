//! What a source is asked.

use std::net::IpAddr;
use std::sync::Arc;

use crate::dns::edns::ClientSubnet;
use crate::dns::name::Name;
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
    /// Whose share of what is bounded it takes.
    pub client: IpAddr,
    /// The zone of the configuration that the name belongs to.
    pub zone: &'a Name,
    /// Who is told of messages, if anybody is.
    pub tap: Option<&'a Arc<Tap>>,
    /// Whether a client asked it, and not the proxy on the way to another answer.
    pub direct: bool,
    /// Whether somebody wants to read what happened.
    pub traced: bool,
}
