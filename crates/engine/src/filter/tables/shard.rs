//! A part of a table, which one lock protects: entries, what they take, and which make room for others.

use std::hash::BuildHasher;

use foldhash::quality::RandomState;
use indexmap::IndexMap;

/// Octets of the longest key.
const KEY: usize = 1024;

/// Octets of the largest entry: who gets it waits until it is copied.
const ENTRY: usize = 64 << 10;

/// Octets that an entry takes beside those of key and value: its place among the entries and in the index, as much again
/// for places that are kept free (see [`Shard::make_place`]), and what the allocator adds to its two blocks.
pub(super) const OVERHEAD: usize = 192;

/// Entries that are looked at for one to make room.
const CANDIDATES: usize = 8;

/// Places that are kept free in any case.
const SPARE: usize = 8;

/// A time that does not come.
const NEVER: u64 = u64::MAX;

/// Nanoseconds, on a clock that never goes back.
pub(super) type Time = u64;

/// What is under a key.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Value {
    /// Octets, but not 8: those are a number.
    Octets(Box<[u8]>),
    /// A number.
    Number(i64),
    /// The tokens in a bucket when it was last written.
    Bucket(f64),
}

impl Value {
    /// Of what a guest puts.
    pub(super) fn of(octets: &[u8]) -> Value {
        match octets.try_into() {
            Ok(number) => Value::Number(i64::from_le_bytes(number)),
            Err(_) => Value::Octets(octets.into()),
        }
    }

    /// What a guest gets; none of a bucket.
    fn octets(&self) -> Option<Vec<u8>> {
        match self {
            Value::Octets(octets) => Some(octets.to_vec()),
            Value::Number(number) => Some(number.to_le_bytes().to_vec()),
            Value::Bucket(_) => None,
        }
    }

    /// Octets on the heap.
    fn heap(&self) -> usize {
        match self {
            Value::Octets(octets) => octets.len(),
            Value::Number(_) | Value::Bucket(_) => 0,
        }
    }
}

#[derive(Debug)]
struct Entry {
    value: Value,
    /// When its time is over.
    expires: Time,
    written: Time,
}

/// How a bucket fills.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rate {
    /// Tokens a second; what is no number counts as none.
    pub(super) per_second: f64,
    /// Tokens of a full bucket.
    pub(super) burst: u32,
}

/// It does not fit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Refused;

/// A part of a table.
#[derive(Debug)]
pub(super) struct Shard {
    entries: IndexMap<Box<[u8]>, Entry, RandomState>,
    octets: usize,
    limit: usize,
    /// Where candidates to make room are looked for next.
    hand: usize,
    /// Entries that made room before their time was over.
    pub(super) evicted: u64,
}

impl Shard {
    /// An empty one of so many octets.
    pub(super) fn new(limit: usize, hasher: RandomState) -> Shard {
        Shard {
            entries: IndexMap::with_hasher(hasher),
            octets: 0,
            limit,
            hand: 0,
            evicted: 0,
        }
    }

    /// The value under a key.
    pub(super) fn get(&self, now: Time, key: &[u8]) -> Option<Vec<u8>> {
        self.live(now, key)?.value.octets()
    }

    /// Puts a value in the place of what is there.
    pub(super) fn put(&mut self, now: Time, key: &[u8], value: Value, expires: Time) -> Result<(), Refused> {
        self.check(key, &value)?;
        self.remove(now, key);
        self.insert(now, key, value, expires);
        Ok(())
    }

    /// Removes what is under a key. Whether there was anything.
    pub(super) fn remove(&mut self, now: Time, key: &[u8]) -> bool {
        let Some(index) = self.entries.get_index_of(key) else {
            return false;
        };
        self.take_out(index).expires > now
    }

    /// Adds to a number.
    pub(super) fn add(&mut self, now: Time, key: &[u8], by: i64, expires: Time) -> Result<i64, Refused> {
        if let Some(entry) = self.live_mut(now, key)
            && let Value::Number(number) = &mut entry.value
        {
            *number = number.saturating_add(by);
            entry.written = now;
            return Ok(*number);
        }
        self.put(now, key, Value::Number(by), expires)?;
        Ok(by)
    }

    /// Puts or removes if the value is as expected. Whether it did.
    pub(super) fn compare_and_swap(
        &mut self,
        now: Time,
        key: &[u8],
        expected: Option<&[u8]>,
        new: Option<&[u8]>,
        expires: Time,
    ) -> Result<bool, Refused> {
        if self.get(now, key).as_deref() != expected {
            return Ok(false);
        }
        match new {
            Some(new) => self.put(now, key, Value::of(new), expires)?,
            None => drop(self.remove(now, key)),
        }
        Ok(true)
    }

    /// Takes tokens out of a bucket, if they are there. Whether they were.
    pub(super) fn take(&mut self, now: Time, key: &[u8], tokens: u32, rate: Rate) -> Result<bool, Refused> {
        let per_second = if rate.per_second > 0.0 {
            rate.per_second
        } else {
            0.0
        };
        let full = f64::from(rate.burst);
        let after = |before: f64| {
            let left = before - f64::from(tokens);
            if left >= 0.0 {
                (true, left)
            } else {
                (false, before)
            }
        };
        // When it is full again, it is as if it had never been there.
        let expires = |left: f64| later(now, (full - left) / per_second * 1e9);
        if let Some(entry) = self.live_mut(now, key)
            && let Value::Bucket(before) = entry.value
        {
            // Workers read the clock before they come to the lock, so it may seem to go back a little.
            let elapsed = now.saturating_sub(entry.written) as f64 / 1e9;
            let (granted, left) = after((before + elapsed * per_second).min(full));
            entry.value = Value::Bucket(left);
            entry.written = entry.written.max(now);
            entry.expires = expires(left);
            return Ok(granted);
        }
        let (granted, left) = after(full);
        self.put(now, key, Value::Bucket(left), expires(left))?;
        Ok(granted)
    }

