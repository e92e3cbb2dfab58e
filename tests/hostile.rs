//! Filters that panic, loop, allocate endlessly or return nonsense: each costs at most its time limit per
//! call, and never another query.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::harness::client::ask_from;
use crate::harness::guests::guest;
use crate::harness::tools::{Load, dnsperf};
use crate::harness::{Message, Proxy, Upstream, ask, client, needs, unanswered, until};

/// What the calm zone answers.
const CALM: &str = "calm.test. A 192.0.2.7";

/// A proxy with a hostile filter in one zone and the `hosts` filter in another.
fn start(name: &str, options: &str, upstream: &Upstream) -> Proxy {
    Proxy::start(&format!(
        "filter \"hostile\" {{ module \"{module}\"; {options} }}\n\
         filter \"table\" {{ module \"builtin:hosts\"; limits time=\"1s\"; config {{ host \"calm.test\" \"192.0.2.7\" }} }}\n\
         zone \"hostile.test\" {{ use \"hostile\"; forward \"{upstream}\" }}\n\
         zone \"calm.test\" {{ use \"table\"; forward \"{upstream}\" }}",
        module = guest(name).display(),
        upstream = upstream.address,
    ))
}

fn anything() -> Upstream {
    Upstream::start(|asked| asked.answer(&[&format!("{} 300 A 192.0.2.1", asked.name())]))
}

/// Runs dnsperf against the calm zone while another client repeatedly asks for this name, which makes the
/// filter misbehave. Returns dnsperf's result, and how often the name was asked for.
fn load_beside(proxy: &Proxy, name: &'static str) -> (Load, u32) {
    let address = proxy.address;
    let done = Arc::new(AtomicBool::new(false));
    let tormentor = std::thread::spawn({
        let done = Arc::clone(&done);
        move || {
            let mut asked = 0;
            while !done.load(Ordering::Relaxed) {
                ask(address, &Message::query(name, "A"));
                asked += 1;
            }
            asked
        }
    });
    let load = dnsperf(address, "calm.test A\n", 2000, 4);
    done.store(true, Ordering::Relaxed);
    (load, tormentor.join().expect("every hostile query is answered"))
}

/// dnsperf beside each of them loses nothing, and gets only good answers.
#[test]
fn hostile_filters_cost_nobody_else_a_query() {
    if !needs(&["dnsperf"]) {
        return;
    }
    for (filter, name, reason) in [
        ("trap", "trap.hostile.test", "trap"),
        ("trap", "tenth.hostile.test", "trap"),
        ("trap", "deep.hostile.test", "trap"),
        ("spin", "spin.hostile.test", "time"),
        ("bomb", "bomb.hostile.test", "memory"),
    ] {
        let upstream = anything();
        let mut proxy = start(
            filter,
            "on-error \"servfail\"; limits memory=\"4MiB\" time=\"5ms\"",
            &upstream,
        );
        let (load, asked) = load_beside(&proxy, name);
        eprintln!("{filter}: {load:?} beside {asked} hostile queries");
        assert_eq!(load.lost, 0, "{filter}: {load:?}");
        assert_eq!(load.completed, load.sent, "{filter}: {load:?}");
        assert_eq!(load.noerror, load.sent, "{filter}: {load:?}");
        assert!(load.sent > 1000, "{filter}: {load:?}");
        assert!(asked > 10, "{filter}: {asked} hostile queries");
        let metrics = proxy.metrics();
        let traps = |labels: &[(&str, &str)]| metrics.sum("dnsweir_filter_traps_total", labels);
        assert!(traps(&[("filter", "hostile")]) >= 1.0, "{filter}");
        let reasons = metrics.values("dnsweir_filter_traps_total", "reason");
        assert!(
            traps(&[("filter", "hostile"), ("reason", reason)]) >= 1.0,
            "{filter}: {reasons:?}"
        );
        assert_eq!(traps(&[("filter", "table")]), 0.0);
        assert!(metrics.sum("dnsweir_filter_memory_bytes", &[("filter", "hostile")]) <= 16.0 * 1_048_576.0);
        assert!(proxy.process.running());
    }
}

