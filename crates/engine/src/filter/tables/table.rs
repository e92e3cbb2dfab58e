//! A table, split into parts with a lock each to keep contention low.

use std::sync::atomic::{AtomicU64, Ordering};

use foldhash::quality::RandomState;
use parking_lot::Mutex;

use super::shard::{Rate, Refused, Shard, Time, Value, expiry, part};
use crate::filter::bindings::dnsweir::filter::types::TableShape;

/// Maximum parts of a table.
const PARTS: usize = 64;

/// Minimum size of a part, in bytes, unless it is the only one.
const PART: usize = 64 << 10;

/// A table. Times are nanoseconds on a monotonic clock; a `ttl` is in milliseconds, and 0 means no expiry.
#[derive(Debug)]
pub(super) struct Table {
    pub(super) shape: TableShape,
    hasher: RandomState,
    pub(super) parts: Vec<Mutex<Shard>>,
    /// Entries refused because they were too large.
    pub(super) refused: AtomicU64,
}

/// What a table holds and has evicted.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Size {
    pub(super) entries: usize,
    pub(super) octets: usize,
    pub(super) evicted: u64,
}

impl Table {
    /// An empty table.
    pub(super) fn new(shape: &TableShape) -> Table {
        let octets = shape.octets as usize;
        let parts = (octets / PART).clamp(1, PARTS);
        let hasher = RandomState::default();
        let shards = (0..parts).map(|_| Mutex::new(Shard::new(octets / parts, hasher.clone())));
        Table {
            shape: shape.clone(),
            parts: shards.collect(),
            hasher,
            refused: AtomicU64::new(0),
        }
    }

    /// Whether it has this name and shape.
    pub(super) fn is(&self, shape: &TableShape) -> bool {
        let own = &self.shape;
        (&own.name, own.octets, own.shown) == (&shape.name, shape.octets, shape.shown)
    }

    /// Maximum size in bytes.
    pub(super) fn octets(&self) -> usize {
        self.shape.octets as usize
    }

    /// The value of a key.
    pub(super) fn get(&self, now: Time, key: &[u8]) -> Option<Vec<u8>> {
        self.part(key).lock().get(now, key)
    }

    /// Stores a value. Returns false if it was refused.
    pub(super) fn put(&self, now: Time, key: &[u8], value: &[u8], ttl: u64) -> bool {
        let value = Value::of(value);
        let put = self.part(key).lock().put(now, key, value, expiry(now, ttl));
        self.unless_refused(put, false, |()| true)
    }

    /// Removes a key. Returns whether it was there.
    pub(super) fn remove(&self, now: Time, key: &[u8]) -> bool {
        self.part(key).lock().remove(now, key)
    }

    /// Adds to a number. Returns the sum, or `by` if the entry was refused.
    pub(super) fn add(&self, now: Time, key: &[u8], by: i64, ttl: u64) -> i64 {
        let sum = self.part(key).lock().add(now, key, by, expiry(now, ttl));
        self.unless_refused(sum, by, |sum| sum)
    }

    /// Stores or removes a value if the current one is as expected. Returns whether it did.
    pub(super) fn compare_and_swap(
        &self,
        now: Time,
        key: &[u8],
        expected: Option<&[u8]>,
        new: Option<&[u8]>,
        ttl: u64,
    ) -> bool {
        let mut part = self.part(key).lock();
        let swapped = part.compare_and_swap(now, key, expected, new, expiry(now, ttl));
        drop(part);
        self.unless_refused(swapped, false, |swapped| swapped)
    }

    /// Takes tokens from a bucket if it has enough. Returns whether it did.
    pub(super) fn take(&self, now: Time, key: &[u8], tokens: u32, rate: Rate) -> bool {
        let taken = self.part(key).lock().take(now, key, tokens, rate);
        self.unless_refused(taken, false, |granted| granted)
    }

    /// Current size.
    pub(super) fn size(&self) -> Size {
        self.parts.iter().fold(Size::default(), |sum, part| {
            let part = part.lock();
            let (entries, octets) = part.size();
            Size {
                entries: sum.entries + entries,
                octets: sum.octets + octets,
                evicted: sum.evicted + part.evicted,
            }
        })
    }

    fn part(&self, key: &[u8]) -> &Mutex<Shard> {
        &self.parts[part(&self.hasher, key, self.parts.len())]
    }

    fn unless_refused<T, R>(&self, done: Result<T, Refused>, refused: R, result: impl FnOnce(T) -> R) -> R {
        match done {
            Ok(done) => result(done),
            Err(Refused) => {
                self.refused.fetch_add(1, Ordering::Relaxed);
                refused
            }
        }
    }
}
