//! Messages as lists of records: taken apart, changed, and put together again.
//!
//! Records that are not changed keep their bytes (RFC 3597 section 3).

use std::borrow::Cow;
use std::collections::HashMap;
use std::rc::Rc;

use foldhash::fast::RandomState;

use super::name::{is_pointer, skip_compressed, spelled};
use super::records::{BadRecords, Section, Walk, counts, names_in_data};
use super::writer::{Writer, Written};
use super::{HEADER, rtype, u16_at};

/// A record with its names uncompressed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part<'m> {
    /// The record's section.
    pub section: Section,
    /// The owner, with its letter case.
    pub owner: Rc<[u8]>,
    /// The type.
    pub rtype: u16,
    /// The class.
    pub class: u16,
    /// The TTL, in seconds.
    pub ttl: u32,
    /// The data.
    pub data: Cow<'m, [u8]>,
}

/// The most bytes of a message's names, uncompressed. An owner that many records point to counts once.
const SPELLED_OUT: usize = 1 << 19;

/// The records of a message with one question, in order.
///
/// # Errors
/// They are inconsistent, or their names would take too many bytes uncompressed.
pub fn take_apart(message: &[u8], question_length: usize) -> Result<Vec<Part<'_>>, BadRecords> {
    let mut names = Names {
        message,
        left: SPELLED_OUT,
        owners: HashMap::default(),
    };
    let walk = Walk::new(message, HEADER + question_length, counts(message));
    walk.map(|record| {
        let record = record?;
        let data = match names_in_data(record.rtype) {
            None => Cow::Borrowed(&message[record.data]),
            Some((before, count, _)) => {
                let mut at = record.data.start + before;
                let mut data = message.get(record.data.start..at).ok_or(BadRecords)?.to_vec();
                for _ in 0..count {
                    data.extend(names.spell(at)?);
                    at = skip_compressed(message, at).map_err(|_| BadRecords)?;
                }
                data.extend_from_slice(message.get(at..record.data.end).ok_or(BadRecords)?);
                data.into()
            }
        };
        Ok(Part {
            section: record.section,
            owner: names.owner(record.start)?,
            rtype: record.rtype,
            class: record.class,
            ttl: record.ttl,
            data,
        })
    })
    .collect()
}

/// The names of a message being taken apart.
struct Names<'m> {
    message: &'m [u8],
    /// The bytes that its names may still take.
    left: usize,
    /// Owners that consist of a pointer only, by pointer.
    owners: HashMap<[u8; 2], Rc<[u8]>, RandomState>,
}

impl Names<'_> {
    fn owner(&mut self, start: usize) -> Result<Rc<[u8]>, BadRecords> {
        let pointer = self.message[start..].first_chunk::<2>();
        let Some(pointer) = pointer.filter(|pointer| is_pointer(pointer[0])) else {
            return Ok(self.spell(start)?.into());
        };
        if let Some(known) = self.owners.get(pointer) {
            return Ok(Rc::clone(known));
        }
        let owner: Rc<[u8]> = self.spell(start)?.into();
        self.owners.insert(*pointer, Rc::clone(&owner));
        Ok(owner)
    }

    fn spell(&mut self, start: usize) -> Result<Vec<u8>, BadRecords> {
        let name = spelled(self.message, start).map_err(|_| BadRecords)?;
        self.left = self.left.checked_sub(name.len()).ok_or(BadRecords)?;
        Ok(name)
    }
}

/// A message of at most `limit` bytes that begins with the header and question of `message` and has these
/// records, section by section in their order. Records that do not fit are left out, and TC is set.
pub fn put_together<'p, 'm: 'p>(
    message: &[u8],
    question_length: usize,
    limit: usize,
    parts: impl Iterator<Item = &'p Part<'m>> + Clone,
) -> Vec<u8> {
    let mut writer = Writer::new(message, question_length, limit);
    for section in [Section::Answer, Section::Authority, Section::Additional] {
        for part in parts.clone().filter(|part| part.section == section) {
            let record = Written {
                owner: &part.owner,
                rtype: part.rtype,
                class: part.class,
                ttl: part.ttl,
                data: &part.data,
            };
            if !writer.push(section, record) {
                return writer.finish();
            }
        }
    }
    writer.finish()
}

/// The type that a signature covers (RFC 4034 section 3.1.1); none for another record.
pub fn covered(part: &Part<'_>) -> Option<u16> {
    (part.rtype == rtype::RRSIG && part.data.len() >= 2).then(|| u16_at(&part.data, 0))
}

#[cfg(test)]
mod tests {
    use hickory_proto::op::Message;
    use proptest::prelude::*;

    use super::*;
    use crate::dns::records::Answer;
    use crate::dns::{MESSAGE_MAXIMUM, build};

    const QUESTION: &[u8] = b"\x03www\x07Example\0\0\x01\0\x01";

    fn part(section: Section, owner: &[u8], rtype: u16, data: &[u8]) -> Part<'static> {
        Part {
            section,
            owner: owner.into(),
            rtype,
            class: 1,
            ttl: 300,
            data: data.to_vec().into(),
        }
    }

    fn together(parts: &[Part<'_>]) -> Vec<u8> {
        let empty = build::empty(QUESTION, 0);
        put_together(&empty, QUESTION.len(), MESSAGE_MAXIMUM, parts.iter())
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
    fn what_is_too_large_is_cut() {
        let long = part(Section::Answer, b"\0", 65_280, &[0; 40_000]);
        let message = together(&[long.clone(), long]);
        assert_eq!((counts(&message), message[2] & 2), ([1, 0, 0], 2));
    }

    /// An owner that all records point to is expanded once, however long it is.
    #[test]
    fn an_owner_of_many_is_one() {
        let label = [&[63][..], &[b'a'; 63]].concat();
        let name = [&label[..], &label, &label, b"\0"].concat();
        let parts = vec![part(Section::Answer, &name, rtype::A, &[192, 0, 2, 1]); 4000];
        let message = together(&parts);
        let after = take_apart(&message, QUESTION.len()).unwrap();
        assert_eq!(after.len(), 4000);
        assert!(Rc::ptr_eq(&after[1].owner, &after[3999].owner));
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

    fn any_part() -> impl Strategy<Value = Part<'static>> {
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
        /// Except for letter case, which names with a common suffix share.
        #[test]
        fn what_is_put_together_is_taken_apart(parts in prop::collection::vec(any_part(), 0..12)) {
            let message = together(&parts);
            prop_assert!(Message::from_vec(&message).is_ok());
            prop_assert!(Answer::read(message.clone()).is_ok());
            let lowercased = |part: &Part<'_>| Part {
                owner: part.owner.to_ascii_lowercase().into(),
                data: part.data.to_ascii_lowercase().into(),
                ..part.clone()
            };
            let mut before: Vec<Part<'_>> = parts.iter().map(lowercased).collect();
            before.sort_by_key(|part| part.section as usize);
            let after = take_apart(&message, QUESTION.len()).unwrap();
            prop_assert_eq!(after.iter().map(lowercased).collect::<Vec<_>>(), before);
        }
    }
}
