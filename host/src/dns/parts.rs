//! Messages as lists of records: taken apart, changed by whoever wants something else in them, and put together again.
//!
//! What is not changed keeps its octets (RFC 3597 section 3). Names are compressed where any resolver has to understand
//! it: owners, and those in the data of the types of RFC 1035 (RFC 3597 section 4).

use std::collections::HashMap;

use super::name::spelled;
use super::records::{BadRecords, Section, Walk, counts, names_in_data, spelled_out};
use super::{HEADER, MESSAGE_MAXIMUM, QUESTION_TAIL, rtype, u16_at};

/// A record with its names uncompressed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// Where it stands.
    pub section: Section,
    /// The owner, as it is spelled.
    pub owner: Vec<u8>,
    /// The type.
    pub rtype: u16,
    /// The class.
    pub class: u16,
    /// In seconds.
    pub ttl: u32,
    /// The data.
    pub data: Vec<u8>,
}

/// Octets of all names of a message that is taken apart, spelled out.
const SPELLED_OUT: usize = 1 << 19;

/// The records of a message with one question, in their order.
///
/// # Errors
/// When they do not hold together, or their names would take too much to spell out.
pub fn take_apart(message: &[u8], question_length: usize) -> Result<Vec<Part>, BadRecords> {
    if spelled_out(message)? > SPELLED_OUT {
        return Err(BadRecords);
    }
    let walk = Walk::new(message, HEADER + question_length, counts(message));
    walk.map(|record| {
        let record = record?;
        let owner = spelled(message, record.start).map_err(|_| BadRecords)?;
        let (before, names, behind) = names_in_data(record.rtype).unwrap_or_default();
        let mut data = Vec::with_capacity(record.data.len());
        let mut at = record.data.start;
        if names > 0 {
            data.extend_from_slice(&message[at..at + before]);
            at += before;
            for _ in 0..names {
                data.extend(spelled(message, at).map_err(|_| BadRecords)?);
                at = super::name::skip_compressed(message, at).map_err(|_| BadRecords)?;
            }
            debug_assert_eq!(at + behind, record.data.end);
        }
        data.extend_from_slice(&message[at..record.data.end]);
        Ok(Part {
            section: record.section,
            owner,
            rtype: record.rtype,
            class: record.class,
            ttl: record.ttl,
            data,
        })
    })
    .collect()
}

/// The message that begins with the header and question of `message` and has these records, each section's in their
/// order; none if it would be too large.
pub fn put_together(message: &[u8], question_length: usize, parts: &[Part]) -> Option<Vec<u8>> {
    let mut out = message[..HEADER + question_length].to_vec();
    let mut places = HashMap::new();
    note(
        &out[HEADER..HEADER + question_length - QUESTION_TAIL],
        HEADER,
        &mut places,
    );
    for (section, count_at) in [
        (Section::Answer, 6),
        (Section::Authority, 8),
        (Section::Additional, 10),
    ] {
        let mut count = 0_u16;
        for part in parts.iter().filter(|part| part.section == section) {
            push(part, &mut out, &mut places);
            count = count.checked_add(1)?;
            if out.len() > MESSAGE_MAXIMUM {
                return None;
            }
        }
        out[count_at..count_at + 2].copy_from_slice(&count.to_be_bytes());
    }
    Some(out)
}

fn push(part: &Part, out: &mut Vec<u8>, places: &mut HashMap<Vec<u8>, u16>) {
    push_name(&part.owner, out, places);
    out.extend(part.rtype.to_be_bytes());
    out.extend(part.class.to_be_bytes());
    out.extend(part.ttl.to_be_bytes());
    let length_at = out.len();
    out.extend([0, 0]);
    match names_in_data(part.rtype) {
        // RFC 2782 and RFC 6672 section 2.5 forbid it for these.
        Some((before, names, _)) if !matches!(part.rtype, rtype::SRV | rtype::DNAME) => {
            out.extend_from_slice(&part.data[..before]);
            let mut at = before;
            for _ in 0..names {
                let Ok(end) = super::name::skip_plain(&part.data, at) else {
                    break;
                };
                push_name(&part.data[at..end], out, places);
                at = end;
            }
            out.extend_from_slice(&part.data[at..]);
        }
        _ => out.extend_from_slice(&part.data),
    }
    let length = (out.len() - length_at - 2) as u16;
    out[length_at..length_at + 2].copy_from_slice(&length.to_be_bytes());
}

/// Appends a name, from the first label on that stands somewhere already as a pointer there (RFC 1035 section 4.1.4).
fn push_name(name: &[u8], out: &mut Vec<u8>, places: &mut HashMap<Vec<u8>, u16>) {
    let lowercased = name.to_ascii_lowercase();
    let mut at = 0;
    while name[at] != 0 {
        if let Some(place) = places.get(&lowercased[at..]) {
            let own = at;
            let start = out.len();
            out.extend_from_slice(&name[..own]);
            out.extend((0xc000 | place).to_be_bytes());
            note_until(&lowercased, own, start, places);
            return;
        }
        at += 1 + usize::from(name[at]);
    }
    note(name, out.len(), places);
    out.extend_from_slice(name);
}

