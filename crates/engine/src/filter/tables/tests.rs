//! Tests tables against a model, full of anything a guest may store, and from several threads at once.

use std::collections::HashMap;
use std::sync::Barrier;
use std::thread;

use proptest::prelude::*;

use super::shard::OVERHEAD;
use super::*;
use crate::filter::tables::shard::Rate;

const SECOND: u64 = 1_000_000_000;

pub(super) fn shape(name: &str, octets: u32) -> TableShape {
    TableShape {
        name: name.into(),
        octets,
        shown: false,
    }
}

fn table(octets: u32) -> Table {
    Table::new(&shape("t", octets))
}

fn rate(per_second: f64, burst: u32) -> Rate {
    Rate { per_second, burst }
}

/// A guest's operation on one of a few keys.
#[derive(Debug, Clone)]
enum Step {
    Get,
    Put(Vec<u8>, u64),
    Remove,
    Add(i64, u64),
    /// Whether the expected value is the current one.
    Swap(bool, Option<Vec<u8>>, u64),
    Wait(u64),
}

fn steps() -> impl Strategy<Value = Vec<(u8, Step)>> {
    let value = || proptest::collection::vec(any::<u8>(), 0..12);
    let ttl = || 0..4_u64;
    let step = prop_oneof![
        Just(Step::Get),
        (value(), ttl()).prop_map(|(value, ttl)| Step::Put(value, ttl)),
        Just(Step::Remove),
        (prop_oneof![Just(i64::MAX), -5..5_i64], ttl()).prop_map(|(by, ttl)| Step::Add(by, ttl)),
        (any::<bool>(), proptest::option::of(value()), ttl())
            .prop_map(|(right, new, ttl)| Step::Swap(right, new, ttl)),
        (0..3_u64).prop_map(Step::Wait),
    ];
    proptest::collection::vec((0..4_u8, step), 0..60)
}

/// The interface's documentation in its simplest form: values with their expiry in milliseconds.
#[derive(Default)]
struct Model {
    values: HashMap<u8, (Vec<u8>, u64)>,
    now: u64,
}

impl Model {
    fn get(&self, key: u8) -> Option<&[u8]> {
        let (value, end) = self.values.get(&key)?;
        (*end > self.now).then_some(value)
    }

    fn put(&mut self, key: u8, value: Vec<u8>, ttl: u64) {
        let end = if ttl == 0 { u64::MAX } else { self.now + ttl };
        self.values.insert(key, (value, end));
    }
}

proptest! {
    #[test]
    fn a_table_does_what_its_interface_says(steps in steps()) {
        let (table, mut model) = (table(1 << 20), Model::default());
        for (key, step) in steps {
            let (now, at) = (model.now * 1_000_000, [key]);
            match step {
                Step::Get => prop_assert_eq!(table.get(now, &at), model.get(key).map(<[u8]>::to_vec)),
                Step::Put(value, ttl) => {
                    prop_assert!(table.put(now, &at, &value, ttl));
                    model.put(key, value, ttl);
                }
                Step::Remove => {
                    prop_assert_eq!(table.remove(now, &at), model.get(key).is_some());
                    model.values.remove(&key);
                }
                Step::Add(by, ttl) => {
                    let before = model.get(key).and_then(|value| Some(i64::from_le_bytes(value.try_into().ok()?)));
                    let sum = before.unwrap_or(0).saturating_add(by);
                    prop_assert_eq!(table.add(now, &at, by, ttl), sum);
                    match before {
                        Some(_) => model.values.get_mut(&key).unwrap().0 = sum.to_le_bytes().to_vec(),
                        None => model.put(key, sum.to_le_bytes().to_vec(), ttl),
                    }
                }
                Step::Swap(right, new, ttl) => {
                    let there = model.get(key).map(<[u8]>::to_vec);
                    let expected = if right { there.clone() } else { Some(b"something else".to_vec()) };
                    let swapped = table.compare_and_swap(now, &at, expected.as_deref(), new.as_deref(), ttl);
                    prop_assert_eq!(swapped, right);
                    match (right, new) {
                        (true, Some(new)) => model.put(key, new, ttl),
                        (true, None) => drop(model.values.remove(&key)),
                        (false, _) => {}
                    }
                }
                Step::Wait(time) => model.now += time,
            }
        }
    }

    /// However it is filled, it stays within its limit, and a value found is the one stored last.
    #[test]
    fn octets_are_bounded(
        octets in SMALLEST..400_000,
        puts in proptest::collection::vec((any::<u8>(), 0..3000_usize, 0..3_u64), 0..600),
    ) {
        let table = table(octets);
        let mut last = HashMap::new();
        for (now, (key, length, ttl)) in puts.into_iter().enumerate() {
            let value = vec![key; length];
            if table.put(now as u64, &[key], &value, ttl) {
                last.insert(key, value);
            }
            let size = table.size();
            prop_assert!(size.octets <= octets as usize);
            prop_assert!(size.entries * OVERHEAD <= size.octets);
        }
        for (key, value) in &last {
            let found = table.get(600, &[*key]);
            prop_assert!(found.as_ref().is_none_or(|found| found == value));
        }
        // Counts match the contents.
        for key in 0..=255 {
            table.remove(600, &[key]);
        }
        prop_assert_eq!((table.size().entries, table.size().octets), (0, 0));
    }
}

