//! Writes a message record by record until it is full.
//!
//! A record that does not fit is left out, and so is everything after it: a message costs what it can hold,
//! not what there would be to write. TC is set, unless only additional data is missing; that section is cut
//! between two sets (RFC 2181 section 9), and the caller knows whether what is missing there is needed.
//!
//! Names are compressed where every resolver must understand it: in owners and in the data of the types of
//! RFC 1035 (RFC 3597 section 4). To find a known suffix, each label of a name is looked up once, however
//! many names there are.

use std::collections::HashMap;
use std::hash::BuildHasher as _;

use foldhash::fast::RandomState;
use smallvec::SmallVec;

use super::name::{LABEL_MAXIMUM, NAME_MAXIMUM, skip_plain};
use super::records::{Section, names_in_data};
use super::{HEADER, MESSAGE_MAXIMUM, QUESTION_TAIL, flag, rtype};

/// A pointer has fourteen bits (RFC 1035 section 4.1.4).
const REACH: usize = 1 << 14;

/// The most labels of a name, each with one byte and its length.
const LABELS: usize = NAME_MAXIMUM.div_ceil(2);

/// Stands for the root, and for no offset: no name begins in the header.
const ROOT: u16 = 0;

/// A record, with its names uncompressed.
#[derive(Debug, Clone, Copy)]
pub struct Written<'a> {
    /// The owner, with its letter case.
    pub owner: &'a [u8],
    /// The type.
    pub rtype: u16,
    /// The class.
    pub class: u16,
    /// The TTL, in seconds.
    pub ttl: u32,
    /// The data.
    pub data: &'a [u8],
}

/// A message being written.
pub struct Writer {
    octets: Vec<u8>,
    /// The most bytes.
    limit: usize,
    counts: [u16; 3],
    /// A label's offset and that of the name's rest, by a hash of the label and the latter.
    places: HashMap<u64, (u16, u16), RandomState>,
    /// The owner of the last record, and its offset.
    last: (Vec<u8>, u16),
    /// The additional section's last set: its offset, the number of records before it, and its type.
    set: (usize, u16, u16),
    /// Whether a record was left out.
    is_full: bool,
}

impl Writer {
    /// A message that begins with the header and question of `message`, and gets at most `limit` bytes.
    pub fn new(message: &[u8], question_length: usize, limit: usize) -> Writer {
        let question_end = HEADER + question_length;
        let mut writer = Writer {
            octets: message[..question_end].to_vec(),
            limit: limit.min(MESSAGE_MAXIMUM),
            counts: [0; 3],
            places: HashMap::default(),
            last: (Vec::new(), ROOT),
            set: (0, 0, 0),
            is_full: false,
        };
        // No record has been counted yet.
        writer.octets[6..HEADER].fill(0);
        let name = &message[HEADER..question_end - QUESTION_TAIL];
        let place = writer.note(name, &labels(name), ROOT, HEADER);
        writer.last = (name.to_vec(), place);
        writer
    }

    /// Whether a record was left out: then all further ones are, too.
    pub fn is_full(&self) -> bool {
        self.is_full
    }

    /// Sets TC: what was left out is needed, although it is additional data.
    pub fn mark_truncated(&mut self) {
        self.octets[2] |= (flag::TC >> 8) as u8;
    }

    /// Appends a record to a section, which must not precede that of the last record. Returns whether it
    /// fits.
    pub fn push(&mut self, section: Section, record: Written<'_>) -> bool {
        if self.is_full {
            return false;
        }
        let start = self.octets.len();
        let count = self.counts[section as usize];
        if section == Section::Additional && self.begins_set(&record, count) {
            self.set = (start, count, record.rtype);
        }
        if self.write(record).is_some() && self.octets.len() <= self.limit {
            // Cannot overflow: no message holds that many records.
            self.counts[section as usize] = count + 1;
            return true;
        }
        self.is_full = true;
        match section {
            Section::Additional => {
                self.octets.truncate(self.set.0);
                self.counts[2] = self.set.1;
            }
            Section::Answer | Section::Authority => {
                self.octets.truncate(start);
                self.mark_truncated();
            }
        }
        false
    }

    /// Whether a record belongs to another set than the last one.
    fn begins_set(&self, record: &Written<'_>, count: u16) -> bool {
        count == 0 || self.set.2 != record.rtype || self.last.0 != record.owner
    }

    /// Returns the finished message.
    pub fn finish(mut self) -> Vec<u8> {
        for (count_at, count) in [6, 8, 10].into_iter().zip(self.counts) {
            self.octets[count_at..count_at + 2].copy_from_slice(&count.to_be_bytes());
        }
        self.octets
    }

