//! Tests the store against a naive model, and S3-FIFO against a plain queue.

use std::collections::{HashMap, HashSet, VecDeque};
use std::time::Duration;

use dnsweir_os::clock::Uptime;
use proptest::prelude::*;

use super::freshness::{Freshness, Lifetime};
use super::{Cache, Insertion, KeyFlags, KeyHasher, Kind, Stored, fixture};
use crate::config::Prefetch;

#[derive(Clone, Debug)]
enum Op {
    Lookup {
        key: u16,
    },
    Insert {
        key: u16,
        kind: Kind,
        ttl_secs: u32,
        stale_secs: u32,
        len: usize,
    },
    Remove {
        key: u16,
    },
    FlushBelow {
        group: u8,
    },
    SetLimit {
        limit: usize,
    },
    Wait {
        ms: u64,
    },
}

/// Names of two labels: 8 groups of 64 names, and each name with and without DO.
const KEYS: u16 = 1024;

fn group_suffix(group: u8) -> Vec<u8> {
    vec![1, b'a' + group, 0]
}

fn name(key: u16) -> Vec<u8> {
    let mut name = vec![2];
    name.extend_from_slice(&(key >> 4).to_be_bytes());
    name.extend_from_slice(&group_suffix(group(key)));
    name
}

fn group(key: u16) -> u8 {
    (key >> 1 & 7) as u8
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    // Squaring makes low keys popular, so that they are looked up while they are cached.
    let key = (0..32u16, 0..32u16).prop_map(|(a, b)| (a * b) % KEYS);
    let kind = prop_oneof![4 => Just(Kind::Success), 2 => Just(Kind::Denial), 2 => Just(Kind::Failure)];
    let len = prop_oneof![20 => 12..300usize, 5 => 300..5_000usize, 1 => 5_000..65_536usize];
    let insert =
        (key.clone(), kind, 0..20u32, 0..60u32, len).prop_map(|(key, kind, ttl_secs, stale_secs, len)| {
            Op::Insert {
                key,
                kind,
                ttl_secs,
                stale_secs,
                len,
            }
        });
    let op = prop_oneof![
        40 => key.clone().prop_map(|key| Op::Lookup { key }),
        40 => insert,
        2 => key.prop_map(|key| Op::Remove { key }),
        1 => (0..8u8).prop_map(|group| Op::FlushBelow { group }),
        1 => (0..600_000usize).prop_map(|limit| Op::SetLimit { limit }),
        10 => (0..9_000u64).prop_map(|ms| Op::Wait { ms }),
    ];
    prop::collection::vec(op, 1..400)
}

/// What the model knows about an answer: enough to tell it from all others.
struct Known {
    stamp: [u8; 8],
    kind: Kind,
    lifetime: Lifetime,
}

fn wire(stamp: u64, len: usize) -> Vec<u8> {
    let mut wire = vec![0xaa; len];
    wire[..8].copy_from_slice(&stamp.to_be_bytes());
    wire
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    /// Invariants: a lookup finds the newest answer to exactly that key or nothing, and never one past use;
    /// the limit holds after every operation.
    #[test]
    fn the_store_agrees_with_a_map(first_limit in 0..1_500_000usize, ops in ops()) {
        let hasher = KeyHasher::new();
        let cache = Cache::new(first_limit);
        let mut limit = first_limit;
        let mut known: HashMap<u16, Known> = HashMap::new();
        let mut now = Uptime::START;
        for (stamp, op) in ops.into_iter().enumerate() {
            let (Op::Lookup { key: id } | Op::Insert { key: id, .. } | Op::Remove { key: id }) = op else {
                match op {
                    Op::FlushBelow { group: flushed } => {
                        cache.flush_below(&group_suffix(flushed));
                        known.retain(|&id, _| group(id) != flushed);
                    }
                    Op::SetLimit { limit: new } => {
                        limit = new;
                        cache.set_limit(new);
                    }
                    Op::Wait { ms } => now = now.plus(Duration::from_millis(ms)),
                    _ => unreachable!("has a key"),
                }
                cache.audit();
                prop_assert!(is_within(&cache, limit), "{:?}", cache.stats());
                continue;
            };
            let name = name(id);
            let flags = KeyFlags::new(id & 1 == 1, false);
            let key = fixture::key(&hasher, &name, 1, flags);
            match op {
                Op::Lookup { .. } => {
                    if let Some(entry) = cache.lookup(&key, now) {
                        let expected = known.get(&id);
                        prop_assert!(expected.is_some(), "found what was never stored or was removed");
                        let expected = expected.unwrap();
                        prop_assert_eq!(&entry.wire()[..8], &expected.stamp);
                        prop_assert_eq!(entry.name(), &name);
                        prop_assert_eq!(entry.kind(), expected.kind);
                        prop_assert_eq!(entry.lifetime(), expected.lifetime);
                        prop_assert_ne!(entry.lifetime().freshness(now), Freshness::Gone);
                    }
                }
                Op::Insert { kind, ttl_secs, stale_secs, len, .. } => {
                    let wire = wire(stamp as u64, len);
                    let stored = Stored { ttl_secs, stale_secs, ..fixture::stored(&wire, kind, now) };
                    match cache.insert(&key, &stored) {
                        Insertion::Stored => {
                            let stale_secs = if kind == Kind::Failure { ttl_secs } else { stale_secs };
                            let lifetime = Lifetime { stored_at: now, ttl_secs, stale_secs };
                            known.insert(id, Known { stamp: (stamp as u64).to_be_bytes(), kind, lifetime });
                            prop_assert!(cache.lookup(&key, now).is_some(), "just stored");
                        }
                        Insertion::NotStored => _ = known.remove(&id),
                        Insertion::KeptOlder => {
                            prop_assert_eq!(kind, Kind::Failure);
                            let older = cache.lookup(&key, now).expect("it was kept");
                            prop_assert_ne!(older.kind(), Kind::Failure);
                            prop_assert!(!older.may_retry(now, Uptime::START));
                            let eager = Prefetch { hits: 0, percent: 100 };
                            prop_assert!(!older.prefetch_due(&eager, now));
                        }
                    }
                }
                Op::Remove { .. } => {
                    cache.remove(&key);
                    known.remove(&id);
                    prop_assert!(cache.lookup(&key, now).is_none());
                }
                _ => unreachable!("has no key"),
            }
            cache.audit();
            prop_assert!(is_within(&cache, limit), "{:?}", cache.stats());
        }
    }
}

