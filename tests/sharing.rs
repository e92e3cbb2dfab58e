//! What queries share: answers that hold for all clients, and nothing that was for one client only.

use std::net::IpAddr;

use crate::harness::guests::example;
use crate::harness::message::Record;
use crate::harness::upstream::{Gate, Reply};
use crate::harness::{Message, Proxy, Upstream, client, flags, forward_once, until};

const WWW: &str = "www.example. 300 A 192.0.2.1";

/// A loopback client.
fn from(number: u8) -> IpAddr {
    [127, 0, 0, number].into()
}

/// Prefetches are for all clients, whichever caused them: with RD, and repeated if necessary.
#[test]
fn a_query_without_rd_does_not_decide_what_is_prefetched() {
    let upstream = Upstream::start(|asked| {
        // Servers return a referral to queries without RD (RFC 1034 section 4.3.1).
        match asked.message.has(flags::RD) {
            true => asked.answer(&["www.example. 20 A 192.0.2.1"]),
            false => asked.answer(&["www.example. 20 A 192.0.2.66"]),
        }
    });
    let proxy = Proxy::start(&format!(
        "zone \".\" {{ cache {{ prefetch hits=1 percent=90 }}; {} }}",
        forward_once(upstream.address)
    ));
    proxy.query("www.example", "A");
    let iterative = Message::query("www.example", "A").clear(flags::RD);
    until("the entry to be fetched again", || {
        assert_eq!(proxy.ask(&iterative).answers(), ["www.example. A 192.0.2.1"]);
        upstream.count("www.example") > 1
    });
    let asked = upstream.asked("www.example");
    assert!(
        asked.iter().all(|asked| asked.message.has(flags::RD)),
        "{asked:?}"
    );
}

/// Without RD: answered from the cache, or forwarded as is, and then neither cached nor shared.
#[test]
fn answers_without_recursion_are_for_those_who_asked_so() {
    let gate = Gate::default();
    let behind = gate.clone();
    let upstream = Upstream::start(move |asked| {
        let answer = match asked.message.has(flags::RD) {
            true => asked.answer(&[WWW]),
            false => asked.denial("NOERROR", None),
        };
        Reply::Behind(behind.clone(), Box::new(answer))
    });
    let proxy = Proxy::start(&format!(
        "zone \".\" {{ cache; {} }}",
        forward_once(upstream.address)
    ));
    let sockets = [(); 2].map(|()| client::socket(proxy.address));
    let recursive = Message::query("www.example", "A");
    for (socket, query) in sockets
        .iter()
        .zip([recursive.clone().clear(flags::RD), recursive.clone()])
    {
        socket.send(&query.encode()).expect("a sent query");
        upstream.await_count("www.example", if query.has(flags::RD) { 2 } else { 1 });
    }
    gate.open();
    let answers = sockets.each_ref().map(|socket| {
        Message::decode(&client::receive(socket))
            .expect("a message")
            .answers()
    });
    assert_eq!(answers, [vec![], vec!["www.example. A 192.0.2.1".to_owned()]]);
    // The cached recursive answer also serves queries without RD.
    assert_eq!(
        proxy.ask(&recursive.clear(flags::RD)).answers(),
        ["www.example. A 192.0.2.1"]
    );
    assert_eq!(upstream.count("www.example"), 2);
}

/// Only RD, CD and DO of a client's header and EDNS are forwarded, and the cache distinguishes the last two.
#[test]
fn a_clients_other_wishes_stay_here() {
    let upstream = Upstream::zone(&[WWW]);
    let proxy = Proxy::start(&format!("zone \".\" {{ {} }}", forward_once(upstream.address)));
    const Z: u16 = 0x0040;
    let plain = Message::query("www.example", "A");
    for query in [
        plain.clone(),
        plain.clone().set(flags::AD),
        plain.clone().set(Z),
        plain.clone().set(flags::AA | flags::TC | flags::RA),
        plain.clone().edns(4096),
        // Client subnet, cookie, padding.
        plain.clone().edns(1232).option(8, &[0, 1, 24, 0, 192, 0, 2]),
        plain.clone().edns(1232).option(10, &[7; 8]),
        plain.clone().edns(1232).option(12, &[0; 20]),
    ] {
        proxy.ask(&query);
    }
    let sent: Vec<Vec<u8>> = upstream
        .asked("www.example")
        .iter()
        .map(|asked| asked.message.encode()[2..].to_vec())
        .collect();
    assert_eq!(sent.len(), 8);
    for other in &sent[1..] {
        assert_eq!(*other, sent[0], "but for the ID");
    }
}

