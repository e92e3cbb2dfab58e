//! The `cache` stage: what is kept, for how long, and what it costs.

use std::net::UdpSocket;
use std::time::{Duration, Instant};

use crate::harness::upstream::{Gate, Reply};
use crate::harness::{Message, Proxy, Upstream, client, flags, forward_once, needs, servers, until};

const SOA: &str = "example. 300 SOA ns.example. root.example. 1 2 3 4 60";

fn cached(upstream: &Upstream) -> String {
    cached_as(upstream, "cache")
}

fn cached_as(upstream: &Upstream, cache: &str) -> String {
    format!("zone \".\" {{ {cache}; {} }}", forward_once(upstream.address))
}

/// The same question twice causes one upstream query, and the TTL counts down (unbound).
#[test]
fn the_same_question_twice_is_one_upstream_query() {
    if !needs(&["unbound"]) {
        return;
    }
    let unbound = servers::unbound("example", &["www.example. 300 IN A 192.0.2.1"]);
    let proxy = Proxy::start(&format!(
        "zone \".\" {{ cache; {} }}",
        forward_once(unbound.address)
    ));
    let first = proxy.query("www.example", "A");
    assert_eq!(first.answers(), ["www.example. A 192.0.2.1"]);
    assert_eq!(first.ttl(), 300);
    until("the TTL to count down", || {
        proxy.query("www.example", "A").ttl() < 300
    });
    assert_eq!(unbound.queries("www.example"), 1);
}

/// Each record ages by its own TTL, and the answer lives as long as the shortest one.
#[test]
fn every_record_ages_by_itself() {
    let upstream = Upstream::zone(&[
        "www.example. 300 CNAME host.example.",
        "host.example. 3 A 192.0.2.1",
    ]);
    let proxy = Proxy::start(&cached(&upstream));
    assert_eq!(proxy.query("www.example", "A").ttls(), [300, 3]);
    let aged = crate::harness::eventually("both TTLs to count down", || {
        let ttls = proxy.query("www.example", "A").ttls();
        (ttls[0] < 300).then_some(ttls)
    });
    assert_eq!(300 - aged[0], 3 - aged[1], "{aged:?}");
    assert_eq!(upstream.count("www.example"), 1);
    until("the shortest TTL to end", || {
        proxy.query("www.example", "A");
        upstream.count("www.example") == 2
    });
}

/// RFC 2181 section 5.2: all records of an RRset have its lowest TTL.
#[test]
fn an_rrset_has_one_ttl() {
    let upstream = Upstream::zone(&["www.example. 300 A 192.0.2.1", "www.example. 60 A 192.0.2.2"]);
    let proxy = Proxy::start(&cached(&upstream));
    proxy.query("www.example", "A");
    let ttls = proxy.query("www.example", "A").ttls();
    assert_eq!(ttls.len(), 2);
    assert!(ttls.iter().all(|ttl| *ttl <= 60), "{ttls:?}");
}

/// RFC 2181 section 8: a TTL with its top bit set is zero.
#[test]
fn a_negative_ttl_is_zero() {
    let upstream = Upstream::zone(&["www.example. 2147483648 A 192.0.2.1"]);
    let proxy = Proxy::start(&cached(&upstream));
    proxy.query("www.example", "A");
    assert_eq!(proxy.query("www.example", "A").ttl(), 0);
    assert_eq!(upstream.count("www.example"), 2);
}

#[test]
fn a_ttl_of_zero_is_not_kept() {
    let upstream = Upstream::zone(&["www.example. 0 A 192.0.2.1"]);
    let proxy = Proxy::start(&cached(&upstream));
    for _ in 0..3 {
        assert_eq!(proxy.query("www.example", "A").ttl(), 0);
    }
    assert_eq!(upstream.count("www.example"), 3);
}

/// Bounds per kind of answer.
#[test]
fn minimum_and_maximum_bound_what_clients_see() {
    let upstream = Upstream::zone(&[
        "short.example. 1 A 192.0.2.1",
        "long.example. 90000 A 192.0.2.2",
        SOA,
    ]);
    let cache = "cache { success min=\"50s\" max=\"100s\"; denial min=\"10s\" max=\"20s\" }";
    let proxy = Proxy::start(&cached_as(&upstream, cache));
    // The first query fills the cache, the second shows what it kept.
    for name in ["short.example", "long.example", "none.example"] {
        proxy.query(name, "A");
    }
    let short = proxy.query("short.example", "A").ttl();
    let long = proxy.query("long.example", "A").ttl();
    let denial = proxy.query("none.example", "A").authority[0].ttl;
    assert!((40..=50).contains(&short), "{short}");
    assert!((90..=100).contains(&long), "{long}");
    assert!((10..=20).contains(&denial), "{denial}");
    assert_eq!(
        upstream
            .everything()
            .iter()
            .filter(|asked| asked.name().ends_with("example."))
            .count(),
        3
    );
}

