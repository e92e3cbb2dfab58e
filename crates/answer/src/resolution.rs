//! The result of asking a source.

use std::sync::Arc;

use crate::dns::edns::ExtendedError;
use crate::dns::records::Answer;

/// The result of a question. Cheap to clone: clients that ask the same question concurrently share it.
#[derive(Debug, Clone)]
pub enum Resolution {
    /// An answer. It was built or checked once, and its TTLs are final.
    Answer {
        /// The message in wire format.
        answer: Arc<Answer>,
        /// Whether AA is set.
        authoritative: bool,
    },
    /// The name is an alias; its target is resolved instead.
    Alias(Arc<Alias>),
    /// A message to be relayed unchanged: the answer to a signed query.
    Verbatim(Arc<[u8]>),
    /// The question is not this source's: the next stage takes over.
    NotMine,
    /// No usable answer.
    Failed {
        /// The error that clients get.
        error: ExtendedError,
        /// Whether one of the proxy's own limits is the reason. Such a failure says nothing about the name
        /// and is not cached (RFC 9520 section 2).
        local: bool,
    },
}

/// The names to resolve instead of an alias.
#[derive(Debug)]
pub struct Alias {
    /// Candidates in wire format: the first that exists is used, else the last. More than one only for a
    /// question that is [`direct`](super::Question::direct).
    pub targets: Box<[Box<[u8]>]>,
    /// TTL of the CNAME record in seconds; `None`: the TTL of the target's answer.
    pub ttl: Option<u32>,
    /// The part of the answer that the source has, whose CNAME chain ends at the only target; `None`: one
    /// CNAME record.
    pub so_far: Option<Arc<Answer>>,
}

impl Resolution {
    /// A failure because no query may be sent or wait.
    pub const BOUNDED: Resolution = Resolution::Failed {
        error: ExtendedError::Other,
        local: true,
    };
}

/// A resolution, and how it came about.
#[derive(Debug)]
pub struct Resolved {
    /// The result.
    pub resolution: Resolution,
    /// How the limit on concurrent queries led to it, if it did.
    pub refused: Option<Refused>,
    /// A description of what happened, if one was requested.
    pub words: Option<String>,
}

/// How the limit on concurrent queries to a source affected a query.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refused {
    /// It was not sent.
    Rejected,
    /// It was in progress, and another query took its place.
    Displaced,
}
