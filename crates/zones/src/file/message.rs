//! Collects the records of an answer and writes them.

use std::collections::HashSet;
use std::sync::Arc;

use crate::dns::records::{Answer, Section};
use crate::dns::writer::{Writer, Written};
use crate::dns::{CLASS_IN, build, rtype};
use crate::zonefile::Set;
use dnsweir_answer::{Question, Resolution};

/// An answer under construction: references to its records, not copies.
pub struct Message<'z, 'q> {
    question: &'q Question<'q>,
    parts: Vec<Part<'z>>,
    /// Whether the zone itself has answered, not just referred to other servers.
    pub authoritative: bool,
}

/// An entry of the answer.
struct Part<'z> {
    section: Section,
    owner: Vec<u8>,
    ttl: u32,
    what: What<'z>,
}

enum What<'z> {
    /// The records of a set, and their signatures if the client wants them.
    Set(&'z Set),
    /// The signatures of a set.
    Signatures(&'z Set),
    /// A synthesized alias with this target.
    Alias(Vec<u8>),
}

impl<'z, 'q> Message<'z, 'q> {
    /// An answer without records.
    pub fn new(question: &'q Question<'q>) -> Message<'z, 'q> {
        Message {
            question,
            parts: Vec::new(),
            authoritative: true,
        }
    }

    /// Adds a set's records, and its signatures if wanted. Returns false if the set is there already.
    pub fn push(&mut self, section: Section, owner: &[u8], set: &'z Set) -> bool {
        self.push_with_ttl(section, owner, set, set.ttl)
    }

    /// The same with another TTL.
    pub fn push_with_ttl(&mut self, section: Section, owner: &[u8], set: &'z Set, ttl: u32) -> bool {
        // An answer has few sets, however many records they have.
        let is_it = |part: &Part<'_>| matches!(part.what, What::Set(known) if known.rtype == set.rtype);
        if self.parts.iter().any(|part| is_it(part) && part.owner == owner) {
            return false;
        }
        self.add(section, owner, ttl, What::Set(set));
        true
    }

    /// Adds the signatures of a set to the answer.
    pub(crate) fn push_signatures(&mut self, owner: &[u8], set: &'z Set) {
        self.add(Section::Answer, owner, set.ttl, What::Signatures(set));
    }

    /// Adds an alias to the answer.
    pub(crate) fn push_alias(&mut self, owner: &[u8], ttl: u32, target: &[u8]) {
        self.add(Section::Answer, owner, ttl, What::Alias(target.to_vec()));
    }

    fn add(&mut self, section: Section, owner: &[u8], ttl: u32, what: What<'z>) {
        self.parts.push(Part {
            section,
            owner: owner.to_vec(),
            ttl,
            what,
        });
    }

    /// Writes the answer, with the given sets of these hosts as additional records. Each host is looked up
    /// once, and only while there is room. `true` stands beside those that the answer must have, which are
    /// first.
    pub fn finish<'s>(
        self,
        rcode: u16,
        hosts: impl Iterator<Item = (Vec<u8>, bool)>,
        sets: impl Fn(&[u8]) -> [Option<&'s Set>; 3],
    ) -> Resolution {
        let mut question = self.question.name.to_vec();
        question.extend(self.question.qtype.to_be_bytes());
        question.extend(self.question.qclass.to_be_bytes());
        let empty = build::empty(&question, rcode);
        let mut writer = Writer::new(&empty, question.len(), self.question.room);
        let dnssec_ok = self.question.dnssec_ok;
        for section in [Section::Answer, Section::Authority] {
            for part in self.parts.iter().filter(|part| part.section == section) {
                part.write(&mut writer, dnssec_ok);
            }
        }
        let mut told = HashSet::new();
        for (host, is_needed) in hosts {
            if writer.is_full() {
                break;
            }
            if told.contains(&host) {
                continue;
            }
            for set in sets(&host).into_iter().flatten() {
                write_set(&mut writer, Section::Additional, &host, set.ttl, set, dnssec_ok);
            }
            // RFC 9471 section 3.1.
            if is_needed && writer.is_full() {
                writer.mark_truncated();
            }
            told.insert(host);
        }
        match Answer::read(writer.finish()) {
            Ok(answer) => Resolution::Answer {
                answer: Arc::new(answer),
                authoritative: self.authoritative,
            },
            Err(_) => Resolution::BOUNDED,
        }
    }
}

impl Part<'_> {
    fn write(&self, writer: &mut Writer, dnssec_ok: bool) {
        let (section, owner, ttl) = (self.section, &self.owner, self.ttl);
        match &self.what {
            What::Set(set) => write_set(writer, section, owner, ttl, set, dnssec_ok),
            What::Signatures(set) => write(writer, section, owner, ttl, rtype::RRSIG, &set.signatures),
            What::Alias(target) => write(writer, section, owner, ttl, rtype::CNAME, &[&**target]),
        }
    }
}

fn write_set(writer: &mut Writer, section: Section, owner: &[u8], ttl: u32, set: &Set, dnssec_ok: bool) {
    write(writer, section, owner, ttl, set.rtype, &set.data);
    if dnssec_ok {
        write(writer, section, owner, ttl, rtype::RRSIG, &set.signatures);
    }
}

/// Writes the records of one owner and type while there is room.
fn write(
    writer: &mut Writer,
    section: Section,
    owner: &[u8],
    ttl: u32,
    rtype: u16,
    records: &[impl AsRef<[u8]>],
) {
    for data in records {
        let record = Written {
            owner,
            rtype,
            class: CLASS_IN,
            ttl,
            data: data.as_ref(),
        };
        if !writer.push(section, record) {
            return;
        }
    }
}
