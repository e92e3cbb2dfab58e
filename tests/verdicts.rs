//! The effects of a filter's verdicts on the wire.

use std::net::{IpAddr, Ipv4Addr};

use crate::harness::client::ask_from;
use crate::harness::guests::verdicts;
use crate::harness::message::{EXTENDED_ERROR, flags};
use crate::harness::{Message, Proxy, Record, Reply, Upstream, forward_once, unanswered};

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

/// The code and text of a reply's extended error.
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
        // Clients without EDNS do not get it.
        assert_eq!(why(&proxy.query(name, "A")), None, "{name}");
    }
    assert_eq!(why(&proxy.query_edns("pass.test", "A")), None);
}

/// The cache keeps the code. Only the client that caused the answer gets the text.
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
        // Filters with an events phase receive each of them.
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

/// Three addresses with a signature for clients with DO, an NS record, and AD.
fn signed() -> Upstream {
    Upstream::start(|asked| {
        let name = asked.name();
        let mut records: Vec<String> = (1..4)
            .map(|last| format!("{name} 300 A 192.0.2.{last}"))
            .collect();
        if asked
            .message
            .edns
            .as_ref()
            .is_some_and(|edns| edns.flags & 0x8000 != 0)
        {
            // Covers A.
            records.push(format!(
                "{name} 300 TYPE46 \\# 19 0001 0d 02 0000012c ffffffff 00000000 0000 00"
            ));
        }
        let records: Vec<&str> = records.iter().map(String::as_str).collect();
        let mut message = asked.message_with(&records).set(flags::AD);
        message.authority = vec![Record::parse("test. 300 NS ns.test.")];
        Reply::Message(message)
    })
}

/// The last bytes of a reply's addresses.
fn addresses(answer: &Message) -> Vec<u8> {
    let addresses = answer.answers.iter().filter(|record| record.rtype == 1);
    addresses.map(|record| record.data[3]).collect()
}

/// Above and below the cache, by the query's verdict and the response's, for the first query and later ones.
#[test]
fn records_are_edited_wherever_the_filter_stands() {
    let upstream = signed();
    for stages in [
        "use \"verdicts\"; cache",
        "cache; use \"verdicts\"",
        "use \"verdicts\"",
    ] {
        let proxy = start(stages, &upstream);
        for (label, expected) in [
            ("remove", &[][..]),
            ("remove-second", &[1, 3]),
            ("replace", &[8, 9]),
            ("append", &[1, 2, 3, 8]),
            ("rotate", &[2, 3, 1]),
            ("permute", &[3, 1, 2]),
            ("pass", &[1, 2, 3]),
        ] {
            for name in [format!("{label}.test"), format!("response-{label}.test")] {
                for _ in 0..2 {
                    let answer = proxy.ask(&Message::query(&name, "A").edns(1232).set(flags::AD));
                    assert_eq!(addresses(&answer), expected, "{stages}, {name}: {answer}");
                    assert_eq!(answer.authority.len(), 1, "{stages}, {name}: {answer}");
                    let additional = usize::from(label == "append");
                    assert_eq!(answer.additional.len(), additional, "{stages}, {name}: {answer}");
                    // Changed data is not authentic any more; reordered data is.
                    let same = ["rotate", "permute", "pass"].contains(&label);
                    assert_eq!(answer.has(flags::AD), same, "{stages}, {name}: {answer}");
                }
            }
        }
    }
}

/// A signature over missing records would look like tampering.
#[test]
fn signatures_go_with_what_they_sign() {
    let upstream = signed();
    let proxy = start("use \"verdicts\"; cache", &upstream);
    for (label, signed) in [
        ("pass", true),
        ("rotate", true),
        ("shuffle", true),
        // The record has another name.
        ("append", true),
        ("remove", false),
        ("remove-second", false),
        ("replace", false),
    ] {
        let name = format!("{label}.test");
        let answer = proxy.ask(&Message::query(&name, "A").dnssec_ok());
        let signatures = answer.answers.iter().filter(|record| record.rtype == 46).count();
        assert_eq!(signatures == 1, signed, "{name}: {answer}");
        // Clients without DO get no signatures.
        let plain = proxy.query(&name, "A");
        assert!(plain.answers.iter().all(|record| record.rtype != 46), "{plain}");
    }
}

/// TTLs count down in a modified response as in any other.
#[test]
fn bounds_apply_to_what_was_appended() {
    let upstream = signed();
    let proxy = start("use \"verdicts\"; cache", &upstream);
    proxy.query("append.test", "A");
    let answer = proxy.query("append.test", "A");
    assert!(answer.ttls()[..3].iter().all(|ttl| *ttl > 60), "{answer}");
    assert_eq!(answer.ttls()[3], 60, "{answer}");
}

#[test]
fn shuffles_are_new_for_each_response() {
    let upstream = signed();
    let proxy = start("use \"verdicts\"; cache", &upstream);
    let orders: std::collections::HashSet<Vec<u8>> = (0..60)
        .map(|_| addresses(&proxy.query("shuffle.test", "A")))
        .collect();
    assert!(orders.len() > 3, "{orders:?}");
    assert_eq!(upstream.count("shuffle.test"), 1);
    let labels = [("filter", "verdicts")];
    let calls = proxy.metrics().sum("dnsweir_filter_remembered_total", &labels);
    assert!(calls > 0.0, "the verdict was remembered");
}

