//! The store: shards, each with its own lock.

use dnsweir_os::clock::Uptime;
use parking_lot::Mutex;

use super::entry::{Entry, Kind, Stored};
use super::freshness::{Freshness, Lifetime};
use super::key::Key;
use super::shard::{KindStats, Shard};
use crate::dns::name::is_at_or_below;

/// Maximum number of shards. There are only a handful of workers, so two seldom meet in one of these.
const SHARDS_MAX: usize = 64;
/// In a new store no shard's share of the limit is below this, so that a message of 64 KiB fits in any.
const SHARE_MIN: usize = 256 << 10;
/// A shard with less than this stores nothing: its tables alone could be too large.
const SHARE_USABLE: usize = 4 << 10;

/// A shard on its own cache lines (two, since they are fetched in pairs).
#[derive(Debug)]
#[repr(align(128))]
struct Shelf(Mutex<Shard>);

/// Answers of all zones, within a limit in bytes. One per process, shared by all threads.
///
/// The limit covers the store's heap use: entries with the allocator's overhead, and tables at their
/// capacity. It holds after every call. Entries that left the store but are still held by a caller are not
/// counted.
#[derive(Debug)]
pub struct Cache {
    shards: Box<[Shelf]>,
    limit: Mutex<usize>,
}

/// The outcome of storing an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Insertion {
    /// It was stored, and replaced any answer to the same key.
    Stored,
    /// It is a failure, and an older answer to the same key is still usable: that one stays, and its next
    /// refresh is delayed (RFC 8767 §5).
    KeptOlder,
    /// It cannot be stored: its TTL is 0, it is too large, or it is not a DNS message. The previous answer to
    /// the same key was removed, because this one is newer.
    NotStored,
}

/// What the store holds, at roughly one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheStats {
    kinds: [KindStats; Kind::ALL.len()],
    /// Heap bytes of the whole store: entries and tables.
    pub bytes: u64,
    /// The limit on `bytes`.
    pub limit_bytes: u64,
}

impl CacheStats {
    /// The figures for one kind.
    pub fn kind(&self, kind: Kind) -> KindStats {
        self.kinds[kind.index()]
    }
}

impl Cache {
    /// Creates an empty store of at most `limit_bytes`. Below a few kilobytes it never stores anything.
    ///
    /// The number of shards follows from this first limit and never changes.
    pub fn new(limit_bytes: usize) -> Self {
        let shards = (limit_bytes / SHARE_MIN).clamp(1, SHARDS_MAX);
        let shards = 1 << shards.ilog2();
        let share = share(limit_bytes, shards);
        let shards = (0..shards)
            .map(|_| Shelf(Mutex::new(Shard::new(share))))
            .collect();
        Self {
            shards,
            limit: Mutex::new(limit_bytes),
        }
    }

    /// Changes the limit at once: entries that no longer fit are evicted. Goes through the shards one by one;
    /// a lookup waits for one of them at most.
    pub fn set_limit(&self, limit_bytes: usize) {
        let mut limit = self.limit.lock();
        if *limit != limit_bytes {
            *limit = limit_bytes;
            for shard in &self.shards {
                shard.0.lock().set_limit(share(limit_bytes, self.shards.len()));
            }
        }
    }

    #[inline]
    fn shard(&self, hash: u64) -> &Mutex<Shard> {
        // Bits that neither the index (the lowest and the highest seven) nor the fingerprints' places use.
        &self.shards[(hash >> 48) as usize & (self.shards.len() - 1)].0
    }

    /// Returns the answer to `key`, fresh or stale, if it is usable at `now`, and counts the use.
    ///
    /// The lock is held for the search only: the caller copies from the entry without it.
    // Runs for every hit; without the hint, the compiler does not inline it.
    #[inline(always)]
    pub fn lookup(&self, key: &Key<'_>, now: Uptime) -> Option<Entry> {
        self.shard(key.hash).lock().lookup(key, now)
    }

