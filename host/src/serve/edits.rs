//! What filters do to the records of a response.

use std::collections::HashMap;

use rand::seq::SliceRandom;

use crate::dns::parts::{Part, covered, put_together, take_apart};
use crate::dns::records::Section;
use crate::dns::rtype;
use crate::filter::{Order, RecordEdit, ResourceRecord, Selector};

/// The message with its records edited, in order. None if they cannot be read or become too many.
///
/// Signatures over a set of records that is not what it was go with it (RFC 4035 section 2.2): they would say of
/// something else that it is right.
pub(super) fn edited(message: &[u8], question_length: usize, edits: &[RecordEdit]) -> Option<Vec<u8>> {
    let parts = take_apart(message, question_length).ok()?;
    let mut records = Records {
        given: parts.into_iter().map(|part| (part, true)).collect(),
        changed: Vec::new(),
    };
    for edit in edits {
        records.edit(edit);
    }
    put_together(message, question_length, &records.signed())
}

/// The records of a response while they are edited.
struct Records {
    /// Each with whether it was there before.
    given: Vec<(Part, bool)>,
    /// Sets that are not what they were.
    changed: Vec<Set>,
}

/// What tells a set of records from others: section, owner in lower case, and type.
type Set = (Section, Vec<u8>, u16);

impl Records {
    fn edit(&mut self, edit: &RecordEdit) {
        match edit {
            RecordEdit::Remove(selector) => {
                self.take(selector);
            }
            RecordEdit::Replace(selector, records) => {
                // In the place of the first.
                if let Some((at, section)) = self.take(selector) {
                    let records = records.iter().map(|record| self::part(section, record));
                    let records: Vec<_> = records.map(|part| (part, false)).collect();
                    self.changed.extend(records.iter().map(|(part, _)| set(part)));
                    self.given.splice(at..at, records);
                }
            }
            RecordEdit::Append(section, record) => {
                let part = part(*section, record);
                self.changed.push(set(&part));
                self.given.push((part, false));
            }
            RecordEdit::Order(order) => self.reorder(order),
        }
    }

    /// Takes out what a selector selects: where the first of them stood, and in which section.
    fn take(&mut self, selector: &Selector) -> Option<(usize, Section)> {
        let (mut at, mut seen, mut first) = (0, 0, None);
        let changed = &mut self.changed;
        self.given.retain(|(part, _)| {
            let selected = selects(selector, part) && {
                seen += 1;
                selector.index.is_none_or(|index| index == seen - 1)
            };
            if selected {
                first.get_or_insert((at, part.section));
                changed.push(set(part));
            }
            at += usize::from(!selected);
            !selected
        });
        first
    }

    /// Puts the answer section in another order.
    fn reorder(&mut self, order: &Order) {
        let places: Vec<usize> = (0..self.given.len())
            .filter(|&at| self.given[at].0.section == Section::Answer)
            .collect();
        match order {
            Order::Permute(order) => {
                let mut taken = vec![false; places.len()];
                let mut new = Vec::with_capacity(places.len());
                let rest = 0..places.len() as u32;
                for index in order.iter().copied().chain(rest) {
                    // What is not there has no place, and what is not named follows.
                    if taken.get(index as usize) == Some(&false) {
                        taken[index as usize] = true;
                        new.push(places[index as usize]);
                    }
                }
                self.arrange(&places, &new);
            }
            // Within each set, whose places stay: a chain of aliases is sets of one, and stays as it is.
            Order::Rotate(_) | Order::Shuffle => {
                let mut sets: HashMap<Set, Vec<usize>> = HashMap::new();
                for &at in &places {
                    let (part, _) = &self.given[at];
                    if part.rtype != rtype::RRSIG {
                        sets.entry(set(part)).or_default().push(at);
                    }
                }
                for places in sets.into_values().filter(|places| places.len() > 1) {
                    let mut new = places.clone();
                    match order {
                        Order::Rotate(by) => new.rotate_left(*by as usize % places.len()),
                        _ => new.shuffle(&mut rand::rng()),
                    }
                    self.arrange(&places, &new);
                }
            }
        }
    }