#[test]
fn header_bits_are_set_and_cleared() {
    let upstream = signed();
    let proxy = start("use \"verdicts\"; cache", &upstream);
    let asked = |label: &str| proxy.ask(&Message::query(&format!("{label}.test"), "A").set(flags::AD));
    for _ in 0..2 {
        assert!(asked("authentic").has(flags::AD | flags::AA));
        assert!(!asked("unauthentic").has(flags::AD));
        let truncated = asked("truncated");
        assert!(
            truncated.has(flags::TC) && truncated.answers.len() == 3,
            "{truncated}"
        );
        // Over TCP, the answer is complete.
        let whole = proxy.connect().ask(&Message::query("truncated.test", "A"));
        assert!(!whole.has(flags::TC) && whole.answers.len() == 3, "{whole}");
        let why = why(&proxy.query_edns("error.test", "A"));
        assert_eq!(why, said(4, "edited"));
    }
}

/// The details that the manifest requests, in every phase; no others, and none for the proxy's own queries.
#[test]
fn details_are_there_for_those_who_ask() {
    let upstream = anything();
    let mut proxy = start("use \"verdicts\"; cache", &upstream);
    let query = Message::query("shown.test", "A")
        .option(8, b"\x00\x01\x18\x00\xc0\x00\x02")
        .option(9, b"no");
    let answer = proxy.ask(&query.option(10, b"12345678"));
    let listener = proxy.address;
    let options = "[8=00011800c00002 10=3132333435363738] subnet 00011800c00002";
    let shown = format!("query shown.test. at {listener} {options}");
    proxy.process.printed("the query", |line| line == shown);
    // The reply as sent, with ID and OPT.
    let message: String = answer
        .encode()
        .iter()
        .map(|octet| format!("{octet:02x}"))
        .collect();
    let id = &message[..4];
    let shown = format!("event shown.test. at {listener} {options} {id}");
    proxy
        .process
        .printed("the event", |line| line.starts_with(&shown));
    // One client's option is not visible for the next one.
    proxy.query("shown-plain.test", "A");
    let shown = format!("query shown-plain.test. at {listener} [] subnet none");
    proxy.process.printed("the plain query", |line| line == shown);
    let _ = proxy
        .connect()
        .ask(&Message::query("shown-tcp.test", "A").option(10, b"87654321"));
    let shown = format!("event shown-tcp.test. at {listener} [10=3837363534333231] subnet none ");
    proxy
        .process
        .printed("the event of the one over TCP", |line| line.starts_with(&shown));
    assert!(proxy.process.running());
}

/// The option of a client subnet (RFC 7871 section 6): family, bits, scope and address.
const SUBNET: u16 = 8;

/// A proxy with a source in addition to its zone's.
fn start_with_source(stages: &str, zone: &Upstream, eu: &Upstream) -> Proxy {
    let module = verdicts();
    Proxy::start(&format!(
        "clients {{ allow \"127.0.0.0/8\" }}\n\
         filter \"verdicts\" {{ module {module:?}; on-error \"servfail\"; limits time=\"1s\"; config {{ via \"eu\" }} }}\n\
         source \"eu\" {{ {} }}\n\
         zone \".\" {{ {stages}; {} }}",
        forward_once(eu.address),
        forward_once(zone.address)
    ))
}

/// An upstream that always answers with this address.
fn always(last: u8) -> Upstream {
    Upstream::start(move |asked| asked.answer(&[&format!("{} 300 A 192.0.2.{last}", asked.name())]))
}

/// An upstream whose address encodes the client subnet it got, 255 for none, and that echoes it with a scope.
fn steering() -> Upstream {
    Upstream::start(|asked| {
        let told = asked.message.find_option(SUBNET).map(<[u8]>::to_vec);
        let last = told.as_ref().map_or(255, |option| option[6]);
        let mut message = asked.message_with(&[&format!("{} 300 A 192.0.2.{last}", asked.name())]);
        if let (Some(mut option), Some(edns)) = (told, message.edns.as_mut()) {
            option[3] = 24;
            if asked.name().contains("wrong") {
                option[6] ^= 1;
            }
            edns.options.push((SUBNET, option));
        }
        Reply::Message(message)
    })
}

fn from(network: u8, host: u8) -> IpAddr {
    Ipv4Addr::new(127, 0, network, host).into()
}

/// The last byte of the address that a client gets.
#[track_caller]
fn asked_from(client: IpAddr, proxy: &Proxy, name: &str) -> Vec<u8> {
    let answer = ask_from(client, proxy.address, &Message::query(name, "A"));
    assert_eq!(answer.rcode(), "NOERROR", "{answer}");
    addresses(&answer)
}

