//! Names, or clients, for which calls succeeded recently.

use std::collections::HashSet;
use std::mem;

use foldhash::fast::RandomState;

/// Maximum entries of a generation.
const KNOWN: usize = 1024;

/// Bytes of two full generations: two slots per entry, as a hash table may have, and their control bytes.
pub(super) const OCTETS: usize = 2 * (2 * KNOWN * (size_of::<u64>() + 1) + 64);

/// Two generations. When the younger one is full it replaces the older one; entries that recur stay.
#[derive(Debug, Default)]
pub(super) struct Known {
    younger: HashSet<u64, RandomState>,
    older: HashSet<u64, RandomState>,
}

impl Known {
    pub(super) fn has(&self, who: u64) -> bool {
        self.younger.contains(&who) || self.older.contains(&who)
    }

    pub(super) fn add(&mut self, who: u64) {
        if self.younger.len() == KNOWN && !self.younger.contains(&who) {
            self.older = mem::take(&mut self.younger);
        }
        self.younger.insert(who);
    }

    pub(super) fn remove(&mut self, who: u64) {
        self.younger.remove(&who);
        self.older.remove(&who);
    }
}

#[cfg(test)]
impl Known {
    pub(super) fn octets(&self) -> usize {
        // The table keeps an eighth of its slots free.
        (self.younger.capacity() + self.older.capacity()) * 8 / 7 * (size_of::<u64>() + 1)
    }
}