/// The client of a hostile filter promptly gets what `on-error` says.
#[test]
fn on_error_decides_what_the_client_gets() {
    for (filter, name) in [
        ("trap", "trap.hostile.test"),
        ("trap", "deep.hostile.test"),
        ("spin", "spin.hostile.test"),
        ("bomb", "bomb.hostile.test"),
    ] {
        for (on_error, rcode) in [
            ("bypass", "NOERROR"),
            ("servfail", "SERVFAIL"),
            ("refuse", "REFUSED"),
        ] {
            let upstream = anything();
            let options = format!("on-error \"{on_error}\"; limits memory=\"4MiB\" time=\"20ms\"");
            let proxy = start(filter, &options, &upstream);
            assert_eq!(proxy.query(name, "A").rcode(), rcode, "{filter}, {on_error}");
            assert_eq!(
                upstream.count(name),
                usize::from(on_error == "bypass"),
                "{filter}, {on_error}"
            );
        }
    }
}

/// One failed call does not end the filter: its instance is rebuilt, and answers the next query.
#[test]
fn an_instance_is_rebuilt() {
    let upstream = anything();
    let proxy = start(
        "trap",
        "on-error \"servfail\"; config { queries }; limits time=\"1s\"",
        &upstream,
    );
    assert_eq!(proxy.query("a.hostile.test", "A").rcode(), "NOERROR");
    assert_eq!(proxy.query("trap.hostile.test", "A").rcode(), "SERVFAIL");
    until("the filter to work again", || {
        proxy.query("b.hostile.test", "A").rcode() == "NOERROR"
    });
    // The panic message is in the proxy's log, under the filter's name.
    let line = proxy.process.logged("told to panic at trap.hostile.test");
    assert!(line.contains("hostile"), "{line}");
}

/// A filter that fails for many names and clients is suspended for a while, which is visible. Meanwhile, its
/// policy applies to new clients; then it is back in service.
#[test]
fn a_filter_that_keeps_failing_is_suspended() {
    let upstream = anything();
    let proxy = Proxy::start(&format!(
        "workers 1\nfilter \"hostile\" {{ module \"{}\"; on-error \"bypass\"; limits time=\"50ms\" }}\n\
         zone \"hostile.test\" {{ use \"hostile\"; forward \"{}\" }}",
        guest("spin").display(),
        upstream.address
    ));
    let label = [("filter", "hostile")];
    let mut asked = 0;
    until("the filter to be suspended", || {
        let query = Message::query(&format!("spin{asked}.hostile.test"), "A");
        asked += 1;
        let answer = ask_from(IpAddr::from([127, 0, 1, asked]), proxy.address, &query);
        assert_eq!(answer.rcode(), "NOERROR");
        proxy.metrics().sum("dnsweir_filter_suspended", &label) >= 1.0
    });
    assert_eq!(proxy.query("calm.hostile.test", "A").rcode(), "NOERROR");
    until("the filter to be there again", || {
        proxy.query("calm.hostile.test", "A");
        proxy.metrics().sum("dnsweir_filter_suspended", &label) == 0.0
    });
}

/// One client asks for names that make a filter trap: no other client loses the filter, below `forward` or a
/// table.
#[test]
fn whoever_asks_for_traps_loses_the_filter_alone() {
    let upstream = anything();
    let proxy = start("trap", "on-error \"servfail\"; config { queries }", &upstream);
    let bad = IpAddr::from([127, 0, 1, 1]);
    for round in 0..30 {
        let query = Message::query(&format!("trap{round}.hostile.test"), "A");
        assert_eq!(ask_from(bad, proxy.address, &query).rcode(), "SERVFAIL");
        for good in 0..5 {
            let query = Message::query(&format!("n{round}-{good}.hostile.test"), "A");
            let client = IpAddr::from([127, 0, 2, 1 + good]);
            until("the filter", || {
                ask_from(client, proxy.address, &query).rcode() == "NOERROR"
            });
        }
    }
    let metrics = proxy.metrics();
    let uncalled = |reason| {
        metrics.sum(
            "dnsweir_filter_uncalled_total",
            &[("filter", "hostile"), ("reason", reason)],
        )
    };
    assert!(uncalled("client") > 0.0);
    assert_eq!(uncalled("suspended"), 0.0);
    assert_eq!(metrics.sum("dnsweir_filter_suspended", &[]), 0.0);
}