/// Notes where a whole name stands, and each rest of it.
fn note(name: &[u8], start: usize, places: &mut HashMap<Vec<u8>, u16>) {
    note_until(&name.to_ascii_lowercase(), name.len() - 1, start, places);
}

/// Notes the name and the rests of it that begin before `end`.
fn note_until(lowercased: &[u8], end: usize, start: usize, places: &mut HashMap<Vec<u8>, u16>) {
    /// A pointer has fourteen bits.
    const REACH: usize = 1 << 14;
    let mut at = 0;
    while at < end && start + at < REACH {
        places
            .entry(lowercased[at..].to_vec())
            .or_insert((start + at) as u16);
        at += 1 + usize::from(lowercased[at]);
    }
}

/// The type that a signature covers (RFC 4034 section 3.1.1); none for another record.
pub fn covered(part: &Part) -> Option<u16> {
    (part.rtype == rtype::RRSIG && part.data.len() >= 2).then(|| u16_at(&part.data, 0))
}

#[cfg(test)]
mod tests {
    use hickory_proto::op::Message;
    use proptest::prelude::*;

    use super::*;
    use crate::dns::build;
    use crate::dns::records::Answer;

    const QUESTION: &[u8] = b"\x03www\x07Example\0\0\x01\0\x01";

    fn part(section: Section, owner: &[u8], rtype: u16, data: &[u8]) -> Part {
        Part {
            section,
            owner: owner.to_vec(),
            rtype,
            class: 1,
            ttl: 300,
            data: data.to_vec(),
        }
    }

    fn together(parts: &[Part]) -> Vec<u8> {
        put_together(&build::empty(QUESTION, 0), QUESTION.len(), parts).unwrap()
    }

    #[test]
    fn names_are_compressed_where_all_understand_it() {
        let target = b"\x03api\x07example\0";
        let srv = [&[0; 6][..], target].concat();
        let parts = [
            part(Section::Answer, b"\x03www\x07example\0", rtype::CNAME, target),
            part(Section::Answer, target, rtype::A, &[192, 0, 2, 1]),
            part(Section::Additional, target, rtype::SRV, &srv),
        ];
        let message = together(&parts);
        let records = [
            &b"\xc0\x0c\0\x05\0\x01\0\0\x01\x2c\0\x06\x03api\xc0\x10"[..],
            b"\xc0\x29\0\x01\0\x01\0\0\x01\x2c\0\x04\xc0\0\x02\x01",
            b"\xc0\x29\0\x21\0\x01\0\0\x01\x2c\0\x13",
            &srv,
        ];
        assert_eq!(message[HEADER + QUESTION.len()..], records.concat());
        let parsed = Message::from_vec(&message).unwrap();
        assert_eq!(parsed.answers[1].name.to_string().to_lowercase(), "api.example.");
        assert_eq!((parsed.answers.len(), parsed.additionals.len()), (2, 1));
    }

    #[test]
    fn what_is_too_large_is_none() {
        let long = part(Section::Answer, b"\0", 65_280, &[0; 40_000]);
        assert!(put_together(&build::empty(QUESTION, 0), QUESTION.len(), &[long.clone(), long]).is_none());
    }

    fn any_name() -> impl Strategy<Value = Vec<u8>> {
        prop::collection::vec("[a-cA-C]{1,2}", 0..5).prop_map(|labels| {
            let mut name: Vec<u8> = Vec::new();
            for label in labels {
                name.push(label.len() as u8);
                name.extend(label.bytes());
            }
            name.push(0);
            name
        })
    }

    fn any_part() -> impl Strategy<Value = Part> {
        let section = prop_oneof![
            Just(Section::Answer),
            Just(Section::Authority),
            Just(Section::Additional)
        ];
        let data = prop_oneof![
            any_name().prop_map(|name| (rtype::NS, name)),
            any_name().prop_map(|name| (rtype::MX, [&[0, 1][..], &name].concat())),
            (any_name(), any_name()).prop_map(|(a, b)| (rtype::SOA, [&a[..], &b, &[0; 20]].concat())),
            any_name().prop_map(|name| (rtype::SRV, [&[0; 6][..], &name].concat())),
            prop::collection::vec(any::<u8>(), 1..20).prop_map(|data| (65_280, data)),
        ];
        (section, any_name(), data)
            .prop_map(|(section, owner, (rtype, data))| part(section, &owner, rtype, &data))
    }

    proptest! {
        /// But for the letter case that pointers share.
        #[test]
        fn what_is_put_together_is_taken_apart(parts in prop::collection::vec(any_part(), 0..12)) {
            let message = together(&parts);
            prop_assert!(Message::from_vec(&message).is_ok());
            prop_assert!(Answer::read(message.clone()).is_ok());
            let lowercased = |part: &Part| Part {
                owner: part.owner.to_ascii_lowercase(),
                data: part.data.to_ascii_lowercase(),
                ..part.clone()
            };
            let mut before: Vec<Part> = parts.iter().map(lowercased).collect();
            before.sort_by_key(|part| part.section as usize);
            let after = take_apart(&message, QUESTION.len()).unwrap();
            prop_assert_eq!(after.iter().map(lowercased).collect::<Vec<_>>(), before);
        }
    }
}
