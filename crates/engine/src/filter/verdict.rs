//! What a filter said, in the host's own types: checked, and free of the runtime.

use std::sync::Arc;

use super::ask::Ask;
use crate::dns::edns::{ClientSubnet, ExtendedErrorCode};
use crate::dns::flag;
use crate::dns::records::Section;

/// What became of one record of a batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome<V> {
    /// The filter has nothing to say about it.
    Passed,
    /// The filter's verdict.
    Decided(V),
    /// The filter could not be asked: the operator's `on-error` decides.
    Failed,
}

/// The outcome of a query. Shared, since the verdict may be remembered, too.
pub type QueryOutcome = Outcome<Arc<Verdict>>;

/// The outcome of a response.
pub type ResponseOutcome = Outcome<ResponseVerdict>;

/// What happens to a query.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    /// What happens to the query itself.
    pub decision: Decision,
    /// What happens to its response, if the filter knows already.
    pub edit: Option<ResponseEdit>,
    /// For how many milliseconds the same holds for this name, type, class and zone; 0: for this query only.
    pub remember: u32,
    /// Whether the filter's response phase is left out for this query.
    pub skip_response: bool,
    /// For how many milliseconds the response is held back: at most 2 000.
    pub delay: u16,
    /// Who is asked instead.
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

/// Who is asked for a query that goes on, and what they are told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Route {
    /// One of the sources that the filter's manifest names, by its index there, and its name; none: the zone's.
    pub source: Option<(u16, Arc<str>)>,
    /// The client subnet that upstreams are told.
    pub subnet: Option<ClientSubnet>,
}

/// What happens to a query itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// On to the next stage.
    Pass,
    /// On to the next stage under another name, type or class.
    Rewrite(Rewrite),
    /// Answered here.
    Answer(Answer),
    /// The client gets a CNAME to the first of these names (wire format, the filter's letter case) that exists,
    /// and what it resolves to. At least one.
    Alias(Box<[Box<[u8]>]>),
    /// An empty response.
    Refuse(Refusal),
    /// No response at all, for this reason, of at most 64 octets.
    Drop(Box<str>),
    /// Decided with the answers to these lookups.
    Ask(Ask),
}

impl Decision {
    /// Which kind it is, in the order in which they are counted.
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

/// A question put in the place of another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rewrite {
    /// The new name: a valid wire-format name, in the filter's letter case.
    pub name: Option<Box<[u8]>>,
    /// The new type: never a meta type but ANY.
    pub qtype: Option<u16>,
    /// The new class.
    pub qclass: Option<u16>,
    /// Whether records that carry the new name get the client's name back.
    pub revert: bool,
}

/// An empty response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// At most 4095.
    pub rcode: u16,
    /// Why; none: it is blocked.
    pub error: Option<Ede>,
}

/// Why a response is as it is (RFC 8914).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ede {
    /// The INFO-CODE.
    pub code: ExtendedErrorCode,
    /// The EXTRA-TEXT: at most 200 octets.
    pub text: Box<str>,
}

/// A whole answer, as far as a message could hold it.
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
    /// Whether the filter had more of the first two sections to say than any message holds.
    pub is_cut: bool,
    /// Why it is as it is.
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
    /// The data; of the types of RFC 1035, SRV, AAAA and DNAME it is well-formed.
    pub rdata: Box<[u8]>,
}

/// Which records are meant: those for which all of it holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Selector {
    /// Where they stand.
    pub section: Option<Section>,
    /// Their owner: a valid wire-format name, in the filter's letter case.
    pub name: Option<Box<[u8]>>,
    /// Their type.
    pub rtype: Option<u16>,
    /// Which of those that the rest selects, counted from 0.
    pub index: Option<u32>,
}

/// An order of the answer section.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Order {
    /// Each set begins with the record that had this index, and goes round.
    Rotate(u32),
    /// Each set at random.
    Shuffle,
    /// All records in the order of these indices, none of which need be there; as many as a message has records at most, over all
    /// orders of an edit.
    Permute(Box<[u32]>),
}

/// What happens to the records of a response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RecordEdit {
    /// They are removed.
    Remove(Selector),
    /// These stand in the place of the first of them.
    Replace(Selector, Vec<ResourceRecord>),
    /// One more at the end of a section.
    Append(Section, ResourceRecord),
    /// The same ones in another order.
    Order(Order),
}

/// What happens to a response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResponseEdit {
    /// (found, put instead); each at most 4095.
    pub rcodes: Box<[(u16, u16)]>,
    /// What happens to its records, in order. All that they bring fits into a message, as far as it is known here.
    pub records: Box<[RecordEdit]>,
    /// Whether the filter had more to bring.
    pub is_cut: bool,
    /// Bits of the header that are set: TC, AA, AD.
    pub header_set: u16,
    /// Bits that are cleared, none of which is set.
    pub header_clear: u16,
    /// Why it is as it is, from now on.
    pub error: Option<Ede>,
    /// Lower bound of every TTL in seconds; below 2³¹ and not above `ttl_maximum`.
    pub ttl_minimum: u32,
    /// Upper bound of every TTL in seconds; below 2³¹.
    pub ttl_maximum: u32,
    /// Whether the cache may keep the response or answer from what it kept.
    pub store: bool,
    /// Whether the cache may serve the response after its TTL (RFC 8767).
    pub stale: bool,
}

impl ResponseEdit {
    /// Whether records become others.
    pub fn changes_data(&self) -> bool {
        let mut edits = self.records.iter();
        edits.any(|edit| !matches!(edit, RecordEdit::Order(_)))
    }

    /// Whether the message itself becomes another one.
    #[inline]
    pub fn changes_message(&self) -> bool {
        !self.records.is_empty()
            || (self.header_set | self.header_clear) & !flag::AA != 0
            || self.error.is_some()
    }
}

/// What the response phase said of a response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResponseVerdict {
    /// What becomes of it.
    pub decision: ResponseDecision,
    /// Changes of what goes on.
    pub edit: Option<ResponseEdit>,
    /// For how many milliseconds it is held back: at most 2 000.
    pub delay: u16,
}

/// What becomes of a response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ResponseDecision {
    /// It goes on.
    Pass,
    /// The client gets this instead.
    Replace(Answer),
    /// The client gets no response at all, for this reason, of at most 64 octets.
    Drop(Box<str>),
    /// Decided with the answers to these lookups.
    Ask(Ask),
}
