//! Queries, responses and events for tests of filters.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use crate::bindings::dnsweir::filter::types as raw;
use crate::query::{
    EDNS_OPTION, HOST, LISTENER, NAMESPACE_ANNOTATION, NAMESPACE_LABEL, POD, POD_ANNOTATION, POD_LABEL,
    SERVER_NAME,
};
use crate::{Class, Name, NameBuf, Rcode, Source, Transport, Type};

/// A query for a test.
#[derive(Debug, Clone)]
pub struct QueryLiteral {
    name: NameBuf,
    qtype: Type,
    class: Class,
    client: SocketAddr,
    transport: Transport,
    header: u16,
    edns: Option<(u16, bool)>,
    details: Vec<u8>,
    zone: u16,
    time: u64,
}

/// A query of class IN over UDP, with RD and without EDNS, from 192.0.2.1 port 1053.
///
/// # Panics
/// If the text is not a name.
pub fn query(name: &str, qtype: Type) -> QueryLiteral {
    let name = name
        .parse()
        .unwrap_or_else(|reason| panic!("{name:?} is not a name: {reason}"));
    let client = SocketAddr::from(([192, 0, 2, 1], 1053));
    QueryLiteral {
        name,
        qtype,
        class: Class::IN,
        client,
        transport: Transport::Udp,
        header: 0x0100,
        edns: None,
        details: Vec::new(),
        zone: 0,
        time: 0,
    }
}

impl QueryLiteral {
    /// Sets the class.
    pub fn class(mut self, class: Class) -> QueryLiteral {
        self.class = class;
        self
    }

    /// Sets the client.
    pub fn client(mut self, client: SocketAddr) -> QueryLiteral {
        self.client = client;
        self
    }

    /// Sets the transport.
    pub fn transport(mut self, transport: Transport) -> QueryLiteral {
        self.transport = transport;
        self
    }

    /// Sets the second 16 bits of the header.
    pub fn header(mut self, header: u16) -> QueryLiteral {
        self.header = header;
        self
    }

    /// Adds EDNS with a UDP payload size and DO.
    pub fn edns(mut self, udp_size: u16, dnssec_ok: bool) -> QueryLiteral {
        self.edns = Some((udp_size, dnssec_ok));
        self
    }

    /// Adds an EDNS option, which the manifest should ask for.
    pub fn edns_option(mut self, code: u16, data: &[u8]) -> QueryLiteral {
        self.edns.get_or_insert((1232, false));
        self.detail(EDNS_OPTION, &[&code.to_be_bytes()[..], data].concat())
    }

    /// Sets the listener, which the manifest should ask for.
    pub fn listener(self, listener: &str) -> QueryLiteral {
        self.detail(LISTENER, listener.as_bytes())
    }

    /// Sets the TLS server name, which the manifest should ask for.
    pub fn server_name(self, name: &str) -> QueryLiteral {
        self.detail(SERVER_NAME, name.as_bytes())
    }

    /// Makes the node itself the client; the manifest should ask for the identity.
    pub fn host(self) -> QueryLiteral {
        self.detail(HOST, b"")
    }

    /// Makes this pod, with service account `default`, the client; the manifest should ask for the identity.
    pub fn pod(self, namespace: &str, name: &str) -> QueryLiteral {
        self.detail(POD, format!("{namespace}\0{name}\0default").as_bytes())
    }

    /// Adds a label of the pod, which the manifest should ask for.
    pub fn pod_label(self, name: &str, value: &str) -> QueryLiteral {
        self.detail(POD_LABEL, format!("{name}\0{value}").as_bytes())
    }

    /// Adds an annotation of the pod, which the manifest should ask for.
    pub fn pod_annotation(self, name: &str, value: &str) -> QueryLiteral {
        self.detail(POD_ANNOTATION, format!("{name}\0{value}").as_bytes())
    }

    /// Adds a label of the pod's namespace, which the manifest should ask for.
    pub fn namespace_label(self, name: &str, value: &str) -> QueryLiteral {
        self.detail(NAMESPACE_LABEL, format!("{name}\0{value}").as_bytes())
    }

    /// Adds an annotation of the pod's namespace, which the manifest should ask for.
    pub fn namespace_annotation(self, name: &str, value: &str) -> QueryLiteral {
        self.detail(NAMESPACE_ANNOTATION, format!("{name}\0{value}").as_bytes())
    }

    fn detail(mut self, kind: u16, octets: &[u8]) -> QueryLiteral {
        self.details.extend(kind.to_be_bytes());
        self.details.extend((octets.len() as u16).to_be_bytes());
        self.details.extend_from_slice(octets);
        self
    }

    /// Sets the index of the zone.
    pub fn zone(mut self, index: u16) -> QueryLiteral {
        self.zone = index;
        self
    }

    /// Sets the time since the Unix epoch.
    pub fn time(mut self, time: Duration) -> QueryLiteral {
        self.time = time.as_millis() as u64;
        self
    }

    pub(super) fn raw(&self) -> raw::Query {
        let client = match self.client.ip() {
            IpAddr::V4(address) => address.to_ipv6_mapped(),
            IpAddr::V6(address) => address,
        };
        let (udp_size, dnssec_ok) = self.edns.unwrap_or((512, false));
        raw::Query {
            client_high: (client.to_bits() >> 64) as u64,
            client_low: client.to_bits() as u64,
            name_start: 0,
            name_length: self.name.as_name().as_wire().len() as u16,
            qtype: self.qtype.0,
            qclass: self.class.0,
            header: self.header,
            udp_size,
            edns_flags: u16::from(dnssec_ok) << 15,
            client_port: self.client.port(),
            zone: self.zone,
            transport: self.transport.number(),
            edns: self.edns.is_some().into(),
            details_length: self.details.len() as u16,
        }
    }

