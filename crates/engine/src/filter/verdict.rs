//! A filter's verdicts in the host's own types: checked, and independent of the runtime.

use std::sync::Arc;

use super::ask::Ask;
use crate::dns::edns::{ClientSubnet, ExtendedErrorCode};
use crate::dns::flag;
use crate::dns::records::Section;

/// The outcome for one record of a batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome<V> {
    /// The filter returned no verdict on it.
    Passed,
    /// The filter's verdict.
    Decided(V),
    /// The filter failed or was not called: the operator's `on-error` decides.
    Failed,
}

/// The outcome of a query. Shared, since the verdict may also be memoized.
pub type QueryOutcome = Outcome<Arc<Verdict>>;

/// The outcome of a response.
pub type ResponseOutcome = Outcome<ResponseVerdict>;

/// What happens to a query.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    /// What happens to the query itself.
    pub decision: Decision,
    /// What happens to its response, if the filter has already decided that.
    pub edit: Option<ResponseEdit>,
    /// Milliseconds for which the same holds for this name, type, class and zone; 0: for this query only.
    pub remember: u32,
    /// Whether the filter's response phase is skipped for this query.
    pub skip_response: bool,
    /// Milliseconds by which the response is delayed, at most 2,000.
    pub delay: u16,
    /// Where the query is sent instead.
    pub route: Option<Route>,
}

impl Verdict {
    /// Whether the query goes on as if the filter were not there.
    pub(super) fn only_passes(&self) -> bool {
        self.decision == Decision::Pass
            && self.edit.is_none()
            && !self.skip_response
            && self.delay == 0
            && self.route.is_none()
    }
}

/// Where a query that goes on is sent, and with which client subnet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Route {
    /// One of the sources in the filter's manifest, by its index there and its name; none: the zone's
    /// sources.
    pub source: Option<(u16, Arc<str>)>,
    /// The client subnet sent to upstreams.
    pub subnet: Option<ClientSubnet>,
}

/// What happens to a query itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// Goes on to the next stage.
    Pass,
    /// Goes on to the next stage with another name, type or class.
    Rewrite(Rewrite),
    /// Answered by the filter.
    Answer(Answer),
    /// The client gets a CNAME to the first of these names (wire format, the filter's letter case) that
    /// exists, and what it resolves to. At least one.
    Alias(Box<[Box<[u8]>]>),
    /// Answered with an empty response.
    Refuse(Refusal),
    /// Not answered, for this reason of at most 64 bytes.
    Drop(Box<str>),
    /// Decided after these lookups.
    Ask(Ask),
}

impl Decision {
    /// Index of its kind, in the order of the counters.
    pub(super) fn kind(&self) -> usize {
        match self {
            Decision::Pass => 0,
            Decision::Rewrite(_) => 1,
            Decision::Answer(_) => 2,
            Decision::Alias(_) => 3,
            Decision::Refuse(_) => 4,
            Decision::Drop(_) => 5,
            Decision::Ask(_) => 6,
        }
    }
}

/// A question that replaces another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rewrite {
    /// The new name: a valid wire-format name, in the filter's letter case.
    pub name: Option<Box<[u8]>>,
    /// The new type: no meta type except ANY.
    pub qtype: Option<u16>,
    /// The new class.
    pub qclass: Option<u16>,
    /// Whether records with the new name get the client's name back.
    pub revert: bool,
}

/// An empty response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// At most 4095.
    pub rcode: u16,
    /// Why; none: blocked.
    pub error: Option<Ede>,
}

/// The reason for a response (RFC 8914).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ede {
    /// The INFO-CODE.
    pub code: ExtendedErrorCode,
    /// The EXTRA-TEXT: at most 200 bytes.
    pub text: Box<str>,
}

