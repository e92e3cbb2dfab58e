//! What a failing filter costs: its own answer, and never the others'.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

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
        (3, b"\x01a\0"),
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

#[test]
fn a_batch_of_loops_costs_three_limits() {
    let mut instance = puppet();
    assert_eq!(ask(&mut instance, &batch_of(64, 4)), "!".repeat(64));
    assert_eq!(traps(&instance), [0, 3, 0, 0]);
    assert_eq!(read(&instance.filter().counters().suspended), 1);
}

#[test]
fn loops_between_good_queries_cost_no_more() {
    let mut instance = puppet();
    let types: Vec<u16> = (0..64).map(|i| if i % 2 == 0 { 4 } else { 1 }).collect();
    let begun = Instant::now();
    let said = ask(&mut instance, &batch(&types));
    assert!(said.starts_with("!-!"), "{said}");
    // What passes meanwhile pays for a tenth, also where it passes because others have the processor; and a call is
    // ended when it has had half of its limit, at the earliest.
    let paid = begun.elapsed().as_nanos() / (5 * LIMIT).as_nanos();
    let most = 7 + paid as u64;
    assert!(
        (2..=most).contains(&traps(&instance)[1]),
        "{:?} of {most}",
        traps(&instance)
    );
    assert_eq!(read(&instance.filter().counters().suspended), 1);
}

#[test]
fn a_suspended_filter_is_not_called_and_comes_back() {
    let mut instance = puppet();
    ask(&mut instance, &batch_of(3, 3));
    let counters = Arc::clone(instance.filter().counters());
    assert_eq!(read(&counters.suspended), 1);
    let calls = read(&counters.queries.calls);
    assert_eq!(ask(&mut instance, &batch(&[1, 2])), "!!");
    assert_eq!(read(&counters.queries.calls), calls);
    instance.let_pass(Duration::from_secs(2));
    assert_eq!(ask(&mut instance, &batch(&[1, 2])), "-5");
    assert_eq!(read(&counters.suspended), 0);
}

#[test]
fn one_query_decides_about_the_return() {
    let mut instance = puppet();
    ask(&mut instance, &batch_of(3, 3));
    let traps_before = traps(&instance)[0];
    instance.let_pass(Duration::from_secs(2));
    assert_eq!(ask(&mut instance, &batch(&[2, 3, 2])), "5!5", "a good one");
    assert_eq!(traps(&instance)[0], traps_before + 1, "it went in alone");
    assert_eq!(read(&instance.filter().counters().suspended), 0);
    ask(&mut instance, &batch_of(3, 3));
    instance.let_pass(Duration::from_secs(5));
    assert_eq!(ask(&mut instance, &batch(&[3, 2, 2])), "!!!", "a bad one");
    assert_eq!(read(&instance.filter().counters().suspended), 1);
}

/// The third failure in a row would suspend the filter, so a batch with good queries in it does not make it.
#[test]
fn what_suspends_is_one_query_and_not_a_batch() {
    let mut instance = puppet();
    assert_eq!(ask(&mut instance, &batch(&[3])), "!");
    assert_eq!(ask(&mut instance, &batch(&[3])), "!");
    assert_eq!(ask(&mut instance, &batch(&[2, 3, 1])), "5!-");
    assert_eq!(traps(&instance), [3, 0, 0, 0]);
    assert_eq!(read(&instance.filter().counters().suspended), 0);
}

#[test]
fn after_a_pause_a_loop_costs_one_limit() {
    let mut instance = puppet();
    ask(&mut instance, &batch_of(64, 4));
    for (pause, tries) in [(2, 4), (5, 5), (17, 6)] {
        instance.let_pass(Duration::from_secs(pause));
        assert_eq!(ask(&mut instance, &batch_of(64, 4)), "!".repeat(64));
        assert_eq!(traps(&instance), [0, tries, 0, 0]);
        assert_eq!(read(&instance.filter().counters().suspended), 1);
    }
}

#[test]
fn the_next_pause_is_longer() {
    let mut instance = puppet();
    ask(&mut instance, &batch_of(3, 3));
    instance.let_pass(Duration::from_secs(2));
    assert_eq!(ask(&mut instance, &batch_of(3, 3)), "!!!");
    assert_eq!(traps(&instance)[0], 4, "one query more");
    instance.let_pass(Duration::from_secs(3));
    assert_eq!(ask(&mut instance, &batch(&[2])), "!");
    instance.let_pass(Duration::from_secs(2));
    assert_eq!(ask(&mut instance, &batch(&[2])), "5");
}

#[test]
fn an_instance_that_goes_away_is_not_suspended_any_more() {
    let mut instance = puppet();
    ask(&mut instance, &batch_of(3, 3));
    let counters = Arc::clone(instance.filter().counters());
    assert_eq!(read(&counters.suspended), 1);
    drop(instance);
    assert_eq!(read(&counters.suspended), 0);
}

/// What was started in the place of a lost instance serves like the first one: a call may last for several ticks.
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
    for rcode in [0, 3, 2] {
        batch.push_response(response(1, rcode), b"\x01a\0"[..].into(), b"message");
    }
    let mut out = Vec::new();
    instance.responses(1_000, &batch, &mut out);
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
}
