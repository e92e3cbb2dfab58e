//! Accounts of names, or of clients: how often each failed, and until when it is blamed.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use foldhash::fast::RandomState;

/// Accounts in a book.
pub(super) const ACCOUNTS: usize = 1024;

/// How long somebody is blamed the first time.
pub(super) const FIRST: Duration = Duration::from_secs(1);

/// How many times as long as the last time.
const GROWTH: u32 = 4;

/// How long at most, unless what it cost takes longer to be paid off.
pub(super) const LONGEST: Duration = Duration::from_secs(60);

/// How long after that an account is kept.
pub(super) const KEPT: Duration = Duration::from_secs(60);

/// Octets of a full book: of two places for each account, as a hash table may have, and what marks them.
pub(super) const OCTETS: usize = 2 * ACCOUNTS * (size_of::<(u64, Account)>() + 1) + 64;

#[derive(Debug, Clone, Copy)]
pub(super) struct Account {
    failures: u32,
    /// Blamed before that.
    until: Instant,
    /// For how long it was blamed the last time.
    last: Duration,
}

/// At most [`ACCOUNTS`].
#[derive(Debug, Default)]
pub(super) struct Accounts(HashMap<u64, Account, RandomState>);

impl Accounts {
    /// Whether somebody is blamed.
    pub(super) fn is_blamed(&self, now: Instant, who: u64) -> bool {
        self.0.get(&who).is_some_and(|account| now < account.until)
    }

    /// Whether somebody has an account.
    pub(super) fn has(&self, now: Instant, who: u64) -> bool {
        self.0.get(&who).is_some_and(|account| account.counts(now))
    }

    /// Counts a failure, and blames whoever has `tolerated` of them: for so long at `least`. False: there is no room for
    /// another account.
    pub(super) fn blame(&mut self, now: Instant, who: u64, tolerated: u32, least: Duration) -> bool {
        if !self.0.contains_key(&who) && self.0.len() == ACCOUNTS {
            self.0.retain(|_, account| account.counts(now));
            if self.0.len() == ACCOUNTS {
                return false;
            }
        }
        let new = Account {
            failures: 0,
            until: now,
            last: Duration::ZERO,
        };
        let account = self.0.entry(who).or_insert(new);
        if !account.counts(now) {
            *account = new;
        }
        account.failures = account.failures.saturating_add(1);
        account.until = now;
        if account.failures >= tolerated {
            let longer = (account.last * GROWTH).clamp(FIRST, LONGEST);
            account.last = longer.max(least);
            account.until = now + account.last;
        }
        true
    }
}

#[cfg(test)]
impl Accounts {
    pub(super) fn octets(&self) -> usize {
        // A place for each eighth is kept free.
        self.0.capacity() * 8 / 7 * (size_of::<(u64, Account)>() + 1)
    }
}

impl Account {
    /// Whether it is not forgotten.
    fn counts(&self, now: Instant) -> bool {
        now < self.until + KEPT
    }
}