/// A complete answer, cut to what fits into a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// At most 4095.
    pub rcode: u16,
    /// The AA bit.
    pub authoritative: bool,
    /// The answer section.
    pub answers: Vec<ResourceRecord>,
    /// The authority section.
    pub authority: Vec<ResourceRecord>,
    /// The additional section, without OPT.
    pub additional: Vec<ResourceRecord>,
    /// Whether the filter returned more for the first two sections than any message holds.
    pub is_cut: bool,
    /// The reason for it.
    pub error: Option<Ede>,
}

/// A resource record whose parts are valid wire format, uncompressed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResourceRecord {
    /// The owner name.
    pub name: Box<[u8]>,
    /// The type: never OPT, TSIG or another meta type.
    pub rtype: u16,
    /// The class.
    pub class: u16,
    /// Seconds, below 2³¹ (RFC 2181 section 8).
    pub ttl: u32,
    /// The data; well-formed for the types of RFC 1035, SRV, AAAA and DNAME.
    pub rdata: Box<[u8]>,
}

/// Selects the records for which every given condition holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Selector {
    /// Their section.
    pub section: Option<Section>,
    /// Their owner: a valid wire-format name, in the filter's letter case.
    pub name: Option<Box<[u8]>>,
    /// Their type.
    pub rtype: Option<u16>,
    /// Which one of those selected by the rest, counted from 0.
    pub index: Option<u32>,
}

/// An order of the records in the answer section.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Order {
    /// Each RRset starts at the record with this index and wraps around.
    Rotate(u32),
    /// Each RRset is shuffled.
    Shuffle,
    /// All records in the order of these indices, which need not exist. All orders of an edit have at most as
    /// many indices as a message can have records.
    Permute(Box<[u32]>),
}

/// A change of a response's records.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RecordEdit {
    /// Removes the selected records.
    Remove(Selector),
    /// Replaces the selected records; these stand where the first one was.
    Replace(Selector, Vec<ResourceRecord>),
    /// Appends a record to a section.
    Append(Section, ResourceRecord),
    /// Reorders the records.
    Order(Order),
}

/// What happens to a response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResponseEdit {
    /// (found, replacement); each at most 4095.
    pub rcodes: Box<[(u16, u16)]>,
    /// Changes of its records, in order. What they add fits into a message, as far as can be known here.
    pub records: Box<[RecordEdit]>,
    /// Whether the filter returned more than fits.
    pub is_cut: bool,
    /// Header bits to set: TC, AA, AD.
    pub header_set: u16,
    /// Header bits to clear; disjoint from those to set.
    pub header_clear: u16,
    /// The reason that is added to the response.
    pub error: Option<Ede>,
    /// Lower bound of every TTL in seconds; below 2³¹ and not above `ttl_maximum`.
    pub ttl_minimum: u32,
    /// Upper bound of every TTL in seconds; below 2³¹.
    pub ttl_maximum: u32,
    /// Whether the cache may store the response or answer from what it has stored.
    pub store: bool,
    /// Whether the cache may serve the response after its TTL (RFC 8767).
    pub stale: bool,
}

impl ResponseEdit {
    /// Whether records are added, removed or replaced.
    pub fn changes_data(&self) -> bool {
        let mut edits = self.records.iter();
        edits.any(|edit| !matches!(edit, RecordEdit::Order(_)))
    }

    /// Whether the message itself changes.
    #[inline]
    pub fn changes_message(&self) -> bool {
        !self.records.is_empty()
            || (self.header_set | self.header_clear) & !flag::AA != 0
            || self.error.is_some()
    }
}

/// The response phase's verdict on a response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResponseVerdict {
    /// What happens to it.
    pub decision: ResponseDecision,
    /// Changes to a response that goes on.
    pub edit: Option<ResponseEdit>,
    /// Milliseconds by which it is delayed, at most 2,000.
    pub delay: u16,
}

/// What happens to a response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ResponseDecision {
    /// It goes on.
    Pass,
    /// The client gets this answer instead.
    Replace(Answer),
    /// The client gets no response, for this reason of at most 64 bytes.
    Drop(Box<str>),
    /// Decided after these lookups.
    Ask(Ask),
}
