//! One part of the store: an index, the entries, and the order of their eviction.
//!
//! Eviction is S3-FIFO (Yang et al., "FIFO queues are all you need for cache eviction", SOSP 2023), counted
//! in bytes. New answers enter a small queue. Those asked for again move on to the main queue; the others
//! leave only a fingerprint, by which they enter the main queue directly if they come back soon. So a million
//! names that are asked for only once (a scan, random subdomains) pass through a tenth of the memory, and
//! popular names stay.
//!
//! No cost here is paid in one large step: tables grow in steps, each insertion checks a few slots for
//! expired answers, and one eviction moves a bounded number of entries.

use dnsweir_os::clock::Uptime;
use hashbrown::HashTable;

use super::entry::{Entry, Kind, heap_bytes};
use super::ghost::Ghosts;
use super::key::Key;

/// The end of a list of slots.
const NIL: u32 = u32::MAX;
/// The small queue's share of the limit: one in this many bytes, as in the paper.
const SMALL_PART: usize = 10;
/// Visits are counted up to this number.
const VISITS_MAX: u8 = 3;
/// The number of visits with which an entry moves from the small queue to the main queue.
const VISITS_TO_STAY: u8 = 2;
/// How many entries one eviction may spare before it evicts the next regardless of visits.
const SPARED_MAX: u32 = 64;
/// How many slots an insertion checks for expired answers.
const SWEEP_STEP: u32 = 4;
/// One fingerprint is kept per this many bytes of the limit: about one per entry.
const BYTES_PER_GHOST: usize = 256;

/// Metrics for one [`Kind`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KindStats {
    /// Entries stored now.
    pub entries: u64,
    /// Heap bytes that they take.
    pub bytes: u64,
    /// Entries evicted while still usable, since the process started.
    pub evictions: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Queue {
    Small,
    Main,
}

/// A slot for an entry, linked into one of the queues or into the list of free slots.
#[derive(Debug)]
struct Slot {
    hash: u64,
    gone_at: Uptime,
    /// `None` if the slot is free.
    entry: Option<Entry>,
    /// Heap bytes that the entry takes.
    bytes: u32,
    older: u32,
    newer: u32,
    queue: Queue,
    visits: u8,
}

/// A doubly linked queue of slots, so that removal from the middle needs no search.
#[derive(Debug)]
struct Fifo {
    oldest: u32,
    newest: u32,
    bytes: usize,
}

impl Fifo {
    const EMPTY: Self = Self {
        oldest: NIL,
        newest: NIL,
        bytes: 0,
    };
}

/// A part of the store. Its owner wraps it in a lock.
#[derive(Debug)]
pub(super) struct Shard {
    limit: usize,
    slots: Vec<Slot>,
    free: u32,
    /// Slot numbers, by the hash of their keys.
    index: HashTable<u32>,
    small: Fifo,
    main: Fifo,
    /// Entries that left the small queue recently.
    ghosts: Ghosts,
    sweep_at: u32,
    tallies: [KindStats; Kind::ALL.len()],
}

impl Shard {
    pub fn new(limit: usize) -> Self {
        Self {
            limit,
            slots: Vec::new(),
            free: NIL,
            index: HashTable::new(),
            small: Fifo::EMPTY,
            main: Fifo::EMPTY,
            ghosts: Ghosts::new(limit / BYTES_PER_GHOST),
            sweep_at: 0,
            tallies: Default::default(),
        }
    }

    /// Returns every entry, in no particular order.
    pub fn entries(&self) -> Vec<Entry> {
        self.slots.iter().filter_map(|slot| slot.entry.clone()).collect()
    }

    /// Heap bytes of the whole shard.
    pub fn bytes(&self) -> usize {
        self.small.bytes + self.main.bytes + self.table_bytes()
    }

    fn table_bytes(&self) -> usize {
        heap_bytes(self.slots.capacity() * size_of::<Slot>())
            + heap_bytes(self.index.allocation_size())
            + self.ghosts.bytes()
    }

