//! Queries waiting for upstreams: their limit, which are displaced beyond it, and what remains.

use std::net::{IpAddr, SocketAddr, UdpSocket};

use crate::harness::client::ask_from;
use crate::harness::tools::RELEASE;
use crate::harness::upstream::{Gate, Reply};
use crate::harness::{Message, PATIENCE, Proxy, Upstream, client, eventually, forward_once, needs, until};

/// Extended errors (RFC 8914 section 4).
const CACHED_ERROR: u16 = 13;
const STALE_ANSWER: u16 = 3;

/// Timeouts so long that within a test queries end only by being displaced.
const PATIENT: &str = "attempts 1; max-fails 0; timeout \"20s\"; deadline \"25s\"; jostle \"20s\"";

fn from(number: u8) -> IpAddr {
    [127, 0, 0, number].into()
}

/// Answers all names immediately, except those with a label `silent`.
fn partly_silent() -> Upstream {
    Upstream::start(
        |asked| match asked.name().split('.').any(|label| label == "silent") {
            true => Reply::Silence,
            false => asked.answer(&[&format!("{} 300 A 192.0.2.1", asked.name())]),
        },
    )
}

/// A client's socket; its replies are ignored.
struct Flood(UdpSocket);

impl Flood {
    fn from(client: IpAddr, server: SocketAddr) -> Flood {
        let socket = UdpSocket::bind((client, 0)).expect("a UDP socket");
        socket.connect(server).expect("a connected socket");
        socket.set_nonblocking(true).expect("a socket that does not wait");
        Flood(socket)
    }

    fn ask(&self, name: &str) {
        self.0
            .send(&Message::query(name, "A").encode())
            .expect("a sent query");
        while self.0.recv(&mut [0; 512]).is_ok() {}
    }
}

/// One client asks for far more silent names than may wait: all other clients are answered as before.
#[test]
fn a_client_that_asks_for_silent_names_keeps_nobody_out() {
    let upstream = partly_silent();
    let proxy = Proxy::start(&format!(
        "zone \".\" {{ cache; forward \"{}\" {{ {PATIENT}; concurrent 16 }} }}",
        upstream.address
    ));
    let flood = Flood::from(from(2), proxy.address);
    for round in 0..30 {
        for number in 0..20 {
            // Each in a different domain, as if registered separately.
            flood.ask(&format!("silent.n{number}-{round}.example"));
        }
        let calm = Message::query(&format!("www{round}.example"), "A").edns(1232);
        let answer = ask_from(from(3), proxy.address, &calm);
        assert_eq!(
            (answer.rcode(), answer.answers().len()),
            ("NOERROR".to_owned(), 1)
        );
    }
    let metrics = proxy.metrics();
    assert!(metrics.sum("dnsweir_forward_displaced_total", &[("zone", ".")]) > 0.0);
    assert!(metrics.sum("dnsweir_forward_rejects_total", &[("zone", ".")]) > 0.0);
}

/// Many clients ask for silent names of one zone: names of other zones are answered as before.
#[test]
fn a_silent_zone_keeps_no_other_out() {
    let upstream = partly_silent();
    let proxy = Proxy::start(&format!(
        "zone \".\" {{ cache; forward \"{}\" {{ {PATIENT}; concurrent 16 }} }}",
        upstream.address
    ));
    let floods: Vec<Flood> = (10..60)
        .map(|number| Flood::from(from(number), proxy.address))
        .collect();
    for round in 0..20 {
        for (number, flood) in floods.iter().enumerate() {
            flood.ask(&format!("n{number}-{round}.silent.example"));
        }
        let calm = Message::query(&format!("www.calm{round}.example"), "A");
        let calm = calm.edns(1232);
        // A client that also asks for the silent zone.
        let answer = ask_from(from(10 + round), proxy.address, &calm);
        assert_eq!(answer.rcode(), "NOERROR", "{answer}");
    }
}

/// RFC 9520 section 2: a lack of room is not a resolution failure of the name, and is not cached.
#[test]
fn what_was_turned_away_is_not_remembered_as_failed() {
    let gate = Gate::default();
    let behind = gate.clone();
    let upstream = Upstream::start(move |asked| {
        let answer = asked.answer(&[&format!("{} 300 A 192.0.2.1", asked.name())]);
        match asked.name().starts_with("first") {
            true => Reply::Behind(behind.clone(), Box::new(answer)),
            false => answer,
        }
    });
    let proxy = Proxy::start(&format!(
        "zone \".\" {{ cache {{ failure \"5m\" }}; forward \"{}\" {{ {PATIENT}; concurrent 1 }} }}",
        upstream.address
    ));
    let first = client::socket(proxy.address);
    first
        .send(&Message::query("first.example", "A").encode())
        .expect("a sent query");
    upstream.await_count("first.example", 1);
    let turned_away = proxy.query_edns("second.example", "A");
    assert_eq!(turned_away.rcode(), "SERVFAIL");
    assert!(!turned_away.extended_errors().contains(&CACHED_ERROR));
    gate.open();
    client::receive(&first);
    assert_eq!(proxy.query("second.example", "A").rcode(), "NOERROR");
    proxy.await_metric("dnsweir_forward_rejects_total", &[("zone", ".")], 1.0);
    proxy.await_metric("dnsweir_cache_entries", &[("type", "failure")], 0.0);
}

