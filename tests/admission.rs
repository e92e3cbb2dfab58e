//! Which clients may ask, how often, and what the others get.

use std::net::{SocketAddr, UdpSocket};
use std::time::Instant;

use crate::harness::proxy::{self, command};
use crate::harness::{Message, PATIENCE, Proxy, Stream, Upstream, client, flags, forward_once, unanswered};

fn upstream() -> Upstream {
    Upstream::start(|asked| asked.answer(&[&format!("{} 300 A 192.0.2.1", asked.name())]))
}

/// A proxy with these clients, and one zone for all names.
fn start(clients: &str, upstream: &Upstream) -> Proxy {
    Proxy::start(&format!(
        "clients {{ {clients} }}\nzone \".\" {{ cache; {} }}",
        forward_once(upstream.address)
    ))
}

/// A client socket at this loopback address.
fn at(address: &str, server: SocketAddr) -> UdpSocket {
    let socket = UdpSocket::bind((address, 0)).expect("a socket");
    socket.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    socket.connect(server).expect("a connected socket");
    socket
}

/// Asks from this address.
fn ask_from(address: &str, server: SocketAddr, query: &Message) -> Message {
    let socket = at(address, server);
    socket.send(&query.encode()).expect("a sent query");
    let mut answer = [0; 4096];
    let length = socket.recv(&mut answer).expect("an answer");
    client::check(query, Message::decode(&answer[..length]).expect("a whole answer"))
}

/// REFUSED with EDE 18 (RFC 8914 section 4.19), over UDP and TCP, without any upstream query.
#[test]
fn those_who_may_not_ask_are_refused() {
    let upstream = upstream();
    let proxy = start("allow \"127.0.0.2\"", &upstream);
    let query = Message::query("www.example", "A").edns(1232);
    let refused = ask_from("127.0.0.3", proxy.address, &query);
    assert_eq!(
        (refused.rcode().as_str(), &refused.extended_errors()[..]),
        ("REFUSED", &[18][..])
    );
    // Without EDNS, there is no reason.
    let plain = ask_from("127.0.0.3", proxy.address, &Message::query("www.example", "A"));
    assert_eq!(plain.rcode(), "REFUSED");
    // From the default loopback address.
    assert_eq!(proxy.connect().ask(&query).rcode(), "REFUSED");
    assert!(
        upstream
            .everything()
            .iter()
            .all(|asked| asked.name() != "www.example.")
    );
    assert_eq!(ask_from("127.0.0.2", proxy.address, &query).rcode(), "NOERROR");
    proxy.await_metric(
        "dnsweir_refused_total",
        &[("zone", "dropped"), ("reason", "client")],
        3.0,
    );
    proxy.await_metric(
        "dnsweir_responses_total",
        &[("zone", "dropped"), ("rcode", "REFUSED")],
        3.0,
    );
}

/// Malformed queries of clients that may not ask get no answer, so they cannot be used to find listeners.
#[test]
fn those_who_may_not_ask_get_no_other_answer() {
    let upstream = upstream();
    let proxy = start("allow \"127.0.0.2\"", &upstream);
    let opcode = Message::query("www.example", "A").opcode(5).encode();
    unanswered(proxy.address, &opcode);
    unanswered(proxy.address, &opcode[..13]);
    proxy.await_metric("dnsweir_refused_total", &[("reason", "client")], 4.0);
}

#[test]
fn silence_where_it_is_asked_for() {
    let upstream = upstream();
    let proxy = start("allow \"127.0.0.2\"; silent", &upstream);
    let socket = at("127.0.0.3", proxy.address);
    socket
        .send(&Message::query("www.example", "A").encode())
        .expect("a sent query");
    proxy.await_metric("dnsweir_refused_total", &[("reason", "client")], 1.0);
    socket.set_nonblocking(true).expect("a socket");
    assert!(socket.recv(&mut [0; 512]).is_err(), "an answer");
    // Over TCP, the connection is closed.
    let mut stream = proxy.connect();
    stream.send(&[&Message::query("www.example", "A")]);
    assert_eq!(stream.receive(), None);
    assert_eq!(
        ask_from("127.0.0.2", proxy.address, &Message::query("www.example", "A")).rcode(),
        "NOERROR"
    );
}