/// A failing query does not affect the others in its batch.
#[test]
fn neighbours_in_a_batch_are_answered() {
    let upstream = anything();
    let proxy = start(
        "trap",
        "on-error \"servfail\"; config { queries }; limits time=\"1s\"",
        &upstream,
    );
    let socket = client::socket(proxy.address);
    let queries: Vec<Message> = (0..60)
        .map(|number| {
            let name = if number % 20 == 7 {
                "trap.hostile.test".to_owned()
            } else {
                format!("{number}.calm.test")
            };
            Message::query(&name, "A")
        })
        .collect();
    for query in &queries {
        socket.send(&query.encode()).expect("a sent query");
    }
    for _ in &queries {
        let answer = Message::decode(&client::receive(&socket)).expect("a whole message");
        let query = queries
            .iter()
            .find(|query| query.id == answer.id)
            .expect("one of the queries");
        let trapped = query.questions[0].name.starts_with("trap");
        assert_eq!(answer.rcode() == "SERVFAIL", trapped, "{answer}");
    }
}

/// A panic in another phase costs no answer either: `on-error` covers the response phase, and events come
/// after the answer.
#[test]
fn panics_in_other_phases() {
    let upstream = anything();
    for (phase, on_error, rcode) in [
        ("responses", "bypass", "NOERROR"),
        ("responses", "servfail", "SERVFAIL"),
        ("responses", "refuse", "REFUSED"),
        ("events", "servfail", "NOERROR"),
    ] {
        let mut proxy = start(
            "trap",
            &format!("on-error \"{on_error}\"; limits time=\"1s\"; config {{ {phase} }}"),
            &upstream,
        );
        assert_eq!(
            proxy.query("trap.hostile.test", "A").rcode(),
            rcode,
            "{phase}, {on_error}"
        );
        until("the trap to be counted", || {
            proxy
                .metrics()
                .sum("dnsweir_filter_traps_total", &[("filter", "hostile")])
                >= 1.0
        });
        assert!(proxy.process.running());
        assert_eq!(proxy.query("calm.test", "A").answers(), [CALM]);
    }
}

/// A filter that cannot be configured is a mistake in the configuration, with its place.
#[test]
fn a_panic_while_configuring_is_reported() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("dnsweir.kdl");
    let text = format!(
        "listen \"127.0.0.1\"; filter \"hostile\" {{\n    module \"{}\"\n    config {{ configure }}\n}}\nzone \".\" {{\n    use \"hostile\"\n    forward \"192.0.2.1\"\n}}\n",
        guest("trap").display()
    );
    std::fs::write(&file, text).expect("a configuration file");
    let output = crate::harness::proxy::check(&file);
    let said = format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    assert_eq!(output.status.code(), Some(64), "{said}");
    assert!(said.contains("hostile"), "{said}");
}

/// The kinds of garbage that the filter returns, selected by the first label.
const KINDS: [&str; 61] = [
    "index",
    "many",
    "empty-name",
    "open-name",
    "pointer",
    "long-label",
    "long-name",
    "after-name",
    "huge-name",
    "alias",
    "alias-of-none",
    "alias-of-many",
    "alias-of-aliases",
    "alias-self",
    "ask-of-none",
    "ask-of-many",
    "ask-name",
    "ask-type",
    "ask-zone",
    "ask-time",
    "ask-state",
    "ask-much",
    "ask-self",
    "answered-index",
    "answered-name",
    "answered-ask",
    "owner",
    "short-a",
    "bad-cname",
    "opt",
    "many-records",
    "long-data",
    "rcode",
    "error-text",
    "huge-error",
    "answer-error",
    "drop-reason",
    "huge-reason",
    "answer-rcode",
    "type",
    "ttl",
    "edit-many",
    "edit-selector",
    "edit-record",
    "edit-opt",
    "edit-huge",
    "edit-large",
    "edit-permute",
    "edit-beyond",
    "edit-header",
    "edit-both",
    "edit-error",
    "delay-much",
    "route-nowhere",
    "route-subnet",
    "response-index",
    "response-records",
    "response-rcode",
    "response-error",
    "response-drop",
    "response-delay",
];