/// A few silent names, asked for repeatedly: a limited number of queries wait, and other clients are
/// answered.
#[test]
fn queries_that_wait_are_bounded() {
    const WAITING: usize = 64;
    let upstream = partly_silent();
    let proxy = Proxy::start(&format!(
        "waiting-queries {WAITING}\nzone \".\" {{ cache; forward \"{}\" {{ {PATIENT} }} }}",
        upstream.address
    ));
    let flood = Flood::from(from(2), proxy.address);
    for round in 0..30 {
        for number in 0..40 {
            flood.ask(&format!("n{}.silent.example", number % 20));
        }
        let waiting = proxy.metrics().sum("dnsweir_waiting_queries", &[]);
        assert!(waiting <= WAITING as f64, "{waiting}");
        let calm = Message::query(&format!("www{round}.example"), "A");
        assert_eq!(ask_from(from(3), proxy.address, &calm).rcode(), "NOERROR");
    }
    // While they wait, there is one upstream query per name.
    assert!((0..20).all(|number| upstream.count(&format!("n{number}.silent.example")) >= 1));
    // The last of them may still be in the socket buffer.
    until("the others to be turned away", || {
        let metrics = proxy.metrics();
        let gone = metrics.sum("dnsweir_waiting_rejects_total", &[])
            + metrics.sum("dnsweir_waiting_displaced_total", &[]);
        gone >= (30 * 40 - WAITING) as f64
    });
}

/// A waiting query takes no more memory than the process's memory ceiling assumes.
#[test]
fn queries_that_wait_take_the_memory_that_is_reckoned_with() {
    if !needs(&[RELEASE]) {
        return;
    }
    const WAITING: usize = 8192;
    /// `serve::WAITING_OCTETS`; these tests see the proxy only from outside.
    const OCTETS: usize = 2688;
    let upstream = Upstream::start(|_| Reply::Silence);
    let proxy = Proxy::start(&format!(
        "workers 1; cache-memory \"1MiB\"; waiting-queries {WAITING}\n\
         zone \".\" {{ cache; forward \"{}\" {{ {PATIENT} }} }}",
        upstream.address
    ));
    let flood = Flood::from(from(2), proxy.address);
    // Names of maximum length.
    let long = format!("{0}.{0}.{0}", "n".repeat(60));
    flood.ask(&format!("0.{long}"));
    upstream.await_count(&format!("0.{long}"), 1);
    let before = resident(&proxy);
    let mut asked = 1;
    while asked < WAITING {
        for _ in 0..64 {
            flood.ask(&format!("{}.{long}", asked % 20));
            asked += 1;
        }
        proxy.await_metric("dnsweir_requests_total", &[("type", "A")], asked as f64);
    }
    let waiting = proxy.metrics().sum("dnsweir_waiting_queries", &[]);
    assert!(waiting >= (WAITING - 64) as f64, "{waiting}");
    let each = (resident(&proxy) - before) / waiting as usize;
    eprintln!("{each} octets for each of {waiting} queries that wait");
    assert!(each <= OCTETS, "{each}");
}

/// The resident memory of the proxy in bytes.
fn resident(proxy: &Proxy) -> usize {
    let status = std::fs::read_to_string(format!("/proc/{}/status", proxy.process.id()));
    let status = status.expect("the proxy's status");
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))
        .expect("VmRSS");
    let kilobytes: usize = line.trim().trim_end_matches(" kB").parse().expect("a number");
    kilobytes * 1024
}

