//! What a filter gets to see of a query.

use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;

use crate::bindings::dnsweir::filter::types as raw;
use crate::{Class, Name, Type};

/// How a query arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transport {
    /// In a datagram.
    Udp,
    /// Over a connection.
    Tcp,
    /// Over TLS (RFC 7858).
    Tls,
    /// Over HTTPS (RFC 8484).
    Https,
    /// Over QUIC (RFC 9250).
    Quic,
    /// From the proxy itself: a prefetch, or a name of an [alias](crate::Verdict::first_of).
    Internal,
}

/// One question, and who asks it.
#[derive(Clone, Copy)]
pub struct Query<'a> {
    raw: &'a raw::Query,
    name: Name<'a>,
    time: u64,
}

impl<'a> Query<'a> {
    /// `None` if the host's indexes do not lead to a name, which no host that works does.
    pub(crate) fn new(raw: &'a raw::Query, bytes: &'a [u8], time: u64) -> Option<Query<'a>> {
        let start = raw.name_start as usize;
        let end = start.checked_add(usize::from(raw.name_length))?;
        let name = Name::from_host(bytes.get(start..end)?)?;
        Some(Query { raw, name, time })
    }

    /// The name asked for, lowercased.
    pub fn name(&self) -> Name<'a> {
        self.name
    }

    /// The type asked for.
    pub fn qtype(&self) -> Type {
        Type(self.raw.qtype)
    }

    /// The class asked for.
    pub fn class(&self) -> Class {
        Class(self.raw.qclass)
    }

    /// The client's address. IPv4 clients of an IPv6 socket are IPv4 clients.
    pub fn client(&self) -> IpAddr {
        let bits = u128::from(self.raw.client_high) << 64 | u128::from(self.raw.client_low);
        Ipv6Addr::from_bits(bits).to_canonical()
    }

    /// The client's port.
    pub fn client_port(&self) -> u16 {
        self.raw.client_port
    }

    /// How the query arrived.
    pub fn transport(&self) -> Transport {
        match self.raw.transport {
            raw::Transport::Udp => Transport::Udp,
            raw::Transport::Tcp => Transport::Tcp,
            raw::Transport::Tls => Transport::Tls,
            raw::Transport::Https => Transport::Https,
            raw::Transport::Quic => Transport::Quic,
            raw::Transport::Internal => Transport::Internal,
        }
    }

    /// Index into [`Setup::zones`](crate::Setup::zones): the zone that owns the name.
    pub fn zone(&self) -> usize {
        usize::from(self.raw.zone)
    }

    /// The second 16 bits of the header: QR, opcode, flags and rcode (RFC 1035 section 4.1.1).
    pub fn header(&self) -> u16 {
        self.raw.header
    }

    /// The kind of query; 0 is the ordinary one.
    pub fn opcode(&self) -> u8 {
        (self.raw.header >> 11 & 0xf) as u8
    }

    /// RD: the client wants the answer looked up.
    pub fn recursion_desired(&self) -> bool {
        self.raw.header & 0x0100 != 0
    }

    /// CD: the client checks signatures itself (RFC 4035 section 3.2.2).
    pub fn checking_disabled(&self) -> bool {
        self.raw.header & 0x0010 != 0
    }

    /// Whether the query has an OPT record (RFC 6891).
    pub fn edns(&self) -> bool {
        self.raw.edns
    }

    /// DO: the client wants signatures (RFC 3225).
    pub fn dnssec_ok(&self) -> bool {
        self.raw.edns_flags & 0x8000 != 0
    }

    /// How many octets a UDP response may have; 512 without EDNS.
    pub fn udp_size(&self) -> u16 {
        self.raw.udp_size
    }

    /// When the query came in, since the Unix epoch, to the millisecond. There is no other clock
    /// in a filter.
    pub fn time(&self) -> Duration {
        Duration::from_millis(self.time)
    }
}
