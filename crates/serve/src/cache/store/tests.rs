use super::*;
use crate::cache::fixture::{self, ms};
use crate::cache::key::{KeyFlags, KeyHasher};

const WIRE: [u8; 64] = [0; 64];

/// `a.org`, `b.org` and `x.a.org` in wire format.
const A: &[u8] = b"\x01a\x03org\0";
const B: &[u8] = b"\x01b\x03org\0";
const BELOW_A: &[u8] = b"\x01x\x01a\x03org\0";

struct Fixture {
    cache: Cache,
    hasher: KeyHasher,
}

impl Fixture {
    fn new(limit: usize) -> Self {
        Self {
            cache: Cache::new(limit),
            hasher: KeyHasher::new(),
        }
    }

    fn key<'a>(&self, name: &'a [u8], qtype: u16) -> Key<'a> {
        fixture::key(&self.hasher, name, qtype, KeyFlags::default())
    }

    /// Stores an answer, `now` milliseconds after the start.
    fn insert(&self, name: &[u8], kind: Kind, now: u64) -> Insertion {
        self.cache.insert(&self.key(name, 1), &stored(kind, now))
    }

    fn kind(&self, name: &[u8], now: u64) -> Option<Kind> {
        self.cache
            .lookup(&self.key(name, 1), ms(now))
            .map(|entry| entry.kind())
    }
}

fn stored(kind: Kind, now: u64) -> Stored<'static> {
    fixture::stored(&WIRE, kind, ms(now))
}

fn numbered(n: u32) -> Vec<u8> {
    [&b"\x04"[..], &n.to_be_bytes(), b"\0"].concat()
}

#[test]
fn an_answer_is_found_until_it_is_gone() {
    let at = Fixture::new(1 << 20);
    assert_eq!(at.insert(A, Kind::Success, 0), Insertion::Stored);
    assert_eq!(at.kind(A, 109_999), Some(Kind::Success), "stale");
    assert_eq!(at.kind(B, 0), None);
    assert_eq!(at.kind(A, 110_000), None);
    assert_eq!(
        at.cache.stats().kind(Kind::Success),
        KindStats::default(),
        "cleared by the lookup"
    );
}

#[test]
fn lookups_count() {
    let at = Fixture::new(1 << 20);
    at.insert(A, Kind::Success, 0);
    at.kind(A, 1);
    let entry = at.cache.lookup(&at.key(A, 1), ms(2)).unwrap();
    assert_eq!(entry.hits(), 2);
    at.insert(A, Kind::Success, 3);
    assert_eq!(
        at.cache.lookup(&at.key(A, 1), ms(4)).unwrap().hits(),
        1,
        "since it was stored"
    );
}

#[test]
fn a_failure_does_not_displace_what_is_of_use() {
    let at = Fixture::new(1 << 20);
    for now in [5_000, 50_000] {
        at.insert(A, Kind::Denial, 0);
        assert_eq!(at.insert(A, Kind::Failure, now), Insertion::KeptOlder);
        let entry = at.cache.lookup(&at.key(A, 1), ms(now)).unwrap();
        assert_eq!(entry.kind(), Kind::Denial);
        assert!(!entry.may_retry(ms(now + 29_999), Uptime::START));
        assert!(entry.may_retry(ms(now + 30_000), Uptime::START));
    }
    assert_eq!(
        at.insert(A, Kind::Failure, 110_000),
        Insertion::Stored,
        "the denial is gone"
    );
    assert_eq!(at.insert(A, Kind::Failure, 111_000), Insertion::Stored);
    assert_eq!(at.insert(A, Kind::Success, 112_000), Insertion::Stored);
    assert_eq!(at.kind(A, 112_000), Some(Kind::Success));
}

