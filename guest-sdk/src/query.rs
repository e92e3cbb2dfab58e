//! A query as a filter sees it.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;

use crate::bindings::dnsweir::filter::types as raw;
use crate::{Class, Name, Type};

/// How a query arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transport {
    /// Over UDP.
    Udp,
    /// Over TCP.
    Tcp,
    /// Over TLS (RFC 7858).
    Tls,
    /// Over HTTPS (RFC 8484).
    Https,
    /// Over QUIC (RFC 9250).
    Quic,
    /// From the proxy itself: a prefetch, a name of an [alias](crate::Verdict::first_of), or a lookup of an
    /// [ask](crate::Verdict::ask).
    Internal,
    /// Over a transport that this version of the library does not know.
    Other(u8),
}

impl Transport {
    fn from_number(number: u8) -> Transport {
        match number {
            0 => Transport::Udp,
            1 => Transport::Tcp,
            2 => Transport::Tls,
            3 => Transport::Https,
            4 => Transport::Quic,
            5 => Transport::Internal,
            other => Transport::Other(other),
        }
    }

    #[cfg(any(doc, not(target_family = "wasm")))]
    pub(crate) fn number(self) -> u8 {
        match self {
            Transport::Udp => 0,
            Transport::Tcp => 1,
            Transport::Tls => 2,
            Transport::Https => 3,
            Transport::Quic => 4,
            Transport::Internal => 5,
            Transport::Other(other) => other,
        }
    }
}

/// A client's identity, as far as dnsweir knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Identity<'a> {
    /// No pod of this node, a pod that is not known yet, or one that has ended. Without `pods` in the
    /// configuration, every client is unknown.
    Unknown,
    /// The node itself, or a pod on its network.
    Host,
    /// A pod.
    Pod(Pod<'a>),
}

/// A client that is a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pod<'a> {
    /// Its namespace.
    pub namespace: &'a str,
    /// Its name.
    pub name: &'a str,
    /// The service account that it runs as.
    pub service_account: &'a str,
}

/// `shop/web-1`, `host` or `unknown`.
impl fmt::Display for Identity<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Identity::Unknown => f.write_str("unknown"),
            Identity::Host => f.write_str("host"),
            Identity::Pod(pod) => write!(f, "{}/{}", pod.namespace, pod.name),
        }
    }
}

/// One question, and the client that asked it.
#[derive(Clone, Copy)]
pub struct Query<'a> {
    raw: &'a raw::Query,
    name: Name<'a>,
    bytes: &'a [u8],
    time: u64,
}

impl<'a> Query<'a> {
    /// `None` if the host's offsets do not point to a name, which only a faulty host does.
    pub(crate) fn new(raw: &'a raw::Query, bytes: &'a [u8], time: u64) -> Option<Query<'a>> {
        let start = raw.name_start as usize;
        let end = start.checked_add(usize::from(raw.name_length))?;
        let name = Name::from_host(bytes.get(start..end)?)?;
        Some(Query {
            raw,
            name,
            bytes,
            time,
        })
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