/// An entry takes no more heap than it counts as, for any number of entries, growing and shrinking.
#[test]
fn an_entry_takes_no_more_than_it_counts_as() {
    let table = table(64 << 10);
    let taken = || {
        let part = table.parts[0].lock();
        part.heap()
    };
    for round in 0..2_u32 {
        for number in 0..300_u32 {
            table.put(0, &(number << round).to_be_bytes(), &[7; 5], 0);
            let size = table.size();
            // A table with a few entries has a few spare slots, which do not count.
            assert!(
                taken() <= size.octets + 4096,
                "{} for {} entries",
                taken(),
                size.entries
            );
        }
        for number in 0..290_u32 {
            table.remove(0, &(number << round).to_be_bytes());
            assert!(taken() <= table.size().octets + 4096);
        }
    }
}

#[test]
fn what_is_too_large_is_refused_and_changes_nothing() {
    let table = table(SMALLEST);
    let long = [b'k'; 1025];
    assert!(table.put(0, &long[1..], b"value", 0));
    assert!(!table.put(0, &long, b"value", 0));
    assert_eq!(table.add(0, &long, 5, 0), 5);
    assert!(!table.take(0, &long, 0, rate(1.0, 1)));
    assert!(!table.compare_and_swap(0, &long, None, Some(b"value"), 0));
    assert_eq!(table.get(0, &long), None);
    assert!(table.put(0, b"k", b"before", 0));
    assert!(!table.put(0, b"k", &[0; SMALLEST as usize], 0));
    assert!(!table.compare_and_swap(0, b"k", Some(b"before"), Some(&[0; SMALLEST as usize]), 0));
    assert_eq!(table.get(0, b"k").unwrap(), b"before");
    assert_eq!(table.refused.load(std::sync::atomic::Ordering::Relaxed), 6);
}

/// Whatever the size of the table: reading an entry copies it.
#[test]
fn no_entry_is_larger_than_64_kib() {
    for octets in [4 << 20, 256 << 20] {
        let table = table(octets);
        let most = vec![7; (64 << 10) - OVERHEAD - 1];
        assert!(table.put(0, b"k", &most, 0));
        assert_eq!(table.get(0, b"k").unwrap(), most);
        assert!(!table.put(0, b"k", &[&most[..], b"7"].concat(), 0));
    }
}

/// Expired entries go first, then those written longest ago.
#[test]
fn the_least_recently_written_make_room() {
    let table = table(8 * (OVERHEAD as u32 + 8) + SMALLEST);
    let fits = table.octets() / (OVERHEAD + 4 + 4);
    let key = |number: usize| (number as u32).to_be_bytes();
    let put = |now: u64, number: usize, ttl| assert!(table.put(now, &key(number), b"1234", ttl));
    for number in 0..fits {
        put(number as u64, number, if number % 3 == 0 { 1 } else { 0 });
    }
    assert_eq!((table.size().entries, table.size().evicted), (fits, 0));
    // Every third has expired: as many fit, and no other has to go.
    let now = 2_000_000;
    let over = fits.div_ceil(3);
    for number in 0..over / 2 {
        put(now, 1000 + number, 0);
    }
    let live = (0..fits).filter(|number| number % 3 != 0);
    let left = live
        .clone()
        .filter(|&number| table.get(now, &key(number)).is_some());
    assert!(left.count() + table.size().evicted as usize >= live.count());
    // A flood does not evict what is rewritten all the time.
    for number in 0..10 * fits {
        put(now + 1 + number as u64, 5000 + number, 0);
        put(now + 1 + number as u64, 1, 0);
    }
    assert!(table.get(now, &key(1)).is_some());
    assert!(table.size().evicted as usize > 8 * fits);
}

#[test]
fn a_bucket_fills_at_its_rate_and_no_higher_than_its_burst() {
    let table = table(SMALLEST);
    let take = |milliseconds: u64| table.take(milliseconds * 1_000_000, b"k", 1, rate(3.0, 2));
    assert_eq!([take(0), take(0), take(0)], [true, true, false]);
    // One token per third of a second, however often it is requested.
    assert_eq!(
        [take(100), take(333), take(334), take(335)],
        [false, false, true, false]
    );
    assert_eq!([take(99_999), take(99_999), take(99_999)], [true, true, false]);
    // Another worker read the clock earlier but took the lock later.
    assert_eq!([take(99_000), take(100_333)], [false, true]);
    // Taking more than there are takes nothing.
    let several = |tokens| table.take(0, b"several", tokens, rate(0.0, 5));
    assert_eq!([several(6), several(5), several(1)], [false, true, false]);
    // A value is not a bucket, nor a bucket a value.
    assert_eq!(table.get(0, b"several"), None);
    table.put(0, b"several", b"value", 0);
    assert!(several(5));
}