/// Garbage is rejected: the client gets an answer, the proxy keeps running, and other queries are not
/// affected.
#[test]
fn garbage_is_refused() {
    let upstream = anything();
    let mut proxy = start(
        "garbage",
        "on-error \"servfail\"; limits memory=\"16MiB\" time=\"200ms\"",
        &upstream,
    );
    let works = || {
        let query = Message::query("plain.garbage.hostile.test", "A");
        ask_from([127, 0, 2, 1].into(), proxy.address, &query).rcode() == "NOERROR"
    };
    for (number, kind) in (0..).zip(KINDS) {
        let name = format!("{kind}.garbage.hostile.test");
        let query = Message::query(&name, "A").edns(1232);
        // One client per kind: a client that keeps making the filter fail is cut off from it for a while.
        // This also checks what every answer must be.
        let answer = ask_from([127, 0, 1, number].into(), proxy.address, &query);
        assert!(
            ["NOERROR", "SERVFAIL", "REFUSED", "FORMERR"].contains(&answer.rcode().as_str()),
            "{kind}: {answer}"
        );
        for record in &answer.answers {
            assert!(record.ttl <= i32::MAX as u32, "{kind}: {answer}");
        }
        assert!(proxy.process.running(), "{kind}");
        assert_eq!(proxy.query("calm.test", "A").answers().len(), 1, "{kind}");
        until("the filter to be in service again", works);
    }
    // Two verdicts about one query: one of them applies, which may be to drop it.
    let twice = Message::query("twice.garbage.hostile.test", "A");
    let socket = client::socket(proxy.address);
    socket.send(&twice.encode()).expect("a sent query");
    until("the filter to be in service again", works);
    assert!(proxy.process.running());
}

/// A module that is invalid, or imports more than the filter interface, never runs.
#[test]
fn modules_that_are_no_filters_are_refused() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let module = folder.path().join("module.wasm");
    let file = folder.path().join("dnsweir.kdl");
    let text = "listen \"127.0.0.1\"; filter \"f\" {\n    module \"module.wasm\"\n}\nzone \".\" {\n    use \"f\"\n    forward \"192.0.2.1\"\n}\n";
    std::fs::write(&file, text).expect("a configuration file");
    // A plain module that imports `env.f`: type, import of a function.
    let importing = b"\0asm\x01\0\0\0\x01\x04\x01\x60\0\0\x02\x09\x01\x03env\x01f\0\0";
    let cases: [(&str, &[u8]); 5] = [
        ("nothing", b""),
        ("text", b"#!/bin/sh\n"),
        ("a header and no more", b"\0asm\x01\0\0\0"),
        ("a cut module", b"\0asm\x01\0\0\0\x01\x7f"),
        ("foreign imports", importing),
    ];
    for (what, bytes) in cases {
        std::fs::write(&module, bytes).expect("a module");
        let output = crate::harness::proxy::check(&file);
        let said = format!(
            "{}{}",
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
        assert_eq!(output.status.code(), Some(64), "{what}: {said}");
        assert!(said.contains("dnsweir.kdl:2:"), "{what}: {said}");
    }
}

/// Dropping a query is a verdict, too.
#[test]
fn a_dropped_query_gets_nothing() {
    let upstream = anything();
    let proxy = start("garbage", "limits time=\"200ms\"", &upstream);
    unanswered(
        proxy.address,
        &Message::query("drop.garbage.hostile.test", "A").encode(),
    );
}
