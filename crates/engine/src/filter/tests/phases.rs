//! A filter's verdicts arrive and are memoized.

use std::io::Write;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Sender, channel};

use dnsweir_os::clock::UnixTime;

use super::*;

#[test]
fn an_instance_can_be_made_for_another_thread() {
    fn goes_elsewhere<T: Send>(_: &T) {}
    goes_elsewhere(&puppet());
}

#[test]
fn silence_is_a_pass() {
    let mut instance = puppet();
    assert_eq!(ask(&mut instance, &batch(&[1])), "-");
    assert_eq!(ask(&mut instance, &batch(&[1; 64])), "-".repeat(64));
    assert_eq!(ask(&mut instance, &batch(&[])), "");
    let counters = instance.filter().counters();
    assert_eq!(counters.queries.calls.load(Ordering::Relaxed), 2);
    assert_eq!(counters.queries.items.load(Ordering::Relaxed), 65);
}

#[test]
fn verdicts_find_their_queries() {
    let mut instance = puppet();
    assert_eq!(ask(&mut instance, &batch(&[1, 2, 1, 1, 2, 11])), "-5--5+");
    let verdicts = &instance.filter().counters().verdicts;
    assert_eq!(verdicts.refuse.load(Ordering::Relaxed), 2);
    assert_eq!(verdicts.pass.load(Ordering::Relaxed), 1);
}

#[test]
fn names_find_their_queries() {
    let mut instance = puppet();
    let mut batch = Batch::default();
    for name in [&b"\x01a\0"[..], b"\x03www\x01a\0", b"\0"] {
        batch.push_query(query(10), name.into(), 0);
    }
    assert_eq!(ask(&mut instance, &batch), "130");
}

#[test]
fn what_may_be_remembered_is() {
    let mut instance = puppet();
    let names = [b"\x01a\0", b"\x01b\0", b"\x01c\0"];
    let mut batch = Batch::default();
    for (qtype, name) in [1, 2, 11].into_iter().zip(names) {
        batch.push_query(query(qtype), name[..].into(), 7);
    }
    ask(&mut instance, &batch);
    let key = |qtype| Key {
        hash: 7,
        name: names[match qtype {
            1 => 0,
            2 => 1,
            _ => 2,
        }],
        qtype,
        qclass: 1,
        zone: 0,
    };
    assert!(
        instance.recall(&key(1), UnixTime::from_millis(1_500)).is_none(),
        "no verdict, nothing to remember"
    );
    assert_eq!(
        instance
            .recall(&key(2), UnixTime::from_millis(1_500))
            .unwrap()
            .verdict
            .decision,
        Decision::Refuse(Refusal {
            rcode: 5,
            error: None
        })
    );
    assert_eq!(
        instance
            .recall(&key(11), UnixTime::from_millis(1_999))
            .unwrap()
            .verdict
            .decision,
        Decision::Pass
    );
    assert!(
        instance.recall(&key(2), UnixTime::from_millis(2_000)).is_none(),
        "it held for a second"
    );
    instance.settle();
    assert_eq!(instance.filter().counters().remembered.load(Ordering::Relaxed), 2);
}

#[test]
fn responses_are_edited() {
    let mut instance = puppet();
    let mut batch = Batch::default();
    for rcode in [0, 2] {
        batch.push_response(response(1, rcode), b"\x01a\0"[..].into(), b"message");
    }
    let mut out = Vec::new();
    instance.responses(UnixTime::from_millis(1_000), &batch, &mut out);
    let edit = ResponseEdit {
        rcodes: Box::new([]),
        records: Box::new([]),
        is_cut: false,
        header_set: 0,
        header_clear: 0,
        error: None,
        ttl_minimum: 0,
        ttl_maximum: 30,
        store: false,
        stale: false,
    };
    let verdict = ResponseVerdict {
        edit: Some(edit),
        decision: ResponseDecision::Pass,
        delay: 0,
    };
    assert_eq!(out, [Outcome::Passed, Outcome::Decided(verdict)]);
}

#[test]
fn events_reach_standard_output_and_the_counters() {
    struct Lines(Sender<Vec<u8>>);
    impl Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.send(bytes.to_vec()).map_err(io::Error::other)?;
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let (sender, printed) = channel();
    let engine = Engine::printing_to(Lines(sender)).unwrap();
    let mut instance = load(&engine, guests::puppet()).unwrap().instantiate().unwrap();
    let mut batch = Batch::default();
    batch.push_event(event(9), b"\x01a\0"[..].into(), b"");
    instance.events(&batch);
    assert_eq!(printed.recv().unwrap(), b"seen\n");
    let counters = instance.filter().counters();
    let own = counters.own.snapshot();
    let own: Vec<_> = own.iter().map(|own| (&*own.name, own.count)).collect();
    assert_eq!(own, [("seen_total", 2)]);
    assert_eq!(counters.events.items.load(Ordering::Relaxed), 1);
}