    pub(crate) fn tallies(&self) -> &[KindStats; Kind::ALL.len()] {
        &self.tallies
    }

    /// The number of the slot that holds the answer to `key`.
    #[inline]
    fn find(&self, key: &Key<'_>) -> Option<u32> {
        let slots = &self.slots;
        let holds = |&at: &u32| {
            let slot = &slots[at as usize];
            slot.hash == key.hash && slot.entry.as_ref().is_some_and(|entry| entry.answers(key))
        };
        self.index.find(key.hash, holds).copied()
    }

    /// Returns the entry and counts the visit.
    // Inlined into `Cache::lookup`, its only caller.
    #[inline(always)]
    pub fn lookup(&mut self, key: &Key<'_>, now: Uptime) -> Option<Entry> {
        let at = self.find(key)?;
        let slot = &mut self.slots[at as usize];
        if slot.gone_at <= now {
            self.remove_at(at);
            return None;
        }
        if slot.visits < VISITS_MAX {
            slot.visits += 1;
        }
        let entry = slot.entry.as_ref()?;
        entry.count_hit();
        Some(entry.clone())
    }

    /// Returns the entry without counting a visit.
    pub fn peek(&self, key: &Key<'_>) -> Option<&Entry> {
        self.slots[self.find(key)? as usize].entry.as_ref()
    }

    /// Stores `entry`, replacing any answer to the same key. `cost` is its [`Entry::cost`]. Returns false if
    /// it does not fit even alone.
    pub fn insert(&mut self, key: &Key<'_>, entry: Entry, cost: usize, now: Uptime) -> bool {
        self.sweep(now);
        let Some(bytes) = u32::try_from(cost)
            .ok()
            .filter(|_| cost + self.table_bytes() <= self.limit)
        else {
            self.remove(key);
            return false;
        };
        // Make room first: a full cache then reuses a slot instead of growing its tables.
        let mut at = self.find(key);
        let mut replaced = at.map_or(0, |at| self.slots[at as usize].bytes as usize);
        while self.bytes() - replaced + cost > self.limit && self.evict(now) {
            at = self.find(key);
            replaced = at.map_or(0, |at| self.slots[at as usize].bytes as usize);
        }
        match at {
            Some(at) => self.replace(at, entry, bytes),
            None => self.add(key.hash, entry, bytes),
        }
        // The tables may have grown. This loop ends: without entries, nothing is left to evict.
        let mut crowded = false;
        while self.bytes() > self.limit && self.evict(now) {
            crowded = true;
        }
        !crowded || self.find(key).is_some()
    }

    fn replace(&mut self, at: u32, entry: Entry, bytes: u32) {
        let slot = &mut self.slots[at as usize];
        let fifo = match slot.queue {
            Queue::Small => &mut self.small,
            Queue::Main => &mut self.main,
        };
        fifo.bytes = fifo.bytes - slot.bytes as usize + bytes as usize;
        let tally = &mut self.tallies[entry.kind().index()];
        tally.entries += 1;
        tally.bytes += u64::from(bytes);
        slot.gone_at = entry.lifetime().gone_at();
        let old_bytes = std::mem::replace(&mut slot.bytes, bytes);
        if let Some(old) = slot.entry.replace(entry) {
            let tally = &mut self.tallies[old.kind().index()];
            tally.entries -= 1;
            tally.bytes -= u64::from(old_bytes);
        }
    }

