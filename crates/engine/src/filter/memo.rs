//! Memoized verdicts: a filter whose verdict depends only on the question is called once per question.
//!
//! The memo is a table of fixed size, in sets of four. It belongs to one instance, and so to one thread: no
//! lock, no atomics. A set is found by a hash that the caller has anyway, and one cache line shows what is in
//! it. With the table half full, sets of four leave out 4% of names by chance; sets of two would leave out
//! 10%.
//!
//! A full set evicts the entry that ends soonest, but only for a question that was turned away before. Where
//! more names are queried than fit, most are queried rarely: they cost a call, as without a memo, but do not
//! evict anything. A popular name has its entry by the second call, a flood of random names evicts next to
//! nothing, and neither stalls a worker the way emptying or sweeping a table would.
//!
//! The bytes held are bounded, too, and expired verdicts must not fill them: each insertion moves a hand over
//! the next few sets and removes what has expired. If bytes are still short, the hand moves on and removes
//! every entry it passes.

use std::mem;
use std::sync::Arc;

use dnsweir_os::clock::UnixTime;

use super::verdict::{Decision, Ede, Order, RecordEdit, ResourceRecord, ResponseEdit, Selector, Verdict};

/// Entries in a table.
const ENTRIES: usize = 4096;

/// Entries in a set.
const WAYS: usize = 4;

/// Turned-away questions remembered per set: few, so that only those get in that are more frequent than the
/// rest.
const TURNED_AWAY: usize = 8;

/// Sets that the hand passes per insertion, and at most when bytes are short.
const SWEEP: usize = 2;
const SWEEP_MAXIMUM: usize = 64;

/// Maximum bytes of names and verdicts in one table, without the table itself (256 KiB).
const BYTES: usize = 1 << 20;

/// Maximum bytes of one instance's memo.
pub(super) const REMEMBERED: usize =
    BYTES + ENTRIES * size_of::<Option<Entry>>() + ENTRIES / WAYS * size_of::<Set>();

/// The question that a verdict holds for.
#[derive(Debug, Clone, Copy)]
pub struct Key<'a> {
    /// Hash of name, type and class, unpredictable from outside. Equal questions have equal hashes, except
    /// for the [`salt`] of the client if the filter depends on it.
    pub hash: u64,
    /// The qname, in lowercase wire format.
    pub name: &'a [u8],
    /// The qtype.
    pub qtype: u16,
    /// The qclass.
    pub qclass: u16,
    /// Index among the zones that the filter was set up with.
    pub zone: u16,
}

/// Distinguishes the hashes of equal questions from different clients. Different numbers have different
/// salts, so a verdict for one client is not found for another.
pub fn salt(number: u64) -> u64 {
    // Odd, so that no two products are equal (mod 2^64); the golden ratio spreads them over the sets.
    number.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// The memoized verdicts of one instance.
#[derive(Default)]
pub(super) struct Memo {
    /// Empty until the first verdict is stored; most filters never store one.
    sets: Vec<Set>,
    /// The entries, [`WAYS`] per set.
    slots: Vec<Option<Entry>>,
    bytes: usize,
    /// First slot of the set that the hand visits next.
    hand: usize,
}

/// A memoized verdict.
#[derive(Debug, Clone, Copy)]
pub struct Recalled<'a> {
    /// The filter's verdict.
    pub verdict: &'a Arc<Verdict>,
    /// Whether the verdict is a plain pass, so that it need not be inspected.
    pub passes: bool,
}

/// A summary of four entries: half a cache line.
#[derive(Clone, Copy, Default)]
#[repr(align(32))]
struct Set {
    /// The [`mark`] of each entry; 0: the slot is free.
    marks: [u32; WAYS],
    /// 16 bits of the hash of each turned-away question, in a place chosen by other bits.
    turned_away: [u16; TURNED_AWAY],
}

impl Set {
    /// Notes a question that found the set full. Returns whether it was noted before.
    fn turn_away(&mut self, hash: u64) -> bool {
        let place = (hash >> 32) as usize % TURNED_AWAY;
        let mark = (hash >> 48) as u16;
        mem::replace(&mut self.turned_away[place], mark) == mark
    }
}

