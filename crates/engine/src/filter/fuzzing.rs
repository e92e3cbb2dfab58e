//! Treats bytes as a module or as a guest's verdicts, for the fuzz targets.

use super::bindings::dnsweir::filter::types;
use super::footprint::overhead;
use super::verdict::{Outcome, QueryOutcome};
use super::{check, face};
use crate::config::Limits;

/// Runs the checks that precede compilation. Any bytes must be accepted, or refused with a short message.
pub fn look_at_module(octets: &[u8]) {
    let checks = [
        overhead(octets, &Limits::default()).map(drop),
        face::check(octets),
        face::check_names(octets),
    ];
    for refused in checks.into_iter().filter_map(Result::err) {
        let words = refused.to_string();
        assert!(words.len() < 64 << 10, "{} octets of words", words.len());
    }
}

/// Builds verdicts from bytes, as a hostile guest would, and checks them as if one had returned them.
pub fn check_octets(octets: &[u8]) -> Vec<QueryOutcome> {
    let mut octets = Octets(octets);
    let mut given = Vec::new();
    while !octets.0.is_empty() && given.len() < 8 {
        given.push(octets.verdict());
    }
    let mut out = vec![Outcome::Passed; 8];
    match check::verdicts(given.into(), true, &[], &mut out) {
        Ok(()) => out,
        Err(_) => Vec::new(),
    }
}

/// Bytes to build values from; zeros follow the last one.
struct Octets<'a>(&'a [u8]);

impl Octets<'_> {
    fn octet(&mut self) -> u8 {
        let (&first, rest) = self.0.split_first().unwrap_or((&0, &[]));
        self.0 = rest;
        first
    }

    fn number(&mut self) -> u16 {
        u16::from_be_bytes([self.octet(), self.octet()])
    }

    fn long(&mut self) -> u32 {
        u32::from(self.number()) << 16 | u32::from(self.number())
    }

    fn list(&mut self) -> Vec<u8> {
        let length = usize::from(self.octet()).min(self.0.len());
        let (list, rest) = self.0.split_at(length);
        self.0 = rest;
        list.to_vec()
    }

    fn records(&mut self) -> Vec<types::ResourceRecord> {
        (0..self.octet() % 4)
            .map(|_| types::ResourceRecord {
                name: self.list(),
                rtype: self.number(),
                class: self.number(),
                ttl: self.long(),
                rdata: self.list(),
            })
            .collect()
    }

    fn section(&mut self) -> types::Section {
        match self.octet() % 3 {
            0 => types::Section::Answer,
            1 => types::Section::Authority,
            _ => types::Section::Additional,
        }
    }

    fn selector(&mut self) -> types::Selector {
        types::Selector {
            section: (self.octet() & 1 == 1).then(|| self.section()),
            name: (self.octet() & 1 == 1).then(|| self.list()),
            rtype: (self.octet() & 1 == 1).then(|| self.number()),
            index: (self.octet() & 1 == 1).then(|| u32::from(self.octet())),
        }
    }

    fn record_edit(&mut self) -> types::RecordEdit {
        match self.octet() % 6 {
            0 => types::RecordEdit::Remove(self.selector()),
            1 => types::RecordEdit::Replace((self.selector(), self.records())),
            2 => types::RecordEdit::Order(types::Order::Rotate(self.long())),
            3 => types::RecordEdit::Order(types::Order::Shuffle),
            4 => types::RecordEdit::Order(types::Order::Permute(
                self.list().into_iter().map(u32::from).collect(),
            )),
            _ => types::RecordEdit::Append((
                self.section(),
                self.records().pop().unwrap_or(types::ResourceRecord {
                    name: vec![0],
                    rtype: 16,
                    class: 1,
                    ttl: 0,
                    rdata: vec![0],
                }),
            )),
        }
    }

    fn error(&mut self) -> Option<types::ExtendedError> {
        (self.octet() & 1 == 1).then(|| types::ExtendedError {
            code: self.number(),
            text: String::from_utf8_lossy(&self.list()).into_owned(),
        })
    }

    fn verdict(&mut self) -> types::Verdict {
        types::Verdict {
            query: u32::from(self.octet() % 9),
            remember: self.long(),
            decision: match self.octet() % 8 {
                0 => types::Decision::Pass,
                1 => types::Decision::Rewrite(types::Rewrite {
                    name: Some(self.list()),
                    qtype: Some(self.number()),
                    qclass: None,
                    revert: true,
                }),
                2 => types::Decision::Alias((0..self.octet() % 40).map(|_| self.list()).collect()),
                3 => types::Decision::Refuse(types::Refusal {
                    rcode: self.number(),
                    error: self.error(),
                }),
                4 => types::Decision::Drop(String::from_utf8_lossy(&self.list()).into_owned()),
                5 => types::Decision::Ask(types::Ask {
                    lookups: (0..self.octet() % 20)
                        .map(|_| types::Lookup {
                            name: self.list(),
                            qtype: self.number(),
                            path: match self.octet() % 3 {
                                0 => types::Path::Top,
                                1 => types::Path::Below,
                                _ => types::Path::Zone(String::from_utf8_lossy(&self.list()).into_owned()),
                            },
                        })
                        .collect(),
                    time: self.number().into(),
                    state: self.list(),
                }),
                _ => types::Decision::Answer(types::Answer {
                    rcode: self.number(),
                    authoritative: true,
                    answers: self.records(),
                    authority: self.records(),
                    additional: self.records(),
                    error: self.error(),
                }),
            },
            edit: (self.octet() & 1 == 1).then(|| types::ResponseEdit {
                rcodes: vec![(self.number(), self.number())],
                records: (0..self.octet() % 4).map(|_| self.record_edit()).collect(),
                header_set: self.number() & 0x0620,
                header_clear: 0,
                error: self.error(),
                ttl_minimum: self.long(),
                ttl_maximum: self.long(),
                store: true,
                stale: true,
            }),
            skip_response: false,
            delay: self.number(),
            route: None,
        }
    }
}
