//! The `forward` stage with upstreams that work, more or less.

use std::collections::HashSet;
use std::net::UdpSocket;
use std::time::{Duration, Instant};

use crate::harness::upstream::{Gate, Reply};
use crate::harness::{Message, ONCE, Proxy, Record, Upstream, address, client, flags, until};

const WWW: &str = "www.example. 300 A 192.0.2.1";

fn forward(upstream: &Upstream, options: &str) -> String {
    format!(
        "zone \".\" {{ forward \"{}\" {{ {options} }} }}",
        upstream.address
    )
}

fn www() -> Upstream {
    Upstream::start(|asked| asked.answer(&[&format!("{} 300 A 192.0.2.1", asked.name())]))
}

/// The number of TCP connections with queries below `example`. Probes have a separate one.
fn connections(upstream: &Upstream) -> usize {
    let asked = upstream.everything();
    let queries = asked
        .iter()
        .filter(|asked| asked.tcp && asked.name().ends_with("example."));
    queries.map(|asked| asked.from).collect::<HashSet<_>>().len()
}

#[test]
fn a_truncated_answer_is_asked_for_again_over_tcp() {
    let upstream = Upstream::start(|asked| match asked.tcp {
        true => asked.answer(&[WWW, "www.example. 300 A 192.0.2.2"]),
        false => Reply::Message(asked.message_with(&[WWW]).set(flags::TC)),
    });
    let proxy = Proxy::start(&forward(&upstream, ONCE));
    let answer = proxy.query("www.example", "A");
    assert_eq!(
        answer.answers(),
        ["www.example. A 192.0.2.1", "www.example. A 192.0.2.2"]
    );
    assert!(!answer.has(flags::TC));
    let over: Vec<bool> = upstream
        .asked("www.example")
        .iter()
        .map(|asked| asked.tcp)
        .collect();
    assert_eq!(over, [false, true]);
}

#[test]
fn tcp_only_is_tcp_only_and_one_connection_carries_many_queries() {
    let upstream = www();
    let proxy = Proxy::start(&format!(
        "workers 1\n{}",
        forward(&upstream, &format!("protocol \"tcp\"; connections 1; {ONCE}"))
    ));
    for number in 0..20 {
        assert_eq!(proxy.query(&format!("{number}.example"), "A").answers().len(), 1);
    }
    assert!(upstream.everything().iter().all(|asked| asked.tcp));
    assert_eq!(connections(&upstream), 1);
}

/// Several queries share a connection, and answers come in any order (RFC 7766 section 6.2.1.1).
#[test]
fn tcp_queries_are_pipelined_and_answers_matched() {
    let gate = Gate::default();
    let behind = gate.clone();
    let upstream = Upstream::start(move |asked| {
        let answer = asked.answer(&[&format!("{} 300 TXT {}", asked.name(), asked.name())]);
        match asked.name().as_str() {
            "slow.example." => Reply::Behind(behind.clone(), Box::new(answer)),
            _ => answer,
        }
    });
    let proxy = Proxy::start(&format!(
        "workers 1\n{}",
        forward(&upstream, &format!("protocol \"tcp\"; connections 1; {ONCE}"))
    ));
    let slow = client::socket(proxy.address);
    slow.send(&Message::query("slow.example", "TXT").encode())
        .expect("a sent query");
    upstream.await_count("slow.example", 1);
    let name = "fast.example.";
    assert_eq!(
        proxy.query(name, "TXT").answers(),
        [format!("{name} TXT \"{name}\"")]
    );
    gate.open();
    let answer = Message::decode(&client::receive(&slow)).expect("a whole message");
    assert_eq!(answer.answers(), ["slow.example. TXT \"slow.example.\""]);
    assert_eq!(connections(&upstream), 1);
}

/// A connection closed by the upstream is replaced, and its query sent again.
#[test]
fn a_closed_connection_costs_no_query() {
    let upstream = www();
    let proxy = Proxy::start(&format!(
        "workers 1\n{}",
        forward(&upstream, "protocol \"tcp\"; connections 1")
    ));
    assert_eq!(proxy.query("a.example", "A").rcode(), "NOERROR");
    let closed = std::sync::atomic::AtomicBool::new(false);
    upstream.becomes(
        move |asked| match closed.swap(true, std::sync::atomic::Ordering::SeqCst) {
            false => Reply::Close,
            true => asked.answer(&["b.example. 300 A 192.0.2.1"]),
        },
    );
    assert_eq!(
        proxy.query("b.example", "A").answers(),
        ["b.example. A 192.0.2.1"]
    );
}

