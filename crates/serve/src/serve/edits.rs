//! Filters' edits to the records of a response.
//!
//! Records stay in place; edits change a list of their positions. The cost depends on the number of records
//! and sets, not on their contents. Only what the client can receive is written.

use std::collections::HashMap;
use std::rc::Rc;

use foldhash::fast::RandomState;
use rand::seq::SliceRandom;

use crate::dns::name::skip_plain;
use crate::dns::parts::{Part, covered, put_together, take_apart};
use crate::dns::records::Section;
use crate::dns::{HEADER, QUESTION_TAIL, rtype, u16_at};
use crate::filter::{Order, RecordEdit, ResourceRecord, Selector};

/// Returns the message with its records edited, in order, and cut to `limit` bytes; `None` if it cannot be
/// read.
///
/// Signatures over a changed set of records are removed (RFC 4035 section 2.2): they would vouch for
/// something else.
pub(super) fn edited(
    message: &[u8],
    question_length: usize,
    limit: usize,
    edits: &[RecordEdit],
) -> Option<Vec<u8>> {
    let mut records = Records::of(take_apart(message, question_length).ok()?);
    // Consecutive orders within sets are combined into one.
    let mut turn = None;
    for edit in edits {
        match edit {
            RecordEdit::Order(Order::Rotate(by)) => turn = Some(Turn::By(u64::from(*by)).after(turn)),
            RecordEdit::Order(Order::Shuffle) => turn = Some(Turn::Random),
            edit => {
                records.turn(turn.take());
                records.edit(edit);
            }
        }
    }
    records.turn(turn);
    records.forget_signatures();
    let parts = records.order.iter().map(|&at| &records.parts[at]);
    Some(put_together(message, question_length, limit, parts))
}

/// Whether edits would remove records from a message or add some; `None` if it cannot be read.
///
/// Record order has no meaning (RFC 2181 section 5), and records about the message itself cannot be edited.
pub(super) fn would_change(message: &[u8], edits: &[RecordEdit]) -> Option<bool> {
    // An error may have no question.
    let question_length = match u16_at(message, 4) {
        0 => 0,
        _ => skip_plain(message, HEADER).ok()? + QUESTION_TAIL - HEADER,
    };
    let mut parts = take_apart(message, question_length).ok()?;
    parts.retain(|part| ![rtype::OPT, rtype::TSIG, rtype::SIG].contains(&part.rtype));
    let mut records = Records::of(parts);
    let of_data = |edit: &&RecordEdit| !matches!(edit, RecordEdit::Order(_));
    edits.iter().filter(of_data).for_each(|edit| records.edit(edit));
    Some(records.order.len() != records.given || records.order.iter().any(|&at| at >= records.given))
}

/// Another order of each set within its positions. The CNAME records of a chain are sets of one, and so keep
/// theirs.
#[derive(Clone, Copy)]
enum Turn {
    /// Rotation: the set begins with the record at this index, and wraps around.
    By(u64),
    Random,
}

impl Turn {
    /// Combines two orders.
    fn after(self, before: Option<Turn>) -> Turn {
        match (before, self) {
            (None, turn) => turn,
            (Some(Turn::By(one)), Turn::By(other)) => Turn::By(one + other),
            (Some(_), _) => Turn::Random,
        }
    }
}

/// The records of a response while they are edited.
#[derive(Default)]
struct Records<'m> {
    /// The original records, followed by the added ones. None is removed.
    parts: Vec<Part<'m>>,
    /// The number of original records.
    given: usize,
    /// The set of each record, as an index into `sets`.
    set_of: Vec<usize>,
    sets: Vec<Set>,
    known: HashMap<Set, usize, RandomState>,
    /// Whether each set has changed.
    changed: Vec<bool>,
    /// The remaining records, in order.
    order: Vec<usize>,
}

/// Identifies a set of records: section, owner in lower case, and type.
type Set = (Section, Rc<[u8]>, u16);