    /// Entries, and the octets that they count as.
    pub(super) fn size(&self) -> (usize, usize) {
        (self.entries.len(), self.octets)
    }

    /// Octets of the heap that its entries take, as far as this process knows: what the allocator adds is estimated.
    #[cfg(test)]
    pub(super) fn heap(&self) -> usize {
        let block = |octets: usize| (octets + 8).next_multiple_of(16).max(32);
        let places = self.entries.capacity();
        // Slots of the index are a power of two, of which seven eighths may be used.
        let slots = (places * 8).div_ceil(7).next_power_of_two();
        let entry = size_of::<usize>() + size_of::<Box<[u8]>>() + size_of::<Entry>();
        let blocks = self.entries.iter().map(|(key, entry)| {
            let value = entry.value.heap();
            block(key.len()) + if value > 0 { block(value) } else { 0 }
        });
        places * entry + slots * (size_of::<usize>() + 1) + blocks.sum::<usize>()
    }

    /// Hands out the numbers among so many entries from `index` on. Whether there are more.
    pub(super) fn numbers(
        &self,
        now: Time,
        index: usize,
        count: usize,
        mut each: impl FnMut(&[u8], i64),
    ) -> bool {
        for index in index..index + count {
            match self.entries.get_index(index) {
                Some((key, entry)) if entry.expires > now => {
                    if let Value::Number(number) = entry.value {
                        each(key, number);
                    }
                }
                Some(_) => {}
                None => return false,
            }
        }
        true
    }

    fn live(&self, now: Time, key: &[u8]) -> Option<&Entry> {
        self.entries.get(key).filter(|entry| entry.expires > now)
    }

    fn live_mut(&mut self, now: Time, key: &[u8]) -> Option<&mut Entry> {
        self.entries.get_mut(key).filter(|entry| entry.expires > now)
    }

    fn check(&self, key: &[u8], value: &Value) -> Result<(), Refused> {
        match key.len() <= KEY && cost(key, value) <= self.limit.min(ENTRY) {
            true => Ok(()),
            false => Err(Refused),
        }
    }

    /// Inserts what was checked, under a key that is not there.
    fn insert(&mut self, now: Time, key: &[u8], value: Value, expires: Time) {
        let cost = cost(key, &value);
        while self.octets + cost > self.limit && !self.entries.is_empty() {
            self.evict(now);
        }
        self.make_place();
        self.octets += cost;
        let entry = Entry {
            value,
            expires,
            written: now,
        };
        self.entries.insert(key.into(), entry);
    }

    /// Has one entry make room.
    fn evict(&mut self, now: Time) {
        let count = self.entries.len();
        let candidates = (0..CANDIDATES.min(count)).map(|step| (self.hand + step) % count);
        let oldest = candidates.min_by_key(|&index| {
            let entry = &self.entries[index];
            (entry.expires > now, entry.written)
        });
        // Beyond those that were looked at, so that all are looked at in turn.
        self.hand = (self.hand + CANDIDATES) % count;
        if let Some(index) = oldest {
            let live = self.take_out(index).expires > now;
            self.evicted += u64::from(live);
        }
    }

    /// Removes an entry, and gives back places when a quarter of them is free.
    fn take_out(&mut self, index: usize) -> Entry {
        // `IndexMap` has the last entry take its place.
        let Some((key, entry)) = self.entries.swap_remove_index(index) else {
            unreachable!("indexes come from a search under the same lock")
        };
        self.octets -= cost(&key, &entry.value);
        let (used, places) = (self.entries.len(), self.entries.capacity());
        if places > 2 * SPARE + used + used / 3 {
            self.entries.shrink_to(SPARE + used + used / 8);
        }
        entry
    }

    /// Sees that there is a place for one more entry, in steps of an eighth: doubling would leave too many of them free.
    fn make_place(&mut self) {
        let used = self.entries.len();
        if used == self.entries.capacity() {
            self.entries.reserve_exact(SPARE + used / 8);
        }
    }
}

/// What an entry counts as.
fn cost(key: &[u8], value: &Value) -> usize {
    key.len() + value.heap() + OVERHEAD
}

/// The time so many milliseconds from now; 0 is without end.
pub(super) fn expiry(now: Time, milliseconds: u64) -> Time {
    match milliseconds {
        0 => NEVER,
        milliseconds => now.saturating_add(milliseconds.saturating_mul(1_000_000)),
    }
}

/// The time so many nanoseconds from now, which may be infinitely many.
fn later(now: Time, nanoseconds: f64) -> Time {
    // What is out of range becomes the nearest number that is not, and what is no number 0.
    now.saturating_add(nanoseconds.ceil() as u64)
}

/// Which of so many parts a key belongs to. By other bits of its hash than those that find it there.
pub(super) fn part(hasher: &RandomState, key: &[u8], parts: usize) -> usize {
    let middle = hasher.hash_one(key) >> 16 & 0xffff_ffff;
    (middle as usize * parts) >> 32
}