/// RFC 5452 section 9: unpredictable IDs and source ports.
#[test]
fn source_ports_and_ids_vary() {
    let upstream = www();
    let proxy = Proxy::start(&forward(&upstream, ONCE));
    for number in 0..100 {
        proxy.query(&format!("{number}.example"), "A");
    }
    let asked = upstream.everything();
    let ids: HashSet<u16> = asked.iter().map(|asked| asked.message.id).collect();
    let ports: HashSet<u16> = asked.iter().map(|asked| asked.from.port()).collect();
    assert!(ids.len() >= 95, "{} IDs in 100 queries", ids.len());
    // A socket carries at most 16 queries.
    assert!(ports.len() >= 6, "{} source ports in 100 queries", ports.len());
    let sequential = asked
        .windows(2)
        .filter(|pair| pair[1].message.id == pair[0].message.id.wrapping_add(1))
        .count();
    assert!(sequential < 10, "IDs count up: {sequential} times");
}

/// RFC 5452 section 9.1: a response that does not match our question is ignored, and the wait goes on.
#[test]
fn answers_that_do_not_match_are_not_taken() {
    type Lie = fn(&mut Message);
    let lies: [(&str, Lie); 5] = [
        ("another ID", |message| message.id ^= 0x5555),
        ("another name", |message| {
            message.questions[0].name = "evil.example.".to_owned()
        }),
        ("another type", |message| message.questions[0].qtype = 16),
        ("another class", |message| message.questions[0].class = 3),
        ("no response", |message| message.header &= !flags::QR),
    ];
    for (what, lie) in lies {
        let upstream = Upstream::start(move |asked| {
            let truth = asked.message_with(&[WWW]);
            let mut forged = asked.message_with(&["www.example. 300 A 203.0.113.66"]);
            lie(&mut forged);
            Reply::Octets(vec![forged.encode(), vec![0; 5], truth.encode()])
        });
        let proxy = Proxy::start(&forward(&upstream, ONCE));
        assert_eq!(
            proxy.query("www.example", "A").answers(),
            ["www.example. A 192.0.2.1"],
            "{what}"
        );
    }
}

/// The same for a response from another address.
#[test]
fn answers_from_elsewhere_are_not_taken() {
    let elsewhere = UdpSocket::bind((address::fresh(), 0)).expect("a socket");
    let upstream = Upstream::start(move |asked| {
        let forged = asked.message_with(&["www.example. 300 A 203.0.113.66"]).encode();
        elsewhere.send_to(&forged, asked.from).expect("a forged answer");
        asked.answer(&[WWW])
    });
    let proxy = Proxy::start(&forward(&upstream, ONCE));
    assert_eq!(
        proxy.query("www.example", "A").answers(),
        ["www.example. A 192.0.2.1"]
    );
}

/// Bytes that are not a message are neither an answer nor cause a crash.
#[test]
fn garbage_from_an_upstream_is_a_failure_of_the_upstream() {
    let upstream = Upstream::start(|asked| {
        let mut octets = asked.message_with(&[WWW]).encode();
        // The answer's data is shorter than its length says.
        octets.truncate(octets.len() - 2);
        Reply::Octets(vec![octets])
    });
    let proxy = Proxy::start(&forward(&upstream, "timeout \"300ms\"; deadline \"1s\""));
    assert_eq!(proxy.query("www.example", "A").rcode(), "SERVFAIL");
    upstream.becomes(|asked| asked.answer(&[WWW]));
    until("good answers to be taken", || {
        proxy.query("www.example", "A").rcode() == "NOERROR"
    });
}

/// A datagram may be lost: the query is sent again.
#[test]
fn a_lost_datagram_is_sent_again() {
    let lost = std::sync::atomic::AtomicBool::new(false);
    let upstream = Upstream::start(
        move |asked| match lost.swap(true, std::sync::atomic::Ordering::SeqCst) {
            false => Reply::Silence,
            true => asked.answer(&[WWW]),
        },
    );
    let proxy = Proxy::start(&forward(&upstream, "timeout \"300ms\"; attempts 3"));
    assert_eq!(
        proxy.query("www.example", "A").answers(),
        ["www.example. A 192.0.2.1"]
    );
}