/// A zone may admit fewer clients than its listener, and a listener other clients than the file's default.
#[test]
fn zones_and_listeners_have_clients_of_their_own() {
    let upstream = upstream();
    let (forward, own) = (
        forward_once(upstream.address),
        crate::harness::address::fresh_socket(),
    );
    let proxy = Proxy::start(&format!(
        "listen \"$LISTEN\" \"{own}\" {{ clients \"{own}\" {{ allow \"127.0.0.2\" \"127.0.0.3\" }} }}\nadmin \"$ADMIN\"\n\
         clients {{ refuse \"127.0.0.4\" }}\n\
         zone \"inner.test\" {{ clients {{ allow \"127.0.0.2\"; silent }}; cache; {forward} }}\n\
         zone \".\" {{ cache; {forward} }}"
    ));
    let outer = Message::query("outer.test", "A");
    for (client, server, rcode) in [
        ("127.0.0.1", proxy.address, "NOERROR"),
        ("127.0.0.4", proxy.address, "REFUSED"),
        ("127.0.0.1", own, "REFUSED"),
        ("127.0.0.4", own, "REFUSED"),
        ("127.0.0.3", own, "NOERROR"),
    ] {
        assert_eq!(
            ask_from(client, server, &outer).rcode(),
            rcode,
            "{client} at {server}"
        );
    }
    let inner = Message::query("inner.test", "A");
    assert_eq!(ask_from("127.0.0.2", own, &inner).rcode(), "NOERROR");
    unanswered(proxy.address, &inner.encode());
    proxy.await_metric(
        "dnsweir_refused_total",
        &[("zone", "inner.test."), ("reason", "client")],
        1.0,
    );
    proxy.await_metric(
        "dnsweir_refused_total",
        &[("zone", "dropped"), ("reason", "client")],
        3.0,
    );
}

/// On a public address, strangers are rejected by default. `explain` says so; the stranger's address is of
/// class E, which no link has.
#[test]
fn strangers_may_not_ask_where_anybody_can() {
    for (listen, client, expected) in [
        ("0.0.0.0", "240.0.0.1", true),
        ("0.0.0.0", "10.1.2.3", false),
        ("203.0.113.1", "240.0.0.1", true),
        ("10.96.0.10", "240.0.0.1", false),
    ] {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let file = folder.path().join("dnsweir.kdl");
        let text = format!("listen \"{listen}\"\nzone \".\" {{ forward \"192.0.2.1\" }}");
        std::fs::write(&file, text).expect("a configuration");
        let mut explain = command();
        explain
            .arg("explain")
            .args(["--client", client, "--config"])
            .arg(&file)
            .arg("localhost");
        let said = explain.output().expect("dnsweir explain");
        let said = String::from_utf8_lossy(&said.stdout);
        assert_eq!(
            said.contains("`clients` does not let the client ask"),
            expected,
            "{listen}, {client}: {said}"
        );
        assert_eq!(said.contains("EDE 18"), expected, "{listen}, {client}: {said}");
    }
}

/// One limit for the whole process, however the kernel spreads a client's sockets over the workers.
#[test]
fn a_client_gets_so_many_answers_a_second() {
    let upstream = upstream();
    let proxy = Proxy::start(&format!(
        "workers 4\nclients {{ queries 1 burst=60 }}\nzone \".\" {{ cache; {} }}",
        forward_once(upstream.address)
    ));
    let query = Message::query("www.example", "A").edns(1232);
    let begun = Instant::now();
    let mut answered = 0;
    for _ in 0..200 {
        // A separate socket for each: another port, and often another worker.
        let answer = proxy.ask(&query);
        match answer.rcode().as_str() {
            "NOERROR" => answered += 1,
            other => assert_eq!((other, &answer.extended_errors()[..]), ("REFUSED", &[18][..])),
        }
    }
    let most = 60 + begun.elapsed().as_secs() + 1;
    assert!((60..=most).contains(&answered), "{answered} of {most}");
    proxy.await_metric(
        "dnsweir_refused_total",
        &[("reason", "queries")],
        (200 - answered) as f64,
    );
    assert_eq!(
        ask_from("127.0.0.9", proxy.address, &query).rcode(),
        "NOERROR",
        "another client"
    );
    // The limit holds across a reload.
    proxy.reload(&format!(
        "workers 4\nclients {{ queries 1 burst=60 }}\nzone \".\" {{ cache; {}; }}",
        forward_once(upstream.address)
    ));
    let more = (0..60).filter(|_| proxy.ask(&query).rcode() == "NOERROR").count() as u64;
    assert!(
        answered + more <= 60 + begun.elapsed().as_secs() + 1,
        "{answered}, then {more}"
    );
}