/// A query that cannot wait gets a stale answer, if there is one.
#[test]
fn who_cannot_wait_gets_a_stale_answer() {
    let upstream = Upstream::zone(&["www.example. 1 A 192.0.2.1"]);
    let proxy = Proxy::start(&format!(
        "waiting-queries 16\nzone \".\" {{ cache {{ serve-stale \"1h\" after=\"10s\" }}; forward \"{}\" {{ {PATIENT} }} }}",
        upstream.address
    ));
    proxy.query("www.example", "A");
    upstream.becomes(|_| Reply::Silence);
    let flood = Flood::from(from(2), proxy.address);
    eventually("a stale answer", || {
        for number in 0..64 {
            flood.ask(&format!("n{number}.example"));
        }
        let query = Message::query("www.example", "A").edns(1232);
        let socket = UdpSocket::bind((from(2), 0)).expect("a UDP socket");
        socket.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        socket.connect(proxy.address).expect("a connected socket");
        socket.send(&query.encode()).expect("a sent query");
        for number in 64..128 {
            flood.ask(&format!("n{number}.example"));
        }
        let answer = Message::decode(&client::receive(&socket)).expect("a message");
        assert_eq!(answer.answers(), ["www.example. A 192.0.2.1"]);
        answer.extended_errors().contains(&STALE_ANSWER).then_some(())
    });
    assert!(proxy.metrics().sum("dnsweir_cache_stale_total", &[]) >= 1.0);
}

/// The first query for a name may be displaced: those that wait with it still get the upstream's answer.
#[test]
fn an_answer_comes_although_the_first_to_ask_is_gone() {
    let gate = Gate::default();
    let behind = gate.clone();
    let upstream = Upstream::start(move |asked| {
        let answer = asked.answer(&[&format!("{} 300 A 192.0.2.1", asked.name())]);
        match asked.name().starts_with("www") {
            true => Reply::Behind(behind.clone(), Box::new(answer)),
            false => Reply::Silence,
        }
    });
    let proxy = Proxy::start(&format!(
        "waiting-queries 16\nzone \".\" {{ cache; {} }}",
        forward_once(upstream.address)
    ));
    let greedy = Flood::from(from(2), proxy.address);
    greedy.ask("www.example");
    upstream.await_count("www.example", 1);
    let calm = UdpSocket::bind((from(3), 0)).expect("a UDP socket");
    calm.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    calm.connect(proxy.address).expect("a connected socket");
    calm.send(&Message::query("www.example", "A").encode())
        .expect("a sent query");
    proxy.await_metric("dnsweir_cache_coalesced_total", &[], 1.0);
    // Its oldest query is displaced when another client needs room.
    for number in 0..14 {
        greedy.ask(&format!("n{number}.example"));
    }
    proxy.await_metric("dnsweir_waiting_queries", &[], 16.0);
    Flood::from(from(4), proxy.address).ask("other.example");
    until("the first to be gone", || {
        proxy.metrics().sum("dnsweir_waiting_displaced_total", &[]) >= 1.0
    });
    gate.open();
    let answer = Message::decode(&client::receive(&calm)).expect("a message");
    assert_eq!(answer.answers(), ["www.example. A 192.0.2.1"]);
    assert_eq!(upstream.count("www.example"), 1);
}

/// The same where the source has no room: the next of them asks under its own name.
#[test]
fn an_answer_comes_although_the_first_to_ask_gives_way_to_its_upstream() {
    let gate = Gate::default();
    let behind = gate.clone();
    let upstream = Upstream::start(move |asked| {
        let answer = asked.answer(&[&format!("{} 300 A 192.0.2.1", asked.name())]);
        match asked.name().starts_with("www") {
            true => Reply::Behind(behind.clone(), Box::new(answer)),
            false => Reply::Silence,
        }
    });
    let proxy = Proxy::start(&format!(
        "zone \".\" {{ cache; forward \"{}\" {{ {PATIENT}; concurrent 16 }} }}",
        upstream.address
    ));
    let greedy = Flood::from(from(2), proxy.address);
    greedy.ask("www.example");
    upstream.await_count("www.example", 1);
    let calm = UdpSocket::bind((from(3), 0)).expect("a UDP socket");
    calm.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    calm.connect(proxy.address).expect("a connected socket");
    calm.send(&Message::query("www.example", "A").encode())
        .expect("a sent query");
    proxy.await_metric("dnsweir_cache_coalesced_total", &[], 1.0);
    for number in 0..15 {
        greedy.ask(&format!("n{number}.example"));
    }
    // Its oldest query is displaced when another client needs room.
    let mut round = 0;
    until("the first to be gone", || {
        round += 1;
        Flood::from(from(4), proxy.address).ask(&format!("other{round}.example"));
        proxy.metrics().sum("dnsweir_forward_displaced_total", &[]) >= 1.0
    });
    upstream.await_count("www.example", 2);
    gate.open();
    let answer = Message::decode(&client::receive(&calm)).expect("a message");
    assert_eq!(answer.answers(), ["www.example. A 192.0.2.1"]);
}
