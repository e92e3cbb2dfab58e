//! Messages with records, for filters that read them.

use std::time::Duration;

use super::ResponseLiteral;
use crate::bindings::dnsweir::filter::types as raw;
use crate::{Answer, Class, Name, NameBuf, Rdata, Type};

/// The TTL of the records.
const TTL: u32 = 300;

/// A message in wire format that answers a question with these records, each with its owner and a TTL of five
/// minutes.
///
/// # Panics
/// If a name is invalid.
pub fn message<'n>(name: &str, qtype: Type, answers: impl IntoIterator<Item = (&'n str, Rdata)>) -> Vec<u8> {
    write(parse(name).as_name(), qtype, &answer(answers))
}

fn parse(text: &str) -> NameBuf {
    text.parse()
        .unwrap_or_else(|reason| panic!("{text:?} is not a name: {reason}"))
}

fn answer<'n>(answers: impl IntoIterator<Item = (&'n str, Rdata)>) -> raw::Answer {
    let ttl = Duration::from_secs(TTL.into());
    let answers = answers.into_iter();
    let answer = answers.fold(Answer::noerror(), |answer, (owner, data)| {
        answer.record(&parse(owner), ttl, data)
    });
    answer.into_raw()
}

/// An answer to a question as a message, without name compression.
pub(super) fn write(name: Name<'_>, qtype: Type, answer: &raw::Answer) -> Vec<u8> {
    let sections = [&answer.answers, &answer.authority, &answer.additional];
    let flags = 0x8180 | u16::from(answer.authoritative) << 10 | answer.rcode & 0xf;
    let counts = sections.map(|section| section.len() as u16);
    let mut message = Vec::new();
    for number in [0, flags, 1].into_iter().chain(counts) {
        message.extend(number.to_be_bytes());
    }
    message.extend(name.as_wire());
    message.extend(qtype.0.to_be_bytes());
    message.extend(Class::IN.0.to_be_bytes());
    for record in sections.into_iter().flatten() {
        message.extend(&record.name);
        message.extend(record.rtype.to_be_bytes());
        message.extend(record.class.to_be_bytes());
        message.extend(record.ttl.to_be_bytes());
        message.extend((record.rdata.len() as u16).to_be_bytes());
        message.extend(&record.rdata);
    }
    message
}

impl ResponseLiteral {
    /// Sets the message to one with these answer records, each with its owner and a TTL of five minutes.
    ///
    /// # Panics
    /// If a name is invalid.
    pub fn records<'n>(self, answers: impl IntoIterator<Item = (&'n str, Rdata)>) -> ResponseLiteral {
        let answer = answer(answers);
        let count = answer.answers.len() as u16;
        let (name, qtype) = self.query.question();
        let wire = write(name, qtype, &answer);
        self.message(&wire)
            .answers(count, if count == 0 { 0 } else { TTL })
    }
}