    /// Writes a record; none if its data is too long for any message.
    fn write(&mut self, record: Written<'_>) -> Option<()> {
        self.push_owner(record.owner);
        self.octets.extend(record.rtype.to_be_bytes());
        self.octets.extend(record.class.to_be_bytes());
        self.octets.extend(record.ttl.to_be_bytes());
        let data_at = self.octets.len() + 2;
        self.octets.extend([0, 0]);
        self.push_data(record.rtype, record.data);
        let length = u16::try_from(self.octets.len() - data_at).ok()?;
        self.octets[data_at - 2..data_at].copy_from_slice(&length.to_be_bytes());
        Some(())
    }

    /// Writes an owner. Most records have the same owner as the previous one.
    fn push_owner(&mut self, owner: &[u8]) {
        let (last, place) = &self.last;
        if *place != ROOT && last == owner {
            self.octets.extend(pointer_to(*place));
            return;
        }
        let place = self.push_name(owner, true);
        self.last.0.clear();
        self.last.0.extend_from_slice(owner);
        self.last.1 = place;
    }

    fn push_data(&mut self, of: u16, data: &[u8]) {
        let (before, names, _) = names_in_data(of).unwrap_or_default();
        // RFC 2782 and RFC 6672 section 2.5 forbid compression here; other names may still point there.
        let compressed = !matches!(of, rtype::SRV | rtype::DNAME);
        let mut at = before.min(data.len());
        self.octets.extend_from_slice(&data[..at]);
        for _ in 0..names {
            let Ok(end) = skip_plain(data, at) else { break };
            self.push_name(&data[at..end], compressed);
            at = end;
        }
        self.octets.extend_from_slice(&data[at..]);
    }

    /// Appends a name; if `compressed`, a suffix that was written before becomes a pointer. Returns the
    /// name's offset, or [`ROOT`] if no pointer can reach it.
    fn push_name(&mut self, name: &[u8], compressed: bool) -> u16 {
        let start = self.octets.len();
        let labels = labels(name);
        let (new, place) = self.known(name, &labels);
        match labels.get(new).filter(|_| compressed && place != ROOT) {
            Some(&known_at) => {
                self.octets.extend_from_slice(&name[..usize::from(known_at)]);
                self.octets.extend(pointer_to(place));
            }
            None => self.octets.extend_from_slice(name),
        }
        self.note(name, &labels[..new], place, start)
    }

    /// The number of labels to be written, and the offset of the suffix that was written before.
    fn known(&self, name: &[u8], labels: &[u8]) -> (usize, u16) {
        let mut rest = ROOT;
        for (index, &at) in labels.iter().enumerate().rev() {
            let label = label(name, at);
            let found = self.places.get(&self.hash(label, rest));
            match found.filter(|(place, known)| *known == rest && self.has(*place, label)) {
                Some((place, _)) => rest = *place,
                None => return (index + 1, rest),
            }
        }
        (0, rest)
    }

    /// Records the offsets of the given labels of a name written at `start`, which continues at `rest`.
    /// Returns the whole name's offset.
    fn note(&mut self, name: &[u8], labels: &[u8], mut rest: u16, start: usize) -> u16 {
        if labels.is_empty() {
            return rest;
        }
        if start + name.len() > REACH {
            return ROOT;
        }
        for &at in labels.iter().rev() {
            let place = (start + usize::from(at)) as u16;
            let hash = self.hash(label(name, at), rest);
            // Of two with the same hash, the first stays; the other counts as not recorded.
            self.places.entry(hash).or_insert((place, rest));
            rest = place;
        }
        rest
    }

    fn hash(&self, label: &[u8], rest: u16) -> u64 {
        let mut lower = [0; 1 + LABEL_MAXIMUM as usize];
        let lower = &mut lower[..label.len()];
        lower.copy_from_slice(label);
        // Length octets are below 64 and ASCII capitals are above.
        lower.make_ascii_lowercase();
        self.places.hasher().hash_one((&*lower, rest))
    }

    /// Whether this label is at an offset, in any letter case (RFC 4343 section 3).
    fn has(&self, place: u16, label: &[u8]) -> bool {
        let there = self.octets.get(usize::from(place)..);
        let there = there.and_then(|there| there.get(..label.len()));
        there.is_some_and(|there| there.eq_ignore_ascii_case(label))
    }
}

/// The offset of each label except the root's; none if it is not a valid name.
fn labels(name: &[u8]) -> SmallVec<[u8; LABELS]> {
    let (mut labels, mut at) = (SmallVec::new(), 0);
    let is_name = skip_plain(name, 0) == Ok(name.len());
    while is_name && name[at] > 0 {
        labels.push(at as u8);
        at += 1 + usize::from(name[at]);
    }
    labels
}

/// The label at an offset, with its length byte.
fn label(name: &[u8], at: u8) -> &[u8] {
    let at = usize::from(at);
    &name[at..=at + usize::from(name[at])]
}

