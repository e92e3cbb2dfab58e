//! The records of an answer, and what is made of them.

use std::sync::Arc;

use crate::dns::parts::{Part, put_together};
use crate::dns::records::{Answer, Section};
use crate::dns::{CLASS_IN, build, flag, rtype};
use crate::source::{Question, Resolution};
use crate::zonefile::Set;

/// An answer that is being written.
pub struct Message<'q> {
    question: &'q Question<'q>,
    parts: Vec<Part>,
    /// Whether the zone has said something, and not only who else would.
    pub authoritative: bool,
}

impl<'q> Message<'q> {
    /// One without records.
    pub fn new(question: &'q Question<'q>) -> Message<'q> {
        Message {
            question,
            parts: Vec::new(),
            authoritative: true,
        }
    }

    /// Adds the records of a set, and their signatures if they are wanted, unless they are there; whether they were not.
    pub fn push(&mut self, section: Section, owner: &[u8], set: &Set) -> bool {
        self.push_with_ttl(section, owner, set, set.ttl)
    }

    /// The same with another TTL.
    pub fn push_with_ttl(&mut self, section: Section, owner: &[u8], set: &Set, ttl: u32) -> bool {
        let is_there = |part: &Part| part.rtype == set.rtype && part.owner == owner;
        if self.parts.iter().any(is_there) {
            return false;
        }
        for data in &set.data {
            self.push_record(section, owner, set.rtype, ttl, data);
        }
        if self.question.dnssec_ok {
            for signature in &set.signatures {
                self.push_record(section, owner, rtype::RRSIG, ttl, signature);
            }
        }
        true
    }

    /// Adds one record.
    pub fn push_record(&mut self, section: Section, owner: &[u8], rtype: u16, ttl: u32, data: &[u8]) {
        self.parts.push(Part {
            section,
            owner: owner.to_vec(),
            rtype,
            class: CLASS_IN,
            ttl,
            data: data.to_vec(),
        });
    }

    /// The whole.
    pub fn finish(self, rcode: u16) -> Resolution {
        let mut question = self.question.name.to_vec();
        question.extend(self.question.qtype.to_be_bytes());
        question.extend(self.question.qclass.to_be_bytes());
        let empty = build::empty(&question, rcode);
        let whole = put_together(&empty, question.len(), &self.parts).unwrap_or_else(|| {
            // More than any message holds: that it is not all there is all that can be said.
            let mut truncated = empty;
            truncated[2] |= (flag::TC >> 8) as u8;
            truncated
        });
        match Answer::read(whole) {
            Ok(answer) => Resolution::Answer {
                answer: Arc::new(answer),
                authoritative: self.authoritative,
            },
            Err(_) => Resolution::BOUNDED,
        }
    }
}
