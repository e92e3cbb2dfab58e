//! Lookups that a filter requests before it decides, and their answers.

use std::time::Duration;

use super::batch::{Asked, Batch};
use super::bindings::dnsweir::filter::types::{AskedQuery, AskedResponse, LookupAnswer, Query, Response};
use super::provenance::source_number;
use crate::dns::Origin;
use crate::dns::name::Name;

/// How often a filter may request lookups for one query, and how often for one response.
pub const ROUNDS: usize = 4;

/// The lookups that a filter needs before it decides.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ask {
    /// 1 to 16.
    pub lookups: Box<[Lookup]>,
    /// Time limit for all of them together.
    pub time: Duration,
    /// Returned with the answers.
    pub state: Box<[u8]>,
}

/// A question asked by a filter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lookup {
    /// A valid wire-format name, in the filter's letter case.
    pub name: Box<[u8]>,
    /// No meta type except ANY.
    pub qtype: u16,
    /// Where it starts.
    pub path: LookupPath,
}

/// Where a lookup starts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LookupPath {
    /// From the first stage of the zone that owns the name.
    Top,
    /// From the stage below the filter, in the zone of the query.
    Below,
    /// From the first stage of this zone.
    Zone(Box<Name>),
}

impl Ask {
    /// The size of its contents in bytes.
    pub fn octets(&self) -> usize {
        let lookups = self.lookups.iter().map(|lookup| {
            let zone = match lookup.path {
                LookupPath::Zone(_) => size_of::<Name>(),
                LookupPath::Top | LookupPath::Below => 0,
            };
            lookup.name.len() + zone
        });
        size_of_val(&*self.lookups) + lookups.sum::<usize>() + self.state.len()
    }
}

/// The result of a lookup; its number is the `status` of a `lookup-answer`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum LookupStatus {
    /// There is a conclusive response: records, or that there are none.
    Answered = 0,
    /// No result: SERVFAIL, a filter dropped it, or there is no such zone.
    Failed = 1,
    /// It took too long.
    TimedOut = 2,
    /// Not made, or given up, because of one of the proxy's limits.
    Limited = 3,
}

/// The response to a lookup.
#[derive(Debug, Clone)]
pub struct Found {
    /// The result.
    pub status: LookupStatus,
    /// All 12 bits.
    pub rcode: u16,
    /// The origin of the response.
    pub source: Origin,
    /// The lowest TTL of its records, in seconds.
    pub ttl: u32,
    /// Records in the answer section.
    pub answer_count: u16,
}

/// A call that passes a filter the answers to its lookups for one query or response.
#[derive(Clone)]
pub struct Answers<R> {
    pub(super) record: R,
    pub(super) answers: Vec<LookupAnswer>,
    pub(super) bytes: Vec<u8>,
}

impl Answers<AskedQuery> {
    /// Answers about this query, whose offsets are filled in here. Each found response comes with its
    /// message, empty unless it was answered.
    pub fn about_query(
        query: Query,
        asked: Asked<'_>,
        state: &[u8],
        found: impl ExactSizeIterator<Item = (Found, Vec<u8>)>,
    ) -> Answers<AskedQuery> {
        let mut batch = Batch::default();
        batch.push_query(query, asked, 0);
        let record = AskedQuery {
            query: batch.records()[0],
            state_start: batch.bytes().len() as u32,
            state_length: state.len() as u32,
            first: 0,
            count: found.len() as u32,
        };
        Answers::new(record, [batch.bytes(), state].concat(), found)
    }
}

impl Answers<AskedResponse> {
    /// Answers about this response, like [`about_query`](Answers::about_query); `message` is empty unless the
    /// filter requests [messages](super::Interest::messages).
    pub fn about_response(
        response: Response,
        asked: Asked<'_>,
        message: &[u8],
        state: &[u8],
        found: impl ExactSizeIterator<Item = (Found, Vec<u8>)>,
    ) -> Answers<AskedResponse> {
        let mut batch = Batch::default();
        batch.push_response(response, asked, message);
        let record = AskedResponse {
            response: batch.records()[0],
            state_start: batch.bytes().len() as u32,
            state_length: state.len() as u32,
            first: 0,
            count: found.len() as u32,
        };
        Answers::new(record, [batch.bytes(), state].concat(), found)
    }
}

impl<R> Answers<R> {
    /// The size of its contents in bytes.
    pub(super) fn octets(&self) -> usize {
        size_of_val(&*self.answers) + self.bytes.len()
    }

    /// All offsets fit, since there are at most 16 messages of at most 65,535 bytes.
    fn new(record: R, mut bytes: Vec<u8>, found: impl Iterator<Item = (Found, Vec<u8>)>) -> Answers<R> {
        let answers = found.map(|(found, message)| {
            let message_start = bytes.len() as u32;
            bytes.extend_from_slice(&message);
            LookupAnswer {
                status: found.status as u8,
                rcode: found.rcode,
                source: source_number(found.source),
                ttl: found.ttl,
                answer_count: found.answer_count,
                message_start,
                message_length: message.len() as u32,
            }
        });
        let answers = answers.collect();
        Answers {
            record,
            answers,
            bytes,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A name is as large as the longest one.
    #[test]
    fn the_zones_of_lookups_count() {
        let ask = |path: LookupPath| Ask {
            lookups: [Lookup {
                name: (*b"\x04test\0").into(),
                qtype: 1,
                path,
            }]
            .into(),
            time: Duration::ZERO,
            state: [0; 3].into(),
        };
        let least = size_of::<Lookup>() + 6 + 3;
        assert_eq!(ask(LookupPath::Top).octets(), least);
        assert_eq!(ask(LookupPath::Below).octets(), least);
        let zone = LookupPath::Zone(Box::new(Name::ROOT));
        assert_eq!(ask(zone).octets(), least + size_of::<Name>());
    }
}
