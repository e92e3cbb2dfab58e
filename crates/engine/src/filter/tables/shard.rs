//! A part of a table, protected by one lock: its entries, their size, and eviction.

use std::hash::BuildHasher;

use foldhash::quality::RandomState;
use indexmap::IndexMap;

/// Maximum length of a key, in bytes.
const KEY: usize = 1024;

/// Maximum size of an entry, in bytes; reading one copies it under the lock.
const ENTRY: usize = 64 << 10;

/// Bytes that an entry takes beside its key and value: its slots in the entries and in the index, as much
/// again for slots kept free (see [`Shard::make_place`]), and the allocator's overhead for two blocks.
pub(super) const OVERHEAD: usize = 192;

/// Entries compared to evict one.
const CANDIDATES: usize = 8;

/// Slots kept free in any case.
const SPARE: usize = 8;

/// The expiry of entries that do not expire.
const NEVER: u64 = u64::MAX;

/// Nanoseconds on a monotonic clock.
pub(super) type Time = u64;

/// The value of a key.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Value {
    /// Bytes of any length but 8; 8 bytes are a number.
    Octets(Box<[u8]>),
    /// A number.
    Number(i64),
    /// The tokens in a bucket when it was last written.
    Bucket(f64),
}

impl Value {
    /// The value that a guest stores.
    pub(super) fn of(octets: &[u8]) -> Value {
        match octets.try_into() {
            Ok(number) => Value::Number(i64::from_le_bytes(number)),
            Err(_) => Value::Octets(octets.into()),
        }
    }

    /// The bytes that a guest gets; none for a bucket.
    fn octets(&self) -> Option<Vec<u8>> {
        match self {
            Value::Octets(octets) => Some(octets.to_vec()),
            Value::Number(number) => Some(number.to_le_bytes().to_vec()),
            Value::Bucket(_) => None,
        }
    }

    /// Bytes on the heap.
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
    /// When it expires.
    expires: Time,
    written: Time,
}

/// How fast a bucket fills, and how far.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rate {
    /// Tokens per second; NaN counts as 0.
    pub(super) per_second: f64,
    /// Tokens in a full bucket.
    pub(super) burst: u32,
}

/// The entry does not fit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Refused;

/// A part of a table.
#[derive(Debug)]
pub(super) struct Shard {
    entries: IndexMap<Box<[u8]>, Entry, RandomState>,
    octets: usize,
    limit: usize,
    /// Where the search for an entry to evict continues.
    hand: usize,
    /// Entries evicted before they expired.
    pub(super) evicted: u64,
}

impl Shard {
    /// An empty part of this many bytes.
    pub(super) fn new(limit: usize, hasher: RandomState) -> Shard {
        Shard {
            entries: IndexMap::with_hasher(hasher),
            octets: 0,
            limit,
            hand: 0,
            evicted: 0,
        }
    }

    /// The value of a key.
    pub(super) fn get(&self, now: Time, key: &[u8]) -> Option<Vec<u8>> {
        self.live(now, key)?.value.octets()
    }

    /// Stores a value, replacing any other.
    pub(super) fn put(&mut self, now: Time, key: &[u8], value: Value, expires: Time) -> Result<(), Refused> {
        self.check(key, &value)?;
        self.remove(now, key);
        self.insert(now, key, value, expires);
        Ok(())
    }

    /// Removes a key. Returns whether it was there and had not expired.
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

    /// Stores or removes a value if the current one is as expected. Returns whether it did.
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

    /// Takes tokens from a bucket if it has enough. Returns whether it did.
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
        // A bucket that is full again equals one that was never there, so it expires.
        let expires = |left: f64| later(now, (full - left) / per_second * 1e9);
        if let Some(entry) = self.live_mut(now, key)
            && let Value::Bucket(before) = entry.value
        {
            // Workers read the clock before they take the lock, so time may seem to go back a little.
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

    /// The number of entries, and the bytes they count as.
    pub(super) fn size(&self) -> (usize, usize) {
        (self.entries.len(), self.octets)
    }

    /// Estimates the heap memory of its entries in bytes, including the allocator's overhead.
    #[cfg(test)]
    pub(super) fn heap(&self) -> usize {
        let block = |octets: usize| (octets + 8).next_multiple_of(16).max(32);
        let places = self.entries.capacity();
        // The index has a power of two of slots, of which seven eighths may be used.
        let slots = (places * 8).div_ceil(7).next_power_of_two();
        let entry = size_of::<usize>() + size_of::<Box<[u8]>>() + size_of::<Entry>();
        let blocks = self.entries.iter().map(|(key, entry)| {
            let value = entry.value.heap();
            block(key.len()) + if value > 0 { block(value) } else { 0 }
        });
        places * entry + slots * (size_of::<usize>() + 1) + blocks.sum::<usize>()
    }

    /// Calls `each` for the numbers among `count` entries from `index` on. Returns whether there are more.
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

    /// Inserts a checked entry under a key that is not present.
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

    /// Evicts one entry: an expired one if any, else the one written first, of a few candidates.
    fn evict(&mut self, now: Time) {
        let count = self.entries.len();
        let candidates = (0..CANDIDATES.min(count)).map(|step| (self.hand + step) % count);
        let oldest = candidates.min_by_key(|&index| {
            let entry = &self.entries[index];
            (entry.expires > now, entry.written)
        });
        // Skip the candidates, so that all entries get their turn.
        self.hand = (self.hand + CANDIDATES) % count;
        if let Some(index) = oldest {
            let live = self.take_out(index).expires > now;
            self.evicted += u64::from(live);
        }
    }

    /// Removes an entry, and shrinks the map when a quarter of its slots is free.
    fn take_out(&mut self, index: usize) -> Entry {
        // `IndexMap` moves the last entry into its slot.
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

    /// Makes a slot for one more entry, growing by an eighth: doubling would leave too many slots free.
    fn make_place(&mut self) {
        let used = self.entries.len();
        if used == self.entries.capacity() {
            self.entries.reserve_exact(SPARE + used / 8);
        }
    }
}

/// The bytes that an entry counts as.
fn cost(key: &[u8], value: &Value) -> usize {
    key.len() + value.heap() + OVERHEAD
}

/// The time this many milliseconds from now; 0 means no expiry.
pub(super) fn expiry(now: Time, milliseconds: u64) -> Time {
    match milliseconds {
        0 => NEVER,
        milliseconds => now.saturating_add(milliseconds.saturating_mul(1_000_000)),
    }
}

/// The time this many nanoseconds from now; infinity is allowed.
fn later(now: Time, nanoseconds: f64) -> Time {
    // The cast saturates out-of-range values, and turns NaN into 0.
    now.saturating_add(nanoseconds.ceil() as u64)
}

/// Which of `parts` parts a key belongs to. Uses other bits of the hash than the lookup within the part.
pub(super) fn part(hasher: &RandomState, key: &[u8], parts: usize) -> usize {
    let middle = hasher.hash_one(key) >> 16 & 0xffff_ffff;
    (middle as usize * parts) >> 32
}
