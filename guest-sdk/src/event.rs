//! What a filter hears of a query that has been answered.

use std::time::Duration;

use crate::bindings::dnsweir::filter::types as raw;
use crate::{Query, Rcode, Source};

/// What became of a query.
pub use raw::Outcome;

/// A query that has been answered, or dropped. The answer has left.
#[derive(Clone, Copy)]
pub struct Event<'a> {
    raw: &'a raw::Event,
    query: Query<'a>,
}

impl<'a> Event<'a> {
    pub(crate) fn new(raw: &'a raw::Event, bytes: &'a [u8]) -> Option<Event<'a>> {
        Some(Event {
            raw,
            query: Query::new(&raw.query, bytes, raw.time)?,
        })
    }

    /// The query.
    pub fn query(&self) -> &Query<'a> {
        &self.query
    }

    /// From query to response, to the microsecond.
    pub fn duration(&self) -> Duration {
        Duration::from_micros(u64::from(self.raw.duration))
    }

    /// The message ID, as the client chose it.
    pub fn id(&self) -> u16 {
        self.raw.id
    }

    /// Octets of the query.
    pub fn query_size(&self) -> u16 {
        self.raw.query_size
    }

    /// Octets of the response; 0 if the query was dropped.
    pub fn response_size(&self) -> u32 {
        self.raw.response_size
    }

    /// The response as it was sent, in wire format, if the manifest asked for
    /// [messages](crate::Manifest::messages). None where there was no response, nor where more messages wait than the
    /// host keeps.
    pub fn message(&self) -> Option<&'a [u8]> {
        self.query.slice(self.raw.message_start, self.raw.message_length)
    }

    /// Whether the query got no response at all.
    pub fn dropped(&self) -> bool {
        self.raw.response_size == 0
    }

    /// The response code.
    pub fn rcode(&self) -> Rcode {
        Rcode(self.raw.rcode)
    }

    /// What became of the query, by the response code and whether there are answers.
    pub fn outcome(&self) -> Outcome {
        match self.rcode() {
            _ if self.dropped() => Outcome::Error,
            Rcode::NOERROR if self.has_answers() => Outcome::Success,
            Rcode::NOERROR | Rcode::NXDOMAIN => Outcome::Denial,
            _ => Outcome::Error,
        }
    }

    /// The second 16 bits of the response's header (RFC 1035 section 4.1.1).
    pub fn response_header(&self) -> u16 {
        self.raw.response_header
    }

    /// Whether the answer section holds records.
    pub fn has_answers(&self) -> bool {
        self.raw.has_answers != 0
    }

    /// Where the answer came from.
    pub fn source(&self) -> Source {
        Source::from_number(self.raw.source)
    }
}