impl<'m> Records<'m> {
    /// The records of a message.
    fn of(parts: Vec<Part<'m>>) -> Records<'m> {
        let mut records = Records::default();
        for part in parts {
            records.add(part);
        }
        records.given = records.parts.len();
        records.order = (0..records.given).collect();
        records
    }

    /// Adds a record, which has no position yet.
    fn add(&mut self, part: Part<'m>) -> usize {
        let is_alike = |last: &&Part<'_>| {
            (last.section, last.rtype) == (part.section, part.rtype) && Rc::ptr_eq(&last.owner, &part.owner)
        };
        let same = self
            .parts
            .last()
            .filter(is_alike)
            .and(self.set_of.last().copied());
        let set = same.unwrap_or_else(|| {
            let owner = part.owner.to_ascii_lowercase().into();
            self.set((part.section, owner, part.rtype))
        });
        self.parts.push(part);
        self.set_of.push(set);
        self.parts.len() - 1
    }

    /// The index of a set; a new one is added.
    fn set(&mut self, set: Set) -> usize {
        *self.known.entry(set).or_insert_with_key(|set| {
            self.sets.push(set.clone());
            self.changed.push(false);
            self.sets.len() - 1
        })
    }

    fn edit(&mut self, edit: &'m RecordEdit) {
        match edit {
            RecordEdit::Remove(selector) => {
                self.take(selector);
            }
            RecordEdit::Replace(selector, records) => {
                // At the position of the first.
                if let Some((at, section)) = self.take(selector) {
                    let new: Vec<usize> = records.iter().map(|record| self.bring(section, record)).collect();
                    self.order.splice(at..at, new);
                }
            }
            RecordEdit::Append(section, record) => {
                let new = self.bring(*section, record);
                self.order.push(new);
            }
            RecordEdit::Order(Order::Permute(order)) => self.permute(order),
            RecordEdit::Order(Order::Rotate(_) | Order::Shuffle) => {}
        }
    }

    /// Adds a record that a filter supplies.
    fn bring(&mut self, section: Section, record: &'m ResourceRecord) -> usize {
        let at = self.add(Part {
            section,
            owner: (&*record.name).into(),
            rtype: record.rtype,
            class: record.class,
            ttl: record.ttl,
            data: (&*record.rdata).into(),
        });
        self.changed[self.set_of[at]] = true;
        at
    }

    /// Removes the selected records; returns the position and section of the first of them.
    fn take(&mut self, selector: &Selector) -> Option<(usize, Section)> {
        let selected: Vec<bool> = self.sets.iter().map(|set| selects(selector, set)).collect();
        let (mut at, mut seen, mut first) = (0, 0, None);
        self.order.retain(|&part| {
            let set = self.set_of[part];
            let selected = selected[set] && {
                seen += 1;
                selector.index.is_none_or(|index| index == seen - 1)
            };
            if selected {
                first.get_or_insert((at, self.sets[set].0));
                self.changed[set] = true;
            }
            at += usize::from(!selected);
            !selected
        });
        first
    }

    /// The positions of the answer section.
    fn answers(&self) -> Vec<usize> {
        let is_answer = |&at: &usize| self.parts[self.order[at]].section == Section::Answer;
        (0..self.order.len()).filter(is_answer).collect()
    }

    /// Puts the answer section in the order of these indices.
    fn permute(&mut self, order: &[u32]) {
        let places = self.answers();
        let mut taken = vec![false; places.len()];
        let mut new = Vec::with_capacity(places.len());
        let rest = 0..places.len() as u32;
        for index in order.iter().copied().chain(rest) {
            // Unknown indices are ignored; records without an index follow.
            if taken.get(index as usize) == Some(&false) {
                taken[index as usize] = true;
                new.push(self.order[places[index as usize]]);
            }
        }
        for (at, part) in places.into_iter().zip(new) {
            self.order[at] = part;
        }
    }