struct Entry {
    hash: u64,
    /// When it was stored.
    since: UnixTime,
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

    /// Milliseconds left. A clock that was set back expires an entry instead of prolonging it.
    fn left(&self, now: UnixTime) -> u64 {
        let age = now.as_millis().checked_sub(self.since.as_millis());
        u64::from(self.remember).saturating_sub(age.unwrap_or(u64::MAX))
    }

    fn bytes(&self) -> usize {
        self.name.len() + size(&self.verdict)
    }
}

impl Memo {
    /// The verdict valid for `key` at `now`.
    #[inline]
    pub(super) fn recall(&self, key: &Key<'_>, now: UnixTime) -> Option<Recalled<'_>> {
        let entry = self.slots[self.find(key)?].as_ref()?;
        (entry.left(now) > 0).then_some(Recalled {
            verdict: &entry.verdict,
            passes: entry.passes,
        })
    }

    /// Stores `verdict` for as long as it allows, unless that is 0, it is too large, or its set is full and
    /// the question is new.
    pub(super) fn remember(&mut self, key: &Key<'_>, now: UnixTime, verdict: &Arc<Verdict>) {
        if verdict.remember == 0 {
            return;
        }
        if self.sets.is_empty() {
            self.sets.resize(ENTRIES / WAYS, Set::default());
            self.slots.resize_with(ENTRIES, || None);
        }
        let Some(slot) = self.room(key, now) else {
            return;
        };
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
        let bytes = entry.bytes();
        if bytes > BYTES {
            return;
        }
        for _ in 0..SWEEP {
            self.sweep(|old| old.left(now) == 0);
        }
        self.free(slot, |_| true);
        for _ in 0..SWEEP_MAXIMUM {
            if self.bytes + bytes <= BYTES {
                self.bytes += bytes;
                self.sets[slot / WAYS].marks[slot % WAYS] = mark(key.hash);
                self.slots[slot] = Some(entry);
                return;
            }
            self.sweep(|_| true);
        }
    }

    /// The slot of a question's entry.
    // Runs for every hit and each of its filters; the compiler would not inline it by itself.
    #[inline(always)]
    fn find(&self, key: &Key<'_>) -> Option<usize> {
        let at = set_of(key.hash);
        let marks = &self.sets.get(at)?.marks;
        let slots = (0..WAYS).filter(|&way| marks[way] == mark(key.hash));
        let mut slots = slots.map(|way| at * WAYS + way);
        slots.find(|&slot| self.slots[slot].as_ref().is_some_and(|entry| entry.is(key)))
    }

    /// The slot for a question's entry: its own, a free one, or, if the question was turned away before, the
    /// one that ends soonest.
    fn room(&mut self, key: &Key<'_>, now: UnixTime) -> Option<usize> {
        if let Some(slot) = self.find(key) {
            return Some(slot);
        }
        let at = set_of(key.hash);
        let set = &mut self.sets[at];
        if let Some(way) = set.marks.iter().position(|&mark| mark == 0) {
            return Some(at * WAYS + way);
        }
        if !set.turn_away(key.hash) {
            return None;
        }
        (at * WAYS..(at + 1) * WAYS).min_by_key(|&slot| self.slots[slot].as_ref().map(|old| old.left(now)))
    }

    /// Moves the hand over one set and removes the entries for which `leaves` is true.
    fn sweep(&mut self, leaves: impl Fn(&Entry) -> bool) {
        for slot in self.hand..self.hand + WAYS {
            self.free(slot, &leaves);
        }
        self.hand = (self.hand + WAYS) % ENTRIES;
    }

    /// Removes an entry if `leaves` is true for it.
    fn free(&mut self, slot: usize, leaves: impl Fn(&Entry) -> bool) {
        if let Some(old) = self.slots[slot].take_if(|old| leaves(old)) {
            self.sets[slot / WAYS].marks[slot % WAYS] = 0;
            self.bytes -= old.bytes();
        }
    }
}

/// The set of a hash, chosen by its lower half.
fn set_of(hash: u64) -> usize {
    hash as usize % (ENTRIES / WAYS)
}

/// The part of an entry's hash that a set stores; never 0.
fn mark(hash: u64) -> u32 {
    (hash >> 32) as u32 | 1
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

    fn at(millis: u64) -> UnixTime {
        UnixTime::from_millis(millis)
    }

    fn dropped() -> Decision {
        Decision::Drop("".into())
    }

    #[test]
    fn holds_until_it_ends_and_not_before_it_began() {
        let mut memo = Memo::default();
        let key = key(7, b"\x01a\0");
        assert!(memo.recall(&key, at(1000)).is_none());
        memo.remember(&key, at(1000), &verdict(50, dropped()));
        assert_eq!(memo.recall(&key, at(1000)).unwrap().verdict.decision, dropped());
        assert!(memo.recall(&key, at(1049)).is_some());
        assert!(memo.recall(&key, at(1050)).is_none());
        assert!(memo.recall(&key, at(999)).is_none(), "the clock was set back");
        memo.remember(&key, at(2000), &verdict(50, Decision::Pass));
        assert_eq!(
            memo.recall(&key, at(2001)).unwrap().verdict.decision,
            Decision::Pass
        );
    }

    #[test]
    fn verdicts_for_one_query_are_not_kept() {
        let mut memo = Memo::default();
        memo.remember(&key(7, b"\0"), at(0), &verdict(0, Decision::Pass));
        assert!(memo.slots.is_empty());
    }

    #[test]
    fn every_part_of_the_key_counts() {
        let mut memo = Memo::default();
        let key = key(7, b"\x01a\0");
        memo.remember(&key, at(0), &verdict(50, Decision::Pass));
        assert!(
            memo.recall(
                &Key {
                    name: b"\x01b\0",
                    ..key
                },
                at(1)
            )
            .is_none()
        );
        assert!(memo.recall(&Key { qtype: 28, ..key }, at(1)).is_none());
        assert!(memo.recall(&Key { qclass: 3, ..key }, at(1)).is_none());
        assert!(memo.recall(&Key { zone: 1, ..key }, at(1)).is_none());
        assert!(memo.recall(&key, at(1)).is_some());
    }

    /// Equal questions have equal hashes, but those of other clients differ by the salt.
    #[test]
    fn no_two_clients_share_a_verdict() {
        let mut memo = Memo::default();
        let question = 0x0123_4567_89ab_cdef;
        let key = |number: u64| key(question ^ salt(number), b"\x01a\0");
        memo.remember(&key(3), at(0), &verdict(50, Decision::Pass));
        for number in (0..3)
            .chain(4..100_000)
            .chain([u64::MAX, 1 << 63, 3 + (1 << 32), 3 + (1 << 63)])
        {
            assert!(memo.recall(&key(number), at(1)).is_none(), "{number}");
        }
        assert!(memo.recall(&key(3), at(1)).is_some());
    }

    /// A hash in set `set`; `number` distinguishes it from others.
    fn hash_in(set: u64, number: u64) -> u64 {
        (number << 48) | (number << 32) | set
    }

    #[test]
    fn the_one_that_ends_soonest_makes_room() {
        let mut memo = Memo::default();
        let keys = [1, 2, 3, 4, 5].map(|number| key(hash_in(7, number), b"\x01a\0"));
        for (key, holds) in keys.iter().zip([900, 800, 100, 700, 500]) {
            memo.remember(key, at(0), &verdict(holds, Decision::Pass));
        }
        let kept = |memo: &Memo| keys.map(|key| memo.recall(&key, at(1)).is_some());
        assert_eq!(kept(&memo), [true, true, true, true, false], "it is turned away");
        memo.remember(&keys[4], at(1), &verdict(500, Decision::Pass));
        assert_eq!(kept(&memo), [true, true, false, true, true]);
    }

    /// Many names, each queried once.
    #[test]
    fn a_flood_displaces_nothing() {
        let mut memo = Memo::default();
        let keys = (1..=WAYS as u64).map(|number| key(hash_in(7, number), b"\x01a\0"));
        let keys: Vec<_> = keys.collect();
        for key in &keys {
            memo.remember(key, at(0), &verdict(1000, Decision::Pass));
        }
        for number in 10..65_536 {
            memo.remember(
                &key(hash_in(7, number), b"\x05flood\0"),
                at(1),
                &verdict(1000, Decision::Pass),
            );
        }
        assert!(keys.iter().all(|key| memo.recall(key, at(2)).is_some()));
        assert_eq!(memo.slots.iter().flatten().count(), WAYS);
    }

    #[test]
    fn the_same_question_has_one_entry() {
        let mut memo = Memo::default();
        let key = key(7, b"\x01a\0");
        for now in 0..10 {
            memo.remember(&key, at(now), &verdict(900, Decision::Pass));
        }
        assert_eq!(memo.slots.iter().flatten().count(), 1);
        assert!(memo.recall(&key, at(908)).is_some());
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
            is_cut: false,
            error: None,
        };
        let large = verdict(1000, Decision::Answer(answer));
        let kept = |memo: &Memo| {
            (0..100u64)
                .filter(|&hash| memo.recall(&key(hash, b"\0"), at(1)).is_some())
                .count()
        };
        for hash in 0..100 {
            memo.remember(&key(hash, b"\0"), at(0), &large);
        }
        assert_eq!(kept(&memo), 17, "one mebibyte holds 17 times 60 000 octets");
        // Replacing entries frees their bytes.
        for hash in 0..100 {
            memo.remember(&key(hash, b"\0"), at(0), &verdict(1000, dropped()));
        }
        assert_eq!(kept(&memo), 100);
        assert_eq!(memo.bytes, 100 * (1 + size_of::<Verdict>()));
    }

