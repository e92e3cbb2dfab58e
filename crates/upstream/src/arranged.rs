//! Puts an upstream's answer into the form that clients need: aliases before targets, names compressed.
//!
//! Nearly every answer has this form already and is not changed.

use crate::dns::edns::UDP_CLASSIC;
use crate::dns::parts::{Part, covered, put_together, take_apart};
use crate::dns::records::{Section, Walk, counts};
use crate::dns::{HEADER, MESSAGE_MAXIMUM, rtype, u16_at};

/// The longest chain of aliases that is put in order: resolvers follow no more.
const MOST_ALIASES: usize = 16;

/// Returns the message in that form; one that cannot be parsed stays as it is. `question_length` is in bytes.
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

/// The same records, compressed, with aliases first if `misplaced`; none if they cannot be parsed, or no
/// longer all fit.
fn written_anew(message: &[u8], question_length: usize, misplaced: bool) -> Option<Vec<u8>> {
    let mut parts = take_apart(message, question_length).ok()?;
    if misplaced {
        parts = aliases_first(parts, &message[HEADER..HEADER + question_length]);
    }
    let written = put_together(message, question_length, MESSAGE_MAXIMUM, parts.iter());
    (u16_at(&written, 2) == u16_at(message, 2)).then_some(written)
}

/// Whether a message may have to be truncated for a client and its first record's name is not compressed:
/// some servers compress nothing over TCP, and a datagram then holds fewer records (RFC 2181 section 9).
fn is_spelled_out(message: &[u8], question_length: usize) -> bool {
    let first = message.get(HEADER + question_length);
    message.len() > usize::from(UDP_CLASSIC) && first.is_some_and(|octet| (1..64).contains(octet))
}

/// Whether an alias comes after another kind of record. glibc's resolver looks for an alias's target only in
/// later records, and then finds nothing (RFC 1034 section 3.7 leaves the order to the server).
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

/// Moves the aliases that follow from the question to the front, in chain order, each with its signatures.
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
        // The CNAME that follows from it is one of the others.
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

    /// Twenty addresses of a name of 54 octets: only 6 would fit into a datagram of 512.
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
        // A loop ends, and records not reached from the question stay last.
        let looping = of(&[
            ("x.test", 1, address),
            ("a.test", 5, b),
            ("b.test", 5, b"\x01a\x04test\0"),
        ]);
        assert_eq!(looping.len(), 3);
        assert!(looping[2].starts_with("x.test."));
    }
}