    /// The name, followed by the details.
    pub(super) fn wire(&self) -> Vec<u8> {
        [self.name.as_name().as_wire(), &self.details].concat()
    }

    pub(super) fn question(&self) -> (Name<'_>, Type) {
        (self.name.as_name(), self.qtype)
    }

    /// Milliseconds since the Unix epoch.
    pub(super) fn millis(&self) -> u64 {
        self.time
    }
}

/// A response for a test.
#[derive(Debug, Clone)]
pub struct ResponseLiteral {
    pub(super) query: QueryLiteral,
    rcode: Rcode,
    source: Source,
    answer_count: u16,
    ttl: u32,
    message: Vec<u8>,
}

/// NOERROR from an upstream, without records or message.
pub fn response(query: QueryLiteral) -> ResponseLiteral {
    let source = Source::Upstream;
    ResponseLiteral {
        query,
        rcode: Rcode::NOERROR,
        source,
        answer_count: 0,
        ttl: 0,
        message: Vec::new(),
    }
}

impl ResponseLiteral {
    /// Sets the rcode.
    pub fn rcode(mut self, rcode: Rcode) -> ResponseLiteral {
        self.rcode = rcode;
        self
    }

    /// Sets the source.
    pub fn source(mut self, source: Source) -> ResponseLiteral {
        self.source = source;
        self
    }

    /// Sets the number of answer records, and the lowest TTL in seconds.
    pub fn answers(mut self, count: u16, ttl: u32) -> ResponseLiteral {
        (self.answer_count, self.ttl) = (count, ttl);
        self
    }

    /// Sets the message in wire format.
    pub fn message(mut self, message: &[u8]) -> ResponseLiteral {
        self.message = message.to_vec();
        self
    }

    pub(super) fn query(&self) -> &QueryLiteral {
        &self.query
    }

    /// The response, and the bytes it points into.
    pub(super) fn raw(&self) -> (raw::Response, Vec<u8>) {
        let name = self.query.wire();
        let raw = raw::Response {
            query: self.query.raw(),
            rcode: self.rcode.0,
            source: self.source.number(),
            answer_count: self.answer_count,
            ttl: self.ttl,
            message_start: name.len() as u32,
            message_length: self.message.len() as u32,
        };
        (raw, [name, self.message.clone()].concat())
    }
}

/// An event for a test.
#[derive(Debug, Clone)]
pub struct EventLiteral {
    query: QueryLiteral,
    raw: raw::Event,
    message: Vec<u8>,
}

/// A response of 45 bytes to a query of 29, with records, from the cache, without delay; its ID is 4660.
pub fn event(query: QueryLiteral) -> EventLiteral {
    let raw = raw::Event {
        query: query.raw(),
        time: query.time,
        duration: 0,
        id: 0x1234,
        query_size: 29,
        response_size: 45,
        rcode: 0,
        response_header: 0x8180,
        has_answers: 1,
        source: Source::Cache.number(),
        message_start: 0,
        message_length: 0,
    };
    let message = Vec::new();
    EventLiteral { query, raw, message }
}

impl EventLiteral {
    /// Sets the rcode, and removes the answer records unless it is NOERROR.
    pub fn rcode(mut self, rcode: Rcode) -> EventLiteral {
        self.raw.rcode = rcode.0;
        self.raw.response_header = 0x8180 | rcode.0 & 0xf;
        self.raw.has_answers = (rcode == Rcode::NOERROR).into();
        self
    }

    /// Removes the answer records.
    pub fn no_answers(mut self) -> EventLiteral {
        self.raw.has_answers = 0;
        self
    }

    /// Removes the response.
    pub fn dropped(mut self) -> EventLiteral {
        (
            self.raw.response_size,
            self.raw.response_header,
            self.raw.has_answers,
        ) = (0, 0, 0);
        self
    }

    /// Sets the time from query to response.
    pub fn duration(mut self, duration: Duration) -> EventLiteral {
        self.raw.duration = duration.as_micros() as u32;
        self
    }

    /// Sets the ID.
    pub fn id(mut self, id: u16) -> EventLiteral {
        self.raw.id = id;
        self
    }

    /// Sets the second 16 bits of the response's header.
    pub fn response_header(mut self, header: u16) -> EventLiteral {
        self.raw.response_header = header;
        self
    }

    /// Sets the source.
    pub fn source(mut self, source: Source) -> EventLiteral {
        self.raw.source = source.number();
        self
    }

    /// Sets the response as it was sent; the manifest should ask for messages.
    pub fn message(mut self, message: &[u8]) -> EventLiteral {
        self.message = message.to_vec();
        self
    }

    pub(super) fn query(&self) -> &QueryLiteral {
        &self.query
    }

    /// The event, and the bytes it points into.
    pub(super) fn raw(&self) -> (raw::Event, Vec<u8>) {
        let asked = self.query.wire();
        let raw = raw::Event {
            message_start: asked.len() as u32,
            message_length: self.message.len() as u32,
            ..self.raw
        };
        (raw, [asked, self.message.clone()].concat())
    }
}
