//! What one call asks a filter about one record, kept so that its failure can be blamed and repeated.

use super::ask::Answers;
use super::batch::{Alone, Portable};
use super::bindings::dnsweir::filter::types::{AskedQuery, AskedResponse, Event, Query, Response};

/// A question to a filter, separate from its batch.
#[derive(Clone)]
pub(super) enum Question {
    Query(Query, Box<[u8]>),
    Response(Response, Box<[u8]>),
    Event(Event, Box<[u8]>),
    QueryAnswers(Answers<AskedQuery>),
    ResponseAnswers(Answers<AskedResponse>),
}

/// The subject of one call.
pub(super) trait Subject {
    /// The query, and the bytes it points into.
    fn asked(&self) -> (&Query, &[u8]);
    /// A copy that can be asked again.
    fn question(&self) -> Question;
}

/// A record of a batch.
pub(super) trait Record: Portable {
    /// The query it is or belongs to.
    fn query(&self) -> &Query;
    /// A separate question with this record.
    fn question(self, bytes: &[u8]) -> Question;
}

impl<R: Record> Subject for Alone<'_, R> {
    fn asked(&self) -> (&Query, &[u8]) {
        (self.record.query(), self.bytes)
    }
    fn question(&self) -> Question {
        self.record.question(self.bytes)
    }
}

impl Record for Query {
    fn query(&self) -> &Query {
        self
    }
    fn question(self, bytes: &[u8]) -> Question {
        Question::Query(self, bytes.into())
    }
}

impl Record for Response {
    fn query(&self) -> &Query {
        &self.query
    }
    fn question(self, bytes: &[u8]) -> Question {
        Question::Response(self, bytes.into())
    }
}

impl Record for Event {
    fn query(&self) -> &Query {
        &self.query
    }
    fn question(self, bytes: &[u8]) -> Question {
        Question::Event(self, bytes.into())
    }
}

impl Subject for Answers<AskedQuery> {
    fn asked(&self) -> (&Query, &[u8]) {
        (&self.record.query, &self.bytes)
    }
    fn question(&self) -> Question {
        Question::QueryAnswers(self.clone())
    }
}

impl Subject for Answers<AskedResponse> {
    fn asked(&self) -> (&Query, &[u8]) {
        (&self.record.response.query, &self.bytes)
    }
    fn question(&self) -> Question {
        Question::ResponseAnswers(self.clone())
    }
}

impl Question {
    pub(super) fn octets(&self) -> usize {
        match self {
            Question::Query(_, bytes) | Question::Response(_, bytes) | Question::Event(_, bytes) => {
                bytes.len()
            }
            Question::QueryAnswers(answers) => answers.octets(),
            Question::ResponseAnswers(answers) => answers.octets(),
        }
    }

    pub(super) fn query_mut(&mut self) -> &mut Query {
        match self {
            Question::Query(query, _) => query,
            Question::Response(response, _) => &mut response.query,
            Question::Event(event, _) => &mut event.query,
            Question::QueryAnswers(answers) => &mut answers.record.query,
            Question::ResponseAnswers(answers) => &mut answers.record.response.query,
        }
    }

    /// The query, and its name in bytes.
    pub(super) fn query(&self) -> (&Query, &[u8]) {
        let (query, bytes): (&Query, &[u8]) = match self {
            Question::Query(query, bytes) => (query, bytes),
            Question::Response(response, bytes) => (&response.query, bytes),
            Question::Event(event, bytes) => (&event.query, bytes),
            Question::QueryAnswers(answers) => (&answers.record.query, &answers.bytes),
            Question::ResponseAnswers(answers) => (&answers.record.response.query, &answers.bytes),
        };
        let start = query.name_start as usize;
        (query, &bytes[start..][..usize::from(query.name_length)])
    }
}
