//! Remembered verdicts: a filter whose verdict depends on the question alone is called once per question.
//!
//! A table of sets of four, fixed in size, that belongs to one instance and so to one thread: no lock, no
//! atomic. A set is found by the hash the caller has at hand anyway and lies in a few neighbouring cache
//! lines. Of four the one that ends soonest makes room: a name that is asked for often comes back after one
//! call, and a flood of random names displaces others one by one but never stalls a worker the way emptying or
//! sweeping a table would. Sets of four hold half a table of names with four in a hundred displaced by chance;
//! sets of two would displace ten.
//!
//! Octets are bounded, too, and verdicts that ran out must not hold them: whenever one is remembered, a hand
//! moves on over the next few sets and takes away what has ended. If octets are wanting, it moves on and takes
//! away what it comes to.

use std::sync::Arc;

use super::verdict::{Decision, Ede, Order, RecordEdit, ResourceRecord, ResponseEdit, Selector, Verdict};

/// Entries in a table.
const ENTRIES: usize = 4096;

/// Entries that a hash can be found in.
const WAYS: usize = 4;

/// Sets that the hand moves over for each verdict that is remembered, and at most if octets are wanting.
const SWEEP: usize = 2;
const SWEEP_MAXIMUM: usize = 64;

/// Octets that names and verdicts of one table may hold, without the table itself (224 KiB).
const BYTES: usize = 1 << 20;

/// Octets of one instance's remembered verdicts, at most.
pub(super) const REMEMBERED: usize = BYTES + ENTRIES * size_of::<Option<Entry>>();

/// What a verdict holds for.
#[derive(Debug, Clone, Copy)]
pub struct Key<'a> {
    /// Of name, type and class, and unpredictable from outside; equal ones have equal hashes, but for the [`salt`] of who asks,
    /// if the filter wants to know.
    pub hash: u64,
    /// A lowercased wire name.
    pub name: &'a [u8],
    /// The query's type.
    pub qtype: u16,
    /// The query's class.
    pub qclass: u16,
    /// Index of the zone among those the filter was set up with.
    pub zone: u16,
}

/// What tells apart the hashes of equal questions from different clients: never the same for two numbers, so that what is
/// remembered for one of them is not found for the other.
pub fn salt(number: u64) -> u64 {
    // Odd, so that no two products are the same (mod 2^64); the golden ratio spreads them over the sets.
    number.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// The remembered verdicts of one instance.
#[derive(Default)]
pub(super) struct Memo {
    /// Empty until the first verdict is remembered: most filters never do.
    slots: Vec<Option<Entry>>,
    bytes: usize,
    /// Where the set begins that the hand comes to next.
    hand: usize,
}

/// A verdict that is remembered.
#[derive(Debug, Clone, Copy)]
pub struct Recalled<'a> {
    /// What the filter said.
    pub verdict: &'a Arc<Verdict>,
    /// Whether the verdict is a plain pass, so that there is nothing to look at in it.
    pub passes: bool,
}

struct Entry {
    hash: u64,
    /// When it was remembered, in milliseconds.
    since: u64,
    remember: u32,
    qtype: u16,
    qclass: u16,
    zone: u16,
    passes: bool,
    name: Box<[u8]>,
    verdict: Arc<Verdict>,
}

impl Entry {
    fn is(&self, key: &Key<'_>) -> bool {
        self.hash == key.hash
            && (self.qtype, self.qclass, self.zone) == (key.qtype, key.qclass, key.zone)
            && *self.name == *key.name
    }

    /// Milliseconds left. A clock that was set back ends an entry instead of prolonging it.
    fn left(&self, now: u64) -> u64 {
        u64::from(self.remember).saturating_sub(now.checked_sub(self.since).unwrap_or(u64::MAX))
    }

    fn bytes(&self) -> usize {
        self.name.len() + size(&self.verdict)
    }
}