    /// Stores an answer, unless it is a failure that would replace a usable older answer.
    pub fn insert(&self, key: &Key<'_>, stored: &Stored<'_>) -> Insertion {
        let entry = if stored.ttl_secs == 0 {
            None
        } else {
            Entry::new(key, stored)
        };
        let mut shard = self.shard(key.hash).lock();
        if stored.kind == Kind::Failure
            && let Some(older) = shard.peek(key)
            && older.kind() != Kind::Failure
            && older.lifetime().freshness(stored.now) != Freshness::Gone
        {
            older.refresh_failed(stored.now);
            return Insertion::KeptOlder;
        }
        let fits = match entry {
            Some(entry) => shard.insert(key, entry, Entry::cost(key, stored), stored.now),
            None => {
                shard.remove(key);
                false
            }
        };
        if fits {
            Insertion::Stored
        } else {
            Insertion::NotStored
        }
    }

    /// Returns the kind and lifetime of the answer to `key`, fresh or not. Does not count as a use.
    pub(crate) fn peek(&self, key: &Key<'_>) -> Option<(Kind, Lifetime)> {
        let shard = self.shard(key.hash).lock();
        shard.peek(key).map(|entry| (entry.kind(), entry.lifetime()))
    }

    /// Removes the answer to `key`; returns whether there was one.
    pub fn remove(&self, key: &Key<'_>) -> bool {
        self.shard(key.hash).lock().remove(key)
    }

    /// Removes all failures; returns how many. Walks only shards that have any.
    pub fn forget_failures(&self) -> usize {
        let forget = |shelf: &Shelf| {
            let mut shard = shelf.0.lock();
            match shard.tallies()[Kind::Failure.index()].entries {
                0 => 0,
                _ => shard.remove_if(|entry| entry.kind() == Kind::Failure),
            }
        };
        self.shards.iter().map(forget).sum()
    }

    /// Removes all answers for `name`, of any type; returns how many. `name` is in wire format and lower
    /// case. Walks the whole store, one shard at a time.
    pub fn flush_name(&self, name: &[u8]) -> usize {
        self.flush(|entry| entry.name() == name)
    }

    /// Removes all answers for `suffix` and every name below it; returns how many. `suffix` is in wire format
    /// and lower case; the root flushes everything. Walks the whole store, one shard at a time.
    pub fn flush_below(&self, suffix: &[u8]) -> usize {
        self.flush(|entry| is_at_or_below(entry.name(), suffix))
    }

    fn flush(&self, leaves: impl Fn(&Entry) -> bool) -> usize {
        self.shards
            .iter()
            .map(|shard| shard.0.lock().remove_if(&leaves))
            .sum()
    }

    /// The number of shards.
    pub fn shards(&self) -> usize {
        self.shards.len()
    }

    /// The entries of one shard. It is locked only while their reference counts are incremented.
    pub fn entries(&self, shard: usize) -> Vec<Entry> {
        let shard = self.shards.get(shard);
        shard.map_or_else(Vec::new, |shard| shard.0.lock().entries())
    }

    /// What the store holds. Locks the shards one after the other, so the sums are not of a single instant.
    pub fn stats(&self) -> CacheStats {
        let mut stats = CacheStats {
            limit_bytes: *self.limit.lock() as u64,
            ..CacheStats::default()
        };
        stats.bytes = size_of_val(&*self.shards) as u64;
        for shard in &self.shards {
            let shard = shard.0.lock();
            stats.bytes += shard.bytes() as u64;
            for (sum, part) in stats.kinds.iter_mut().zip(shard.tallies()) {
                sum.entries += part.entries;
                sum.bytes += part.bytes;
                sum.evictions += part.evictions;
            }
        }
        stats
    }

    #[cfg(test)]
    pub(super) fn audit(&self) {
        for shard in &self.shards {
            shard.0.lock().audit();
        }
    }
}

/// One shard's share of a limit.
fn share(limit_bytes: usize, shards: usize) -> usize {
    let share = (limit_bytes / shards).saturating_sub(size_of::<Shelf>());
    if share < SHARE_USABLE { 0 } else { share }
}

#[cfg(test)]
mod tests;