    /// Puts into each of `places` what stands in the place with the same index in `from`.
    fn arrange(&mut self, places: &[usize], from: &[usize]) {
        let parts: Vec<_> = from.iter().map(|&at| self.given[at].clone()).collect();
        for (&at, part) in places.iter().zip(parts) {
            self.given[at] = part;
        }
    }

    /// All of them without the signatures that do not hold any more.
    fn signed(self) -> Vec<Part> {
        let Records { given, changed } = self;
        let holds = |(part, given): &(Part, bool)| {
            !given
                || covered(part).is_none_or(|rtype| {
                    let owner = part.owner.to_ascii_lowercase();
                    !changed.contains(&(part.section, owner, rtype))
                })
        };
        given.into_iter().filter(holds).map(|(part, _)| part).collect()
    }
}

fn selects(selector: &Selector, part: &Part) -> bool {
    selector.section.is_none_or(|section| section == part.section)
        && selector.rtype.is_none_or(|rtype| rtype == part.rtype)
        && selector
            .name
            .as_ref()
            .is_none_or(|name| name.eq_ignore_ascii_case(&part.owner))
}

fn set(part: &Part) -> Set {
    (part.section, part.owner.to_ascii_lowercase(), part.rtype)
}

fn part(section: Section, record: &ResourceRecord) -> Part {
    Part {
        section,
        owner: record.name.to_vec(),
        rtype: record.rtype,
        class: record.class,
        ttl: record.ttl,
        data: record.rdata.to_vec(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dns::build;
    use crate::dns::text::record_lines;

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

    /// An alias, four addresses of its target with their signature, an IPv6 address, and an NS record.
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

    /// Last octet of each A record, in order, and how many records there are in each section.
    fn after(edits: &[RecordEdit]) -> (Vec<u8>, [u16; 3]) {
        let message = edited(&response(), QUESTION.len(), edits).unwrap();
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
        let of_type = |rtype| Selector {
            rtype: Some(rtype),
            ..selector()
        };
        assert_eq!(after(&[]), (vec![1, 2, 3, 4], [7, 1, 0]));
        assert_eq!(remove(selector()), (vec![], [0, 0, 0]));
        assert_eq!(remove(of_type(rtype::A)), (vec![], [2, 1, 0]));
        assert_eq!(remove(of_type(rtype::AAAA)), (vec![1, 2, 3, 4], [6, 1, 0]));
        assert_eq!(remove(of_type(rtype::RRSIG)), (vec![1, 2, 3, 4], [6, 1, 0]));
        assert_eq!(remove(of_type(rtype::MX)), (vec![1, 2, 3, 4], [7, 1, 0]));
        let second = Selector {
            index: Some(1),
            ..of_type(rtype::A)
        };
        assert_eq!(remove(second.clone()), (vec![1, 3, 4], [5, 1, 0]));
        assert_eq!(
            after(&[RecordEdit::Remove(second.clone()), RecordEdit::Remove(second)]).0,
            [1, 4]
        );
        let beyond = Selector {
            index: Some(4),
            ..of_type(rtype::A)
        };
        assert_eq!(remove(beyond), (vec![1, 2, 3, 4], [7, 1, 0]));
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
        let second = Selector {
            rtype: Some(rtype::A),
            index: Some(1),
            ..selector()
        };
        let both = vec![address(8), address(9)];
        let replaced = after(&[RecordEdit::Replace(second, both.clone())]);
        assert_eq!(
            replaced,
            (vec![1, 8, 9, 3, 4], [7, 1, 0]),
            "one more address, and no signature"
        );
        let all = Selector {
            rtype: Some(rtype::A),
            ..selector()
        };
        assert_eq!(
            after(&[RecordEdit::Replace(all, both.clone())]),
            (vec![8, 9], [4, 1, 0])
        );
        let none = Selector {
            rtype: Some(rtype::MX),
            ..selector()
        };
        assert_eq!(
            after(&[RecordEdit::Replace(none, both)]),
            (vec![1, 2, 3, 4], [7, 1, 0])
        );
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
}