/// A network gets a limited number of answers over UDP, then only an occasional truncated one, so that real
/// clients switch to TCP.
#[test]
fn a_network_is_sent_so_many_answers() {
    let upstream = upstream();
    let proxy = start("responses 1 burst=10 slip=2", &upstream);
    let query = Message::query("www.example", "A");
    let begun = Instant::now();
    let socket = at("127.0.0.5", proxy.address);
    for _ in 0..50 {
        socket.send(&query.encode()).expect("a sent query");
    }
    let metric = |reason: &str| {
        let metrics = proxy.metrics();
        metrics.sum("dnsweir_refused_total", &[("reason", reason)])
    };
    let mut whole = 0;
    let (mut truncated, mut answer) = (0, [0; 512]);
    // The last query is answered, or rejected and counted.
    crate::harness::until("all queries to be dealt with", || {
        socket.set_nonblocking(true).expect("a socket");
        while let Ok(length) = socket.recv(&mut answer) {
            let answer = Message::decode(&answer[..length]).expect("a whole answer");
            match answer.has(flags::TC) {
                true => truncated += 1,
                false => whole += 1,
            }
            assert_eq!(answer.answers.is_empty(), answer.has(flags::TC), "{answer}");
        }
        whole as f64 + metric("responses") + metric("slip") >= 50.0
    });
    let most = 10 + begun.elapsed().as_secs() + 1;
    assert!((10..=most).contains(&whole), "{whole} of {most}");
    let (dropped, slipped) = (metric("responses"), metric("slip"));
    assert_eq!(whole as f64 + dropped + slipped, 50.0);
    assert!(
        (dropped - slipped).abs() <= 1.0,
        "one in two: {dropped}, {slipped}"
    );
    assert!(truncated as f64 <= slipped);
    // The same network over TCP.
    let mut stream = Stream::connect(proxy.address);
    for _ in 0..20 {
        assert_eq!(stream.ask(&query).answers(), ["www.example. A 192.0.2.1"]);
    }
}

/// RFC 8482 section 4.2. Stages above `cache` and `forward` see ANY like any other type.
#[test]
fn any_is_asked_of_nobody_unless_told_so() {
    let upstream = Upstream::start(|asked| asked.answer(&[&format!("{} 300 TXT \"all\"", asked.name())]));
    let forward = format!("forward \"{}\" {{ {}", upstream.address, proxy::ONCE);
    let proxy = Proxy::start(&format!(
        "filter \"table\" {{ module \"builtin:hosts\"; limits time=\"1s\"; config {{ host \"known.test\" \"192.0.2.7\" }} }}\n\
         zone \"all.test\" {{ cache; {forward}; any }} }}\n\
         zone \"uncached.test\" {{ {forward} }} }}\n\
         zone \".\" {{ use \"table\"; cache; {forward} }} }}"
    ));
    // Probes have other types.
    let any = |name: &str| {
        upstream
            .asked(name)
            .iter()
            .filter(|asked| asked.is("ANY"))
            .count()
    };
    for name in ["www.test.", "uncached.test."] {
        for _ in 0..2 {
            // HINFO "RFC8482" ""
            let answer = proxy.query(name, "ANY");
            assert_eq!(
                answer.answers(),
                [format!("{name} TYPE13 \\# 9 075246433834383200")]
            );
            assert_eq!(answer.ttl(), 3600);
        }
        assert_eq!(any(name), 0, "{name}");
    }
    assert_eq!(
        proxy.query("known.test", "ANY").answers(),
        ["known.test. A 192.0.2.7"]
    );
    assert_eq!(
        proxy.query("all.test", "ANY").answers(),
        ["all.test. TXT \"all\""]
    );
    assert_eq!(any("all.test."), 1);
}