    /// Many large verdicts that expire soon, for names that are not queried again.
    fn flood(memo: &mut Memo, hashes: std::ops::Range<u64>, now: u64, holds: u32) {
        let large = Decision::Alias(Box::from([vec![0; 60_000].into()]));
        let large = verdict(holds, large);
        for hash in hashes {
            memo.remember(&key(hash, b"\x05flood\0"), at(now), &large);
        }
    }

    #[test]
    fn what_ran_out_holds_no_octets() {
        let mut memo = Memo::default();
        flood(&mut memo, 0..17, 0, 10);
        let full = memo.bytes;
        assert!(BYTES - full < 60_000);
        // The hand reaches all of them while other verdicts are stored.
        for step in 0..(ENTRIES / WAYS / SWEEP) as u64 {
            memo.remember(&key(step, b"\x01a\0"), at(10), &verdict(1000, dropped()));
        }
        assert!(memo.bytes < full / 2, "{} octets", memo.bytes);
        let held = memo.slots.iter().flatten().map(Entry::bytes).sum::<usize>();
        assert_eq!(memo.bytes, held);
    }

    #[test]
    fn what_holds_for_long_keeps_nothing_new_out() {
        let mut memo = Memo::default();
        flood(&mut memo, 0..100, 0, u32::MAX);
        // As many calls as the hand needs for one round.
        for _ in 0..=ENTRIES / WAYS / SWEEP_MAXIMUM {
            flood(&mut memo, 500..501, 1, 1000);
        }
        assert!(memo.recall(&key(500, b"\x05flood\0"), at(2)).is_some());
        assert!(memo.bytes <= BYTES);
    }

    #[test]
    fn what_can_never_fit_displaces_nothing() {
        let mut memo = Memo::default();
        let small = key(7, b"\x01a\0");
        memo.remember(&small, at(0), &verdict(1000, Decision::Pass));
        let huge = Decision::Alias(Box::from([vec![0; BYTES].into()]));
        for hash in 0..100 {
            memo.remember(&key(hash, b"\x01b\0"), at(0), &verdict(1000, huge.clone()));
        }
        assert!(memo.recall(&small, at(1)).is_some());
    }
}