impl Memo {
    /// The verdict that holds for `key` at `now`, in milliseconds.
    #[inline]
    pub(super) fn recall(&self, key: &Key<'_>, now: u64) -> Option<Recalled<'_>> {
        let set = self.slots.get(first(key.hash)..)?.get(..WAYS)?;
        let entry = set.iter().flatten().find(|entry| entry.is(key))?;
        (entry.left(now) > 0).then_some(Recalled {
            verdict: &entry.verdict,
            passes: entry.passes,
        })
    }

    /// Keeps `verdict` for as long as it says, unless that is not at all or it is too large.
    pub(super) fn remember(&mut self, key: &Key<'_>, now: u64, verdict: &Arc<Verdict>) {
        if verdict.remember == 0 {
            return;
        }
        let entry = Entry {
            hash: key.hash,
            since: now,
            remember: verdict.remember,
            qtype: key.qtype,
            qclass: key.qclass,
            zone: key.zone,
            passes: verdict.only_passes(),
            name: key.name.into(),
            verdict: Arc::clone(verdict),
        };
        if entry.bytes() > BYTES {
            return;
        }
        if self.slots.is_empty() {
            self.slots.resize_with(ENTRIES, || None);
        }
        for _ in 0..SWEEP {
            self.sweep(|old| old.left(now) == 0);
        }
        let set = &mut self.slots[first(key.hash)..][..WAYS];
        // The same question's own entry, a free one, or the one that ends soonest.
        let way = (0..WAYS)
            .min_by_key(|&way| match &set[way] {
                Some(old) if old.is(key) => (0, 0),
                None => (1, 0),
                Some(old) => (2, old.left(now)),
            })
            .unwrap_or(0);
        let freed = set[way].take().map_or(0, |old| old.bytes());
        self.bytes -= freed;
        for _ in 0..SWEEP_MAXIMUM {
            if self.bytes + entry.bytes() <= BYTES {
                self.bytes += entry.bytes();
                self.slots[first(key.hash) + way] = Some(entry);
                return;
            }
            self.sweep(|_| true);
        }
    }

    /// Moves the hand over one set, and takes away the entries that `leaves` tells.
    fn sweep(&mut self, leaves: impl Fn(&Entry) -> bool) {
        for slot in &mut self.slots[self.hand..][..WAYS] {
            if let Some(old) = slot.take_if(|old| leaves(old)) {
                self.bytes -= old.bytes();
            }
        }
        self.hand = (self.hand + WAYS) % ENTRIES;
    }
}

fn first(hash: u64) -> usize {
    (hash as usize % (ENTRIES / WAYS)) * WAYS
}

fn size(verdict: &Verdict) -> usize {
    let parts = match &verdict.decision {
        Decision::Pass => 0,
        Decision::Refuse(refusal) => text_size(refusal.error.as_ref()),
        Decision::Drop(reason) => reason.len(),
        Decision::Ask(ask) => ask.octets(),
        Decision::Rewrite(rewrite) => rewrite.name.as_deref().map_or(0, <[u8]>::len),
        Decision::Alias(names) => names.iter().map(|name| size_of_val(name) + name.len()).sum(),
        Decision::Answer(answer) => {
            let records = [&answer.answers, &answer.authority, &answer.additional];
            records.map(|records| records_size(records)).iter().sum::<usize>()
                + text_size(answer.error.as_ref())
        }
    };
    size_of::<Verdict>() + parts + verdict.edit.as_ref().map_or(0, edit_size)
}

fn edit_size(edit: &ResponseEdit) -> usize {
    let records = edit.records.iter().map(|edit| match edit {
        RecordEdit::Remove(selector) => selector_size(selector),
        RecordEdit::Replace(selector, records) => selector_size(selector) + records_size(records),
        RecordEdit::Append(_, record) => records_size(std::slice::from_ref(record)),
        RecordEdit::Order(Order::Permute(order)) => size_of_val(&**order),
        RecordEdit::Order(Order::Rotate(_) | Order::Shuffle) => 0,
    });
    size_of_val(&*edit.rcodes)
        + size_of_val(&*edit.records)
        + records.sum::<usize>()
        + text_size(edit.error.as_ref())
}

fn selector_size(selector: &Selector) -> usize {
    selector.name.as_deref().map_or(0, <[u8]>::len)
}

fn records_size(records: &[ResourceRecord]) -> usize {
    let data = records
        .iter()
        .map(|record| record.name.len() + record.rdata.len());
    size_of_val(records) + data.sum::<usize>()
}

fn text_size(error: Option<&Ede>) -> usize {
    error.map_or(0, |error| error.text.len())
}

#[cfg(test)]
mod tests {
    use super::super::verdict::Answer;
    use super::*;

