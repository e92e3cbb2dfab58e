//! What a lookup and an insertion cost. Figures, not a test: run by hand with
//! `cargo test --release --test cache_timing -- --ignored --nocapture`.

use std::hint::black_box;
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use dnsweir::cache::{Cache, Flights, Join, Key, KeyFlags, KeyHasher, Kind, Stored};

fn names(count: u32) -> Vec<Vec<u8>> {
    let name = |n: u32| {
        let label = format!("host-{n}");
        [
            &[label.len() as u8][..],
            label.as_bytes(),
            b"\x07example\x03org\0",
        ]
        .concat()
    };
    (0..count).map(name).collect()
}

fn key<'a>(hasher: &KeyHasher, name: &'a [u8]) -> Key<'a> {
    Key::new(hasher.question(name, 1, 1), name, 1, 1, KeyFlags::default(), 0)
}

const ANSWER: Stored<'_> = Stored {
    wire: &[0; 120],
    ttl_offsets: &[40, 56],
    kind: Kind::Success,
    ttl_secs: 600,
    stale_secs: 0,
    now_ms: 0,
};

fn filled(hasher: &KeyHasher, names: &[Vec<u8>]) -> Cache {
    let cache = Cache::new(256 << 20);
    for name in names {
        cache.insert(&key(hasher, name), &ANSWER);
    }
    cache
}

/// The best of five runs, in nanoseconds for one call on one thread.
fn best(threads: usize, calls: usize, run: impl Fn(usize) + Sync) -> f64 {
    let once = || {
        let start = Barrier::new(threads);
        std::thread::scope(|scope| {
            let spawned: Vec<_> = (0..threads)
                .map(|thread| {
                    let (start, run) = (&start, &run);
                    scope.spawn(move || {
                        start.wait();
                        let begin = Instant::now();
                        run(thread);
                        begin.elapsed()
                    })
                })
                .collect();
            spawned
                .into_iter()
                .map(|thread| thread.join().expect("no panic"))
                .max()
                .unwrap_or(Duration::ZERO)
        })
    };
    let shortest = (0..5).map(|_| once()).min().unwrap_or(Duration::ZERO);
    shortest.as_nanos() as f64 / calls as f64
}

#[test]
#[ignore = "figures, run by hand"]
fn lookups_and_insertions() {
    const CALLS: usize = 2_000_000;
    let hasher = KeyHasher::new();
    for count in [1, 8, 1_000, 300_000] {
        let names = names(count);
        let cache = filled(&hasher, &names);
        let lookup = |thread: usize| {
            let mut at = thread * 7;
            for _ in 0..CALLS {
                at = (at + 7_919) % names.len();
                black_box(cache.lookup(&key(&hasher, &names[at]), 1));
            }
        };
        println!(
            "hit among {count}: 1 thread {:.1} ns, 2 threads {:.1} ns",
            best(1, CALLS, lookup),
            best(2, CALLS, lookup)
        );
    }

    let names_ = names(1_000);
    let cache = filled(&hasher, &names_);
    let copy = best(1, CALLS, |_| {
        let mut buffer = [0; 512];
        for n in 0..CALLS {
            if let Some(entry) = cache.lookup(&key(&hasher, &names_[n % 1_000]), 1) {
                let message = &mut buffer[..entry.wire().len()];
                message.copy_from_slice(entry.wire());
                entry.age_ttls(message, 1);
                black_box(&*message);
            }
        }
    });
    let hash = best(1, CALLS, |_| {
        for n in 0..CALLS {
            black_box(key(&hasher, &names_[n % 1_000]));
        }
    });
    println!("hash of a question: {hash:.1} ns; hit, copy and two TTLs: {copy:.1} ns");

    let names = names(CALLS as u32);
    let insert = best(1, CALLS, |_| {
        let cache = Cache::new(32 << 20);
        for name in &names {
            black_box(cache.insert(&key(&hasher, name), &ANSWER));
        }
    });
    println!("insertion of a new name into a full store: {insert:.1} ns");
    let cache = Cache::new(32 << 20);
    let mut times: Vec<_> = names
        .iter()
        .map(|name| {
            let begin = Instant::now();
            black_box(cache.insert(&key(&hasher, name), &ANSWER));
            begin.elapsed()
        })
        .collect();
    times.sort_unstable();
    let at = |part: f64| times[((times.len() - 1) as f64 * part) as usize];
    println!(
        "one insertion: p50 {:?} p99 {:?} p99.99 {:?} max {:?}",
        at(0.5),
        at(0.99),
        at(0.9999),
        at(1.0)
    );

    let flights = Flights::<Arc<[u8]>>::new(Default::default());
    let answer: Arc<[u8]> = Arc::from([0; 120]);
    let flight = best(1, CALLS, |_| {
        for name in &names {
            if let Join::Lead(leader) = flights.join(&key(&hasher, name)) {
                leader.finish(Arc::clone(&answer));
            }
        }
    });
    println!("a flight without followers: {flight:.1} ns");
}
