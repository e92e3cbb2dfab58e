//! What a source says.

use std::sync::Arc;

use crate::dns::edns::ExtendedError;
use crate::dns::records::Answer;

/// What came of a question. Cheap to copy: all who asked the same at the time share it.
#[derive(Debug, Clone)]
pub enum Resolution {
    /// This. The octets were made or checked once, and their TTLs put right.
    Answer {
        /// In wire form.
        answer: Arc<Answer>,
        /// Whether AA is set.
        authoritative: bool,
    },
    /// The name stands for another one, which is asked for in its place.
    Alias(Arc<Alias>),
    /// A message to be relayed as it is: the answer to a signed query.
    Verbatim(Arc<[u8]>),
    /// The question is not the source's: the next stage goes on.
    NotMine,
    /// Nothing usable.
    Failed {
        /// What clients are told about it.
        error: ExtendedError,
        /// Whether a bound of this proxy's own is the reason: then it says nothing about the name, and is not kept
        /// (RFC 9520 section 2).
        local: bool,
    },
}

/// What is asked for in a name's place.
#[derive(Debug)]
pub struct Alias {
    /// The first of these that exists, or else the last, in wire format. More than one only for a question that is
    /// [`direct`](super::Question::direct).
    pub targets: Box<[Box<[u8]>]>,
    /// That of the CNAME record, in seconds; none: that of what is found.
    pub ttl: Option<u32>,
    /// The answer as far as the source has it, the last of whose aliases leads to the only target; none: one CNAME record.
    pub so_far: Option<Arc<Answer>>,
}

impl Resolution {
    /// Nothing, since there is no room to ask or to wait.
    pub const BOUNDED: Resolution = Resolution::Failed {
        error: ExtendedError::Other,
        local: true,
    };
}

/// A resolution, and how it came about.
#[derive(Debug)]
pub struct Resolved {
    /// What came of it.
    pub resolution: Resolution,
    /// Whether a bound on what is asked at a time is why.
    pub refused: Option<Refused>,
    /// What happened in words, for who wanted them.
    pub words: Option<String>,
}

/// How a query met the bound on those that a source is asked at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refused {
    /// It was not asked.
    Rejected,
    /// It was under way, and gave way to another one.
    Displaced,
}