/// A filter that starts to forbid the cache is obeyed even for names cached before.
#[test]
fn store_false_holds_for_what_was_kept_before() {
    let upstream = Upstream::zone(&[WWW]);
    let forward = forward_once(upstream.address);
    let proxy = Proxy::start(&format!("zone \".\" {{ cache; {forward} }}"));
    proxy.query("www.example", "A");
    proxy.query("www.example", "A");
    assert_eq!(upstream.count("www.example"), 1);
    proxy.reload(&format!(
        "filter \"f\" {{ module \"builtin:nodecache\"; limits time=\"1s\"; config {{ no-cache \"www.example\" }} }}\n\
         zone \".\" {{ use \"f\"; cache; {forward} }}"
    ));
    for count in 2..5 {
        proxy.query("www.example", "A");
        assert_eq!(upstream.count("www.example"), count);
    }
}

/// A filter below the cache that decides by client decides for each waiting client separately.
#[test]
fn a_verdict_about_one_client_reaches_nobody_who_waits_with_it() {
    let gate = Gate::default();
    let behind = gate.clone();
    let upstream = Upstream::start(move |asked| {
        let address = if asked.name() == "www.example." { 1 } else { 66 };
        let answer = asked.answer(&[&format!("{} 300 A 192.0.2.{address}", asked.name())]);
        Reply::Behind(behind.clone(), Box::new(answer))
    });
    let proxy = Proxy::start(&format!(
        "filter \"horizons\" {{ module \"{module}\"; limits time=\"1s\"
            config {{ view \"127.0.0.2/32\" {{ rewrite \"www.example\" \"inner.example\" }}
                      view \"127.0.0.3/32\" {{ host \"www.example\" \"192.0.2.77\" }} }} }}
         zone \".\" {{ cache; use \"horizons\"; {} }}",
        forward_once(upstream.address),
        module = example("split-horizon").display(),
    ));
    let ask = |number: u8| {
        let socket = std::net::UdpSocket::bind((from(number), 0)).expect("a UDP socket");
        socket
            .set_read_timeout(Some(crate::harness::PATIENCE))
            .expect("a timeout");
        socket.connect(proxy.address).expect("a connected socket");
        socket
            .send(&Message::query("www.example", "A").encode())
            .expect("a sent query");
        socket
    };
    let got = |socket: &std::net::UdpSocket| {
        Message::decode(&client::receive(socket))
            .expect("a message")
            .answers()
    };
    let inner = ask(2);
    upstream.await_count("inner.example", 1);
    let outer = [ask(4), ask(5)];
    upstream.await_count("www.example", 1);
    // One that comes later would find the filter's answer in the cache.
    proxy.await_metric("dnsweir_waiting_queries", &[], 3.0);
    // Answered by the filter, although others wait for the same question.
    assert_eq!(got(&ask(3)), ["www.example. A 192.0.2.77"]);
    gate.open();
    assert_eq!(got(&inner), ["www.example. A 192.0.2.66"]);
    for socket in &outer {
        assert_eq!(got(socket), ["www.example. A 192.0.2.1"]);
    }
    assert_eq!(
        (upstream.count("www.example"), upstream.count("inner.example")),
        (1, 1)
    );
}

/// A bogus signature signs nothing: the query is treated like all others.
#[test]
fn a_junk_signature_is_no_way_around_filters_and_cache() {
    const SIG: u16 = 24;
    let upstream = Upstream::start(|asked| asked.answer(&[&format!("{} 300 A 192.0.2.1", asked.name())]));
    let proxy = rewriting(&upstream);
    for _ in 0..2 {
        let mut query = Message::query("bad.example", "A");
        query.additional.push(record(SIG, b"junk".to_vec()));
        assert_eq!(proxy.ask(&query).answers(), ["bad.example. A 192.0.2.1"]);
    }
    assert_eq!(upstream.count("bad.example"), 0);
    assert_eq!(upstream.count("good.example"), 1);
    // RFC 8945 section 5.2: a malformed TSIG.
    let mut query = Message::query("bad.example", "A");
    query.additional.push(record(250, b"junk".to_vec()));
    assert_eq!(proxy.ask(&query).rcode(), "FORMERR");
}

/// A query that may be signed is relayed unchanged or not at all: if a filter would rewrite it, it is
/// refused.
#[test]
fn a_signature_is_no_way_around_a_rewriting_filter() {
    let upstream = Upstream::start(|asked| asked.answer(&[&format!("{} 300 A 192.0.2.1", asked.name())]));
    let proxy = rewriting(&upstream);
    let signed = |name: &str| {
        let mut data = b"\x0bhmac-sha256\0\0\0\x65\0\0\0\x01\x2c\0\x20".to_vec();
        data.extend([7; 32]);
        data.extend([0x12, 0x34, 0, 0, 0, 0]);
        let mut query = Message::query(name, "A");
        query.additional.push(record(250, data));
        query
    };
    assert_eq!(proxy.ask(&signed("bad.example")).rcode(), "REFUSED");
    for count in 1..3 {
        let relayed = Message::decode(&client::exchange(
            proxy.address,
            &signed("other.example").encode(),
        ));
        assert_eq!(
            relayed.expect("a message").answers(),
            ["other.example. A 192.0.2.1"]
        );
        assert_eq!(upstream.count("other.example"), count, "never from the cache");
    }
    assert_eq!(
        (upstream.count("bad.example"), upstream.count("good.example")),
        (0, 0)
    );
}

fn rewriting(upstream: &Upstream) -> Proxy {
    Proxy::start(&format!(
        "filter \"f\" {{ module \"builtin:rewrite\"; limits time=\"1s\"; config {{ name \"exact\" \"bad.example\" \"good.example\" }} }}\n\
         zone \".\" {{ use \"f\"; cache; {} }}",
        forward_once(upstream.address)
    ))
}

/// A meta record about its message: class ANY, TTL 0.
fn record(rtype: u16, data: Vec<u8>) -> Record {
    Record {
        name: ".".to_owned(),
        rtype,
        class: 255,
        ttl: 0,
        data,
    }
}

/// RFC 2181 section 9: an answer truncated even over TCP is not complete.
#[test]
fn what_is_truncated_over_tcp_is_not_whole_and_not_kept() {
    let upstream = Upstream::start(|asked| Reply::Message(asked.message_with(&[WWW]).set(flags::TC)));
    let proxy = Proxy::start(&format!(
        "zone \".\" {{ cache; {} }}",
        forward_once(upstream.address)
    ));
    for round in 1..3 {
        let answer = proxy.query("www.example", "A");
        assert!(answer.has(flags::TC), "{answer}");
        assert_eq!(answer.answers(), ["www.example. A 192.0.2.1"]);
        assert_eq!(
            upstream.count("www.example"),
            2 * round,
            "over UDP, then over TCP"
        );
    }
    let mut stream = proxy.connect();
    assert!(stream.ask(&Message::query("www.example", "A")).has(flags::TC));
}

/// RFC 8914 section 3: an upstream's extended error is passed on with its answer, as long as that is cached.
#[test]
fn extended_errors_of_upstreams_are_passed_on() {
    const FILTERED: u16 = 17;
    const UNKNOWN: u16 = 49_999;
    let upstream = Upstream::start(|asked| {
        let (reply, code) = match asked.name().split('.').next() {
            Some("filtered") => (
                asked.message_with(&["filtered.example. 300 A 192.0.2.1"]),
                FILTERED,
            ),
            Some("failing") => (asked.message_with(&[]).rcode_set("SERVFAIL"), UNKNOWN),
            // Probes: an upstream that fails them and then answers has recovered, and failures are forgotten.
            _ => return asked.answer(&[]),
        };
        let text = [&code.to_be_bytes()[..], b"said the upstream"].concat();
        Reply::Message(reply.edns(1232).option(15, &text))
    });
    let proxy = Proxy::start(&format!(
        "zone \".\" {{ cache {{ failure \"5m\" }}; {} }}",
        forward_once(upstream.address)
    ));
    for (name, code) in [("filtered.example", FILTERED), ("failing.example", UNKNOWN)] {
        for _ in 0..2 {
            assert_eq!(proxy.query_edns(name, "A").extended_errors(), [code], "{name}");
            // RFC 8914 section 2: only to clients with EDNS.
            assert!(proxy.query(name, "A").edns.is_none());
        }
        assert_eq!(upstream.count(name), 1, "{name}");
    }
}