/// The key: name without letter case, type, DO and CD.
#[test]
fn types_and_flags_are_kept_apart() {
    let upstream = Upstream::zone(&[
        "www.example. 300 A 192.0.2.1",
        "www.example. 300 AAAA 2001:db8::1",
        SOA,
    ]);
    let proxy = Proxy::start(&cached(&upstream));
    let plain = Message::query("www.example", "A");
    let apart = [
        plain.clone(),
        Message::query("www.example", "AAAA"),
        plain.clone().dnssec_ok(),
        plain.clone().set(flags::CD),
        plain.clone().dnssec_ok().set(flags::CD),
    ];
    for round in 1..=2 {
        for (number, query) in apart.iter().enumerate() {
            assert_eq!(proxy.ask(query).answers().len(), 1);
            let expected = if round == 1 { number + 1 } else { apart.len() };
            assert_eq!(upstream.count("www.example"), expected, "{query}");
        }
    }
    // Nothing else splits an entry: neither the letter case nor the advertised size nor AD.
    for query in [
        Message::query("WWW.Example", "A"),
        plain.clone().edns(512),
        plain.clone().edns(4096),
        plain.clone().set(flags::AD),
    ] {
        assert_eq!(proxy.ask(&query).answers().len(), 1);
    }
    assert_eq!(upstream.count("www.example"), apart.len());
}

/// Letter case comes back as the client sent it, on a miss and on a hit, and the records match it.
#[test]
fn letter_case_comes_back_as_it_was_sent() {
    let upstream = Upstream::zone(&["www.example. 300 A 192.0.2.1"]);
    let proxy = Proxy::start(&cached(&upstream));
    for name in ["wWw.ExAmPlE", "WWW.EXAMPLE", "www.example", "Www.eXAMPLE"] {
        // `ask` compares the question byte by byte.
        let answer = proxy.query(name, "A");
        assert!(
            answer.answers[0].name.eq_ignore_ascii_case("www.example."),
            "{answer}"
        );
    }
    assert_eq!(upstream.count("www.example"), 1);
}

/// A popular answer expires: one query leads, and all others wait for its result.
#[test]
fn ten_thousand_clients_of_an_expired_name_cause_one_upstream_query() {
    const CLIENTS: usize = 10_000;
    let answer = |ttl: u32| format!("hot.example. {ttl} A 192.0.2.1");
    let upstream = Upstream::start(move |asked| asked.answer(&[&answer(1)]));
    let proxy = Proxy::start(&format!("waiting-queries 16384\n{}", cached(&upstream)));
    assert_eq!(proxy.query("hot.example", "A").ttl(), 1);
    let gate = Gate::default();
    let behind = gate.clone();
    upstream.becomes(move |asked| Reply::Behind(behind.clone(), Box::new(asked.answer(&[&answer(300)]))));

    let send = |socket: &UdpSocket, id: usize| {
        let mut query = Message::query("hot.example", "A");
        query.id = id as u16;
        socket.send(&query.encode()).expect("a sent query");
    };
    // The first query after the second is over leads. Until then, the cache answers.
    let leader = client::socket(proxy.address);
    let mut asked = 1;
    until("the answer to run out", || {
        send(&leader, 0);
        asked += 1;
        proxy.await_metric("dnsweir_requests_total", &[("type", "A")], asked as f64);
        upstream.count("hot.example") == 2
    });

    // One socket per client, as far as the limit of open files allows.
    let sockets: Vec<_> = (0..CLIENTS.min(open_files() / 2))
        .map(|_| client::socket(proxy.address))
        .collect();
    for number in 0..CLIENTS {
        send(&sockets[number % sockets.len()], number);
        asked += 1;
        // No faster than the proxy reads: the size of a socket buffer is not under test.
        if number % 100 == 99 {
            proxy.await_metric("dnsweir_requests_total", &[("type", "A")], asked as f64);
        }
    }
    // Some queries of the leader followed its first miss, and are coalesced as well.
    until("all to wait together", || {
        proxy.metrics().sum("dnsweir_cache_coalesced_total", &[]) >= CLIENTS as f64
    });
    let opened = Instant::now();
    gate.open();
    for number in 0..CLIENTS {
        let answer =
            Message::decode(&client::receive(&sockets[number % sockets.len()])).expect("a whole message");
        assert_eq!(answer.answers(), ["hot.example. A 192.0.2.1"]);
    }
    eprintln!(
        "{CLIENTS} clients were answered within {:?} of the upstream's answer",
        opened.elapsed()
    );
    assert_eq!(upstream.count("hot.example"), 2, "one query before, one after");
}

