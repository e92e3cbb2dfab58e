//! Accounts of names, or of clients: how often each failed, and until when it is blamed.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use foldhash::fast::RandomState;

/// Maximum accounts in a book.
pub(super) const ACCOUNTS: usize = 1024;

/// For how long a name or client is blamed the first time.
pub(super) const FIRST: Duration = Duration::from_secs(1);

/// Each time it is blamed this many times as long.
const GROWTH: u32 = 4;

/// Maximum time of blame, unless paying off the cost takes longer.
pub(super) const LONGEST: Duration = Duration::from_secs(60);

/// How long an account is kept after the blame has ended.
pub(super) const KEPT: Duration = Duration::from_secs(60);

/// Bytes of a full book: two slots per account, as a hash table may have, and their control bytes.
pub(super) const OCTETS: usize = 2 * ACCOUNTS * (size_of::<(u64, Account)>() + 1) + 64;

#[derive(Debug, Clone, Copy)]
pub(super) struct Account {
    failures: u32,
    /// End of the current or last blame.
    until: Instant,
    /// Duration of the last blame.
    last: Duration,
}

/// At most [`ACCOUNTS`].
#[derive(Debug, Default)]
pub(super) struct Accounts(HashMap<u64, Account, RandomState>);

impl Accounts {
    /// Whether a name or client is blamed.
    pub(super) fn is_blamed(&self, now: Instant, who: u64) -> bool {
        self.0.get(&who).is_some_and(|account| now < account.until)
    }

    /// Whether a name or client has an account.
    pub(super) fn has(&self, now: Instant, who: u64) -> bool {
        self.0.get(&who).is_some_and(|account| account.counts(now))
    }

    /// Counts a failure, and blames the name or client once it has `tolerated` failures, for a time of at
    /// least `least`. Returns false if there is no room for another account.
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
        // The table keeps an eighth of its slots free.
        self.0.capacity() * 8 / 7 * (size_of::<(u64, Account)>() + 1)
    }
}

impl Account {
    /// Whether it is still kept.
    fn counts(&self, now: Instant) -> bool {
        now < self.until + KEPT
    }
}
