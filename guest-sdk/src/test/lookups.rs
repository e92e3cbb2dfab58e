//! The host's part for a filter that asks: answers set by the test.

use std::collections::HashMap;

use super::records::write;
use crate::bindings::dnsweir::filter::types as raw;
use crate::{Answer, Answers, LookupStatus, Name, NameBuf, Source, Type};

/// How often the host lets a filter ask per query.
const ROUNDS: usize = 4;

/// Results by name and type, and the lookups made.
#[derive(Default)]
pub(super) struct Lookups {
    known: HashMap<(NameBuf, u16), Result<raw::Answer, LookupStatus>>,
    asked: Vec<String>,
}

/// Answers to the lookups of one ask, as the host hands them over.
pub(super) struct Handed {
    answers: Vec<raw::LookupAnswer>,
    pub bytes: Vec<u8>,
    state: (u32, u32),
}

impl Handed {
    /// The filter's view of them.
    pub fn view(&self) -> Option<Answers<'_>> {
        let all = (0, self.answers.len() as u32);
        Answers::new(&self.answers, all, self.state, &self.bytes)
    }
}

impl Lookups {
    pub fn insert(&mut self, name: &str, qtype: Type, found: Result<Answer, LookupStatus>) {
        let name: NameBuf = name
            .parse()
            .unwrap_or_else(|reason| panic!("{name:?} is not a name: {reason}"));
        self.known.insert((name, qtype.0), found.map(Answer::into_raw));
    }

    pub fn take_asked(&mut self) -> Vec<String> {
        std::mem::take(&mut self.asked)
    }

    /// The answers to an ask, appended to the bytes `before`; `round` counts from 0.
    pub fn hand(&mut self, ask: &raw::Ask, before: &[u8], round: usize) -> Handed {
        assert!(
            round < ROUNDS,
            "the host takes no more than {ROUNDS} asks about one query"
        );
        let count = ask.lookups.len();
        assert!(
            (1..=16).contains(&count),
            "the host takes no ask of {count} lookups"
        );
        let state = ask.state.len();
        assert!(state <= 4096, "the host takes no {state} octets of state");
        let mut handed = Handed {
            answers: Vec::new(),
            bytes: [before, &ask.state].concat(),
            state: (before.len() as u32, state as u32),
        };
        for lookup in &ask.lookups {
            self.asked.push(text(lookup));
            let question = (wire_name(&lookup.name), lookup.qtype);
            let nothing = Ok(raw::Answer {
                rcode: 3,
                ..Answer::noerror().into_raw()
            });
            let found = self.known.get(&question).cloned().unwrap_or(nothing);
            let message_start = handed.bytes.len() as u32;
            let answer = match &found {
                Ok(answer) => {
                    let message = write(question.0.as_name(), Type(lookup.qtype), answer);
                    handed.bytes.extend(message);
                    raw::LookupAnswer {
                        status: LookupStatus::Answered.number(),
                        rcode: answer.rcode,
                        source: Source::Upstream.number(),
                        ttl: answer.answers.iter().map(|record| record.ttl).min().unwrap_or(0),
                        answer_count: answer.answers.len() as u16,
                        message_start,
                        message_length: handed.bytes.len() as u32 - message_start,
                    }
                }
                Err(status) => raw::LookupAnswer {
                    status: status.number(),
                    rcode: 2,
                    source: Source::Local.number(),
                    ttl: 0,
                    answer_count: 0,
                    message_start,
                    message_length: 0,
                },
            };
            handed.answers.push(answer);
        }
        handed
    }
}

/// A lookup as a line: name, type, and where it starts unless at the top.
fn text(lookup: &raw::Lookup) -> String {
    let what = format!("{} {}", wire_name(&lookup.name), Type(lookup.qtype));
    match &lookup.path {
        raw::Path::Top => what,
        raw::Path::Below => format!("{what} below"),
        raw::Path::Zone(zone) => format!("{what} in {zone}"),
    }
}

fn wire_name(wire: &[u8]) -> NameBuf {
    match Name::from_host(wire) {
        Some(name) => NameBuf::from(name),
        None => panic!("{wire:?} is not a name"),
    }
}