/// The soft limit for open files of this process.
fn open_files() -> usize {
    let limits = std::fs::read_to_string("/proc/self/limits").unwrap_or_default();
    let line = limits
        .lines()
        .find_map(|line| line.strip_prefix("Max open files"));
    line.and_then(|line| line.split_whitespace().next()?.parse().ok())
        .unwrap_or(1024)
}

/// Waiting clients get the failure, too.
#[test]
fn those_who_wait_together_fail_together() {
    let gate = Gate::default();
    let behind = gate.clone();
    let upstream =
        Upstream::start(move |asked| Reply::Behind(behind.clone(), Box::new(asked.denial("SERVFAIL", None))));
    let proxy = Proxy::start(&cached(&upstream));
    let sockets: Vec<_> = (0..10).map(|_| client::socket(proxy.address)).collect();
    for socket in &sockets {
        socket
            .send(&Message::query("new.example", "A").encode())
            .expect("a sent query");
    }
    proxy.await_metric("dnsweir_cache_coalesced_total", &[], 9.0);
    gate.open();
    for socket in &sockets {
        assert_eq!(
            Message::decode(&client::receive(socket))
                .expect("a message")
                .rcode(),
            "SERVFAIL"
        );
    }
    assert_eq!(upstream.count("new.example"), 1);
}

/// A popular entry is fetched again before it expires: no client waits for it.
#[test]
fn popular_entries_are_prefetched() {
    let upstream = Upstream::zone(&["www.example. 20 A 192.0.2.1"]);
    let proxy = Proxy::start(&cached_as(&upstream, "cache { prefetch hits=2 percent=90 }"));
    let begun = Instant::now();
    until("the entry to be fetched again", || {
        proxy.query("www.example", "A");
        upstream.count("www.example") > 1
    });
    assert!(
        begun.elapsed() < Duration::from_secs(19),
        "that was an expiry, after {:?}",
        begun.elapsed()
    );
    until("the fetched entry to be in place", || {
        proxy.query("www.example", "A").ttl() >= 19
    });
    assert!(proxy.metrics().sum("dnsweir_cache_prefetches_total", &[]) >= 1.0);
}

/// An entry without queries expires.
#[test]
fn unpopular_entries_are_not_prefetched() {
    let upstream = Upstream::zone(&["once.example. 2 A 192.0.2.1", "mark.example. 1 A 192.0.2.2"]);
    let proxy = Proxy::start(&cached_as(&upstream, "cache { prefetch hits=5 percent=90 }"));
    proxy.query("once.example", "A");
    // Another entry, queried all the time, shows when 2 s are over: it has expired twice.
    until("time to pass", || {
        proxy.query("mark.example", "TXT");
        proxy.query("mark.example", "A");
        upstream
            .asked("mark.example")
            .iter()
            .filter(|asked| asked.is("A"))
            .count()
            >= 4
    });
    assert_eq!(upstream.count("once.example"), 1);
}

/// The limit is in bytes, and holds under any load.
#[test]
fn memory_stays_within_its_limit() {
    let upstream = Upstream::start(|asked| asked.answer(&[&format!("{} 3600 A 192.0.2.1", asked.name())]));
    let proxy = Proxy::start(&format!("cache-memory \"1MiB\"\n{}", cached(&upstream)));
    let limit = proxy.metrics().sum("dnsweir_cache_limit_bytes", &[]);
    assert_eq!(limit, 1_048_576.0);
    for batch in 0..40 {
        ask_many(
            &proxy,
            (0..500).map(|number| format!("name{number}-batch{batch}.example")),
        );
        let bytes = proxy.metrics().sum("dnsweir_cache_bytes", &[]);
        assert!(bytes <= limit, "{bytes} bytes after {} names", (batch + 1) * 500);
    }
    let metrics = proxy.metrics();
    assert!(metrics.sum("dnsweir_cache_evictions_total", &[]) > 0.0);
    assert!(metrics.sum("dnsweir_cache_entries", &[]) > 1000.0);
    assert!(metrics.sum("dnsweir_cache_bytes", &[]) > limit / 2.0);
}

