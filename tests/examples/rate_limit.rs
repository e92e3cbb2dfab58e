//! `rate-limit`: rates, bursts, what counts as one client, and the effect on others.

use std::fs;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::{anything, client, configured, documented};
use crate::harness::client::{ask_from, receive, unanswered};
use crate::harness::guests::example;
use crate::harness::{Message, PATIENCE, Proxy, flags, forward_once, until};

/// How many of these queries are answered, each from a different port.
fn answered(proxy: &Proxy, from: IpAddr, queries: usize) -> usize {
    (0..queries)
        .filter(|_| {
            let answer = ask_from(from, proxy.address, &Message::query("www.test", "A"));
            match answer.rcode().as_str() {
                "NOERROR" => true,
                "REFUSED" => false,
                other => panic!("{other}: {answer}"),
            }
        })
        .count()
}

#[test]
fn the_documented_configuration_limits_a_client() {
    let upstream = anything();
    // A rate that refills nothing during the test, however slow the machine is.
    let replaced = [
        ("rate 50\n", "rate 1 per=\"1h\"\n"),
        ("10.96.0.0/12", "127.9.3.0/24"),
    ];
    let proxy = Proxy::start(&documented("rate-limit", upstream.address, &replaced));
    assert_eq!(answered(&proxy, client("127.9.1.1"), 210), 200);
    // Other clients are not affected, and some have no limit.
    assert_eq!(answered(&proxy, client("127.9.1.2"), 10), 10);
    assert_eq!(answered(&proxy, client("127.9.3.1"), 210), 210);
    let limited = [("filter", "rate-limit"), ("name", "limited")];
    proxy.await_metric("dnsweir_filter_counter_total", &limited, 10.0);
    // A refused query has the error Blocked (RFC 8914 section 4.16).
    let query = Message::query("www.test", "A").edns(1232);
    assert_eq!(
        ask_from(client("127.9.1.1"), proxy.address, &query).extended_errors(),
        [15]
    );
}

#[test]
fn a_dropped_query_gets_no_answer() {
    let upstream = anything();
    let config = "rate 1 per=\"1h\"\nburst 1\nbeyond \"drop\"\nexcept \"127.9.0.0/16\"";
    // The proxy refuses names outside its zones, which shows that a query sent before got no answer.
    let text = configured("rate-limit", config, &upstream).replace("zone \".\"", "zone \"www.test\"");
    let proxy = Proxy::start(&text);
    assert_eq!(proxy.query("www.test", "A").rcode(), "NOERROR");
    unanswered(proxy.address, &Message::query("www.test", "A").encode());
    assert_eq!(answered(&proxy, client("127.9.1.1"), 10), 10);
}

#[test]
fn a_truncated_answer_leads_to_tcp() {
    let upstream = anything();
    let config = "rate 1 per=\"1h\"\nbeyond \"truncate\"";
    let proxy = Proxy::start(&configured("rate-limit", config, &upstream));
    let whole = proxy.query("www.test", "A");
    assert_eq!(whole.answers().len(), 1);
    for _ in 0..2 {
        let answer = proxy.query("www.test", "A");
        assert!(answer.has(flags::TC) && answer.answers().is_empty(), "{answer}");
        assert_eq!(answer.rcode(), "NOERROR");
        let over_tcp = proxy.connect().ask(&Message::query("www.test", "A"));
        assert_eq!(over_tcp.answers(), whole.answers());
        assert!(!over_tcp.has(flags::TC));
    }
}

#[test]
fn prefixes_count_as_one_and_the_table_is_bounded() {
    let upstream = anything();
    let text = configured(
        "rate-limit",
        "rate 1 per=\"1h\"\nburst 2\nprefix ipv4=24 ipv6=64\nclients 2\nbeyond \"refuse\"",
        &upstream,
    );
    let proxy = Proxy::start(&text);
    assert_eq!(answered(&proxy, client("127.9.1.1"), 1), 1);
    assert_eq!(answered(&proxy, client("127.9.1.200"), 5), 1);
    // The smallest table has room for 19 of them; each one more has it forget another.
    for network in 2..=40 {
        assert_eq!(answered(&proxy, client(&format!("127.9.{network}.1")), 3), 2);
    }
    let table = [("filter", "f"), ("table", "clients")];
    proxy.await_metric("dnsweir_filter_table_evictions_total", &table, 21.0);
    proxy.await_metric("dnsweir_filter_table_entries", &table, 19.0);
}

/// However many ports a client uses.
#[test]
fn all_workers_share_the_limit() {
    let upstream = anything();
    let text = format!(
        "workers 4\n{}",
        configured("rate-limit", "rate 10 per=\"1h\"", &upstream)
    );
    let proxy = Proxy::start(&text);
    assert_eq!(answered(&proxy, client("127.9.1.1"), 100), 10);
}

