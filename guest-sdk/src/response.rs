//! What a filter gets to see of a response, and what it can say of it.

use crate::bindings::dnsweir::filter::types as raw;
use crate::{Answer, Query, Rcode, ResponseEdit};

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
}

impl Source {
    pub(crate) fn from_raw(source: raw::Source) -> Source {
        match source {
            raw::Source::Upstream => Source::Upstream,
            raw::Source::Cache => Source::Cache,
            raw::Source::Stale => Source::Stale,
            raw::Source::Filter => Source::Filter,
            raw::Source::Local => Source::Local,
        }
    }
}

/// A response on its way to the client.
#[derive(Clone, Copy)]
pub struct Response<'a> {
    raw: &'a raw::Response,
    query: Query<'a>,
    message: Option<&'a [u8]>,
}

impl<'a> Response<'a> {
    pub(crate) fn new(raw: &'a raw::Response, bytes: &'a [u8], time: u64) -> Option<Response<'a>> {
        let message = match raw.message_length {
            0 => None,
            length => {
                let start = raw.message_start as usize;
                Some(bytes.get(start..start.checked_add(length as usize)?)?)
            }
        };
        Some(Response {
            raw,
            query: Query::new(&raw.query, bytes, time)?,
            message,
        })
    }

    /// The query it answers.
    pub fn query(&self) -> &Query<'a> {
        &self.query
    }

    /// The response code.
    pub fn rcode(&self) -> Rcode {
        Rcode(self.raw.rcode)
    }

    /// Where it came from.
    pub fn source(&self) -> Source {
        Source::from_raw(self.raw.source)
    }

    /// Records in the answer section.
    pub fn answer_count(&self) -> u16 {
        self.raw.answer_count
    }

    /// The lowest TTL of its records in seconds; 0 if it has none.
    pub fn ttl(&self) -> u32 {
        self.raw.ttl
    }

    /// The message in wire format, without its OPT record, if the manifest asked for
    /// [messages](crate::Manifest::messages).
    pub fn message(&self) -> Option<&'a [u8]> {
        self.message
    }
}

/// What a filter says of a response.
#[derive(Debug, Clone, PartialEq, Default)]
#[must_use]
pub struct ResponseVerdict {
    edit: Option<raw::ResponseEdit>,
    replace: Option<raw::Answer>,
}

impl ResponseVerdict {
    /// It goes on as it is.
    pub fn pass() -> ResponseVerdict {
        ResponseVerdict::default()
    }

    /// It goes on, changed.
    pub fn edit(edit: ResponseEdit) -> ResponseVerdict {
        ResponseVerdict {
            edit: Some(edit.into_raw()),
            replace: None,
        }
    }

    /// The client gets this instead.
    pub fn replace(answer: Answer) -> ResponseVerdict {
        ResponseVerdict {
            edit: None,
            replace: Some(answer.into_raw()),
        }
    }

    /// What the host is told; nothing if that changes nothing.
    pub(crate) fn into_raw(self, response: u32) -> Option<raw::ResponseVerdict> {
        let ResponseVerdict { edit, replace } = self;
        (edit.is_some() || replace.is_some()).then_some(raw::ResponseVerdict {
            response,
            edit,
            replace,
        })
    }
}
