//! Queries in flight on one socket or connection, by message ID.

use crate::drive::Tally;
use crate::wire::Question;

/// The most queries that can be in flight. The low bits of an ID choose the place; the whole ID is compared.
const PLACES: usize = 8192;

#[derive(Clone, Copy)]
struct Waiting {
    id: u16,
    due: u64,
    question: Question,
}

/// The queries in flight.
pub struct Pending {
    places: Vec<Option<Waiting>>,
    next: u16,
    count: usize,
}

impl Pending {
    /// Returns an empty set.
    pub fn new() -> Pending {
        Pending {
            places: vec![None; PLACES],
            next: 0,
            count: 0,
        }
    }

    /// How many queries are in flight.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Adds a query, and returns its ID. A query already in its place is [`PLACES`] queries old, and lost.
    pub fn add(&mut self, due: u64, question: Question, tally: &mut Tally) -> u16 {
        let id = self.next;
        self.next = id.wrapping_add(1);
        let place = &mut self.places[usize::from(id) % PLACES];
        match place.replace(Waiting { id, due, question }) {
            Some(_) => tally.lost += 1,
            None => self.count += 1,
        }
        id
    }

    /// Counts a reply that came at `now`. Returns whether it belonged to a query.
    pub fn answer(&mut self, reply: &[u8], now: u64, tally: &mut Tally) -> bool {
        let Some(id) = reply.first_chunk::<2>().copied().map(u16::from_be_bytes) else {
            return false;
        };
        let place = &mut self.places[usize::from(id) % PLACES];
        let Some(waiting) = place.take_if(|waiting| waiting.id == id) else {
            return false;
        };
        self.count -= 1;
        if waiting.question.is_answered_by(reply) {
            tally.answered += 1;
            tally.latency.saturating_record(now.saturating_sub(waiting.due));
        } else {
            tally.wrong += 1;
        }
        true
    }

    /// Counts queries due before `before` as lost.
    pub fn abandon(&mut self, before: u64, tally: &mut Tally) {
        for place in &mut self.places {
            if place.take_if(|waiting| waiting.due < before).is_some() {
                self.count -= 1;
                tally.lost += 1;
            }
        }
    }

    /// Takes all queries, with the time each was due, to send them again.
    pub fn take_all(&mut self) -> Vec<(u64, Question)> {
        self.count = 0;
        let taken = self.places.iter_mut().filter_map(Option::take);
        taken.map(|waiting| (waiting.due, waiting.question)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{A, Tail};

    fn question(number: u32) -> Question {
        Question {
            letter: b'h',
            number,
            qtype: A,
            exists: true,
        }
    }

    fn reply(id: u16, question: &Question) -> Vec<u8> {
        let mut buffer = vec![0; 512];
        let end = question.write(id, &mut buffer);
        let length = Tail::address(A, 1).answer(&mut buffer, end);
        buffer.truncate(length);
        buffer
    }

    #[test]
    fn a_reply_counts_once_and_for_its_own_query() {
        let (mut pending, mut tally) = (Pending::new(), Tally::new());
        let one = pending.add(10, question(1), &mut tally);
        let other = pending.add(20, question(2), &mut tally);
        assert!(pending.answer(&reply(one, &question(1)), 15, &mut tally));
        assert!(
            !pending.answer(&reply(one, &question(1)), 15, &mut tally),
            "again"
        );
        assert!(
            !pending.answer(&reply(77, &question(1)), 15, &mut tally),
            "never asked"
        );
        assert!(!pending.answer(&[1], 15, &mut tally));
        assert_eq!((tally.answered, tally.wrong, pending.count()), (1, 0, 1));
        assert!(pending.answer(&reply(other, &question(1)), 25, &mut tally));
        assert_eq!((tally.answered, tally.wrong, pending.count()), (1, 1, 0));
        assert_eq!(tally.latency.value_at_quantile(1.0), 5);
    }

    #[test]
    fn every_query_is_answered_or_lost() {
        let (mut pending, mut tally) = (Pending::new(), Tally::new());
        for due in 0..100_000 {
            let id = pending.add(due, question(1), &mut tally);
            if due % 2 == 0 {
                pending.answer(&reply(id, &question(1)), due, &mut tally);
            }
        }
        pending.abandon(99_000, &mut tally);
        assert_eq!(pending.count(), 500);
        assert_eq!(pending.take_all().len(), 500);
        assert_eq!((tally.answered, tally.lost), (50_000, 49_500));
    }
}
