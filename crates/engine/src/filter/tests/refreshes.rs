//! Refreshes, good and hostile.

use std::sync::atomic::Ordering;
use std::time::Duration;

use dnsweir_os::clock::UnixTime;

use super::*;
use crate::config::{DataWriter, Refresh, RefreshOrigin, RefreshSource};
use crate::filter::SourceFile;

/// A block with a refresh. Its source does not matter, since it is never read.
fn refreshed(module: Vec<u8>) -> config::Filter {
    let mut block = block(module);
    block.refresh = Some(Refresh {
        every: Duration::from_secs(3600),
        wait: Duration::ZERO,
        sources: vec![RefreshSource {
            name: "list".to_owned(),
            origin: RefreshOrigin::Path("/nowhere".into()),
            size: 1 << 20,
        }],
    });
    block.limits.data = 1 << 20;
    block.limits.refresh_memory = 1 << 20;
    block.limits.refresh_time = Duration::from_millis(50);
    block
}

fn refresher() -> Arc<Filter> {
    Filter::load(&ENGINE, &refreshed(guests::refresher()), &[], None).unwrap()
}

fn file(octets: &[u8]) -> SourceFile {
    let mut writer = DataWriter::new().unwrap();
    writer.append(octets).unwrap();
    SourceFile {
        name: "list".to_owned(),
        file: String::new(),
        data: writer.finish().unwrap(),
    }
}

#[test]
fn all_instances_see_what_is_published() {
    let filter = refresher();
    let mut instances = [filter.instantiate().unwrap(), filter.instantiate().unwrap()];
    let mut say = |expected: &str| {
        for instance in &mut instances {
            assert_eq!(ask(instance, &batch(&[1])), expected);
        }
    };
    say("-");
    assert!(!filter.has_published());
    filter.refresh(UnixTime::from_millis(1), Vec::new()).unwrap();
    say("5");
    assert!(filter.has_published());
    assert_eq!(filter.published_octets(), 1);
    // Publishing a source makes no copy.
    let source = file(b"\x07more");
    filter
        .refresh(UnixTime::from_millis(2), vec![source.clone()])
        .unwrap();
    say("7");
    assert_eq!(
        Arc::strong_count(&source.data),
        2,
        "this one and the published one"
    );
    filter.refresh(UnixTime::from_millis(11), Vec::new()).unwrap();
    say("-");
    assert_eq!(filter.published_octets(), 0);
    // An instance started later.
    filter.refresh(UnixTime::from_millis(1), Vec::new()).unwrap();
    assert_eq!(ask(&mut filter.instantiate().unwrap(), &batch(&[1])), "5");
}

#[test]
fn what_was_remembered_of_other_data_is_forgotten() {
    let filter = refresher();
    let mut instance = filter.instantiate().unwrap();
    let batch = batch(&[1]);
    let key = crate::filter::Key {
        hash: batch.hash(0),
        name: batch.name(0),
        qtype: 1,
        qclass: 1,
        zone: 0,
    };
    let recalls = |instance: &mut Instance| instance.recall(&key, UnixTime::from_millis(1_500)).is_some();
    filter.refresh(UnixTime::from_millis(1), Vec::new()).unwrap();
    assert_eq!(ask(&mut instance, &batch), "5");
    assert!(recalls(&mut instance));
    filter
        .refresh(UnixTime::from_millis(2), vec![file(b"\x07")])
        .unwrap();
    assert!(!recalls(&mut instance));
    assert_eq!(ask(&mut instance, &batch), "7");
    assert!(recalls(&mut instance));
    // A refresh that fails changes nothing.
    filter.refresh(UnixTime::from_millis(7), Vec::new()).unwrap_err();
    assert!(recalls(&mut instance));
}

#[test]
fn a_refresh_that_fails_leaves_everything_as_it_was() {
    let filter = refresher();
    let mut instance = filter.instantiate().unwrap();
    filter.refresh(UnixTime::from_millis(1), Vec::new()).unwrap();
    for (how, expected) in [
        (3, "unreachable"),
        (4, "took longer"),
        (5, "memory"),
        (6, "no"),
        (7, "no"),
        (8, "out of bounds"),
        (9, "discriminant"),
        (10, "no"),
        (12, "out of bounds"),
    ] {
        let problem = filter
            .refresh(UnixTime::from_millis(how), Vec::new())
            .unwrap_err();
        assert!(problem.contains(expected), "{how}: {problem}");
        assert_eq!(ask(&mut instance, &batch(&[1])), "5", "{how}");
    }
    assert_eq!(filter.published_octets(), 1);
    // It is not a failure of the instances that handle queries.
    let traps = &filter.counters().traps;
    let failures = [&traps.trap, &traps.time, &traps.memory, &traps.garbage];
    assert!(failures.iter().all(|count| count.load(Ordering::Relaxed) == 0));
}

#[test]
fn who_is_to_refresh_has_to_be_able_to() {
    let refused = Filter::load(&ENGINE, &refreshed(guests::puppet()), &[], None).unwrap_err();
    assert!(refused.to_string().contains("refresh"), "{refused}");
}