/// RFC 6891 section 6.1.1 and RFC 7873 section 5: EDNS is hop by hop.
#[test]
fn edns_is_not_relayed() {
    let upstream = Upstream::start(|asked| {
        let answer = asked.message_with(&[WWW]);
        Reply::Message(answer.option(10, &[7; 16]).option(65_001, b"theirs"))
    });
    let proxy = Proxy::start(&forward(&upstream, ONCE));
    let query = Message::query("www.example", "A")
        .edns(4000)
        .option(10, &[9; 8])
        .option(65_001, b"ours");
    let answer = proxy.ask(&query);
    assert_eq!(answer.answers(), ["www.example. A 192.0.2.1"]);
    assert_eq!(answer.find_option(10), None);
    assert_eq!(answer.find_option(65_001), None);
    let asked = &upstream.asked("www.example")[0].message;
    assert_eq!(asked.find_option(10), None);
    assert_eq!(asked.find_option(65_001), None);
    assert_eq!(
        asked.edns.as_ref().map(|edns| (edns.size, edns.version)),
        Some((1232, 0))
    );
}

/// An upstream without EDNS is asked again without it (RFC 6891 section 6.2.2).
#[test]
fn upstreams_without_edns_are_asked_without() {
    for rcode in ["FORMERR", "NOTIMP"] {
        let upstream = Upstream::start(move |asked| match &asked.message.edns {
            Some(_) => {
                let mut message = asked.message_with(&[]).rcode_set(rcode);
                message.edns = None;
                Reply::Message(message)
            }
            None => asked.answer(&[WWW]),
        });
        let proxy = Proxy::start(&forward(&upstream, ONCE));
        assert_eq!(
            proxy.query_edns("www.example", "A").answers(),
            ["www.example. A 192.0.2.1"],
            "{rcode}"
        );
    }
}

/// The client's DO and CD are passed on.
#[test]
fn dnssec_flags_are_passed_on() {
    let upstream = Upstream::start(|asked| Reply::Message(asked.message_with(&[WWW]).set(flags::AD)));
    let proxy = Proxy::start(&forward(&upstream, ONCE));
    let answer = proxy.ask(&Message::query("www.example", "A").dnssec_ok().set(flags::CD));
    assert!(answer.has(flags::CD));
    let asked = &upstream.asked("www.example")[0].message;
    assert!(asked.has(flags::CD | flags::RD));
    assert_eq!(asked.edns.as_ref().map(|edns| edns.flags & 0x8000), Some(0x8000));
    // RFC 3225 section 3: DO in the answer is that of the query.
    assert_eq!(answer.edns.map(|edns| edns.flags & 0x8000), Some(0x8000));
}

/// The upstream's answer reaches the client unchanged.
#[test]
fn rcodes_and_sections_pass_through() {
    let upstream = Upstream::start(|asked| {
        let mut message = asked.message_with(&[WWW]);
        message
            .authority
            .push(Record::parse("example. 300 NS ns.example."));
        message
            .additional
            .push(Record::parse("ns.example. 300 A 192.0.2.53"));
        match asked.name().split('.').next() {
            Some("refused") => asked.denial("REFUSED", None),
            Some("denied") => asked.denial(
                "NXDOMAIN",
                Some("example. 300 SOA ns.example. root.example. 1 2 3 4 5"),
            ),
            _ => Reply::Message(message),
        }
    });
    let proxy = Proxy::start(&forward(&upstream, "max-fails 0"));
    let whole = proxy.query("www.example", "A");
    assert_eq!(whole.authority[0].to_string(), "example. 300 NS ns.example.");
    assert_eq!(whole.additional[0].to_string(), "ns.example. 300 A 192.0.2.53");
    assert!(whole.has(flags::RA));
    assert_eq!(proxy.query("denied.example", "A").rcode(), "NXDOMAIN");
    assert_eq!(proxy.query("denied.example", "A").authority.len(), 1);
    assert_eq!(proxy.query("refused.example", "A").rcode(), "REFUSED");
}