#[test]
fn an_answer_that_cannot_be_stored_takes_the_older_away() {
    let at = Fixture::new(1 << 20);
    let large = vec![0; 65_535];
    let unstorable = [
        Stored {
            ttl_secs: 0,
            ..stored(Kind::Success, 1)
        },
        Stored {
            wire: &[0; 11],
            ..stored(Kind::Success, 1)
        },
    ];
    for newer in unstorable {
        at.insert(A, Kind::Success, 0);
        assert_eq!(at.cache.insert(&at.key(A, 1), &newer), Insertion::NotStored);
        assert_eq!(at.kind(A, 1), None);
    }
    let small = Fixture::new(32 << 10);
    small.insert(A, Kind::Success, 0);
    let newer = Stored {
        wire: &large,
        ..stored(Kind::Success, 1)
    };
    assert_eq!(small.cache.insert(&small.key(A, 1), &newer), Insertion::NotStored);
    assert_eq!(small.kind(A, 1), None);
    small.cache.audit();
}

#[test]
fn a_failure_that_is_not_cached_leaves_a_stale_answer() {
    let at = Fixture::new(1 << 20);
    at.insert(A, Kind::Success, 0);
    let failure = Stored {
        ttl_secs: 0,
        ..stored(Kind::Failure, 20_000)
    };
    assert_eq!(at.cache.insert(&at.key(A, 1), &failure), Insertion::KeptOlder);
    assert_eq!(at.kind(A, 20_000), Some(Kind::Success));
}

#[test]
fn the_largest_message_fits_in_every_shard_of_a_full_store() {
    for limit in [256 << 10, 1 << 20, 32 << 20] {
        let at = Fixture::new(limit);
        let large = vec![0; 65_535];
        for n in 0..(limit / 200) as u32 {
            at.insert(&numbered(n), Kind::Success, 0);
        }
        for n in 0..200u16 {
            let answer = Stored {
                wire: &large,
                ..stored(Kind::Success, 0)
            };
            assert_eq!(at.cache.insert(&at.key(A, n), &answer), Insertion::Stored);
        }
        assert!(at.cache.stats().bytes <= limit as u64);
    }
}

#[test]
fn a_tiny_limit_stores_nothing() {
    for limit in [0, 1, 1000, 4096] {
        let at = Fixture::new(limit);
        assert_eq!(at.insert(A, Kind::Success, 0), Insertion::NotStored);
        assert_eq!(at.kind(A, 0), None);
        at.cache.audit();
    }
}

#[test]
fn a_lower_limit_gives_memory_back_and_keeps_what_is_popular() {
    let at = Fixture::new(8 << 20);
    for n in 0..100_000 {
        at.insert(&numbered(n), Kind::Success, 0);
        at.kind(&numbered(n % 100), 0);
    }
    for limit in [6 << 20, 1 << 20, 4 << 20, 512 << 10] {
        at.cache.set_limit(limit);
        at.cache.audit();
        let stats = at.cache.stats();
        assert!(stats.bytes <= limit as u64, "{stats:?}");
        assert_eq!(stats.limit_bytes, limit as u64);
    }
    let stats = at.cache.stats();
    assert!(
        stats.kind(Kind::Success).bytes > 256 << 10,
        "most of the limit is used: {stats:?}"
    );
    assert!((0..100).filter(|&n| at.kind(&numbered(n), 0).is_some()).count() > 95);
    at.cache.set_limit(0);
    at.cache.audit();
    assert_eq!(at.cache.stats().kind(Kind::Success).entries, 0);
}

#[test]
fn flushing_takes_a_name_or_all_below_it() {
    let at = Fixture::new(1 << 20);
    let fill = || {
        for name in [A, B, BELOW_A] {
            for qtype in [1, 28] {
                at.cache.insert(&at.key(name, qtype), &stored(Kind::Success, 0));
            }
        }
    };
    fill();
    assert_eq!(at.cache.flush_name(A), 2);
    assert_eq!((at.kind(A, 0), at.kind(BELOW_A, 0)), (None, Some(Kind::Success)));
    fill();
    assert_eq!(at.cache.flush_below(A), 4);
    assert_eq!(
        (at.kind(A, 0), at.kind(BELOW_A, 0), at.kind(B, 0)),
        (None, None, Some(Kind::Success))
    );
    assert_eq!(at.cache.flush_below(b"\0"), 2);
    fill();
    assert!(at.cache.remove(&at.key(A, 28)));
    assert!(!at.cache.remove(&at.key(A, 28)));
    assert_eq!(at.cache.stats().kind(Kind::Success).entries, 5);
    at.cache.audit();
}

