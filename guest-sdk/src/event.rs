//! The outcome of a query, as a filter sees it.

use std::time::Duration;

use crate::bindings::dnsweir::filter::types as raw;
use crate::{Query, Rcode, Source};

/// The outcome of a query.
pub use raw::Outcome;

/// A query that has been answered or dropped. The response has already been sent.
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

    /// The time from query to response, with a resolution of 1 µs.
    pub fn duration(&self) -> Duration {
        Duration::from_micros(u64::from(self.raw.duration))
    }

    /// The message ID that the client chose.
    pub fn id(&self) -> u16 {
        self.raw.id
    }

    /// The size of the query in bytes.
    pub fn query_size(&self) -> u16 {
        self.raw.query_size
    }

    /// The size of the response in bytes; 0 if the query was dropped.
    pub fn response_size(&self) -> u32 {
        self.raw.response_size
    }

    /// The response as it was sent, in wire format, if the manifest asked for
    /// [messages](crate::Manifest::messages). None if there was no response, or if the host's queue of
    /// messages was full.
    pub fn message(&self) -> Option<&'a [u8]> {
        self.query.slice(self.raw.message_start, self.raw.message_length)
    }

    /// Whether the query got no response at all.
    pub fn dropped(&self) -> bool {
        self.raw.response_size == 0
    }

    /// The rcode.
    pub fn rcode(&self) -> Rcode {
        Rcode(self.raw.rcode)
    }

    /// The outcome of the query, derived from the rcode and whether there are answers.
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