#[test]
fn queries_go_to_the_source_that_a_filter_says() {
    for stages in ["use \"verdicts\"; cache", "use \"verdicts\""] {
        let (zone, eu) = (always(1), always(2));
        let proxy = start_with_source(stages, &zone, &eu);
        for _ in 0..3 {
            assert_eq!(asked_from(from(0, 1), &proxy, "via.test"), [2]);
            assert_eq!(asked_from(from(0, 1), &proxy, "pass.test"), [1]);
            // The cache keeps the answers of each route separately.
            assert_eq!(asked_from(from(0, 1), &proxy, "via-some.test"), [1]);
            assert_eq!(asked_from(from(0, 2), &proxy, "via-some.test"), [2]);
        }
        assert_eq!((zone.count("via.test"), eu.count("pass.test")), (0, 0));
        if stages.contains("cache") {
            assert_eq!((zone.count("via-some.test"), eu.count("via-some.test")), (1, 1));
        }
    }
}

/// RFC 7871: sent only if a filter says so, cached separately for each, and never returned to clients without
/// the option.
#[test]
fn subnets_are_told_and_their_answers_kept_apart() {
    let (zone, eu) = (steering(), steering());
    let proxy = start_with_source("use \"verdicts\"; cache", &zone, &eu);
    for _ in 0..2 {
        for (network, host) in [(1, 1), (1, 2), (2, 1), (3, 7)] {
            for name in ["subnet.test", "subnet-via.test"] {
                assert_eq!(asked_from(from(network, host), &proxy, name), [network], "{name}");
            }
            assert_eq!(asked_from(from(network, host), &proxy, "pass.test"), [255]);
        }
    }
    assert_eq!((zone.count("subnet.test"), eu.count("subnet-via.test")), (3, 3));
    assert_eq!((eu.count("subnet.test"), zone.count("subnet-via.test")), (0, 0));
    let told = zone.asked("subnet.test")[0]
        .message
        .find_option(SUBNET)
        .map(<[u8]>::to_vec);
    assert_eq!(told.as_deref(), Some(&[0, 1, 24, 0, 127, 0, 1][..]));
    // The client's own option is not forwarded, and the answer has none.
    let query = Message::query("own.test", "A").option(SUBNET, &[0, 1, 24, 0, 198, 51, 100]);
    let answer = proxy.ask(&query);
    assert_eq!(addresses(&answer), [255], "{answer}");
    assert_eq!(answer.find_option(SUBNET), None);
    assert_eq!(zone.asked("own.test")[0].message.find_option(SUBNET), None);
}

/// RFC 7871 section 7.3: such an answer may be forged, and is not for this client.
#[test]
fn an_answer_for_another_subnet_is_none() {
    let (zone, eu) = (steering(), steering());
    let proxy = start_with_source("use \"verdicts\"; cache", &zone, &eu);
    let answer = ask_from(
        from(1, 1),
        proxy.address,
        &Message::query("subnet.wrong.test", "A"),
    );
    assert_eq!(answer.rcode(), "SERVFAIL", "{answer}");
    assert_eq!(asked_from(from(1, 1), &proxy, "subnet.right.test"), [1]);
}

/// Below the cache, all clients share its entries: the answer for one subnet is not cached.
#[test]
fn what_is_told_below_the_cache_is_not_kept() {
    let (zone, eu) = (steering(), steering());
    let proxy = start_with_source("cache; use \"verdicts\"", &zone, &eu);
    for network in [1, 2, 1, 2] {
        assert_eq!(asked_from(from(network, 1), &proxy, "subnet.test"), [network]);
    }
    assert_eq!(zone.count("subnet.test"), 4);
    for _ in 0..2 {
        assert_eq!(asked_from(from(1, 1), &proxy, "via.test"), [255]);
    }
    assert_eq!(eu.count("via.test"), 1, "a source for all is kept for all");
}

/// Reported at the filter's name, before anything runs.
#[test]
fn a_source_that_is_not_there_is_a_mistake() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("dnsweir.kdl");
    let module = verdicts();
    let text = format!(
        "listen \"127.0.0.1\"\nfilter \"verdicts\" {{ module {module:?}; config {{ via \"uk\" }} }}\n\
         source \"eu\" {{ forward \"192.0.2.2\" }}\nzone \".\" {{ use \"verdicts\"; forward \"192.0.2.1\" }}\n"
    );
    std::fs::write(&file, text).expect("a configuration file");
    let output = crate::harness::proxy::check(&file);
    let said =
        String::from_utf8_lossy(&output.stderr).into_owned() + &String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(64), "{said}");
    assert!(
        said.contains("source \"uk\"") && said.contains("dnsweir.kdl:2:"),
        "{said}"
    );
}

/// The queue of messages for a filter with events counts towards the process's memory ceiling.
#[test]
fn messages_of_events_are_reckoned_with() {
    let module = verdicts();
    let proxy = Proxy::start(&format!(
        "workers 3\nfilter \"verdicts\" {{ module {module:?} }}\nzone \".\" {{ use \"verdicts\" }}"
    ));
    let messages = proxy
        .metrics()
        .sum("dnsweir_memory_ceiling_bytes", &[("part", "messages")]);
    assert_eq!(messages, 3.0 * f64::from(2 << 20));
}