    fn add(&mut self, hash: u64, entry: Entry, bytes: u32) {
        let queue = if self.ghosts.recall(hash) {
            Queue::Main
        } else {
            Queue::Small
        };
        let tally = &mut self.tallies[entry.kind().index()];
        tally.entries += 1;
        tally.bytes += u64::from(bytes);
        let gone_at = entry.lifetime().gone_at();
        let slot = Slot {
            hash,
            gone_at,
            entry: Some(entry),
            bytes,
            older: NIL,
            newer: NIL,
            queue,
            visits: 0,
        };
        let at = if self.free == NIL {
            if self.slots.len() == self.slots.capacity() {
                // By a quarter instead of double: little memory is unused, and little is moved at a time.
                self.slots.reserve_exact((self.slots.len() / 4).max(16));
            }
            self.slots.push(slot);
            self.slots.len() as u32 - 1
        } else {
            let at = self.free;
            self.free = std::mem::replace(&mut self.slots[at as usize], slot).newer;
            at
        };
        let slots = &self.slots;
        self.index.insert_unique(hash, at, |&at| slots[at as usize].hash);
        self.link(at, queue);
    }

    /// Makes the slot the newest in a queue.
    fn link(&mut self, at: u32, queue: Queue) {
        let fifo = match queue {
            Queue::Small => &mut self.small,
            Queue::Main => &mut self.main,
        };
        let older = std::mem::replace(&mut fifo.newest, at);
        if older == NIL {
            fifo.oldest = at;
        } else {
            self.slots[older as usize].newer = at;
        }
        let slot = &mut self.slots[at as usize];
        fifo.bytes += slot.bytes as usize;
        (slot.queue, slot.older, slot.newer) = (queue, older, NIL);
    }

    /// Removes the slot from its queue.
    fn unlink(&mut self, at: u32) {
        let slot = &self.slots[at as usize];
        let (older, newer, bytes, queue) = (slot.older, slot.newer, slot.bytes as usize, slot.queue);
        let fifo = match queue {
            Queue::Small => &mut self.small,
            Queue::Main => &mut self.main,
        };
        fifo.bytes -= bytes;
        match older {
            NIL => fifo.oldest = newer,
            older => self.slots[older as usize].newer = newer,
        }
        match newer {
            NIL => fifo.newest = older,
            newer => self.slots[newer as usize].older = older,
        }
    }

    fn remove_at(&mut self, at: u32) {
        self.unlink(at);
        let slot = &mut self.slots[at as usize];
        if let Ok(found) = self.index.find_entry(slot.hash, |&other| other == at) {
            found.remove();
        }
        if let Some(entry) = slot.entry.take() {
            let tally = &mut self.tallies[entry.kind().index()];
            tally.entries -= 1;
            tally.bytes -= u64::from(slot.bytes);
        }
        slot.newer = self.free;
        self.free = at;
    }

    /// Removes the answer to `key`; returns whether there was one.
    pub fn remove(&mut self, key: &Key<'_>) -> bool {
        let found = self.find(key);
        if let Some(at) = found {
            self.remove_at(at);
        }
        found.is_some()
    }

    /// Removes every entry for which `leaves` is true; returns how many.
    pub(crate) fn remove_if(&mut self, leaves: impl Fn(&Entry) -> bool) -> usize {
        let mut removed = 0;
        for at in 0..self.slots.len() {
            if self.slots[at].entry.as_ref().is_some_and(&leaves) {
                self.remove_at(at as u32);
                removed += 1;
            }
        }
        removed
    }

    /// Checks the next few slots and removes entries that are no longer usable.
    fn sweep(&mut self, now: Uptime) {
        for _ in 0..SWEEP_STEP {
            if self.sweep_at as usize >= self.slots.len() {
                self.sweep_at = 0;
            }
            match self.slots.get(self.sweep_at as usize) {
                Some(slot) if slot.entry.is_some() && slot.gone_at <= now => self.remove_at(self.sweep_at),
                Some(_) => {}
                None => return,
            }
            self.sweep_at += 1;
        }
    }