#[test]
fn insertions_clear_away_what_has_expired_before_anything_else() {
    let at = Fixture::new(256 << 10);
    for n in 0..500 {
        at.insert(&numbered(n), Kind::Success, 0);
    }
    for n in 500..1_000 {
        at.insert(&numbered(n), Kind::Denial, 110_000);
    }
    let stats = at.cache.stats();
    assert_eq!(stats.kind(Kind::Success).entries, 0);
    assert_eq!(stats.kind(Kind::Denial).entries, 500);
    assert_eq!(stats.kind(Kind::Success).evictions, 0, "expiry is not eviction");
    for n in 1_000..3_000 {
        at.insert(&numbered(n), Kind::Denial, 110_000);
    }
    let denials = at.cache.stats().kind(Kind::Denial);
    assert_eq!(denials.entries + denials.evictions, 2_500);
    assert!(denials.evictions > 0);
}

#[test]
fn a_name_that_comes_back_soon_outlives_a_scan() {
    // Now and then another name overwrites the fingerprint, so one store proves nothing.
    let outlives = || {
        let at = Fixture::new(256 << 10);
        at.insert(A, Kind::Success, 0);
        let mut scan = (0..).map(numbered);
        while at.cache.stats().kind(Kind::Success).evictions == 0 {
            at.insert(&scan.next().expect("endless"), Kind::Success, 0);
        }
        assert_eq!(at.kind(A, 0), None, "the first to come is the first to leave");
        at.insert(A, Kind::Success, 0);
        for name in scan.take(10_000) {
            at.insert(&name, Kind::Success, 0);
        }
        at.kind(A, 0).is_some()
    };
    assert!((0..20).filter(|_| outlives()).count() > 10);
}

#[test]
fn threads_never_see_each_others_answers() {
    const NAMES: u32 = 2_000;
    let at = Fixture::new(1 << 20);
    std::thread::scope(|scope| {
        let at = &at;
        for thread in 0..3 {
            scope.spawn(move || {
                for step in 0..30_000u32 {
                    let n = (step.wrapping_mul(2_654_435_761) >> 7 ^ thread) % NAMES;
                    let name = numbered(n);
                    let key = at.key(&name, 1);
                    match at.cache.lookup(&key, ms(step.into())) {
                        Some(entry) => {
                            assert_eq!((entry.name(), &entry.wire()[12..16]), (&*name, &name[1..5]))
                        }
                        None => {
                            let mut wire = [0; 200];
                            wire[12..16].copy_from_slice(&name[1..5]);
                            let answer = Stored {
                                wire: &wire,
                                ..stored(Kind::Success, u64::from(step))
                            };
                            assert_eq!(at.cache.insert(&key, &answer), Insertion::Stored);
                        }
                    }
                }
            });
        }
        for step in 0..40 {
            at.cache
                .set_limit(if step % 2 == 0 { 128 << 10 } else { 1 << 20 });
            at.cache.flush_name(&numbered(step));
        }
    });
    at.cache.audit();
    assert!(at.cache.stats().bytes <= 1 << 20);
}

#[test]
fn kinds_are_counted_apart() {
    let at = Fixture::new(1 << 20);
    at.insert(A, Kind::Success, 0);
    at.insert(B, Kind::Denial, 0);
    at.insert(BELOW_A, Kind::Failure, 0);
    at.insert(A, Kind::Denial, 1);
    let stats = at.cache.stats();
    assert_eq!(Kind::ALL.map(|kind| stats.kind(kind).entries), [0, 2, 1]);
    let entries: u64 = Kind::ALL.map(|kind| stats.kind(kind).bytes).iter().sum();
    assert!(entries < stats.bytes);
}
