//! What a filter's verdicts come to on the wire.

use crate::harness::guests::verdicts;
use crate::harness::message::EXTENDED_ERROR;
use crate::harness::{Message, Proxy, Upstream, unanswered};

/// A proxy whose only zone uses the filter above its cache or below.
fn start(stages: &str, upstream: &Upstream) -> Proxy {
    let module = verdicts();
    Proxy::start(&format!(
        "filter \"verdicts\" {{ module {module:?}; on-error \"servfail\"; limits time=\"1s\" }}\n\
         filter \"log\" {{ module \"builtin:log\" }}\n\
         zone \".\" {{ use \"log\"; {stages}; forward \"{}\" }}",
        upstream.address
    ))
}

fn anything() -> Upstream {
    Upstream::start(|asked| asked.answer(&[&format!("{} 300 A 192.0.2.1", asked.name())]))
}

/// Code and text of a reply's extended error.
fn why(answer: &Message) -> Option<(u16, String)> {
    let option = answer.find_option(EXTENDED_ERROR)?;
    let (code, text) = option.split_at(2);
    let text = String::from_utf8(text.to_vec()).expect("text");
    Some((u16::from_be_bytes([code[0], code[1]]), text))
}

fn said(code: u16, text: &str) -> Option<(u16, String)> {
    Some((code, text.to_owned()))
}

#[test]
fn extended_errors_reach_the_client_with_their_text() {
    let upstream = anything();
    let proxy = start("use \"verdicts\"; cache", &upstream);
    for (name, code, text) in [
        ("refuse.test", 15, ""),
        ("refuse-why.test", 17, "told so by its first label"),
        ("answer-why.test", 17, "told so by its first label"),
        ("replace-why.test", 4, "another address"),
    ] {
        for _ in 0..2 {
            let answer = proxy.query_edns(name, "A");
            assert_eq!(why(&answer), said(code, text), "{name}: {answer}");
            assert_eq!(
                answer.rcode() == "NXDOMAIN",
                name.starts_with("refuse"),
                "{answer}"
            );
        }
        // Nobody is told who does not speak EDNS.
        assert_eq!(why(&proxy.query(name, "A")), None, "{name}");
    }
    assert_eq!(why(&proxy.query_edns("pass.test", "A")), None);
}

/// The cache keeps the code. The text is for whoever caused the answer to be made.
#[test]
fn the_code_stays_with_what_is_kept() {
    let upstream = anything();
    let proxy = start("cache; use \"verdicts\"", &upstream);
    let text = "told so by its first label";
    assert_eq!(why(&proxy.query_edns("answer-why.test", "A")), said(17, text));
    assert_eq!(why(&proxy.query_edns("answer-why.test", "A")), said(17, ""));
}

#[test]
fn drops_are_counted_by_their_reason() {
    let upstream = anything();
    let mut proxy = start("use \"verdicts\"; cache", &upstream);
    for (name, reason, upstreams) in [
        ("drop.test", "", 0),
        ("drop-why.test", "its first label", 0),
        ("response-drop.test", "its response", 1),
    ] {
        // The second time the verdict is remembered, or the response cached.
        for _ in 0..2 {
            unanswered(proxy.address, &Message::query(name, "A").encode());
        }
        let labels = [("filter", "verdicts"), ("reason", reason)];
        proxy.await_metric("dnsweir_filter_drops_total", &labels, 2.0);
        assert_eq!(upstream.count(name), upstreams, "{name}");
        // Filters with an events phase hear of each.
        for _ in 0..2 {
            proxy
                .process
                .printed("a line", |line| line.contains(&format!(" {name}. ")));
        }
    }
    assert!(proxy.process.running());
}

#[test]
fn counters_have_labels() {
    let upstream = anything();
    let proxy = start("use \"verdicts\"; cache", &upstream);
    for (name, qtype) in [
        ("counted.test", "A"),
        ("counted.a.test", "A"),
        ("counted.test", "AAAA"),
        ("counted.test", "A"),
    ] {
        proxy.query(name, qtype);
    }
    for (qtype, labels, count) in [("A", "2", 2.0), ("A", "3", 1.0), ("AAAA", "2", 1.0)] {
        let labels = [
            ("filter", "verdicts"),
            ("name", "seen"),
            ("qtype", qtype),
            ("labels", labels),
        ];
        proxy.await_metric("dnsweir_filter_counter_total", &labels, count);
    }
}