/// With a limit too low for any entry, the empty shards remain.
fn is_within(cache: &Cache, limit: usize) -> bool {
    let stats = cache.stats();
    stats.bytes <= limit as u64 || Kind::ALL.iter().all(|&kind| stats.kind(kind).entries == 0)
}

/// A stream of names: popular ones by Zipf's law, mixed with names that come only once, as in a scan.
fn stream(popular: u32, scan_percent: u32) -> impl Iterator<Item = u32> {
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let mut random = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let mut scanned = popular;
    std::iter::from_fn(move || {
        if random() % 100 < u64::from(scan_percent) {
            scanned += 1;
            return Some(scanned);
        }
        // Zipf with exponent 1: the rank's logarithm is uniform.
        let unit = (random() >> 11) as f64 / (1u64 << 53) as f64;
        Some(f64::from(popular).powf(unit) as u32)
    })
}

#[test]
fn a_scan_pushes_out_less_than_from_a_plain_queue() {
    const POPULAR: u32 = 20_000;
    const ASKED: usize = 600_000;
    let wire = [0; 120];
    for scan_percent in [0, 50, 80] {
        let cache = Cache::new(1 << 20);
        let hasher = KeyHasher::new();
        let (mut hits, mut asked) = (0u32, 0u32);
        for name in stream(POPULAR, scan_percent).take(ASKED) {
            let wire_name = [&b"\x04"[..], &name.to_be_bytes(), b"\x07example\x03org\0"].concat();
            let key = fixture::key(&hasher, &wire_name, 1, KeyFlags::default());
            let hit = cache.lookup(&key, Uptime::START).is_some();
            if !hit {
                cache.insert(&key, &fixture::stored(&wire, Kind::Success, Uptime::START));
            }
            if name <= POPULAR {
                asked += 1;
                hits += u32::from(hit);
            }
        }
        // The plain queue holds as many names as the store does.
        let room = cache.stats().kind(Kind::Success).entries as usize;
        let (mut queue, mut there) = (VecDeque::new(), HashSet::new());
        let mut plain_hits = 0;
        for name in stream(POPULAR, scan_percent).take(ASKED) {
            if there.contains(&name) {
                plain_hits += u32::from(name <= POPULAR);
                continue;
            }
            if queue.len() == room {
                there.remove(&queue.pop_front().expect("full"));
            }
            queue.push_back(name);
            there.insert(name);
        }
        let ratio = |hits: u32| f64::from(hits) / f64::from(asked);
        println!(
            "{scan_percent} % scan, room for {room} of {POPULAR} popular names: hit ratio {:.3}, plain queue {:.3}",
            ratio(hits),
            ratio(plain_hits)
        );
        assert!(ratio(hits) > ratio(plain_hits) + 0.03);
    }
}
