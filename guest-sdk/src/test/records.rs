//! Messages with records, for filters that read them.

use hickory_proto::op::{Message, MessageType, OpCode, Query};
use hickory_proto::rr::{RData, Record, RecordType};

use super::ResponseLiteral;
use crate::Type;

/// A message in wire format that answers a question with these records, each with its owner and a TTL of five
/// minutes. Needs the feature `messages`.
///
/// # Panics
/// If a name is invalid.
pub fn message<'n>(name: &str, qtype: Type, answers: impl IntoIterator<Item = (&'n str, RData)>) -> Vec<u8> {
    let parse = |text: &str| hickory_proto::rr::Name::from_ascii(text).expect("a literal is a name");
    let fqdn = |text: &str| {
        let mut name = parse(text);
        name.set_fqdn(true);
        name
    };
    let mut message = Message::new(0, MessageType::Response, OpCode::Query);
    message.add_query(Query::query(fqdn(name), RecordType::from(qtype.0)));
    let records = answers
        .into_iter()
        .map(|(owner, data)| Record::from_rdata(fqdn(owner), 300, data));
    message.add_answers(records);
    message.to_vec().expect("a literal fits into a message")
}

impl ResponseLiteral {
    /// Sets the message to one with these answer records, each with its owner and a TTL of five minutes.
    /// Needs the feature `messages`.
    ///
    /// # Panics
    /// If a name is invalid.
    pub fn records<'n>(self, answers: impl IntoIterator<Item = (&'n str, RData)>) -> ResponseLiteral {
        let answers: Vec<_> = answers.into_iter().collect();
        let count = answers.len() as u16;
        let (name, qtype) = self.query.question();
        let wire = message(&name, qtype, answers);
        self.message(&wire)
            .answers(count, if count == 0 { 0 } else { 300 })
    }
}
