//! Sources that pass questions to the next stage: `except` and `next` of `forward`.

use crate::harness::upstream::Reply;
use crate::harness::{ONCE, Proxy, Upstream};

/// Answers every name with this address.
fn saying(address: &'static str) -> Upstream {
    Upstream::start(move |asked| asked.answer(&[&format!("{} 300 A {address}", asked.name())]))
}

#[test]
fn excepted_names_go_to_the_next_stage() {
    let (first, second) = (saying("192.0.2.1"), saying("192.0.2.2"));
    let proxy = Proxy::start(&format!(
        "zone \".\" {{ cache; forward \"{}\" {{ except \"Corp.example\" \"a.test\"; {ONCE} }}; forward \"{}\" {{ {ONCE} }} }}",
        first.address, second.address
    ));
    for (name, answer) in [
        ("www.example.", "192.0.2.1"),
        ("corp.example.", "192.0.2.2"),
        ("www.corp.example.", "192.0.2.2"),
        ("notcorp.example.", "192.0.2.1"),
        ("a.test.", "192.0.2.2"),
        ("test.", "192.0.2.1"),
    ] {
        // The second time from the cache, which is above both.
        for _ in 0..2 {
            assert_eq!(
                proxy.query(name, "A").answers(),
                [format!("{name} A {answer}")],
                "{name}"
            );
        }
    }
    assert!(first.asked("corp.example").is_empty());
    assert_eq!(second.asked("corp.example").len(), 1);
}

#[test]
fn what_is_excepted_and_nobody_elses_is_refused() {
    let upstream = saying("192.0.2.1");
    let proxy = Proxy::start(&format!(
        "zone \".\" {{ forward \"{}\" {{ except \"corp.example\"; {ONCE} }} }}",
        upstream.address
    ));
    assert_eq!(proxy.query("www.corp.example", "A").rcode(), "REFUSED");
    assert_eq!(proxy.query("www.example", "A").rcode(), "NOERROR");
}

/// Each kind of answer that may go to the next stage, which gets no unnecessary queries.
#[test]
fn some_answers_are_left_to_the_next_stage() {
    let first = Upstream::start(|asked| match &*asked.name() {
        "no.example." => asked.denial("NXDOMAIN", None),
        "none.example." => asked.denial("NOERROR", None),
        "broken.example." => asked.denial("SERVFAIL", None),
        "refused.example." => asked.denial("REFUSED", None),
        "silent.example." => Reply::Silence,
        name => asked.answer(&[&format!("{name} 300 A 192.0.2.1")]),
    });
    let second = saying("192.0.2.2");
    for (next, passed) in [
        ("NXDOMAIN", &["no.example."][..]),
        ("NODATA", &["none.example."]),
        ("SERVFAIL", &["broken.example.", "silent.example."]),
        ("REFUSED", &["refused.example."]),
    ] {
        let proxy = Proxy::start(&format!(
            "zone \".\" {{ forward \"{}\" {{ next \"{next}\"; attempts 1; timeout \"300ms\"; deadline \"1s\" }}; cache; forward \"{}\" {{ {ONCE} }} }}",
            first.address, second.address
        ));
        for name in [
            "www.example.",
            "no.example.",
            "none.example.",
            "broken.example.",
            "refused.example.",
            "silent.example.",
        ] {
            let answer = proxy.query(name, "A");
            let expected = match name {
                "www.example." => vec!["www.example. A 192.0.2.1".to_owned()],
                name if passed.contains(&name) => vec![format!("{name} A 192.0.2.2")],
                _ => Vec::new(),
            };
            assert_eq!(answer.answers(), expected, "{name} with next {next:?}");
        }
    }
}

/// Identical queries at the same time share one query to each of the two.
#[test]
fn those_who_wait_go_on_together() {
    let first = Upstream::start(|asked| asked.denial("NXDOMAIN", None));
    let second = saying("192.0.2.2");
    let proxy = Proxy::start(&format!(
        "workers 1\nzone \".\" {{ forward \"{}\" {{ next \"NXDOMAIN\"; {ONCE} }}; forward \"{}\" {{ {ONCE} }} }}",
        first.address, second.address
    ));
    std::thread::scope(|scope| {
        let clients: Vec<_> = (0..8)
            .map(|_| scope.spawn(|| proxy.query("www.example", "A").answers()))
            .collect();
        for client in clients {
            assert_eq!(client.join().unwrap(), ["www.example. A 192.0.2.2"]);
        }
    });
    assert!(first.asked("www.example").len() <= 8);
}
