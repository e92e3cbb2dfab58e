//! What a filter asks the host before it decides, and the answers on their way back to it.

use std::time::Duration;

use super::batch::{Asked, Batch};
use super::bindings::dnsweir::filter::types::{AskedQuery, AskedResponse, LookupAnswer, Query, Response};
use super::provenance::source_number;
use crate::dns::Origin;
use crate::dns::name::Name;

/// How often a filter may ask about one query, and how often about one response.
pub const ROUNDS: usize = 4;

/// What a filter wants to know before it decides.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ask {
    /// 1 to 16.
    pub lookups: Box<[Lookup]>,
    /// How long all of them together may take.
    pub time: Duration,
    /// Handed back with the answers.
    pub state: Box<[u8]>,
}

/// A question of a filter's own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lookup {
    /// A valid wire-format name, in the filter's letter case.
    pub name: Box<[u8]>,
    /// Never a meta type but ANY.
    pub qtype: u16,
    /// From where it is made.
    pub path: LookupPath,
}

/// From where a lookup is made.
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
    /// Octets that it holds.
    pub fn octets(&self) -> usize {
        let names = self.lookups.iter().map(|lookup| lookup.name.len());
        size_of_val(&*self.lookups) + names.sum::<usize>() + self.state.len()
    }
}

/// What became of a lookup; its number is what `status` of a `lookup-answer` says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum LookupStatus {
    /// There is a response that says something: records, or that there are none.
    Answered = 0,
    /// Nothing could be found out: SERVFAIL, a filter dropped it, or there is no such zone.
    Failed = 1,
    /// It took too long.
    TimedOut = 2,
    /// It was not made, or given up, since a limit of the proxy's was reached.
    Limited = 3,
}

/// What a lookup came to.
#[derive(Debug, Clone)]
pub struct Found {
    /// What became of it.
    pub status: LookupStatus,
    /// All 12 bits.
    pub rcode: u16,
    /// Where it came from.
    pub source: Origin,
    /// The lowest TTL of its records, in seconds.
    pub ttl: u32,
    /// Records in the answer section.
    pub answer_count: u16,
}

/// A call that hands a filter the answers to what it has asked about one query or response.
#[derive(Clone)]
pub struct Answers<R> {
    pub(super) record: R,
    pub(super) answers: Vec<LookupAnswer>,
    pub(super) bytes: Vec<u8>,
}

impl Answers<AskedQuery> {
    /// About this query; its offsets are filled in here. Beside what was found is its message, empty unless it was
    /// answered.
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
    /// About this response, as [`about_query`](Answers::about_query); `message` is empty unless the filter wants
    /// [messages](super::Interest::messages).
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
    /// Octets that it holds.
    pub(super) fn octets(&self) -> usize {
        size_of_val(&*self.answers) + self.bytes.len()
    }

    /// A message has at most 65 535 octets and there are 16 of them at most, so that every place fits.
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
