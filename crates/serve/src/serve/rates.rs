//! Rate limits: events per second for each of many clients, in constant memory.
//!
//! All workers share the table, since the kernel spreads one client's queries over them. A slot is one word:
//! the client, and when its next event is due at an even pace (the generic cell rate algorithm, a leaky
//! bucket that needs no draining). A flood from many addresses takes the slots of those that have used least
//! of their share.

use std::hash::BuildHasher;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};

use dnsweir_os::clock::Uptime;

use crate::config::{Network, Rate, left_aligned};

/// This many sets of this many 8-byte slots make a table of 512 KiB.
const SETS: usize = 8192;
const WAYS: usize = 8;

/// The slots that a client may be in: one line of the CPU's cache.
#[repr(align(64))]
#[derive(Default)]
struct Set([AtomicU64; WAYS]);

/// Bits of a slot that hold the time; those above hold the client.
const TIME: u32 = 44;

/// Ticks per microsecond. A slot's time wraps around after twelve days.
const TICKS: u64 = 16;

/// Attempts to update a slot that others change at the same time.
const TRIES: usize = 8;

/// The recent event rates of clients.
pub struct RateTable {
    sets: Box<[Set]>,
    hasher: foldhash::fast::RandomState,
    /// Events above a rate, for [`RateTable::slips`].
    beyond: AtomicU64,
}

impl Default for RateTable {
    fn default() -> RateTable {
        RateTable {
            sets: (0..SETS).map(|_| Set::default()).collect(),
            hasher: Default::default(),
            beyond: AtomicU64::new(0),
        }
    }
}

impl RateTable {
    /// Counts one event of a client; returns whether it is within the rate. Events above it are not
    /// counted: a client that asks too often still gets what the rate allows.
    pub fn take(&self, client: IpAddr, rate: &Rate, now: Uptime) -> bool {
        let length = if client.is_ipv4() { rate.ipv4 } else { rate.ipv6 };
        let bits = Network::of(client, length).map_or(0, |network| left_aligned(network.address).1);
        let hash = self.hasher.hash_one((client.is_ipv4(), bits));
        let set = &self.sets[hash as usize % SETS].0;
        let who = hash >> TIME << TIME;

        let pace = (1_000_000 * TICKS / u64::from(rate.per_second)).max(1);
        let most = pace * u64::from(rate.burst);
        let now = now.as_micros().wrapping_mul(TICKS);
        // How far ahead of an even pace; more than a burst ahead means written before the clock wrapped.
        let ahead = |slot: u64| {
            let ahead = slot.wrapping_sub(now) << (64 - TIME) >> (64 - TIME);
            if ahead <= most { ahead } else { 0 }
        };
        for _ in 0..TRIES {
            let (slot, seen) = find(set, who, ahead);
            let used = if seen >> TIME << TIME == who {
                ahead(seen)
            } else {
                0
            };
            if used + pace > most {
                return false;
            }
            let next = who | now.wrapping_add(used + pace) << (64 - TIME) >> (64 - TIME);
            if slot
                .compare_exchange_weak(seen, next, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok()
            {
                return true;
            }
        }
        // One client alone does not cause so much contention.
        true
    }

    /// Whether this event above a rate is the one in `every` that gets another treatment; 0: none does.
    pub(crate) fn slips(&self, every: u32) -> bool {
        let every = u64::from(every);
        every > 0 && (self.beyond.fetch_add(1, Ordering::Relaxed) + 1).is_multiple_of(every)
    }
}

/// The slot of `who`, or the one whose client has used least of its share; and its content.
fn find(set: &[AtomicU64; WAYS], who: u64, ahead: impl Fn(u64) -> u64) -> (&AtomicU64, u64) {
    let mut least = (&set[0], 0, u64::MAX);
    for slot in set {
        let seen = slot.load(Ordering::Relaxed);
        if seen >> TIME << TIME == who {
            return (slot, seen);
        }
        let ahead = ahead(seen);
        if ahead < least.2 {
            least = (slot, seen, ahead);
        }
    }
    (least.0, least.1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000;

    fn rate(per_second: u32, burst: u32) -> Rate {
        Rate {
            per_second,
            burst,
            slip: 0,
            ipv4: 24,
            ipv6: 56,
        }
    }

    fn taken(table: &RateTable, client: &str, rate: &Rate, now: u64, times: usize) -> usize {
        let client = client.parse().unwrap();
        (0..times)
            .filter(|_| table.take(client, rate, Uptime::from_micros(now)))
            .count()
    }

    #[test]
    fn a_burst_and_then_the_rate() {
        let table = RateTable::default();
        let rate = rate(10, 25);
        assert_eq!(taken(&table, "192.0.2.1", &rate, 0, 100), 25);
        assert_eq!(taken(&table, "192.0.2.1", &rate, SECOND, 100), 10);
        assert_eq!(taken(&table, "192.0.2.1", &rate, SECOND + SECOND / 10, 100), 1);
        assert_eq!(taken(&table, "192.0.2.1", &rate, 20 * SECOND, 100), 25, "rested");
        // Once the clock has wrapped around, older content counts for nothing.
        assert_eq!(
            taken(&table, "192.0.2.1", &rate, (1 << TIME) / TICKS + 40 * SECOND, 100),
            25
        );
    }

    #[test]
    fn networks_share() {
        let table = RateTable::default();
        let rate = rate(5, 5);
        assert_eq!(taken(&table, "192.0.2.1", &rate, 0, 9), 5);
        assert_eq!(taken(&table, "192.0.2.200", &rate, 0, 9), 0);
        assert_eq!(taken(&table, "192.0.3.1", &rate, 0, 9), 5);
        assert_eq!(taken(&table, "2001:db8:0:1::1", &rate, 0, 9), 5);
        assert_eq!(taken(&table, "2001:db8:0:ff::1", &rate, 0, 9), 0);
        assert_eq!(taken(&table, "2001:db8:0:100::1", &rate, 0, 9), 5);
    }

    /// A million addresses do not make the table forget a client that asks too often.
    #[test]
    fn a_flood_does_not_displace_the_greedy() {
        let table = RateTable::default();
        let rate = Rate {
            ipv4: 32,
            ..rate(100, 100)
        };
        assert_eq!(taken(&table, "192.0.2.1", &rate, 0, 200), 100);
        for address in 0..1_000_000_u32 {
            table.take(
                IpAddr::from((0x0a00_0000 + address).to_be_bytes()),
                &rate,
                Uptime::from_micros(1),
            );
        }
        assert!(taken(&table, "192.0.2.1", &rate, 2, 200) <= 1);
    }

    /// Threads that use the same slot concurrently get no more than one would.
    #[test]
    fn workers_share() {
        let table = RateTable::default();
        let rate = rate(1000, 1000);
        let taken: usize = std::thread::scope(|scope| {
            let thread = || scope.spawn(|| taken(&table, "192.0.2.1", &rate, 0, 2000));
            let threads: Vec<_> = (0..4).map(|_| thread()).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).sum()
        });
        // An event that lost every attempt is allowed.
        assert!((1000..1100).contains(&taken), "{taken}");
    }

    #[test]
    fn one_in_so_many_slips() {
        let table = RateTable::default();
        let slips = |every| (0..12).filter(|_| table.slips(every)).count();
        assert_eq!((slips(0), slips(1), slips(2), slips(3)), (0, 12, 6, 4));
    }

    #[test]
    fn it_is_as_large_as_documented() {
        assert_eq!(SETS * size_of::<Set>(), 512 << 10);
    }
}