#[test]
fn no_rate_is_too_odd() {
    let table = table(SMALLEST);
    for (key, per_second, again) in [
        (b"n", f64::NAN, false),
        (b"-", -1.0, false),
        (b"0", 0.0, false),
        (b"8", f64::INFINITY, true),
        (b"x", f64::MAX, true),
        (b"m", f64::MIN_POSITIVE, false),
    ] {
        assert!(table.take(0, key, 1, rate(per_second, 1)), "{per_second}");
        assert_eq!(
            table.take(9 * SECOND, key, 1, rate(per_second, 1)),
            again,
            "{per_second}"
        );
    }
    assert!(table.take(u64::MAX, b"late", u32::MAX, rate(1e-300, u32::MAX)));
    assert!(!table.take(0, b"late", 1, rate(1.0, u32::MAX)));
    assert_eq!(table.add(0, b"most", i64::MAX, u64::MAX), i64::MAX);
    assert_eq!(table.add(u64::MAX - 1, b"most", 1, 1), i64::MAX);
}

/// Each token goes to one taker, each addition counts once, and one of several swaps wins.
#[test]
fn workers_do_not_come_between_each_other() {
    const THREADS: usize = 4;
    const ROUNDS: usize = 2000;
    let (table, start) = (table(1 << 20), Barrier::new(THREADS));
    let totals = thread::scope(|scope| {
        let workers: Vec<_> = (0..THREADS)
            .map(|_| {
                scope.spawn(|| {
                    start.wait();
                    let (mut taken, mut won) = (0, 0);
                    for round in 0..ROUNDS {
                        taken += usize::from(table.take(0, b"bucket", 1, rate(0.0, ROUNDS as u32)));
                        table.add(0, b"sum", 1, 0);
                        let key = (round as u32).to_be_bytes();
                        won += usize::from(table.compare_and_swap(0, &key, None, Some(b"mine"), 0));
                    }
                    (taken, won)
                })
            })
            .collect();
        workers
            .into_iter()
            .map(|worker| worker.join().unwrap())
            .fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1))
    });
    assert_eq!(totals, (ROUNDS, ROUNDS));
    let sum = table.get(0, b"sum").unwrap();
    assert_eq!(
        i64::from_le_bytes(sum.try_into().unwrap()),
        (THREADS * ROUNDS) as i64
    );
}

/// All workers fill it endlessly, with keys and values of all sizes.
#[test]
fn a_flood_from_all_workers_stays_within_its_octets() {
    let table = table(256 << 10);
    thread::scope(|scope| {
        for worker in 0..4_u32 {
            let table = &table;
            scope.spawn(move || {
                for number in 0..5000_u32 {
                    let key = [worker.to_be_bytes(), number.to_be_bytes()].concat();
                    let key = key.repeat(number as usize % 200);
                    table.put(number.into(), &key, &vec![0; number as usize * 7 % 70_000], 0);
                    table.add(number.into(), &key, 1, 0);
                    table.take(number.into(), &key, 1, rate(1.0, 1));
                }
            });
        }
    });
    let size = table.size();
    assert!(size.octets <= 256 << 10 && size.entries > 0, "{size:?}");
}

#[test]
fn a_table_is_kept_if_name_and_shape_are_the_same() {
    let open = |shapes: &[TableShape], before| Tables::open(shapes, 1 << 20, before);
    let first = open(&[shape("a", 5000), shape("b", 5000), shape("c", 5000)], None).unwrap();
    for table in &first.0 {
        table.put(0, b"k", b"kept", 0);
    }
    let shown = TableShape {
        shown: true,
        ..shape("c", 5000)
    };
    let second = open(
        &[shown, shape("b", 6000), shape("new", 5000), shape("a", 5000)],
        Some(&first),
    )
    .unwrap();
    let kept = second.0.iter().map(|table| table.get(0, b"k").is_some());
    assert_eq!(kept.collect::<Vec<_>>(), [false, false, false, true]);
    // A table without users is freed.
    let freed = Arc::downgrade(&first.0[1]);
    drop(first);
    assert!(freed.upgrade().is_none());
}

#[test]
fn shapes_are_checked() {
    let told = |shapes: &[TableShape]| Tables::open(shapes, 1 << 20, None).map(drop).unwrap_err();
    for name in ["", "a b", "ä", "a\n", &"a".repeat(64)] {
        assert!(told(&[shape(name, 5000)]).contains("needs a name"), "{name:?}");
    }
    assert_eq!(
        told(&[shape("a", 4095)]),
        "the table \"a\" has 4095 bytes; the minimum is 4096"
    );
    assert_eq!(
        told(&[shape("a", 5000), shape("a", 6000)]),
        "two tables are called \"a\""
    );
    assert_eq!(
        told(&[shape("a", 1 << 20), shape("b", 4096)]),
        "its tables take 1052672 bytes, which is more than `limits tables=` allows (1MiB)"
    );
    let many: Vec<_> = (0..17).map(|index| shape(&index.to_string(), 4096)).collect();
    assert_eq!(told(&many), "it has 17 tables; the maximum is 16");
    let huge = [shape("a", u32::MAX), shape("b", u32::MAX), shape("c", u32::MAX)];
    assert!(told(&huge).contains("more than"));
}
