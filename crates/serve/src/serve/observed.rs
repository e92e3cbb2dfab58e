//! The most frequent names and clients, and recent failures: for people to look at, so a sample is enough.
//!
//! Each worker samples all of its queries if there are few, otherwise about [`BUDGET`] per [`WINDOW`], but at
//! least one in [`RAREST`]. Failed and slow queries are recorded individually, again at a limited rate. No
//! reader holds up queries: what cannot be recorded immediately is skipped, a failed or slow query after a
//! millisecond.

use std::cell::Cell;
use std::collections::VecDeque;
use std::net::IpAddr;
use std::time::Duration;

use dnsweir_os::clock::{UnixTime, Uptime};
use parking_lot::{Mutex, MutexGuard};

use crate::dns::edns::ExtendedErrorCode;
use crate::dns::{Origin, rcode};
use crate::ranking::Ranking;

/// How many names and how many clients are kept.
const RANKED: usize = 256;

/// How many failed queries and how many slow ones are kept.
const KEPT: usize = 50;

/// A query that takes this many microseconds is slow: stub resolvers retry after a few seconds, and people
/// notice sooner.
pub(super) const SLOW: u64 = 500_000;

/// A worker samples about `BUDGET` queries per `WINDOW` (in microseconds).
const WINDOW: u64 = 100_000;
const BUDGET: u32 = 20;

/// A worker samples at least one query of this many: it has to notice when the rate drops.
const RAREST: u32 = 256;

/// Minimum time between two failed or slow queries that a worker records, in microseconds.
const TROUBLE_APART: u64 = 10_000;

/// How long a failed or slow query waits for the lists: their holders need some microseconds, unless they lose the
/// processor meanwhile.
const SOON: Duration = Duration::from_millis(1);

/// What is observed about all workers' queries.
pub struct Observed(Mutex<Lists>);

/// The observations.
pub(super) struct Lists {
    names: Ranking<Vec<u8>>,
    clients: Ranking<IpAddr>,
    failed: VecDeque<Troubled>,
    slow: VecDeque<Troubled>,
}

/// A query that failed or was slow.
#[derive(Debug, Clone)]
pub struct Troubled {
    /// When it was answered.
    pub at: UnixTime,
    /// The client's address.
    pub client: IpAddr,
    /// The name in wire format, lower case.
    pub name: Vec<u8>,
    /// The type.
    pub qtype: u16,
    /// The rcode of the response.
    pub rcode: u16,
    /// The extended error (RFC 8914), if any.
    pub error: Option<ExtendedErrorCode>,
    /// Where the answer came from.
    pub origin: Origin,
    /// How long it took, in microseconds.
    pub took: u64,
}

/// A snapshot of [`Observed`].
pub struct Observations {
    /// The most frequent names in wire format, each with its queries per second.
    pub names: Vec<(Vec<u8>, f64)>,
    /// The clients with the most queries, each with its queries per second.
    pub clients: Vec<(IpAddr, f64)>,
    /// The last failed queries, latest first.
    pub failed: Vec<Troubled>,
    /// The last slow queries, latest first.
    pub slow: Vec<Troubled>,
}

impl Default for Observed {
    fn default() -> Observed {
        Observed(Mutex::new(Lists {
            names: Ranking::new(RANKED),
            clients: Ranking::new(RANKED),
            failed: VecDeque::with_capacity(KEPT),
            slow: VecDeque::with_capacity(KEPT),
        }))
    }
}

impl Lists {
    /// Counts `weight` queries of a client for a name.
    pub(super) fn asked(&mut self, name: &[u8], client: IpAddr, weight: u32, now: Uptime) {
        let client = client.to_canonical();
        self.names.note(name, weight, seconds(now));
        self.clients.note(&client, weight, seconds(now));
    }

    /// Records a failed or slow query; when full, in the place of the oldest.
    pub(super) fn keep(&mut self, troubled: Troubled) {
        let list = match troubled.rcode {
            rcode::SERVFAIL => &mut self.failed,
            _ => &mut self.slow,
        };
        if list.len() == KEPT {
            list.pop_front();
        }
        list.push_back(troubled);
    }
}

impl Observed {
    /// The lists, unless they are locked.
    pub(super) fn lists(&self) -> Option<MutexGuard<'_, Lists>> {
        self.0.try_lock()
    }

    /// The lists, unless they stay locked for longer than is worth waiting: for a failed or slow query, which are few.
    pub(super) fn lists_soon(&self) -> Option<MutexGuard<'_, Lists>> {
        self.0.try_lock_for(SOON)
    }

    /// Returns a snapshot with the top `count` names and clients.
    pub fn read(&self, count: usize, now: Uptime) -> Observations {
        let lists = self.0.lock();
        let latest = |troubled: &VecDeque<Troubled>| troubled.iter().rev().cloned().collect();
        Observations {
            names: lists.names.first(count, seconds(now)),
            clients: lists.clients.first(count, seconds(now)),
            failed: latest(&lists.failed),
            slow: latest(&lists.slow),
        }
    }
}

