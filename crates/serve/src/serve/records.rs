//! Queries, responses and events as filters see them.

use crate::dns::{Origin, Transport, edns, u16_at};
use crate::filter;

use super::generation::Stage;
use super::live::Live;
use super::request::Request;
use super::response::Response;
use super::worker::Clocks;

impl Live {
    /// What a filter learns about a query besides its record.
    #[inline]
    pub fn asked<'a>(&'a self, request: &'a Request, filter: usize) -> filter::Asked<'a> {
        let wanted = &self.generation.filters[filter].filter.interest().details;
        let internal = request.asked.client.transport == Transport::Internal;
        let details = (wanted.any() && (!internal || wanted.identity())).then(|| {
            let known = filter::Known {
                options: &request.asked.options,
                // An internal query came to no listener, and has no options.
                listener: if internal {
                    ""
                } else {
                    self.server(request.asked.client.server)
                },
                server_name: request.asked.server_name.as_deref().unwrap_or_default(),
                identity: &request.asked.identity,
            };
            (wanted, known)
        });
        let name = request.name.as_bytes();
        filter::Asked { name, details }
    }

    /// A query as its stage's filter sees it.
    pub(crate) fn query_record(&self, request: &Request) -> filter::Query {
        let zone = match self.stage(request, request.stage) {
            Some(Stage::Filter(used)) => used.zone(request.zone),
            _ => 0,
        };
        filter::Query {
            zone,
            ..query_record(request)
        }
    }

    /// The message of a response, if this filter receives messages; otherwise it is empty.
    pub(crate) fn message(&self, request: &Request, response: &Response, filter: usize) -> Vec<u8> {
        match self.generation.filters[filter].filter.interest().messages {
            true => response.message(&request.question),
            false => Vec::new(),
        }
    }

    /// A response as its stage's filter sees it.
    pub(crate) fn response_record(&self, request: &Request, response: &Response) -> filter::Response {
        filter::Response {
            query: self.query_record(request),
            rcode: response.rcode,
            source: filter::source_number(response.origin),
            answer_count: response.answer_count(),
            ttl: response.lowest_ttl(),
            message_start: 0,
            message_length: 0,
        }
    }
}

/// A query as filters see it, except for the zone, which each filter numbers on its own.
#[inline]
fn query_record(request: &Request) -> filter::Query {
    let [client_high, client_low] = filter::client_halves(request.asked.client.address.ip());
    filter::Query {
        client_high,
        client_low,
        name_start: 0,
        name_length: 0,
        qtype: request.qtype,
        qclass: request.qclass,
        header: request.asked.flags,
        udp_size: request.asked.edns.map_or(edns::UDP_CLASSIC, |edns| edns.udp_size),
        edns_flags: request.asked.edns.map_or(0, |edns| edns.flags),
        client_port: request.asked.client.address.port(),
        zone: 0,
        transport: filter::transport_number(request.asked.client.transport),
        edns: request.asked.edns.is_some().into(),
        details_length: 0,
    }
}

/// The outcome of a query, except for the zone. `reply` is what the client was sent; empty: nothing.
pub(crate) fn event_record(
    request: &Request,
    response: Option<&Response>,
    reply: &[u8],
    clocks: Clocks,
) -> filter::Event {
    let microseconds = clocks.now.micros_since(request.asked.client.received);
    filter::Event {
        query: query_record(request),
        time: clocks.unix.as_millis().saturating_sub(microseconds / 1000),
        duration: u32::try_from(microseconds).unwrap_or(u32::MAX),
        id: request.asked.id,
        query_size: request.asked.size,
        response_size: reply.len() as u32,
        rcode: response.map_or(0, |response| response.rcode),
        response_header: reply.get(2..4).map_or(0, |octets| u16_at(octets, 0)),
        has_answers: response
            .is_some_and(|response| response.answer_count() > 0)
            .into(),
        source: filter::source_number(response.map_or(Origin::Filter, |response| response.origin)),
        message_start: 0,
        message_length: 0,
    }
}