    /// Evicts one entry to make room; returns false if there is none.
    fn evict(&mut self, now: Uptime) -> bool {
        let mut spared = 0;
        loop {
            let small_is_next = self.small.oldest != NIL
                && (self.small.bytes > self.limit / SMALL_PART || self.main.oldest == NIL);
            let at = if small_is_next {
                self.small.oldest
            } else {
                self.main.oldest
            };
            if at == NIL {
                return false;
            }
            let slot = &mut self.slots[at as usize];
            if slot.gone_at <= now {
                self.remove_at(at);
                return true;
            }
            let stays = slot.visits >= if small_is_next { VISITS_TO_STAY } else { 1 };
            if stays && spared < SPARED_MAX {
                slot.visits = if small_is_next { 0 } else { slot.visits - 1 };
                spared += 1;
                self.unlink(at);
                self.link(at, Queue::Main);
                continue;
            }
            if let Some(entry) = &slot.entry {
                self.tallies[entry.kind().index()].evictions += 1;
            }
            if small_is_next {
                self.ghosts.remember(slot.hash);
            }
            self.remove_at(at);
            return true;
        }
    }

    /// Changes the limit and keeps the entries that fit. Tables are rebuilt at their new size, so memory is
    /// really returned; this one call takes as long as moving every entry.
    pub fn set_limit(&mut self, limit: usize) {
        let mut new = Self::new(limit);
        self.limit = limit;
        // Evict until the rest fits with tables of minimal size.
        while self.small.bytes + self.main.bytes + new.bytes() + self.index.len() * Self::TABLES_PER_ENTRY
            > limit
            && self.evict(Uptime::START)
        {}
        for (tally, old) in new.tallies.iter_mut().zip(&self.tallies) {
            tally.evictions = old.evictions;
        }
        new.slots.reserve_exact(self.index.len());
        for (first, queue) in [(self.small.oldest, Queue::Small), (self.main.oldest, Queue::Main)] {
            let mut at = first;
            while at != NIL {
                let slot = &mut self.slots[at as usize];
                if let Some(entry) = slot.entry.take() {
                    new.add(slot.hash, entry, slot.bytes);
                    let added = new.slots.len() as u32 - 1;
                    new.slots[added as usize].visits = slot.visits;
                    if queue == Queue::Main {
                        new.unlink(added);
                        new.link(added, Queue::Main);
                    }
                }
                at = slot.newer;
            }
        }
        while new.bytes() > limit && new.evict(Uptime::START) {}
        *self = new;
    }

    /// Table bytes per entry: a slot, and its share of an index as sparse as hashbrown leaves it after
    /// growing.
    const TABLES_PER_ENTRY: usize = size_of::<Slot>() + 12;

    /// Recounts everything and compares.
    #[cfg(test)]
    pub(crate) fn audit(&self) {
        let mut tallies = self.tallies;
        let mut seen = 0;
        for (fifo, queue) in [(&self.small, Queue::Small), (&self.main, Queue::Main)] {
            let (mut at, mut older, mut bytes) = (fifo.oldest, NIL, 0);
            while at != NIL {
                let slot = &self.slots[at as usize];
                let entry = slot.entry.as_ref().expect("a queued slot holds an entry");
                assert_eq!((slot.older, slot.queue), (older, queue));
                assert_eq!(self.index.find(slot.hash, |&other| other == at), Some(&at));
                let tally = &mut tallies[entry.kind().index()];
                tally.entries -= 1;
                tally.bytes -= u64::from(slot.bytes);
                bytes += slot.bytes as usize;
                seen += 1;
                (older, at) = (at, slot.newer);
            }
            assert_eq!((fifo.newest, fifo.bytes), (older, bytes));
        }
        assert_eq!(self.index.len(), seen);
        assert!(tallies.iter().all(|tally| tally.entries == 0 && tally.bytes == 0));
        let (mut at, mut free) = (self.free, 0);
        while at != NIL {
            assert!(self.slots[at as usize].entry.is_none());
            free += 1;
            at = self.slots[at as usize].newer;
        }
        assert_eq!(seen + free, self.slots.len());
        assert!(self.bytes() <= self.limit || seen == 0);
    }
}