    fn key(hash: u64, name: &[u8]) -> Key<'_> {
        Key {
            hash,
            name,
            qtype: 1,
            qclass: 1,
            zone: 0,
        }
    }

    fn verdict(remember: u32, decision: Decision) -> Arc<Verdict> {
        Arc::new(Verdict {
            decision,
            edit: None,
            remember,
            skip_response: false,
            delay: 0,
            route: None,
        })
    }

    fn dropped() -> Decision {
        Decision::Drop("".into())
    }

    #[test]
    fn holds_until_it_ends_and_not_before_it_began() {
        let mut memo = Memo::default();
        let key = key(7, b"\x01a\0");
        assert!(memo.recall(&key, 1000).is_none());
        memo.remember(&key, 1000, &verdict(50, dropped()));
        assert_eq!(memo.recall(&key, 1000).unwrap().verdict.decision, dropped());
        assert!(memo.recall(&key, 1049).is_some());
        assert!(memo.recall(&key, 1050).is_none());
        assert!(memo.recall(&key, 999).is_none(), "the clock was set back");
        memo.remember(&key, 2000, &verdict(50, Decision::Pass));
        assert_eq!(memo.recall(&key, 2001).unwrap().verdict.decision, Decision::Pass);
    }

    #[test]
    fn verdicts_for_one_query_are_not_kept() {
        let mut memo = Memo::default();
        memo.remember(&key(7, b"\0"), 0, &verdict(0, Decision::Pass));
        assert!(memo.slots.is_empty());
    }

    #[test]
    fn every_part_of_the_key_counts() {
        let mut memo = Memo::default();
        let key = key(7, b"\x01a\0");
        memo.remember(&key, 0, &verdict(50, Decision::Pass));
        assert!(
            memo.recall(
                &Key {
                    name: b"\x01b\0",
                    ..key
                },
                1
            )
            .is_none()
        );
        assert!(memo.recall(&Key { qtype: 28, ..key }, 1).is_none());
        assert!(memo.recall(&Key { qclass: 3, ..key }, 1).is_none());
        assert!(memo.recall(&Key { zone: 1, ..key }, 1).is_none());
        assert!(memo.recall(&key, 1).is_some());
    }

    /// Equal questions have equal hashes: whatever else is in them, that of another client is another one.
    #[test]
    fn no_two_clients_share_a_verdict() {
        let mut memo = Memo::default();
        let question = 0x0123_4567_89ab_cdef;
        let key = |number: u64| key(question ^ salt(number), b"\x01a\0");
        memo.remember(&key(3), 0, &verdict(50, Decision::Pass));
        for number in (0..3)
            .chain(4..100_000)
            .chain([u64::MAX, 1 << 63, 3 + (1 << 32), 3 + (1 << 63)])
        {
            assert!(memo.recall(&key(number), 1).is_none(), "{number}");
        }
        assert!(memo.recall(&key(3), 1).is_some());
    }

    #[test]
    fn the_one_that_ends_soonest_makes_room() {
        let mut memo = Memo::default();
        let names = [b"\x01a\0", b"\x01b\0", b"\x01c\0", b"\x01d\0", b"\x01e\0"];
        for (name, holds) in names.iter().zip([900, 800, 100, 700, 500]) {
            memo.remember(&key(7, *name), 0, &verdict(holds, Decision::Pass));
        }
        let kept = names.map(|name| memo.recall(&key(7, name), 1).is_some());
        assert_eq!(kept, [true, true, false, true, true]);
    }

