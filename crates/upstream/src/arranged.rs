//! An upstream's answer as clients can use it: its aliases before what they lead to, and its names compressed.
//!
//! Nearly every answer is, and is left as it is.

use crate::dns::edns::UDP_CLASSIC;
use crate::dns::parts::{Part, covered, put_together, take_apart};
use crate::dns::records::{Section, Walk, counts};
use crate::dns::{HEADER, MESSAGE_MAXIMUM, rtype, u16_at};

/// Aliases that are put in order, one after another: resolvers follow no more.
const MOST_ALIASES: usize = 16;

/// The same message, whose question has so many octets, in that form. What cannot be read stays as it is.
pub(super) fn arranged(message: Vec<u8>, question_length: usize) -> Vec<u8> {
    let misplaced = has_late_alias(&message, question_length);
    if !misplaced && !is_spelled_out(&message, question_length) {
        return message;
    }
    match written_anew(&message, question_length, misplaced) {
        Some(arranged) if misplaced || arranged.len() < message.len() => arranged,
        _ => message,
    }
}

/// The same records, compressed, and aliases first if they are not; none if they cannot be read, or do not all fit any more.
fn written_anew(message: &[u8], question_length: usize, misplaced: bool) -> Option<Vec<u8>> {
    let mut parts = take_apart(message, question_length).ok()?;
    if misplaced {
        parts = aliases_first(parts, &message[HEADER..HEADER + question_length]);
    }
    let written = put_together(message, question_length, MESSAGE_MAXIMUM, parts.iter());
    (u16_at(&written, 2) == u16_at(message, 2)).then_some(written)
}

/// Whether a message may have to be cut for a client, and begins with a name that is spelled out: over TCP some servers compress
/// nothing, and a datagram then has room for fewer records (RFC 2181 section 9).
fn is_spelled_out(message: &[u8], question_length: usize) -> bool {
    let first = message.get(HEADER + question_length);
    message.len() > usize::from(UDP_CLASSIC) && first.is_some_and(|octet| (1..64).contains(octet))
}

/// Whether an alias stands behind something else. The resolver of glibc looks for its next name only behind it, and finds nothing
/// then (RFC 1034 section 3.7 leaves the order to the server).
fn has_late_alias(message: &[u8], question_length: usize) -> bool {
    let answers = counts(message)[0];
    if answers < 2 {
        return false;
    }
    let walk = Walk::new(message, HEADER + question_length, [answers, 0, 0]);
    let mut types = walk.map_while(Result::ok).map(|record| record.rtype);
    types.any(|rtype| !leads_on(rtype) && rtype != rtype::RRSIG) && types.any(leads_on)
}

fn leads_on(rtype: u16) -> bool {
    matches!(rtype, rtype::CNAME | rtype::DNAME)
}

/// The records with those aliases first that lead on from the question, each with its signatures, in the order in which they do.
fn aliases_first<'m>(parts: Vec<Part<'m>>, question: &[u8]) -> Vec<Part<'m>> {
    let name = question
        .split_last_chunk::<4>()
        .map_or(question, |(name, _)| name);
    let mut chain = vec![name.to_ascii_lowercase()];
    for _ in 0..MOST_ALIASES {
        let of = |part: &&Part<'m>| {
            part.rtype == rtype::CNAME
                && chain
                    .last()
                    .is_some_and(|name| part.owner.eq_ignore_ascii_case(name))
        };
        match parts.iter().find(of).map(|part| part.data.to_ascii_lowercase()) {
            Some(target) if !chain.contains(&target) => chain.push(target),
            _ => break,
        }
    }
    let place = |part: &Part<'m>| match covered(part).unwrap_or(part.rtype) {
        _ if part.section != Section::Answer => usize::MAX,
        // What it stands for is one of the others.
        rtype::DNAME => 0,
        rtype::CNAME => {
            let at = chain
                .iter()
                .position(|name| part.owner.eq_ignore_ascii_case(name));
            at.map_or(usize::MAX - 1, |at| at + 1)
        }
        _ => usize::MAX,
    };
    let mut parts = parts;
    parts.sort_by_key(place);
    parts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dns::name::Name;
    use crate::dns::text::record_lines;
    use crate::dns::{CLASS_IN, build};

    fn question(name: &str) -> Vec<u8> {
        [Name::parse(name).unwrap().as_bytes(), &[0, 1, 0, 1]].concat()
    }

    fn lines(message: &[u8]) -> Vec<String> {
        record_lines(message, Section::Answer)
    }

    /// Twenty addresses of a name of 54 octets: 6 would fit into a datagram of 512.
    #[test]
    fn what_is_spelled_out_is_compressed() {
        let name = Name::parse("a-rather-long-name-of-a-service.of-somebody.example.org").unwrap();
        let question = question(&name.to_string());
        let mut message = build::empty(&question, 0);
        for address in 0..20_u8 {
            message.extend_from_slice(name.as_bytes());
            message.extend([0, 1, 0, 1, 0, 0, 1, 44, 0, 4, 192, 0, 2, address]);
        }
        message[7] = 20;
        let compressed = arranged(message.clone(), question.len());
        assert_eq!(compressed.len(), HEADER + question.len() + 20 * 16);
        assert_eq!(lines(&compressed), lines(&message));
        assert_eq!(arranged(compressed.clone(), question.len()), compressed);
    }

    #[test]
    fn aliases_come_before_what_they_lead_to() {
        let (b, c): (&[u8], &[u8]) = (b"\x01b\x04test\0", b"\x01c\x04test\0");
        let question = question("a.test");
        let of = |records: &[(&str, u16, &[u8])]| {
            let mut message = build::empty(&question, 0);
            for (owner, rtype, data) in records {
                let owner = Name::parse(owner).unwrap();
                build::push_record(&mut message, 6, owner.as_bytes(), *rtype, CLASS_IN, 60, data);
            }
            lines(&arranged(message, question.len()))
        };
        let address: &[u8] = &[192, 0, 2, 1];
        let expected = [
            "a.test. 60 IN CNAME b.test.",
            "b.test. 60 IN CNAME c.test.",
            "c.test. 60 IN A 192.0.2.1",
        ];
        let (first, second, last) = (("a.test", 5, b), ("b.test", 5, c), ("c.test", 1, address));
        for given in [
            [first, second, last],
            [last, first, second],
            [last, second, first],
            [second, last, first],
        ] {
            assert_eq!(of(&given), expected);
        }
        // A loop ends, and what does not begin at the question stays behind.
        let looping = of(&[
            ("x.test", 1, address),
            ("a.test", 5, b),
            ("b.test", 5, b"\x01a\x04test\0"),
        ]);
        assert_eq!(looping.len(), 3);
        assert!(looping[2].starts_with("x.test."));
    }
}