/// A pointer to a name (RFC 1035 section 4.1.4).
fn pointer_to(place: u16) -> [u8; 2] {
    (0xc000 | place).to_be_bytes()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::build;
    use super::super::records::{Answer, counts};
    use super::*;

    const QUESTION: &[u8] = b"\x03www\x07Example\0\0\x01\0\x01";

    fn writer(limit: usize) -> Writer {
        Writer::new(&build::empty(QUESTION, 0), QUESTION.len(), limit)
    }

    fn address<'a>(owner: &'a [u8], data: &'a [u8; 4]) -> Written<'a> {
        Written {
            owner,
            rtype: rtype::A,
            class: 1,
            ttl: 300,
            data,
        }
    }

    fn is_truncated(message: &[u8]) -> bool {
        message[2] & 2 != 0
    }

    #[test]
    fn what_does_not_fit_is_left_out_and_said() {
        for section in [Section::Answer, Section::Authority] {
            let mut writer = writer(512);
            let pushed =
                (0..u8::MAX).filter(|&last| writer.push(section, address(b"\0", &[192, 0, 2, last])));
            // The question ends at 29, and each of these has 15 bytes.
            assert_eq!(pushed.count(), 32, "{section:?}");
            assert!(writer.is_full());
            assert!(
                !writer.push(Section::Additional, address(b"\0", &[0; 4])),
                "nothing comes after it"
            );
            let message = writer.finish();
            assert!(is_truncated(&message) && message.len() <= 512);
            assert_eq!(counts(&message)[section as usize], 32);
            assert!(Answer::read(message).is_ok());
        }
    }

    /// RFC 2181 section 9: a set that does not fit is left out as a whole, without TC.
    #[test]
    fn the_additional_section_is_cut_between_two_sets() {
        let mut writer = writer(512);
        assert!(writer.push(Section::Answer, address(b"\x03www\x07example\0", &[192, 0, 2, 1])));
        let owners: [&[u8]; 3] = [b"\x01a\0", b"\x01b\0", b"\x01c\0"];
        for owner in owners {
            for last in 0..12 {
                writer.push(Section::Additional, address(owner, &[192, 0, 2, last]));
            }
        }
        let message = writer.finish();
        assert!(!is_truncated(&message));
        assert_eq!(counts(&message), [1, 0, 24], "the third set would not fit");
        assert!(Answer::read(message).is_ok());
    }

    #[test]
    fn data_longer_than_any_message_are_left_out() {
        let mut writer = writer(MESSAGE_MAXIMUM);
        let long = Written {
            rtype: 65_280,
            data: &[0; 70_000],
            ..address(b"\0", &[0; 4])
        };
        assert!(!writer.push(Section::Answer, long));
        assert!(is_truncated(&writer.finish()));
    }

    /// Four thousand records with the longest name take only what their pointers take.
    #[test]
    fn a_name_is_written_once() {
        let label = [&[63][..], &[b'a'; 63]].concat();
        let owner = [&label[..], &label, &label, b"\x3d", &[b'b'; 61], b"\0"].concat();
        assert_eq!(owner.len(), NAME_MAXIMUM);
        let mut writer = writer(MESSAGE_MAXIMUM);
        let pushed = (0..5000_u16).filter(|number| {
            let [high, low] = number.to_be_bytes();
            writer.push(Section::Answer, address(&owner, &[192, 0, high, low]))
        });
        assert_eq!(pushed.count(), (MESSAGE_MAXIMUM - 29 - NAME_MAXIMUM + 2) / 16);
        assert!(Answer::read(writer.finish()).is_ok());
    }

    proptest! {
        /// However names share suffixes, they are read back as written.
        #[test]
        fn names_are_read_as_they_were_written(
            names in prop::collection::vec(prop::collection::vec("[abAB]{1,2}", 0..6), 1..40),
        ) {
            let mut writer = writer(MESSAGE_MAXIMUM);
            let wire = |labels: &Vec<String>| {
                let labels = labels.iter().flat_map(|label| [&[label.len() as u8], label.as_bytes()].concat());
                labels.chain([0]).collect::<Vec<u8>>()
            };
            for name in &names {
                let name = wire(name);
                let record = Written { rtype: rtype::NS, data: &name, ..address(&name, &[0; 4]) };
                prop_assert!(writer.push(Section::Answer, record));
            }
            let message = writer.finish();
            prop_assert!(Answer::read(message.clone()).is_ok());
            let parts = super::super::parts::take_apart(&message, QUESTION.len()).unwrap();
            for (part, name) in parts.iter().zip(&names) {
                let name = wire(name);
                prop_assert!(part.owner.eq_ignore_ascii_case(&name) && part.data.eq_ignore_ascii_case(&name));
            }
        }
    }
}