/// One query more than `concurrent` from the same client is rejected immediately, not queued.
#[test]
fn concurrency_is_bounded() {
    let gate = Gate::default();
    let behind = gate.clone();
    let upstream =
        Upstream::start(move |asked| Reply::Behind(behind.clone(), Box::new(asked.answer(&[WWW]))));
    let proxy = Proxy::start(&forward(
        &upstream,
        "concurrent 1; jostle \"20s\"; attempts 1; timeout \"20s\"; deadline \"25s\"",
    ));
    let first = client::socket(proxy.address);
    first
        .send(&Message::query("first.example", "A").encode())
        .expect("a sent query");
    upstream.await_count("first.example", 1);
    let begun = Instant::now();
    assert_eq!(proxy.query("second.example", "A").rcode(), "SERVFAIL");
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    assert_eq!(upstream.count("second.example"), 0);
    proxy.await_metric("dnsweir_forward_rejects_total", &[("zone", ".")], 1.0);
    gate.open();
    client::receive(&first);
}

/// Thousands of queries that wait for one zone's upstream do not affect another zone's.
#[test]
fn a_silent_upstream_holds_up_nobody_elses_queries() {
    let (silent, quick) = (Upstream::start(|_| Reply::Silence), www());
    let proxy = Proxy::start(&format!(
        "workers 1
         zone \"slow.example\" {{
             cache
             forward \"{}\" {{ concurrent 5000; attempts 1; timeout \"25s\"; deadline \"25s\" }}
         }}
         zone \".\" {{ cache; forward \"{}\" }}",
        silent.address, quick.address
    ));
    let waiting = client::socket(proxy.address);
    // No more at once than the socket buffers hold.
    for group in 0..30 {
        for number in 0..100 {
            let name = format!("{number}.{group}.slow.example");
            waiting
                .send(&Message::query(&name, "A").encode())
                .expect("a sent query");
        }
        until("the queries to reach the upstream", || {
            silent.everything().len() >= (group + 1) * 100
        });
    }
    for number in 0..200 {
        let name = format!("{number}.quick.example");
        assert_eq!(proxy.query(&name, "A").rcode(), "NOERROR");
    }
    waiting.set_nonblocking(true).expect("a setting");
    let unanswered = waiting
        .recv(&mut [0; 512])
        .expect_err("an answer that nobody gave");
    assert_eq!(unanswered.kind(), std::io::ErrorKind::WouldBlock);
}

/// Upstreams from a resolv.conf.
#[test]
fn upstreams_come_from_a_resolv_conf() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("resolv.conf");
    // A resolv.conf has no ports: the upstream needs port 53.
    let server = std::net::SocketAddr::new(address::fresh().into(), 53);
    if UdpSocket::bind(server).is_err() {
        assert!(!crate::harness::needs(&["root"]), "port 53 of {server} is taken");
        return;
    }
    let upstream = Upstream::start_at(server, |asked| asked.answer(&[WWW]));
    std::fs::write(
        &file,
        format!("search example\nnameserver {}\noptions ndots:2\n", server.ip()),
    )
    .expect("a file");
    let proxy = Proxy::start(&format!("zone \".\" {{ forward \"{}\" }}", file.display()));
    assert_eq!(
        proxy.query("www.example", "A").answers(),
        ["www.example. A 192.0.2.1"]
    );
    assert_eq!(upstream.count("www.example"), 1);
}

/// The longest suffix owns a query; a query that no zone owns is refused.
#[test]
fn the_longest_zone_wins() {
    let answering = |text: &'static str| {
        Upstream::start(move |asked| asked.answer(&[&format!("{} 60 TXT {text}", asked.name())]))
    };
    let (short, long) = (answering("short"), answering("long"));
    let proxy = Proxy::start(&format!(
        "zone \"example\" {{ forward \"{}\" }}\nzone \"Deep.Example\" {{ forward \"{}\" }}",
        short.address, long.address
    ));
    for (name, text) in [
        ("example.", "short"),
        ("www.example.", "short"),
        ("deep.example.", "long"),
        ("DEEP.example.", "long"),
        ("www.deep.example.", "long"),
        ("notdeep.example.", "short"),
    ] {
        let answer = proxy.query(name, "TXT");
        assert!(
            answer.answers()[0].ends_with(&format!("TXT \"{text}\"")),
            "{answer}"
        );
    }
    assert_eq!(proxy.query("www.example.org", "TXT").rcode(), "REFUSED");
    assert_eq!(proxy.query("notexample", "TXT").rcode(), "REFUSED");
}
