//! Delayed responses: for how long, and without delaying others.

use std::time::{Duration, Instant};

use crate::harness::guests::verdicts;
use crate::harness::{Message, Proxy, Upstream, client, forward_once, unanswered, until};

/// The delay for names with `slow`.
const SLOW: Duration = Duration::from_millis(250);

fn start(options: &str, stages: &str, upstream: &Upstream) -> Proxy {
    Proxy::start(&format!(
        "workers 1; {options}\n\
         filter \"verdicts\" {{ module {:?}; on-error \"servfail\"; limits time=\"1s\" }}\n\
         zone \".\" {{ {stages}; {} }}",
        verdicts(),
        forward_once(upstream.address)
    ))
}

fn anything() -> Upstream {
    Upstream::start(|asked| asked.answer(&[&format!("{} 300 A 192.0.2.1", asked.name())]))
}

/// The time that an answer takes, and its number of records.
fn timed(proxy: &Proxy, name: &str) -> (Duration, usize) {
    let begun = Instant::now();
    let answer = proxy.query(name, "A");
    (begun.elapsed(), answer.answers.len())
}

/// With every verdict, above and below the cache, for the first query and for remembered verdicts.
#[test]
fn responses_are_held_back() {
    let upstream = anything();
    for stages in ["use \"verdicts\"; cache", "use \"verdicts\""] {
        let proxy = start("", stages, &upstream);
        let names = [
            ("slow.test", 1),
            ("slow-answer.test", 1),
            ("slow-refuse.test", 0),
            ("slow-alias.test", 2),
            ("slow-rewrite.test", 1),
            ("slow-response.test", 1),
            ("slow-replaced.test", 1),
        ];
        for (name, records) in names {
            for _ in 0..2 {
                let (took, found) = timed(&proxy, name);
                assert!(took >= SLOW, "{stages}, {name}: {took:?}");
                assert_eq!(found, records, "{stages}, {name}");
            }
        }
        // Over a connection, too.
        let begun = Instant::now();
        proxy.connect().ask(&Message::query("slow.test", "A"));
        assert!(begun.elapsed() >= SLOW);
        // The target of an alias is queried by the proxy itself, and not delayed again.
        let labels = [("filter", "verdicts")];
        let metrics = proxy.metrics();
        assert_eq!(metrics.sum("dnsweir_filter_delays_total", &labels), 15.0);
        assert!(metrics.sum("dnsweir_filter_remembered_total", &labels) > 0.0);
        assert_eq!(metrics.sum("dnsweir_waiting_queries", &[]), 0.0);
        unanswered(proxy.address, &Message::query("slow-drop.test", "A").encode());
    }
}

/// A response delayed for one client is in the cache already: below it, only the first client waits.
#[test]
fn a_delay_is_not_kept() {
    let upstream = anything();
    let proxy = start("", "cache; use \"verdicts\"", &upstream);
    let slow = client::socket(proxy.address);
    let query = Message::query("slowest.test", "A");
    slow.send(&query.encode()).expect("a sent query");
    upstream.await_count("slowest.test", 1);
    // The response is cached before it is delayed.
    until("the answer to be kept", || {
        proxy.metrics().sum("dnsweir_cache_entries", &[]) > 0.0
    });
    assert_eq!(proxy.query("slowest.test", "A").answers.len(), 1);
    assert_eq!(proxy.metrics().sum("dnsweir_waiting_queries", &[]), 1.0);
    let answer = Message::decode(&client::receive(&slow)).expect("a message");
    assert_eq!(answer.answers.len(), 1);
    assert_eq!(upstream.count("slowest.test"), 1);
}

/// On one worker and one connection, later queries are answered first.
#[test]
fn nobody_waits_for_what_is_held_back() {
    let upstream = anything();
    let proxy = start("", "use \"verdicts\"; cache", &upstream);
    proxy.query("fast.test", "A");
    let mut connection = proxy.connect();
    let begun = Instant::now();
    let [slow, fast] = ["slowest.test", "fast.test"].map(|name| Message::query(name, "A"));
    connection.send(&[&slow, &fast]);
    let ids = [(); 2].map(|()| connection.receive().expect("a response").id);
    assert_eq!(ids, [fast.id, slow.id]);
    // The delays of the query's verdict and the response's, each limited to two seconds.
    assert!(begun.elapsed() >= Duration::from_secs(4), "{:?}", begun.elapsed());
}

/// The delays of several filters add up.
#[test]
fn delays_add_up() {
    let upstream = anything();
    let again = format!(
        "filter \"again\" {{ module {:?}; limits time=\"1s\" }}",
        verdicts()
    );
    let proxy = start(&again, "use \"verdicts\"; use \"again\"; cache", &upstream);
    for name in ["slow.test", "slow-response.test"] {
        let (took, found) = timed(&proxy, name);
        assert!(took >= 2 * SLOW, "{name}: {took:?}");
        assert_eq!(found, 1);
    }
}

/// When too many responses wait, further ones are sent immediately, and counted.
#[test]
fn without_room_responses_go_out_at_once() {
    let upstream = anything();
    let proxy = start("waiting-queries 16", "use \"verdicts\"; cache", &upstream);
    let sockets: Vec<_> = (0..40).map(|_| client::socket(proxy.address)).collect();
    for socket in &sockets {
        let query = Message::query("slow-answer.test", "A");
        socket.send(&query.encode()).expect("a sent query");
    }
    for socket in &sockets {
        let answer = Message::decode(&client::receive(socket)).expect("a message");
        assert_eq!((answer.rcode().as_str(), answer.answers.len()), ("NOERROR", 1));
    }
    until("nobody to wait", || {
        proxy.metrics().sum("dnsweir_waiting_queries", &[]) == 0.0
    });
}