/// What a flood was granted.
#[derive(Default)]
struct Flood {
    granted: AtomicU64,
    over: AtomicBool,
}

/// The time of the first reply, and of the last query that was refused.
type Span = (Instant, Instant);

impl Flood {
    /// Asks from several ports until the end.
    fn run(&self, from: IpAddr, server: SocketAddr) -> Span {
        let sockets: Vec<UdpSocket> = (0..8)
            .map(|_| {
                let socket = UdpSocket::bind((from, 0)).expect("a UDP socket");
                socket.set_read_timeout(Some(PATIENCE)).expect("a timeout");
                socket.connect(server).expect("a connected UDP socket");
                socket
            })
            .collect();
        let query = Message::query("www.test", "A").encode();
        let mut span: Option<Span> = None;
        while !self.over.load(Ordering::Relaxed) {
            let sent = Instant::now();
            for socket in &sockets {
                socket.send(&query).expect("a sent query");
            }
            for socket in &sockets {
                let answer = Message::decode(&receive(socket)).expect("an answer");
                let (first, refused) = span.unwrap_or_else(|| (Instant::now(), sent));
                span = match answer.rcode().as_str() {
                    "NOERROR" => {
                        self.granted.fetch_add(1, Ordering::Relaxed);
                        Some((first, refused))
                    }
                    _ => Some((first, sent)),
                };
            }
            // A few thousand queries per second are more than enough.
            thread::sleep(Duration::from_millis(5));
        }
        span.expect("a reply")
    }
}

fn install(path: &Path, module: &[u8]) {
    let new = path.with_extension("new");
    fs::write(&new, module).expect("a module");
    fs::rename(&new, path).expect("a module in place");
}

/// The granted queries are compared with the bucket's content and refill in measured time spans, so that a
/// slow machine changes nothing: at most the content plus the refill from before the first query to after the
/// last reply; and at least the content plus the refill from the first reply to the last query that found the
/// bucket empty. Only a standstill of ten seconds, in which the bucket fills up, would lose some.
#[test]
fn a_rate_holds_over_all_workers_through_reloads_and_a_swap() {
    const RATE: f64 = 50.0;
    const BURST: f64 = 500.0;
    let upstream = anything();
    let place = tempfile::tempdir().expect("a folder");
    let path = place.path().join("rate-limit.wasm");
    let module = fs::read(example("rate-limit")).expect("a module");
    install(&path, &module);
    let text = |number: u32| {
        format!(
            "workers 4\nfilter \"f\" {{ module \"{}\"; limits time=\"1s\"; config {{ rate 50; burst 500 }} }}\n\
             zone \".\" {{ use \"f\"; cache; {forward} }}\nzone \"number{number}.test\" {{ {forward} }}",
            path.display(),
            forward = forward_once(upstream.address),
        )
    };
    let proxy = Proxy::start(&text(0));
    let flood = Flood::default();
    let begin = Instant::now();
    let spans: Vec<Span> = thread::scope(|scope| {
        let floods: Vec<_> = (0..4)
            .map(|_| scope.spawn(|| flood.run(client("127.9.1.1"), proxy.address)))
            .collect();
        for change in 1..=11_u32 {
            let granted = BURST as u64 + 20 * u64::from(change);
            until("more queries to be granted", || {
                flood.granted.load(Ordering::Relaxed) >= granted
            });
            if change == 6 {
                let generation = proxy.generation();
                // The same code in another file, with an unused section added.
                install(&path, &[&module[..], b"\0\x05\x04swap"].concat());
                until("the new module to be in force", || {
                    proxy.generation() > generation
                });
            } else {
                proxy.reload(&text(change));
            }
        }
        flood.over.store(true, Ordering::Relaxed);
        floods
            .into_iter()
            .map(|flood| flood.join().expect("answers to the flood"))
            .collect()
    });
    let whole = begin.elapsed().as_secs_f64();
    let first = spans.iter().map(|span| span.0).min().expect("a flood");
    let last = spans.iter().map(|span| span.1).max().expect("a flood");
    let least = last.saturating_duration_since(first).as_secs_f64();
    let granted = flood.granted.load(Ordering::Relaxed) as f64 - BURST;
    eprintln!(
        "{granted} in {least:.2} to {whole:.2} s, {:.2} a second",
        granted / whole
    );
    assert!(granted <= RATE * whole * 1.05, "{granted} in {whole} s");
    assert!(granted >= RATE * least * 0.95, "{granted} in {least} s");
    assert!(proxy.generation() >= 12.0);
    let table = [("filter", "f"), ("table", "clients")];
    proxy.await_metric("dnsweir_filter_table_entries", &table, 1.0);
}
