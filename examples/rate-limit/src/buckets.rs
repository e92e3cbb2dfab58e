//! A bounded table of token buckets. The one that has not been asked for the longest makes room.

use std::collections::HashMap;
use std::time::Duration;

use dnsweir_filter::Prefix;

/// Tokens per time.
#[derive(Debug, Clone, Copy)]
pub struct Rate {
    /// At least 1.
    pub tokens: u32,
    /// At least a millisecond.
    pub per: Duration,
}

/// The table.
pub struct Buckets {
    /// A query costs as many units as `rate.per` has milliseconds, and each millisecond gives
    /// `rate.tokens` units: whole numbers throughout.
    cost: u64,
    gain: u64,
    full: u64,
    most: usize,
    index: HashMap<Prefix, u32>,
    buckets: Vec<Bucket>,
    /// The ends of the list that the buckets form, in the order they were last asked for.
    newest: u32,
    oldest: u32,
}

struct Bucket {
    client: Prefix,
    units: u64,
    /// When that was.
    time: Duration,
    newer: u32,
    older: u32,
}

/// No bucket.
const NONE: u32 = u32::MAX;

/// What came of asking for a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Taken {
    /// There was one.
    pub granted: bool,
    /// Another client's bucket had to go.
    pub evicted: bool,
}

impl Buckets {
    /// Buckets for `most` clients that hold up to `burst` tokens. Takes all its memory at once, so that
    /// a limit that is too low shows when the filter starts.
    pub fn new(rate: Rate, burst: u32, most: u32) -> Buckets {
        let cost = u64::try_from(rate.per.as_millis()).unwrap_or(u64::MAX >> 32);
        Buckets {
            cost,
            gain: rate.tokens.into(),
            full: cost.saturating_mul(burst.into()),
            most: most as usize,
            index: HashMap::with_capacity(most as usize),
            buckets: Vec::with_capacity(most as usize),
            newest: NONE,
            oldest: NONE,
        }
    }

    /// Takes a token out of a client's bucket.
    pub fn take(&mut self, client: Prefix, now: Duration) -> Taken {
        let (at, evicted) = match self.index.get(&client) {
            Some(&at) => {
                self.unlink(at);
                (at, false)
            }
            None => self.make(client, now),
        };
        self.link(at);
        let (cost, full, gain) = (self.cost, self.full, self.gain);
        let bucket = &mut self.buckets[at as usize];
        // A clock that is set back gives nothing, and goes on from there.
        let passed = u64::try_from(now.saturating_sub(bucket.time).as_millis()).unwrap_or(u64::MAX);
        bucket.time = now;
        bucket.units = bucket.units.saturating_add(passed.saturating_mul(gain)).min(full);
        let granted = bucket.units >= cost;
        if granted {
            bucket.units -= cost;
        }
        Taken { granted, evicted }
    }

    /// A full bucket, not linked yet; whether another one made room for it.
    fn make(&mut self, client: Prefix, now: Duration) -> (u32, bool) {
        let bucket = Bucket {
            client,
            units: self.full,
            time: now,
            newer: NONE,
            older: NONE,
        };
        let evicted = self.buckets.len() == self.most;
        let at = if evicted {
            let at = self.oldest;
            self.unlink(at);
            let old = std::mem::replace(&mut self.buckets[at as usize], bucket);
            self.index.remove(&old.client);
            at
        } else {
            self.buckets.push(bucket);
            self.buckets.len() as u32 - 1
        };
        self.index.insert(client, at);
        (at, evicted)
    }

    /// Takes a bucket out of the list.
    fn unlink(&mut self, at: u32) {
        let Bucket { newer, older, .. } = self.buckets[at as usize];
        match newer {
            NONE => self.newest = older,
            newer => self.buckets[newer as usize].older = older,
        }
        match older {
            NONE => self.oldest = newer,
            older => self.buckets[older as usize].newer = newer,
        }
    }

    /// Puts a bucket at the list's newest end.
    fn link(&mut self, at: u32) {
        let older = self.newest;
        let bucket = &mut self.buckets[at as usize];
        (bucket.newer, bucket.older) = (NONE, older);
        match older {
            NONE => self.oldest = at,
            older => self.buckets[older as usize].newer = at,
        }
        self.newest = at;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;

    fn client(number: u32) -> Prefix {
        Prefix::of(std::net::Ipv4Addr::from_bits(number).into(), 32)
    }

    fn millis(number: u64) -> Duration {
        Duration::from_millis(number)
    }

    /// Three tokens a second.
    const RATE: Rate = Rate {
        tokens: 3,
        per: Duration::from_millis(1000),
    };

    #[test]
    fn a_bucket_fills_at_its_rate_and_no_higher_than_its_burst() {
        let mut buckets = Buckets::new(RATE, 2, 8);
        let mut take = |now| buckets.take(client(1), millis(now)).granted;
        assert_eq!([take(0), take(0), take(0)], [true, true, false]);
        // A third of a second for a token, to the millisecond, however often one asks.
        assert_eq!(
            [take(100), take(333), take(334), take(335)],
            [false, false, true, false]
        );
        assert_eq!([take(99_999), take(99_999), take(99_999)], [true, true, false]);
        // The clock is set back.
        assert_eq!([take(5), take(338), take(339)], [false, false, true]);
    }

    #[test]
    fn extremes_do_not_overflow() {
        let rate = Rate {
            tokens: u32::MAX,
            per: Duration::MAX,
        };
        let mut buckets = Buckets::new(rate, u32::MAX, 1);
        assert!(buckets.take(client(1), Duration::ZERO).granted);
        assert!(buckets.take(client(1), Duration::MAX).granted);
    }

    /// Against a list that is searched from end to end.
    #[test]
    fn the_one_not_asked_for_the_longest_makes_room() {
        let mut buckets = Buckets::new(RATE, 1, 5);
        let mut known: VecDeque<u32> = VecDeque::new();
        let mut random = 1u32;
        let mut evictions = 0;
        for _ in 0..10_000 {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let number = random >> 29;
            let before = known.iter().position(|&other| other == number);
            let expected = match before {
                Some(at) => {
                    known.remove(at);
                    Taken {
                        granted: false,
                        evicted: false,
                    }
                }
                None => Taken {
                    granted: true,
                    evicted: known.len() == 5,
                },
            };
            if expected.evicted {
                known.pop_front();
                evictions += 1;
            }
            known.push_back(number);
            assert_eq!(buckets.take(client(number), Duration::ZERO), expected);
            assert_eq!(
                (buckets.buckets.len(), buckets.index.len()),
                (known.len(), known.len())
            );
        }
        assert!(evictions > 1000, "{evictions}");
    }
}
