//! Tables as guests access them.

use std::sync::atomic::Ordering;

use super::*;
use crate::metrics::{Metrics, Sample};

const CONFIGURE: &str = "(i32.const 16)";

fn keeper(octets: u16, before: Option<&Filter>) -> Arc<Filter> {
    let block = block(guests::keeper(octets, CONFIGURE));
    Filter::load(&ENGINE, &block, &[], before).unwrap()
}

fn instance(filter: &Arc<Filter>) -> Instance {
    filter.instantiate().unwrap()
}

/// A metric of the table.
fn figure(filter: &Filter, name: &str) -> u64 {
    let mut metrics = Metrics::default();
    filter.show(&mut metrics);
    let metric = metrics.all().iter().find(|metric| metric.name == name);
    match metric.unwrap().samples.values().next() {
        Some(Sample::Whole(number)) => *number,
        other => panic!("{name}: {other:?}"),
    }
}

#[test]
fn all_instances_have_the_same_tables() {
    let filter = keeper(8192, None);
    let (mut one, mut other) = (instance(&filter), instance(&filter));
    assert_eq!(ask(&mut one, &batch(&[1])), "-");
    assert_eq!(ask(&mut other, &batch(&[1])), "-");
    assert_eq!(ask(&mut one, &batch(&[1])), "5");
    assert_eq!(ask(&mut other, &batch(&[1])), "5");
    // So does an instance that replaces a failed one.
    assert_eq!(ask(&mut one, &batch(&[2])), "!");
    assert_eq!(ask(&mut one, &batch(&[1])), "5");
}

#[test]
fn tables_outlast_a_reload_in_the_same_shape() {
    let first = keeper(8192, None);
    let mut running = instance(&first);
    assert_eq!(ask(&mut running, &batch(&[1])), "-");
    let second = keeper(8192, Some(&first));
    assert_eq!(ask(&mut instance(&second), &batch(&[1])), "-");
    // Both generations run for a moment.
    assert_eq!(ask(&mut running, &batch(&[1])), "5");
    drop((first, running));
    assert_eq!(ask(&mut instance(&second), &batch(&[1])), "5");
    let larger = keeper(8193, Some(&second));
    assert_eq!(ask(&mut instance(&larger), &batch(&[1])), "-");
}

#[test]
fn what_there_is_not_is_a_trap() {
    let filter = keeper(8192, None);
    for (qtype, word) in [(2, "table 1"), (4, "out of bounds")] {
        assert_eq!(ask(&mut instance(&filter), &batch(&[qtype])), "!");
        assert_eq!(ask(&mut instance(&filter), &batch(&[1])), "-", "{word}");
    }
    assert_eq!(filter.counters().traps.trap.load(Ordering::Relaxed), 2);
    // Tables do not exist before `configure` returns.
    let early = guests::keeper(8192, "(drop (call $take_one (i32.const 0))) (i32.const 16)");
    let error = load(&ENGINE, early).unwrap_err();
    assert!(
        error
            .to_string()
            .contains("no tables before `configure` has returned"),
        "{error}"
    );
}

#[test]
fn a_table_filled_without_end_stays_within_its_octets() {
    let filter = keeper(8192, None);
    let mut instance = instance(&filter);
    assert_eq!(ask(&mut instance, &batch(&[3])), "!");
    assert_eq!(filter.counters().traps.time.load(Ordering::Relaxed), 1);
    assert_eq!(ask(&mut instance, &batch(&[5])), "5");
    assert!(figure(&filter, "filter_table_bytes") <= 8192);
    assert!(figure(&filter, "filter_table_evictions") > 0);
    assert_eq!(figure(&filter, "filter_table_refused"), 1);
    assert_eq!(figure(&filter, "filter_table_limit_bytes"), 8192);
    assert_eq!(filter.table_octets(), 8192);
}

#[test]
fn tables_beyond_their_limit_are_refused() {
    let mut block = block(guests::keeper(8192, CONFIGURE));
    block.limits.tables = 8191;
    let error = Filter::load(&ENGINE, &block, &[], None).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the filter's manifest is invalid: its tables take 8192 bytes, which is more than `limits tables=` allows (8191B)"
    );
    let error = load(&ENGINE, guests::keeper(4095, CONFIGURE)).unwrap_err();
    assert!(error.to_string().contains("the minimum is 4096"), "{error}");
}