    /// The client's address. An IPv4 client of an IPv6 socket has its IPv4 address.
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
        Transport::from_number(self.raw.transport)
    }

    /// Index into [`Setup::zones`](crate::Setup::zones): the zone that owns the name.
    pub fn zone(&self) -> usize {
        usize::from(self.raw.zone)
    }

    /// The second 16 bits of the header: QR, opcode, flags and rcode (RFC 1035 section 4.1.1).
    pub fn header(&self) -> u16 {
        self.raw.header
    }

    /// The opcode; 0 is a standard query.
    pub fn opcode(&self) -> u8 {
        (self.raw.header >> 11 & 0xf) as u8
    }

    /// RD: the client wants recursion.
    pub fn recursion_desired(&self) -> bool {
        self.raw.header & 0x0100 != 0
    }

    /// CD: the client validates signatures itself (RFC 4035 section 3.2.2).
    pub fn checking_disabled(&self) -> bool {
        self.raw.header & 0x0010 != 0
    }

    /// Whether the query has an OPT record (RFC 6891).
    pub fn edns(&self) -> bool {
        self.raw.edns != 0
    }

    /// DO: the client wants DNSSEC records (RFC 3225).
    pub fn dnssec_ok(&self) -> bool {
        self.raw.edns_flags & 0x8000 != 0
    }

    /// The largest UDP response in bytes that the client accepts; 512 without EDNS.
    pub fn udp_size(&self) -> u16 {
        self.raw.udp_size
    }

    /// The data of the first EDNS option with this code, if the client sent one and the
    /// [manifest](crate::Manifest::edns_option) asked for it.
    pub fn edns_option(&self, code: u16) -> Option<&'a [u8]> {
        let mut options = self.edns_options();
        options.find_map(|(known, data)| (known == code).then_some(data))
    }

    /// Code and data of each EDNS option that the [manifest](crate::Manifest::edns_options) asked for, as
    /// sent by the client.
    pub fn edns_options(&self) -> impl Iterator<Item = (u16, &'a [u8])> + use<'a> {
        let options = self.details().filter(|(kind, _)| *kind == EDNS_OPTION);
        options.filter_map(|(_, octets)| {
            let (code, data) = octets.split_first_chunk()?;
            Some((u16::from_be_bytes(*code), data))
        })
    }

    /// The address and port of the listener that received the query, as in the metrics. None unless the
    /// [manifest](crate::Manifest::listener) asked for it, and for the proxy's own queries.
    pub fn listener(&self) -> Option<&'a str> {
        self.text(LISTENER)
    }

    /// The TLS server name (SNI) that the client sent, if the [manifest](crate::Manifest::server_name) asked
    /// for it.
    pub fn server_name(&self) -> Option<&'a str> {
        self.text(SERVER_NAME)
    }

    /// The client's identity, if the [manifest](crate::Manifest::identity) asked for it. It is also known for
    /// queries that the proxy makes on behalf of a client, such as for the names of an alias.
    ///
    /// ```
    /// use dnsweir_filter::{Identity, Query, Rcode, Verdict};
    /// fn only_for_shop(query: &Query<'_>) -> Verdict {
    ///     match query.identity() {
    ///         Identity::Pod(pod) if pod.namespace == "shop" => Verdict::pass(),
    ///         _ => Verdict::refuse(Rcode::REFUSED),
    ///     }
    /// }
    /// ```
    pub fn identity(&self) -> Identity<'a> {
        self.details()
            .find_map(|(kind, octets)| match kind {
                HOST => Some(Identity::Host),
                POD => {
                    let mut parts = octets.split(|octet| *octet == 0).map(str::from_utf8);
                    let mut part = || parts.next()?.ok();
                    Some(Identity::Pod(Pod {
                        namespace: part()?,
                        name: part()?,
                        service_account: part()?,
                    }))
                }
                _ => None,
            })
            .unwrap_or(Identity::Unknown)
    }

    /// A label of the client's pod, if the pod has it and the [manifest](crate::Manifest::pod_label) asked
    /// for it.
    pub fn pod_label(&self, name: &str) -> Option<&'a str> {
        self.label(POD_LABEL, name)
    }

    /// An annotation of the client's pod, if the pod has it and the
    /// [manifest](crate::Manifest::pod_annotation) asked for it.
    pub fn pod_annotation(&self, name: &str) -> Option<&'a str> {
        self.label(POD_ANNOTATION, name)
    }

    /// A label of the namespace of the client's pod, if the namespace has it and the
    /// [manifest](crate::Manifest::namespace_label) asked for it.
    pub fn namespace_label(&self, name: &str) -> Option<&'a str> {
        self.label(NAMESPACE_LABEL, name)
    }

    /// An annotation of the namespace of the client's pod, if the namespace has it and the
    /// [manifest](crate::Manifest::namespace_annotation) asked for it.
    pub fn namespace_annotation(&self, name: &str) -> Option<&'a str> {
        self.label(NAMESPACE_ANNOTATION, name)
    }

    fn label(&self, wanted: u16, name: &str) -> Option<&'a str> {
        let mut labels = self.details().filter(|(kind, _)| *kind == wanted);
        labels.find_map(|(_, octets)| {
            let value = octets.strip_prefix(name.as_bytes())?.strip_prefix(b"\0")?;
            str::from_utf8(value).ok()
        })
    }

    /// The details that follow the name, each with its kind.
    fn details(&self) -> impl Iterator<Item = (u16, &'a [u8])> + use<'a> {
        let start = self.raw.name_start as usize + usize::from(self.raw.name_length);
        let octets = self
            .bytes
            .get(start..start + usize::from(self.raw.details_length));
        let mut octets = octets.unwrap_or_default();
        std::iter::from_fn(move || {
            let (kind, rest) = octets.split_first_chunk()?;
            let (length, rest) = rest.split_first_chunk()?;
            let (detail, rest) = rest.split_at_checked(usize::from(u16::from_be_bytes(*length)))?;
            octets = rest;
            Some((u16::from_be_bytes(*kind), detail))
        })
    }

    /// A slice that a record of the batch points to; `None` if it is empty or out of range.
    pub(crate) fn slice(&self, start: u32, length: u32) -> Option<&'a [u8]> {
        let (start, length) = (start as usize, length as usize);
        let slice = self.bytes.get(start..start.checked_add(length)?)?;
        (length > 0).then_some(slice)
    }

    fn text(&self, wanted: u16) -> Option<&'a str> {
        let (_, octets) = self.details().find(|(kind, _)| *kind == wanted)?;
        str::from_utf8(octets).ok()
    }

    /// When the query arrived, since the Unix epoch, to the millisecond. A filter has no other clock.
    pub fn time(&self) -> Duration {
        Duration::from_millis(self.time)
    }
}

/// Kinds of details that follow a name.
pub(crate) const EDNS_OPTION: u16 = 1;
pub(crate) const LISTENER: u16 = 2;
pub(crate) const SERVER_NAME: u16 = 3;
pub(crate) const HOST: u16 = 4;
pub(crate) const POD: u16 = 5;
pub(crate) const POD_LABEL: u16 = 6;
pub(crate) const POD_ANNOTATION: u16 = 7;
pub(crate) const NAMESPACE_LABEL: u16 = 8;
pub(crate) const NAMESPACE_ANNOTATION: u16 = 9;
