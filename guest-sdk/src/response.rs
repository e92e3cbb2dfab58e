//! A response as a filter sees it, and what the filter decides about it.

use std::time::Duration;

use crate::bindings::dnsweir::filter::types as raw;
use crate::verdict::{drop_reason, milliseconds};
use crate::{Answer, Ask, Query, Rcode, ResponseEdit};

/// Where an answer came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// An upstream, just now.
    Upstream,
    /// The cache, still fresh.
    Cache,
    /// The cache, past its TTL (RFC 8767).
    Stale,
    /// A filter.
    Filter,
    /// The proxy itself: an error, a special-use name (RFC 6761).
    Local,
    /// A source that this version of the library does not know.
    Other(u8),
}

impl Source {
    pub(crate) fn from_number(number: u8) -> Source {
        match number {
            0 => Source::Upstream,
            1 => Source::Cache,
            2 => Source::Stale,
            3 => Source::Filter,
            4 => Source::Local,
            other => Source::Other(other),
        }
    }

    #[cfg(any(doc, not(target_family = "wasm")))]
    pub(crate) fn number(self) -> u8 {
        match self {
            Source::Upstream => 0,
            Source::Cache => 1,
            Source::Stale => 2,
            Source::Filter => 3,
            Source::Local => 4,
            Source::Other(other) => other,
        }
    }
}

/// A response on its way to the client.
#[derive(Clone, Copy)]
pub struct Response<'a> {
    raw: &'a raw::Response,
    query: Query<'a>,
}

impl<'a> Response<'a> {
    pub(crate) fn new(raw: &'a raw::Response, bytes: &'a [u8], time: u64) -> Option<Response<'a>> {
        Some(Response {
            raw,
            query: Query::new(&raw.query, bytes, time)?,
        })
    }

    /// The query that this response answers.
    pub fn query(&self) -> &Query<'a> {
        &self.query
    }

    /// The rcode.
    pub fn rcode(&self) -> Rcode {
        Rcode(self.raw.rcode)
    }

    /// Where it came from.
    pub fn source(&self) -> Source {
        Source::from_number(self.raw.source)
    }

    /// The number of records in the answer section.
    pub fn answer_count(&self) -> u16 {
        self.raw.answer_count
    }

    /// The lowest TTL of the response's records in seconds; 0 if it has none.
    pub fn ttl(&self) -> u32 {
        self.raw.ttl
    }

    /// The message in wire format, without its OPT record, if the manifest asked for
    /// [messages](crate::Manifest::messages).
    pub fn message(&self) -> Option<&'a [u8]> {
        self.query.slice(self.raw.message_start, self.raw.message_length)
    }
}

/// The decision about a response, and its options.
#[derive(Debug, Clone, PartialEq)]
#[must_use]
pub struct ResponseVerdict {
    decision: raw::ResponseDecision,
    edit: Option<raw::ResponseEdit>,
    delay: u16,
}

impl ResponseVerdict {
    fn new(decision: raw::ResponseDecision) -> ResponseVerdict {
        ResponseVerdict {
            decision,
            edit: None,
            delay: 0,
        }
    }

    /// Passes the response on unchanged.
    pub fn pass() -> ResponseVerdict {
        ResponseVerdict::new(raw::ResponseDecision::Pass)
    }

    /// Passes the response on with these edits.
    pub fn edit(edit: ResponseEdit) -> ResponseVerdict {
        ResponseVerdict {
            edit: Some(edit.into_raw()),
            ..ResponseVerdict::pass()
        }
    }

    /// Replaces the response by this answer.
    pub fn replace(answer: Answer) -> ResponseVerdict {
        ResponseVerdict::new(raw::ResponseDecision::Replace(answer.into_raw()))
    }

    /// Drops the response for this reason, as [for queries](crate::Verdict::drop_for).
    pub fn drop_for(reason: &str) -> ResponseVerdict {
        ResponseVerdict::new(raw::ResponseDecision::Drop(drop_reason(reason)))
    }

    /// Delays the response by this long, as [for queries](crate::Verdict::delay).
    pub fn delay(mut self, time: Duration) -> ResponseVerdict {
        self.delay = milliseconds(time);
        self
    }

    /// Asks first: the host makes these lookups, and passes their answers to
    /// [`Filter::response_answers`](crate::Filter::response_answers), which decides, as [for
    /// queries](crate::Verdict::ask).
    pub fn ask(ask: Ask) -> ResponseVerdict {
        ResponseVerdict::new(raw::ResponseDecision::Ask(ask.into_raw()))
    }

    /// The lookups, if the verdict asks for some.
    #[cfg(any(doc, not(target_family = "wasm")))]
    pub(crate) fn asks(&self) -> Option<&raw::Ask> {
        match &self.decision {
            raw::ResponseDecision::Ask(ask) => Some(ask),
            _ => None,
        }
    }

    /// The verdict for the host; none if it changes nothing.
    pub(crate) fn into_raw(self, response: u32) -> Option<raw::ResponseVerdict> {
        let ResponseVerdict {
            decision,
            edit,
            delay,
        } = self;
        let silent = matches!(decision, raw::ResponseDecision::Pass) && edit.is_none() && delay == 0;
        (!silent).then_some(raw::ResponseVerdict {
            response,
            decision,
            edit,
            delay,
        })
    }
}

impl Default for ResponseVerdict {
    fn default() -> ResponseVerdict {
        ResponseVerdict::pass()
    }
}