    /// Reorders the sets of the answer section.
    fn turn(&mut self, turn: Option<Turn>) {
        let Some(turn) = turn else { return };
        let mut places = vec![Vec::new(); self.sets.len()];
        for at in self.answers() {
            let part = self.order[at];
            if self.parts[part].rtype != rtype::RRSIG {
                places[self.set_of[part]].push(at);
            }
        }
        for places in places.into_iter().filter(|places| places.len() > 1) {
            let mut new: Vec<usize> = places.iter().map(|&at| self.order[at]).collect();
            match turn {
                Turn::By(by) => new.rotate_left((by % places.len() as u64) as usize),
                Turn::Random => new.shuffle(&mut rand::rng()),
            }
            for (at, part) in places.into_iter().zip(new) {
                self.order[at] = part;
            }
        }
    }

    /// Removes signatures that no longer hold.
    fn forget_signatures(&mut self) {
        self.order.retain(|&at| {
            let part = &self.parts[at];
            let Some(rtype) = covered(part).filter(|_| at < self.given) else {
                return true;
            };
            let (section, owner, _) = &self.sets[self.set_of[at]];
            let signed = self.known.get(&(*section, Rc::clone(owner), rtype));
            signed.is_none_or(|&set| !self.changed[set])
        });
    }
}

