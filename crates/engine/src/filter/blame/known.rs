//! Names, or clients, for which calls succeeded lately.

use std::collections::HashSet;
use std::mem;

use foldhash::fast::RandomState;

/// Of each generation.
const KNOWN: usize = 1024;

/// Octets of two full generations: of two places for each, as a hash table may have, and what marks them.
pub(super) const OCTETS: usize = 2 * (2 * KNOWN * (size_of::<u64>() + 1) + 64);

/// Two generations: when the younger one is full, it takes the place of the older one, and those who come again stay.
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
        // A place for each eighth is kept free.
        (self.younger.capacity() + self.older.capacity()) * 8 / 7 * (size_of::<u64>() + 1)
    }
}
