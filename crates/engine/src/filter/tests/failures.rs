//! What a failing filter costs: its own answers, and never those to others.

use std::sync::atomic::{AtomicU64, Ordering};

use dnsweir_os::clock::UnixTime;

use super::*;

fn read(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

/// Traps by reason: trap, time, memory, garbage.
fn traps(instance: &Instance) -> [u64; 4] {
    let traps = &instance.filter().counters().traps;
    [
        read(&traps.trap),
        read(&traps.time),
        read(&traps.memory),
        read(&traps.garbage),
    ]
}

#[test]
fn only_the_guilty_query_fails() {
    let mut instance = puppet();
    let mut batch = Batch::default();
    for (qtype, name) in [
        (1, &b"\0"[..]),
        (10, b"\x03www\0"),
        (2, b"\0"),
        (3, b"\x01b\0"),
        (10, b"\x01a\0"),
    ] {
        batch.push_query(query(qtype), name.into(), 0);
    }
    assert_eq!(ask(&mut instance, &batch), "-35!1");
    assert_eq!(
        traps(&instance),
        [2, 0, 0, 0],
        "once with the others and once alone"
    );
    let counters = instance.filter().counters();
    assert_eq!(read(&counters.queries.failed), 1);
    assert_eq!(read(&counters.queries.items), 5);
    assert_eq!(
        read(&counters.verdicts.refuse),
        3,
        "what the failed call said does not count"
    );
    assert_eq!(
        ask(&mut instance, &batch_of(8, 2)),
        "5".repeat(8),
        "a new instance goes on"
    );
}

fn batch_of(size: usize, qtype: u16) -> Batch<Query> {
    batch(&vec![qtype; size])
}

#[test]
fn failures_are_told_apart() {
    for (qtype, expected) in [(3, [1, 0, 0, 0]), (4, [0, 1, 0, 0]), (5, [0, 0, 1, 0])] {
        let mut instance = puppet();
        assert_eq!(ask(&mut instance, &batch(&[qtype])), "!");
        assert_eq!(traps(&instance), expected, "type {qtype}");
        assert_eq!(ask(&mut instance, &batch(&[1])), "-");
    }
}

#[test]
fn nonsense_is_a_failure() {
    for qtype in [6, 7, 8] {
        let mut instance = puppet();
        assert_eq!(ask(&mut instance, &batch(&[1, qtype, 2])), "-!5", "type {qtype}");
        assert_eq!(traps(&instance), [0, 0, 0, 2], "type {qtype}");
    }
}

#[test]
fn memory_stays_below_its_limit() {
    let mut instance = puppet();
    ask(&mut instance, &batch(&[5]));
    let peak = read(&instance.filter().counters().memory);
    assert!((1 << 20..=2 << 20).contains(&peak), "{peak}");
}

/// A query: type, name and client.
type Asked = (u16, u32, u32);

/// A batch of queries for these names by these clients.
fn asked(queries: &[Asked]) -> Batch<Query> {
    let mut batch = Batch::default();
    for &(qtype, name, client) in queries {
        let name = format!("\x08{name:08x}\0");
        let client_low = 0xffff_0a00_0000 + u64::from(client);
        batch.push_query(
            Query {
                client_low,
                ..query(qtype)
            },
            name.as_bytes().into(),
            0,
        );
    }
    batch
}

/// The puppet, with the cost of a start set to a millisecond, however long it takes here.
fn priced() -> Instance {
    let mut filter = load(&ENGINE, guests::puppet()).unwrap();
    Arc::get_mut(&mut filter).unwrap().start = Duration::from_millis(1);
    filter.instantiate().unwrap()
}

fn uncalled(instance: &Instance) -> [u64; 4] {
    let counters = instance.filter().counters();
    counters.uncalled.reasons().map(|(_, count)| read(count))
}

fn suspended(instance: &Instance) -> bool {
    read(&instance.filter().counters().suspended) > 0
}

const TRAP: u16 = 3;
const LOOP: u16 = 4;
const GOOD: u16 = 2;

/// All good queries for new names from new clients are answered.
fn all_is_well(instance: &mut Instance, round: u32) {
    let good: Vec<Asked> = (0..3)
        .map(|number| (GOOD, 0x1000_0000 + round * 8 + number, round * 8 + number))
        .collect();
    assert_eq!(ask(instance, &asked(&good)), "555", "round {round}");
}

/// Whichever clients query it: queries for other names still reach the filter.
#[test]
fn one_name_is_blamed_alone() {
    for bad in [TRAP, LOOP] {
        let mut instance = priced();
        for round in 0..200 {
            assert_eq!(ask(&mut instance, &asked(&[(bad, 1, 1_000_000 + round)])), "!");
            all_is_well(&mut instance, round);
            instance.let_pass(Duration::from_millis(50));
        }
        // Immediately, after a second, and after four more.
        let failed: u64 = traps(&instance).iter().sum();
        assert!((2..=3).contains(&failed), "{failed}");
        let [name, client, suspended, starting] = uncalled(&instance);
        assert_eq!((name, client, suspended, starting), (200 - failed, 0, 0, 0));
    }
}

/// Whatever it queries: other clients still reach the filter.
#[test]
fn one_client_is_blamed_alone() {
    for bad in [TRAP, LOOP] {
        let mut instance = priced();
        for round in 0..200 {
            assert_eq!(ask(&mut instance, &asked(&[(bad, round, 9_999_999)])), "!");
            all_is_well(&mut instance, round);
            instance.let_pass(Duration::from_millis(50));
        }
        let failed: u64 = traps(&instance).iter().sum();
        assert!((4..=5).contains(&failed), "{failed}");
        let [name, client, suspended, starting] = uncalled(&instance);
        assert_eq!((name, client, suspended, starting), (0, 200 - failed, 0, 0));
    }
}

/// It queries many names in one batch with others.
#[test]
fn one_client_in_a_batch_is_blamed_alone() {
    let mut instance = priced();
    let mut queries: Vec<Asked> = (0..32).map(|number| (LOOP, number, 9_999_999)).collect();
    queries.extend((0..32).map(|number| (GOOD, 100 + number, number)));
    let said = ask(&mut instance, &asked(&queries));
    assert_eq!(said, "!".repeat(32) + &"5".repeat(32));
    assert_eq!(traps(&instance), [0, 4, 0, 0], "all together, and three alone");
    assert!(!suspended(&instance));
}

/// A client that queries a name already blamed is its next victim, not the cause.
#[test]
fn those_who_ask_for_a_bad_name_are_not_blamed() {
    let mut instance = priced();
    for pause in [0, 2, 5, 17, 61] {
        instance.let_pass(Duration::from_secs(pause));
        assert_eq!(ask(&mut instance, &asked(&[(TRAP, 1, 1)])), "!");
    }
    assert_eq!(traps(&instance), [5, 0, 0, 0]);
    assert_eq!(ask(&mut instance, &asked(&[(GOOD, 2, 1)])), "5");
}

/// Twenty traps a second cost less than a tenth of the time, whatever causes them.
#[test]
fn traps_of_random_names_from_random_addresses_are_paid_for() {
    let mut instance = priced();
    for round in 0..200 {
        assert_eq!(
            ask(&mut instance, &asked(&[(TRAP, round, 1_000_000 + round)])),
            "!"
        );
        all_is_well(&mut instance, round);
        instance.let_pass(Duration::from_millis(50));
    }
    assert_eq!(traps(&instance), [200, 0, 0, 0]);
    assert!(!suspended(&instance));
}

/// Known clients and names still reach the filter; for others it is suspended. At most a tenth of the time is
/// wasted.
#[test]
fn loops_of_random_names_from_random_addresses_suspend_it_for_strangers() {
    let mut instance = priced();
    let (known_name, known_client) = ((GOOD, 900_001, 500), (GOOD, 900_002, 600));
    assert_eq!(ask(&mut instance, &asked(&[(LOOP, 0, 1_000_000)])), "!");
    assert_eq!(ask(&mut instance, &asked(&[known_name, known_client])), "55");
    let mut strangers = 0;
    for round in 1..300 {
        assert_eq!(
            ask(&mut instance, &asked(&[(LOOP, round, 1_000_000 + round)])),
            "!"
        );
        let known = [(GOOD, 900_001, 2_000_000 + round), (GOOD, 3_000_000 + round, 600)];
        assert_eq!(ask(&mut instance, &asked(&known)), "55", "round {round}");
        let stranger = (GOOD, 4_000_000 + round, 4_000_000 + round);
        strangers += usize::from(ask(&mut instance, &asked(&[stranger])) == "5");
        instance.let_pass(Duration::from_millis(20));
    }
    // Six seconds pay for 30 failures of 20 ms, or for 60 that were ended after half of that.
    let loops = traps(&instance)[1];
    assert!((6..=80).contains(&loops), "{loops}");
    assert!((1..299).contains(&strangers), "{strangers}");
    assert!(uncalled(&instance)[2] > 0);
}

/// The worst batch: every name and client is new and causes only one failure.
#[test]
fn a_batch_of_loops_costs_six_limits() {
    let mut instance = priced();
    let queries: Vec<Asked> = (0..64).map(|number| (LOOP, number, number)).collect();
    assert_eq!(ask(&mut instance, &asked(&queries)), "!".repeat(64));
    // A call is ended after half of its limit at the earliest.
    let loops = traps(&instance)[1];
    assert!((6..=12).contains(&loops), "{loops}");
    assert!(suspended(&instance));
}

#[test]
fn a_suspended_filter_is_called_for_those_who_are_known_and_comes_back() {
    let mut instance = priced();
    ask(&mut instance, &asked(&[(TRAP, 1, 1)]));
    assert_eq!(ask(&mut instance, &asked(&[(GOOD, 2, 2)])), "5");
    let loops: Vec<Asked> = (0..64).map(|number| (LOOP, 100 + number, 100 + number)).collect();
    ask(&mut instance, &asked(&loops));
    let calls = read(&instance.filter().counters().queries.calls);
    assert_eq!(
        ask(&mut instance, &asked(&[(GOOD, 3, 3), (GOOD, 2, 4), (GOOD, 5, 2)])),
        "!55"
    );
    assert_eq!(read(&instance.filter().counters().queries.calls), calls + 2);
    instance.let_pass(Duration::from_secs(5));
    assert_eq!(ask(&mut instance, &asked(&[(GOOD, 3, 3)])), "5");
    assert!(!suspended(&instance));
}

/// When there is no room for more blame, the filter itself is suspended.
#[test]
fn more_names_than_the_book_holds_suspend_it() {
    let mut instance = priced();
    let mut rounds = 0;
    while !suspended(&instance) {
        ask(&mut instance, &asked(&[(TRAP, rounds, rounds)]));
        instance.let_pass(Duration::from_millis(50));
        rounds += 1;
    }
    assert_eq!(rounds, 1025);
}

/// Blame does not last for good, and once it is over the book is not consulted.
#[test]
fn the_book_is_closed_after_a_while() {
    let mut instance = priced();
    ask(&mut instance, &asked(&[(TRAP, 1, 1)]));
    assert!(instance.filter().blame.is_open());
    instance.let_pass(Duration::from_secs(119));
    ask(&mut instance, &asked(&[(GOOD, 2, 2)]));
    assert!(instance.filter().blame.is_open());
    instance.let_pass(Duration::from_secs(1));
    ask(&mut instance, &asked(&[(GOOD, 2, 2)]));
    assert!(!instance.filter().blame.is_open());
}

/// No call waits for an instance.
#[test]
fn without_a_ready_instance_nothing_is_called() {
    let mut instance = puppet();
    instance.filter().starve();
    assert_eq!(ask(&mut instance, &batch(&[TRAP])), "!");
    assert_eq!(ask(&mut instance, &batch(&[GOOD, 1])), "!!");
    assert_eq!(uncalled(&instance), [0, 0, 0, 2]);
    assert_eq!(read(&instance.filter().counters().restarts), 0);
}

/// One worker's failures count on all workers.
#[test]
fn all_workers_have_the_same_book() {
    let filter = load(&ENGINE, guests::puppet()).unwrap();
    let mut instances = [filter.instantiate().unwrap(), filter.instantiate().unwrap()];
    assert_eq!(ask(&mut instances[0], &batch(&[TRAP, GOOD])), "!5");
    assert_eq!(ask(&mut instances[1], &batch(&[TRAP, GOOD])), "!5");
    assert_eq!(
        traps(&instances[0]),
        [2, 0, 0, 0],
        "together and alone, and not again"
    );
}

#[test]
fn an_instance_that_goes_away_is_not_suspended_any_more() {
    let mut instance = priced();
    let loops: Vec<Asked> = (0..64).map(|number| (LOOP, number, number)).collect();
    ask(&mut instance, &asked(&loops));
    let counters = Arc::clone(instance.filter().counters());
    assert_eq!(read(&counters.suspended), 1);
    drop(instance);
    assert_eq!(read(&counters.suspended), 0);
}

/// A replacement instance serves like the first one: a call may last for several ticks.
#[test]
fn a_new_instance_may_take_its_time() {
    let mut block = block(guests::puppet());
    block.limits.time = Duration::from_secs(1);
    let filter = Filter::load(&ENGINE, &block, &[], None).unwrap();
    let mut instance = filter.instantiate().unwrap();
    assert_eq!(ask(&mut instance, &batch(&[3])), "!");
    let begun = time_limit::thread_clock();
    assert_eq!(
        ask(&mut instance, &batch(&[4])),
        "!",
        "it loops until its time is up"
    );
    assert!(time_limit::thread_clock() - begun >= Duration::from_millis(100));
    assert_eq!(traps(&instance), [1, 1, 0, 0]);
}

#[test]
fn responses_fail_one_by_one_too() {
    let mut instance = puppet();
    let mut batch = Batch::default();
    for (rcode, name) in [(0, b"\x01a\0"), (3, b"\x01b\0"), (2, b"\x01c\0")] {
        batch.push_response(response(1, rcode), name[..].into(), b"message");
    }
    let mut out = Vec::new();
    instance.responses(UnixTime::from_millis(1_000), &batch, &mut out);
    assert!(
        matches!(out[..], [Outcome::Passed, Outcome::Failed, Outcome::Decided(_)]),
        "{out:?}"
    );
}

#[test]
fn failed_events_are_counted() {
    let mut instance = puppet();
    let mut batch = Batch::default();
    for qtype in [9, 3, 9] {
        batch.push_event(event(qtype), b"\x01a\0"[..].into(), b"");
    }
    instance.events(&batch);
    let events = &instance.filter().counters().events;
    assert_eq!(
        (read(&events.calls), read(&events.items), read(&events.failed)),
        (1, 3, 3)
    );
    // From now on they go in one by one.
    let mut batch = Batch::default();
    for (qtype, name) in [(9, b"\x01a\0"), (3, b"\x01b\0"), (9, b"\x01c\0"), (3, b"\x01b\0")] {
        batch.push_event(event(qtype), name[..].into(), b"");
    }
    instance.events(&batch);
    let events = &instance.filter().counters().events;
    assert_eq!(
        (read(&events.calls), read(&events.items), read(&events.failed)),
        (4, 7, 5)
    );
}