fn selects(selector: &Selector, (section, owner, rtype): &Set) -> bool {
    selector.section.is_none_or(|selected| selected == *section)
        && selector.rtype.is_none_or(|selected| selected == *rtype)
        && selector
            .name
            .as_ref()
            .is_none_or(|name| name.eq_ignore_ascii_case(owner))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dns::text::record_lines;
    use crate::dns::{MESSAGE_MAXIMUM, build};

    const QUESTION: &[u8] = b"\x03www\x04test\0\0\x01\0\x01";
    const WWW: &[u8] = b"\x03www\x04test\0";
    const API: &[u8] = b"\x03api\x04test\0";

    fn record(name: &[u8], rtype: u16, data: &[u8]) -> ResourceRecord {
        ResourceRecord {
            name: name.into(),
            rtype,
            class: 1,
            ttl: 60,
            rdata: data.into(),
        }
    }

    fn address(last: u8) -> ResourceRecord {
        record(API, rtype::A, &[192, 0, 2, last])
    }

    /// A CNAME, four addresses of its target with their signature, an IPv6 address, and an NS record.
    fn response() -> Vec<u8> {
        let mut message = build::empty(QUESTION, 0);
        let mut push = |count_at, record: ResourceRecord| {
            let ResourceRecord {
                name,
                rtype,
                class,
                ttl,
                rdata,
            } = record;
            assert!(build::push_record(
                &mut message,
                count_at,
                &name,
                rtype,
                class,
                ttl,
                &rdata
            ));
        };
        push(6, record(WWW, rtype::CNAME, API));
        (1..5).for_each(|last| push(6, address(last)));
        push(
            6,
            record(
                b"\x03API\x04test\0",
                rtype::RRSIG,
                &[&[0, 1][..], &[0; 30]].concat(),
            ),
        );
        push(6, record(API, rtype::AAAA, &[0; 16]));
        push(8, record(b"\x04test\0", rtype::NS, API));
        message
    }

    fn selector() -> Selector {
        Selector {
            section: None,
            name: None,
            rtype: None,
            index: None,
        }
    }

    /// All records of a type.
    fn of_type(rtype: u16) -> Selector {
        Selector {
            rtype: Some(rtype),
            ..selector()
        }
    }

    /// The address at this place among them.
    fn address_at(index: u32) -> Selector {
        Selector {
            index: Some(index),
            ..of_type(rtype::A)
        }
    }

    /// Last octet of each A record, in order, and how many records there are in each section.
    fn after(edits: &[RecordEdit]) -> (Vec<u8>, [u16; 3]) {
        let message = edited(&response(), QUESTION.len(), MESSAGE_MAXIMUM, edits).unwrap();
        let parts = take_apart(&message, QUESTION.len()).unwrap();
        let addresses = parts.iter().filter(|part| part.rtype == rtype::A);
        (
            addresses.map(|part| part.data[3]).collect(),
            crate::dns::records::counts(&message),
        )
    }

    #[test]
    fn records_are_removed_with_their_signatures() {
        let remove = |selector| after(&[RecordEdit::Remove(selector)]);
        assert_eq!(after(&[]), (vec![1, 2, 3, 4], [7, 1, 0]));
        assert_eq!(remove(selector()), (vec![], [0, 0, 0]));
        assert_eq!(remove(of_type(rtype::A)), (vec![], [2, 1, 0]));
        assert_eq!(remove(of_type(rtype::AAAA)), (vec![1, 2, 3, 4], [6, 1, 0]));
        assert_eq!(remove(of_type(rtype::RRSIG)), (vec![1, 2, 3, 4], [6, 1, 0]));
        assert_eq!(remove(of_type(rtype::MX)), (vec![1, 2, 3, 4], [7, 1, 0]));
        assert_eq!(remove(address_at(1)), (vec![1, 3, 4], [5, 1, 0]));
        let second = RecordEdit::Remove(address_at(1));
        assert_eq!(after(&[second.clone(), second]).0, [1, 4]);
        assert_eq!(remove(address_at(4)), (vec![1, 2, 3, 4], [7, 1, 0]));
        let authority = Selector {
            section: Some(Section::Authority),
            ..selector()
        };
        assert_eq!(remove(authority), (vec![1, 2, 3, 4], [7, 0, 0]));
        let named = Selector {
            name: Some((*b"\x03Api\x04test\0").into()),
            ..selector()
        };
        assert_eq!(remove(named), (vec![], [1, 1, 0]));
    }

    #[test]
    fn replacements_stand_where_the_first_stood() {
        let both = vec![address(8), address(9)];
        let replaced = after(&[RecordEdit::Replace(address_at(1), both.clone())]);
        assert_eq!(
            replaced,
            (vec![1, 8, 9, 3, 4], [7, 1, 0]),
            "one more address, and no signature"
        );
        let all = RecordEdit::Replace(of_type(rtype::A), both.clone());
        assert_eq!(after(&[all]), (vec![8, 9], [4, 1, 0]));
        let none = RecordEdit::Replace(of_type(rtype::MX), both);
        assert_eq!(after(&[none]), (vec![1, 2, 3, 4], [7, 1, 0]));
        let to_additional = RecordEdit::Append(Section::Additional, address(5));
        assert_eq!(
            after(&[to_additional]),
            (vec![1, 2, 3, 4, 5], [7, 1, 1]),
            "another set"
        );
        let to_answer = RecordEdit::Append(Section::Answer, address(5));
        assert_eq!(
            after(&[to_answer]),
            (vec![1, 2, 3, 4, 5], [7, 1, 0]),
            "the same, which is not signed any more"
        );
    }

    #[test]
    fn sets_change_their_order_in_their_places() {
        let order = |order| after(&[RecordEdit::Order(order)]);
        assert_eq!(order(Order::Rotate(1)), (vec![2, 3, 4, 1], [7, 1, 0]));
        assert_eq!(order(Order::Rotate(u32::MAX)).0, [4, 1, 2, 3]);
        assert_eq!(order(Order::Permute([4, 3, 99, 4].into())).0, [4, 3, 1, 2]);
        let message = edited(
            &response(),
            QUESTION.len(),
            MESSAGE_MAXIMUM,
            &[RecordEdit::Order(Order::Rotate(2))],
        )
        .unwrap();
        assert!(
            record_lines(&message, Section::Answer)[0].contains("CNAME"),
            "the alias leads"
        );
        let orders: std::collections::HashSet<_> = (0..200).map(|_| order(Order::Shuffle).0).collect();
        assert!(orders.len() > 10, "{orders:?}");
        for mut order in orders {
            order.sort_unstable();
            assert_eq!(order, [1, 2, 3, 4]);
        }
    }

    #[test]
    fn orders_one_after_the_other_come_to_one() {
        let orders = |orders: &[Order]| {
            let edits: Vec<RecordEdit> = orders.iter().cloned().map(RecordEdit::Order).collect();
            after(&edits).0
        };
        use Order::{Permute, Rotate, Shuffle};
        assert_eq!(orders(&[Rotate(1), Rotate(2)]), [4, 1, 2, 3]);
        assert_eq!(orders(&[Rotate(u32::MAX), Rotate(u32::MAX)]), [3, 4, 1, 2]);
        assert_eq!(
            orders(&[Rotate(1), Permute([2, 1].into()), Rotate(1)]),
            [2, 4, 1, 3]
        );
        let mut shuffled = orders(&[Rotate(1), Shuffle, Rotate(3)]);
        shuffled.sort_unstable();
        assert_eq!(shuffled, [1, 2, 3, 4]);
    }

    /// Only added or removed records count, not their order, nor records about the message itself.
    #[test]
    fn what_takes_out_or_puts_in_changes_a_message() {
        let mut message = response();
        assert!(build::push_record(
            &mut message,
            10,
            b"\0",
            rtype::TSIG,
            255,
            0,
            &[0; 16]
        ));
        let changes = |edit| would_change(&message, &[edit]).unwrap();
        let additional = Selector {
            section: Some(Section::Additional),
            ..selector()
        };
        assert!(changes(RecordEdit::Remove(of_type(rtype::A))));
        assert!(changes(RecordEdit::Replace(of_type(rtype::AAAA), Vec::new())));
        assert!(changes(RecordEdit::Append(Section::Additional, address(5))));
        assert!(!changes(RecordEdit::Remove(of_type(rtype::MX))));
        assert!(!changes(RecordEdit::Replace(
            of_type(rtype::MX),
            vec![address(8)]
        )));
        assert!(!changes(RecordEdit::Remove(additional)));
        assert!(!changes(RecordEdit::Order(Order::Permute([4, 3].into()))));
        assert_eq!(
            would_change(&[0; HEADER], &[RecordEdit::Remove(selector())]),
            Some(false)
        );
        assert_eq!(
            would_change(&message[..40], &[RecordEdit::Remove(selector())]),
            None
        );
    }

    /// As much of the edited message is written as there is room for.
    #[test]
    fn what_a_client_cannot_take_is_not_written() {
        let mut message = build::empty(QUESTION, 0);
        while build::push_record(&mut message, 6, WWW, rtype::A, 1, 60, &[192, 0, 2, 1]) {}
        let edits = vec![RecordEdit::Order(Order::Shuffle); 64];
        let edited = |limit| edited(&message, QUESTION.len(), limit, &edits).unwrap();
        let counts = |message: &[u8]| crate::dns::records::counts(message)[0];
        let (whole, cut) = (edited(MESSAGE_MAXIMUM), edited(512));
        assert_eq!((counts(&whole), whole[2] & 2), (counts(&message), 0));
        assert_eq!((counts(&cut), cut[2] & 2), (30, 2));
    }

    /// What exceeds a message is cut off, and TC is set.
    #[test]
    fn what_becomes_too_large_is_cut() {
        let long = record(WWW, 65_280, &[0; 40_000]);
        let edits = vec![RecordEdit::Append(Section::Answer, long); 2];
        let message = edited(&response(), QUESTION.len(), MESSAGE_MAXIMUM, &edits).unwrap();
        assert_eq!(crate::dns::records::counts(&message), [8, 0, 0]);
        assert_eq!(message[2] & 2, 2);
    }
}