/// A scan over names that are asked for once does not evict popular names.
#[test]
fn a_scan_leaves_popular_names_in() {
    let upstream = Upstream::start(|asked| asked.answer(&[&format!("{} 3600 A 192.0.2.1", asked.name())]));
    let proxy = Proxy::start(&format!("cache-memory \"1MiB\"\n{}", cached(&upstream)));
    let popular = || (0..100).map(|number| format!("popular{number}.example"));
    for _ in 0..5 {
        ask_many(&proxy, popular());
    }
    for batch in 0..40 {
        ask_many(
            &proxy,
            (0..500).map(|number| format!("scan{number}-batch{batch}.example")),
        );
        ask_many(&proxy, popular());
    }
    assert!(proxy.metrics().sum("dnsweir_cache_evictions_total", &[]) > 0.0);
    let asked = popular().map(|name| upstream.count(&name)).sum::<usize>();
    assert!(asked <= 150, "100 popular names were fetched {asked} times");
}

/// Asks for A of every name, in chunks, and expects an answer to each.
fn ask_many(proxy: &Proxy, names: impl Iterator<Item = String>) {
    let socket = client::socket(proxy.address);
    let names: Vec<String> = names.collect();
    for some in names.chunks(50) {
        for name in some {
            socket
                .send(&Message::query(name, "A").encode())
                .expect("a sent query");
        }
        for _ in some {
            let answer = Message::decode(&client::receive(&socket)).expect("a whole message");
            assert_eq!(answer.rcode(), "NOERROR");
        }
    }
}

/// A truncated message is never cached (RFC 1035 section 7.4, RFC 2181 section 9): the whole answer is
/// fetched, and the next client gets that one.
#[test]
fn truncated_answers_are_not_kept() {
    let upstream = Upstream::start(|asked| {
        if asked.tcp {
            return asked.answer(&["big.example. 300 TXT \"whole\""]);
        }
        Reply::Message(asked.message_with(&[]).set(flags::TC))
    });
    let proxy = Proxy::start(&cached(&upstream));
    for _ in 0..2 {
        let answer = proxy.query("big.example", "TXT");
        assert_eq!(answer.answers(), ["big.example. TXT \"whole\""]);
        assert!(!answer.has(flags::TC));
    }
    assert_eq!(upstream.count("big.example"), 2, "once over UDP, once over TCP");
}

/// The counters are right.
#[test]
fn hits_and_misses_are_counted() {
    let upstream = Upstream::zone(&["www.example. 300 A 192.0.2.1", SOA]);
    let proxy = Proxy::start(&cached(&upstream));
    for _ in 0..4 {
        proxy.query("www.example", "A");
    }
    for _ in 0..3 {
        proxy.query("none.example", "A");
    }
    proxy.await_metric("dnsweir_cache_misses_total", &[("zone", ".")], 2.0);
    proxy.await_metric(
        "dnsweir_cache_hits_total",
        &[("zone", "."), ("type", "success")],
        3.0,
    );
    proxy.await_metric(
        "dnsweir_cache_hits_total",
        &[("zone", "."), ("type", "denial")],
        2.0,
    );
    proxy.await_metric("dnsweir_cache_entries", &[("type", "success")], 1.0);
    proxy.await_metric("dnsweir_cache_entries", &[("type", "denial")], 1.0);
}

/// Zones share memory, but not entries.
#[test]
fn zones_do_not_see_each_others_entries() {
    let (inner, outer) = (
        Upstream::zone(&["www.in.example. 300 A 192.0.2.1"]),
        Upstream::zone(&["www.example. 300 A 192.0.2.2"]),
    );
    let proxy = Proxy::start(&format!(
        "zone \"in.example\" {{ cache; {} }}\nzone \".\" {{ cache; {} }}",
        forward_once(inner.address),
        forward_once(outer.address)
    ));
    for _ in 0..2 {
        assert_eq!(
            proxy.query("www.in.example", "A").answers(),
            ["www.in.example. A 192.0.2.1"]
        );
        assert_eq!(
            proxy.query("www.example", "A").answers(),
            ["www.example. A 192.0.2.2"]
        );
    }
    assert_eq!(
        (inner.count("www.in.example"), outer.count("www.in.example")),
        (1, 0)
    );
    proxy.await_metric("dnsweir_cache_hits_total", &[("zone", "in.example.")], 1.0);
}

/// A reload keeps the cache.
#[test]
fn a_reload_keeps_entries() {
    let upstream = Upstream::zone(&["www.example. 300 A 192.0.2.1"]);
    let proxy = Proxy::start(&cached(&upstream));
    proxy.query("www.example", "A");
    proxy.reload(&format!("{}\n// changed", cached(&upstream)));
    assert_eq!(
        proxy.query("www.example", "A").answers(),
        ["www.example. A 192.0.2.1"]
    );
    assert_eq!(upstream.count("www.example"), 1);
}
