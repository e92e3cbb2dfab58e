//! Data as guests access it.

use std::fs::{self, File};
use std::sync::atomic::Ordering;

use super::*;
use crate::config::Data;

/// 80 KiB of sorted lines.
fn text() -> Vec<u8> {
    let mut text = b"a 1\nb 22\n".to_vec();
    let more = (0..8192).map(|number| format!("c-{number:07}\n"));
    text.extend(more.collect::<String>().into_bytes());
    text
}

/// A `filter` block whose second argument is this data.
fn with_data(module: Vec<u8>, octets: &[u8]) -> config::Filter {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("data");
    fs::write(&path, octets).unwrap();
    let mut block = block(module);
    block.config[0].arguments[1] =
        ConfigValue::Data(Data::read(File::open(&path).unwrap(), u64::MAX).unwrap());
    block
}

fn reader() -> Arc<Filter> {
    // Its `configure` checks that the data is there from the start.
    let configure = "(if (i32.eqz (call $has (i32.const 0))) (then unreachable)) (i32.const 16)";
    let block = with_data(guests::reader(configure), &text());
    Filter::load(&ENGINE, &block, &[], None).unwrap()
}

#[test]
fn all_instances_read_the_same_data() {
    let filter = reader();
    for _ in 0..2 {
        let mut instance = filter.instantiate().unwrap();
        assert_eq!(ask(&mut instance, &batch(&[1])), "4");
        assert_eq!(ask(&mut instance, &batch(&[2])), "3");
    }
}

#[test]
fn what_there_is_not_is_not_read() {
    let filter = reader();
    let mut instance = filter.instantiate().unwrap();
    // Beyond the end, an index without data, and a key that no line can have.
    for qtype in [3, 5, 7] {
        assert_eq!(ask(&mut instance, &batch(&[qtype])), "-", "{qtype}");
    }
    // 64 KiB and no more.
    assert_eq!(ask(&mut instance, &batch(&[4])), "256");
    // An address outside of the guest's memory is a trap.
    for qtype in [6, 10] {
        assert_eq!(ask(&mut instance, &batch(&[qtype])), "!", "{qtype}");
        assert_eq!(ask(&mut instance, &batch(&[1])), "4");
    }
    assert_eq!(filter.counters().traps.trap.load(Ordering::Relaxed), 2);
    // Without configured data there is none.
    let none = load(&ENGINE, guests::reader("(i32.const 16)")).unwrap();
    let mut instance = none.instantiate().unwrap();
    assert_eq!(ask(&mut instance, &batch(&[1])), "-");
    assert_eq!(ask(&mut instance, &batch(&[4])), "-");
}

#[test]
fn who_reads_without_end_is_ended() {
    let filter = reader();
    for (count, qtype) in [(1, 8), (2, 9)] {
        let mut instance = filter.instantiate().unwrap();
        assert_eq!(ask(&mut instance, &batch(&[qtype])), "!");
        assert_eq!(filter.counters().traps.time.load(Ordering::Relaxed), count);
        assert_eq!(ask(&mut instance, &batch(&[1])), "4");
    }
}
