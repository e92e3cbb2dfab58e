//! The store: shards, each behind its own lock.

use parking_lot::Mutex;

use super::entry::{Entry, Kind, Stored};
use super::freshness::{Freshness, Lifetime};
use super::key::Key;
use super::shard::{KindStats, Shard};
use crate::dns::name::is_at_or_below;

/// Shards there are at most. Workers are at most a handful, so two seldom meet in one of these.
const SHARDS_MAX: usize = 64;
/// A new store has no shard below this share of the limit, so that a message of 64 KiB fits in any.
const SHARE_MIN: usize = 256 << 10;
/// With less than this a shard's tables alone could be too much; it stores nothing then.
const SHARE_USABLE: usize = 4 << 10;

/// A shard on cache lines of its own (two, since they are fetched in pairs).
#[derive(Debug)]
#[repr(align(128))]
struct Shelf(Mutex<Shard>);

/// Answers of all zones, within a limit in bytes. One per process, shared by all threads.
///
/// The limit counts what the store takes from the heap: entries with the allocator's overhead, and
/// tables at their capacity. It holds after every call. Not counted are entries that a caller still
/// holds after they left the store.
#[derive(Debug)]
pub struct Cache {
    shards: Box<[Shelf]>,
    limit: Mutex<usize>,
}

/// What became of an answer that was to be stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Insertion {
    /// It is in the store, in the place of what answered the same key.
    Stored,
    /// It is a failure, and an older answer to the same key is still of use: that one stays, and its next
    /// refresh waits (RFC 8767 §5).
    KeptOlder,
    /// It cannot be stored: its TTL is 0, it is too large, or it is not a DNS message. What answered the
    /// same key before is gone, since this answer is newer.
    NotStored,
}

/// What the store holds, at about one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheStats {
    kinds: [KindStats; Kind::ALL.len()],
    /// Everything the store has on the heap, in bytes: entries and tables.
    pub bytes: u64,
    /// The limit of `bytes`.
    pub limit_bytes: u64,
}

impl CacheStats {
    /// What there is of one kind.
    pub fn kind(&self, kind: Kind) -> KindStats {
        self.kinds[kind.index()]
    }
}

impl Cache {
    /// An empty store of at most `limit_bytes`. Below some kilobytes it never stores anything.
    ///
    /// The number of shards follows from this first limit and stays.
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

    /// Changes the limit, now: what does not fit any more leaves. Goes through the shards one by one;
    /// lookups wait for one of them at most.
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
        // Bits that neither the index (the lowest, the highest seven) nor the fingerprints' places use.
        &self.shards[(hash >> 48) as usize & (self.shards.len() - 1)].0
    }

    /// The answer to `key`, fresh or stale, if there is one of use at `now_ms`. Counts as a use of it.
    ///
    /// The lock is held for the search alone: the caller copies from the entry without it.
    // For every hit; left to itself, the compiler makes a call of it.
    #[inline(always)]
    pub fn lookup(&self, key: &Key<'_>, now_ms: u64) -> Option<Entry> {
        self.shard(key.hash).lock().lookup(key, now_ms)
    }

    /// Stores an answer, unless it is a failure and an older answer of use would be lost to it.
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
            && older.lifetime().freshness(stored.now_ms) != Freshness::Gone
        {
            older.refresh_failed(stored.now_ms);
            return Insertion::KeptOlder;
        }
        let fits = match entry {
            Some(entry) => shard.insert(key, entry, Entry::cost(key, stored), stored.now_ms),
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

    /// What sort of answer to `key` is there now, fresh or not, and since when. No use of it.
    pub(crate) fn peek(&self, key: &Key<'_>) -> Option<(Kind, Lifetime)> {
        let shard = self.shard(key.hash).lock();
        shard.peek(key).map(|entry| (entry.kind(), entry.lifetime()))
    }

    /// Forgets the answer to `key`; whether there was one.
    pub fn remove(&self, key: &Key<'_>) -> bool {
        self.shard(key.hash).lock().remove(key)
    }

    /// Forgets all failures; how many there were. Walks those shards that have any.
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

    /// Forgets all answers for `name`, of any type; how many there were. `name` is in wire format and
    /// lower case. Walks the whole store, one shard at a time.
    pub fn flush_name(&self, name: &[u8]) -> usize {
        self.flush(|entry| entry.name() == name)
    }

    /// Forgets all answers for `suffix` and every name below it; how many there were. `suffix` is in wire
    /// format and lower case; the root flushes everything. Walks the whole store, one shard at a time.
    pub fn flush_below(&self, suffix: &[u8]) -> usize {
        self.flush(|entry| is_at_or_below(entry.name(), suffix))
    }

    fn flush(&self, leaves: impl Fn(&Entry) -> bool) -> usize {
        self.shards
            .iter()
            .map(|shard| shard.0.lock().remove_if(&leaves))
            .sum()
    }

    /// How many shards there are.
    pub fn shards(&self) -> usize {
        self.shards.len()
    }

    /// The entries of one shard, which is locked only for as long as it takes to count their references up.
    pub fn entries(&self, shard: usize) -> Vec<Entry> {
        let shard = self.shards.get(shard);
        shard.map_or_else(Vec::new, |shard| shard.0.lock().entries())
    }

    /// What the store holds. Locks each shard for a moment, so the sums are not of one instant.
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

/// One shard's part of a limit.
fn share(limit_bytes: usize, shards: usize) -> usize {
    let share = (limit_bytes / shards).saturating_sub(size_of::<Shelf>());
    if share < SHARE_USABLE { 0 } else { share }
}

#[cfg(test)]
mod tests;