    #[test]
    fn the_same_question_has_one_entry() {
        let mut memo = Memo::default();
        let key = key(7, b"\x01a\0");
        for now in 0..10 {
            memo.remember(&key, now, &verdict(900, Decision::Pass));
        }
        assert_eq!(memo.slots.iter().flatten().count(), 1);
        assert!(memo.recall(&key, 908).is_some());
    }

    #[test]
    fn octets_are_bounded() {
        let mut memo = Memo::default();
        let record = ResourceRecord {
            name: Box::from(*b"\0"),
            rtype: 16,
            class: 1,
            ttl: 0,
            rdata: vec![0; 60_000].into(),
        };
        let answer = Answer {
            rcode: 0,
            authoritative: false,
            answers: vec![record],
            authority: Vec::new(),
            additional: Vec::new(),
            error: None,
        };
        let large = verdict(1000, Decision::Answer(answer));
        let kept = |memo: &Memo| {
            (0..100u64)
                .filter(|&hash| memo.recall(&key(hash, b"\0"), 1).is_some())
                .count()
        };
        for hash in 0..100 {
            memo.remember(&key(hash, b"\0"), 0, &large);
        }
        assert_eq!(kept(&memo), 17, "one mebibyte holds 17 times 60 000 octets");
        // Replacing gives back what it takes.
        for hash in 0..100 {
            memo.remember(&key(hash, b"\0"), 0, &verdict(1000, dropped()));
        }
        assert_eq!(kept(&memo), 100);
        assert_eq!(memo.bytes, 100 * (1 + size_of::<Verdict>()));
    }

    /// Many large verdicts that expire soon, for names that are not asked for again.
    fn flood(memo: &mut Memo, hashes: std::ops::Range<u64>, now: u64, holds: u32) {
        let large = Decision::Alias(Box::from([vec![0; 60_000].into()]));
        let large = verdict(holds, large);
        for hash in hashes {
            memo.remember(&key(hash, b"\x05flood\0"), now, &large);
        }
    }

    #[test]
    fn what_ran_out_holds_no_octets() {
        let mut memo = Memo::default();
        flood(&mut memo, 0..17, 0, 10);
        let full = memo.bytes;
        assert!(BYTES - full < 60_000);
        // The hand comes by all of them, whoever else is remembered meanwhile.
        for step in 0..(ENTRIES / WAYS / SWEEP) as u64 {
            memo.remember(&key(step, b"\x01a\0"), 10, &verdict(1000, dropped()));
        }
        assert!(memo.bytes < full / 2, "{} octets", memo.bytes);
        let held = memo.slots.iter().flatten().map(Entry::bytes).sum::<usize>();
        assert_eq!(memo.bytes, held);
    }

    #[test]
    fn what_holds_for_long_keeps_nothing_new_out() {
        let mut memo = Memo::default();
        flood(&mut memo, 0..100, 0, u32::MAX);
        // As many calls as it takes the hand to come around.
        for _ in 0..=ENTRIES / WAYS / SWEEP_MAXIMUM {
            flood(&mut memo, 500..501, 1, 1000);
        }
        assert!(memo.recall(&key(500, b"\x05flood\0"), 2).is_some());
        assert!(memo.bytes <= BYTES);
    }

    #[test]
    fn what_can_never_fit_displaces_nothing() {
        let mut memo = Memo::default();
        let small = key(7, b"\x01a\0");
        memo.remember(&small, 0, &verdict(1000, Decision::Pass));
        let huge = Decision::Alias(Box::from([vec![0; BYTES].into()]));
        for hash in 0..100 {
            memo.remember(&key(hash, b"\x01b\0"), 0, &verdict(1000, huge.clone()));
        }
        assert!(memo.recall(&small, 1).is_some());
    }
}