fn seconds(time: Uptime) -> f64 {
    time.as_micros() as f64 / 1e6
}

/// Chooses the queries that a worker samples.
#[derive(Debug)]
pub struct Sampler {
    /// How many queries to skip before the next sample.
    left: Cell<usize>,
    /// One query of this many is sampled.
    every: Cell<u32>,
    /// Samples in this window.
    taken: Cell<u32>,
    /// When this window began.
    window: Cell<Uptime>,
    /// Random state: varies the gaps, so that a periodic pattern is not always or never sampled.
    dice: Cell<u32>,
    /// When a failed or slow query was last recorded.
    troubled: Cell<Uptime>,
}

impl Default for Sampler {
    fn default() -> Sampler {
        Sampler {
            left: Cell::new(0),
            every: Cell::new(1),
            taken: Cell::new(0),
            window: Cell::default(),
            dice: Cell::new(0x9e37_79b9),
            troubled: Cell::default(),
        }
    }
}

impl Sampler {
    /// Whether any of the next `count` queries is sampled.
    #[inline(always)]
    pub(super) fn reaches(&self, count: usize) -> bool {
        let left = self.left.get();
        let reaches = left < count;
        if !reaches {
            self.left.set(left - count);
        }
        reaches
    }

    /// Calls `look` for each sampled query of `count`, with its index and the number of queries it stands
    /// for.
    pub(super) fn choose(&self, count: usize, now: Uptime, mut look: impl FnMut(usize, u32)) {
        let mut at = self.left.get();
        while at < count {
            look(at, self.every.get());
            at += 1 + self.step(now);
        }
        self.left.set(at - count);
    }

    /// Returns how many queries to skip before the next sample.
    fn step(&self, now: Uptime) -> usize {
        let every = self.every.get();
        if now.micros_since(self.window.get()) >= WINDOW {
            let needed = u64::from(every) * u64::from(self.taken.replace(0)) / u64::from(BUDGET);
            self.every.set((needed as u32).clamp(1, every));
            self.window.set(now);
        } else if self.taken.get() >= BUDGET {
            self.every.set((2 * every).min(RAREST));
            self.taken.set(BUDGET / 2);
        }
        self.taken.set(self.taken.get() + 1);
        // Xorshift (Marsaglia, 2003); uniform from 0 to twice the interval, so that the mean is right.
        let mut dice = self.dice.get();
        dice ^= dice << 13;
        dice ^= dice >> 17;
        dice ^= dice << 5;
        self.dice.set(dice);
        (dice % (2 * self.every.get() - 1)) as usize
    }

    /// Whether to record a failed or slow query now.
    pub(super) fn keeps(&self, now: Uptime) -> bool {
        let keeps = now.micros_since(self.troubled.get()) >= TROUBLE_APART;
        if keeps {
            self.troubled.set(now);
        }
        keeps
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many of a second's queries are sampled, and how many they stand for, at this rate and batch size.
    fn second(sampler: &Sampler, rate: usize, batch: usize, from: u64) -> (u32, u32) {
        let (mut looks, mut stands) = (0, 0);
        for at in (0..rate).step_by(batch) {
            let now = Uptime::from_micros(from + (at * 1_000_000 / rate) as u64);
            if sampler.reaches(batch) {
                sampler.choose(batch, now, |index, weight| {
                    assert!(index < batch);
                    looks += 1;
                    stands += weight;
                });
            }
        }
        (looks, stands)
    }

    #[test]
    fn few_queries_are_all_looked_at_and_many_are_bounded() {
        let sampler = Sampler::default();
        let mut from = 1_000_000;
        for (rate, batch, most) in [
            (100, 1, 100),
            (1_000_000, 50, 4000),
            (50, 1, 50),
            (32_000, 16, 400),
            (20, 2, 20),
        ] {
            let mut settled = (0, 0);
            for _ in 0..20 {
                settled = second(&sampler, rate, batch, from);
                from += 1_000_000;
            }
            let (looks, stands) = settled;
            assert!(looks <= most, "{looks} of {rate}");
            let off = (f64::from(stands) - rate as f64).abs() / rate as f64;
            assert!(off < 0.3, "{stands} for {rate}");
        }
    }
}
