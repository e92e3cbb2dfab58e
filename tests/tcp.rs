//! TCP as a transport (RFC 7766, RFC 9210, RFC 7828).

use std::io::{ErrorKind, Write as _};
use std::time::{Duration, Instant};

use crate::harness::message::KEEPALIVE;
use crate::harness::upstream::{Gate, Reply};
use crate::harness::{Message, Proxy, Stream, Upstream, client, flags, forward_once, until};

fn plain() -> Upstream {
    Upstream::start(|asked| asked.answer(&[&format!("{} 300 A 192.0.2.1", asked.name())]))
}

fn forward(upstream: &Upstream) -> String {
    format!("zone \".\" {{ cache; {} }}", forward_once(upstream.address))
}

/// RFC 7766 section 7: responses in the order they are ready, not in the order of the queries.
#[test]
fn pipelined_queries_are_answered_out_of_order() {
    let gate = Gate::default();
    let behind = gate.clone();
    let upstream = Upstream::start(move |asked| {
        let answer = asked.answer(&[&format!("{} 300 A 192.0.2.1", asked.name())]);
        if asked.name() == "slow.example." {
            Reply::Behind(behind.clone(), Box::new(answer))
        } else {
            answer
        }
    });
    let proxy = Proxy::start(&forward(&upstream));
    let mut stream = proxy.connect();
    let (slow, fast) = (
        Message::query("slow.example", "A"),
        Message::query("fast.example", "A"),
    );
    stream.send(&[&slow, &fast]);
    assert_eq!(stream.receive().map(|answer| answer.id), Some(fast.id));
    gate.open();
    assert_eq!(stream.receive().map(|answer| answer.id), Some(slow.id));
}

#[test]
fn many_queries_on_one_connection_are_all_answered() {
    let upstream = plain();
    let proxy = Proxy::start(&forward(&upstream));
    let mut stream = proxy.connect();
    let queries: Vec<Message> = (0..200)
        .map(|number| Message::query(&format!("{}.example", number % 50), "A"))
        .collect();
    stream.send(&queries.iter().collect::<Vec<_>>());
    let mut missing: std::collections::HashMap<u16, &Message> =
        queries.iter().map(|query| (query.id, query)).collect();
    while !missing.is_empty() {
        let answer = stream.receive().expect("an open connection");
        let query = missing.remove(&answer.id).expect("one answer to each query");
        client::check(query, answer);
    }
}

/// RFC 7766 section 8: a length and its message may arrive in any pieces.
#[test]
fn messages_may_come_in_pieces() {
    let upstream = plain();
    let proxy = Proxy::start(&forward(&upstream));
    let mut stream = proxy.connect();
    let query = Message::query("www.example", "A");
    for octet in client::frame(&query.encode()) {
        stream.write(&[octet]);
    }
    let answer = stream.receive().expect("an open connection");
    client::check(&query, answer);
}

#[test]
fn a_client_that_sends_no_more_still_gets_its_answers() {
    let upstream = plain();
    let proxy = Proxy::start(&forward(&upstream));
    let mut stream = proxy.connect();
    let queries = [Message::query("a.example", "A"), Message::query("b.example", "A")];
    stream.send(&[&queries[0], &queries[1]]);
    stream.half_close();
    let mut answered: Vec<u16> = std::iter::from_fn(|| stream.receive())
        .map(|answer| answer.id)
        .collect();
    answered.sort_unstable();
    assert_eq!(answered, [queries[0].id, queries[1].id]);
}

#[test]
fn an_idle_connection_is_closed() {
    let upstream = plain();
    let proxy = Proxy::start(&format!(
        "listen \"$LISTEN\" {{ tcp-idle \"500ms\" }}\n{}",
        forward(&upstream)
    ));
    let mut stream = proxy.connect();
    stream.ask(&Message::query("www.example", "A"));
    let begun = Instant::now();
    assert_eq!(stream.receive(), None);
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());

    // Half a message does not count as activity.
    let mut stalled = proxy.connect();
    stalled.write(&[0, 40, 1, 2, 3]);
    assert_eq!(stalled.receive(), None);
}

/// RFC 7828 sections 3.2.2 and 3.3.2: a client that asks gets the timeout, in units of 100 ms.
#[test]
fn keepalive_is_answered_over_tcp_only() {
    let upstream = plain();
    let proxy = Proxy::start(&format!(
        "listen \"$LISTEN\" {{ tcp-idle \"7s\" }}\n{}",
        forward(&upstream)
    ));
    let asking = Message::query("www.example", "A").option(KEEPALIVE, &[]);
    let answer = proxy.connect().ask(&asking);
    assert_eq!(answer.find_option(KEEPALIVE), Some([0, 70].as_slice()));
    // Only if the client asks for it.
    let answer = proxy
        .connect()
        .ask(&Message::query("www.example", "A").edns(1232));
    assert_eq!(answer.find_option(KEEPALIVE), None);
    // Section 3.2.1: ignored over UDP.
    let answer = proxy.ask(&asking);
    assert_eq!(answer.rcode(), "NOERROR");
    assert_eq!(answer.find_option(KEEPALIVE), None);
    // Section 3.1: a client's option carries no timeout.
    let answer = proxy
        .connect()
        .ask(&Message::query("www.example", "A").option(KEEPALIVE, &[0, 70]));
    assert_eq!(answer.rcode(), "FORMERR");
}

/// At the limit of connections, the longest idle one makes room for the next.
#[test]
fn the_longest_idle_connection_makes_room() {
    let upstream = plain();
    let proxy = Proxy::start(&format!(
        "listen \"$LISTEN\" {{ tcp-connections 2; tcp-idle \"1m\" }}\n{}",
        forward(&upstream)
    ));
    let query = Message::query("www.example", "A");
    let (mut first, mut second) = (proxy.connect(), proxy.connect());
    second.ask(&query);
    first.ask(&query);

    let mut third = proxy.connect();
    third.ask(&query);
    assert_eq!(second.receive(), None);
    // The remaining connections are not affected, and neither is UDP.
    first.ask(&query);
    third.ask(&query);
    proxy.ask(&query);
    let closed = |reason| {
        proxy
            .metrics()
            .sum("dnsweir_tcp_closed_total", &[("reason", reason)])
    };
    assert_eq!(
        (closed("connections"), closed("connections-per-client")),
        (1.0, 0.0)
    );
    assert_eq!(proxy.metrics().sum("dnsweir_tcp_connections", &[]), 2.0);
}

/// A connection with a query waiting for an upstream is not idle.
#[test]
fn whoever_waits_for_an_answer_stays() {
    let gate = Gate::default();
    let behind = gate.clone();
    let upstream = Upstream::start(move |asked| {
        let answer = asked.answer(&[&format!("{} 300 A 192.0.2.1", asked.name())]);
        if asked.name() == "slow.example." {
            Reply::Behind(behind.clone(), Box::new(answer))
        } else {
            answer
        }
    });
    let proxy = Proxy::start(&format!(
        "listen \"$LISTEN\" {{ tcp-connections 2; tcp-idle \"1m\" }}\n{}",
        forward(&upstream)
    ));
    let slow = Message::query("slow.example", "A");
    let mut waiting = proxy.connect();
    waiting.send(&[&slow]);
    upstream.await_count("slow.example", 1);
    let fast = Message::query("fast.example", "A");
    for _ in 0..5 {
        proxy.connect().ask(&fast);
    }
    gate.open();
    assert_eq!(waiting.receive().map(|answer| answer.id), Some(slow.id));
}

/// A client with too many connections loses its own, not those of others.
#[test]
fn a_client_has_its_share_of_connections() {
    let upstream = plain();
    let proxy = Proxy::start(&format!(
        "listen \"$LISTEN\" {{ tcp-connections-per-client 2; tcp-idle \"1m\" }}\n{}",
        forward(&upstream)
    ));
    let query = Message::query("www.example", "A");
    let mut other = Stream::connect_from([127, 1, 2, 3].into(), proxy.address);
    other.ask(&query);
    let mut greedy: Vec<Stream> = (0..5)
        .map(|_| {
            let mut stream = proxy.connect();
            stream.ask(&query);
            stream
        })
        .collect();
    for stream in &mut greedy[..3] {
        assert_eq!(stream.receive(), None);
    }
    greedy[3].ask(&query);
    greedy[4].ask(&query);
    other.ask(&query);
    let label = [("reason", "connections-per-client")];
    assert_eq!(proxy.metrics().sum("dnsweir_tcp_closed_total", &label), 3.0);
}

/// A query must be complete within a time limit, even if bytes keep arriving.
#[test]
fn an_octet_now_and_then_is_no_query() {
    let upstream = plain();
    let proxy = Proxy::start(&format!(
        "listen \"$LISTEN\" {{ tcp-idle \"1h\"; tcp-read \"500ms\" }}\n{}",
        forward(&upstream)
    ));
    let mut stream = proxy.connect();
    // A query that is complete in time is answered, and so is the next one.
    stream.ask(&Message::query("www.example", "A"));
    stream.ask(&Message::query("www.example", "A"));
    let mut octets = std::iter::repeat_n(7, 60_000);
    stream.write(&(60_000_u16).to_be_bytes());
    until("the connection to be closed", || {
        use std::io::Read as _;
        let _ = stream.socket().write_all(&[octets.next().unwrap_or(7)]);
        stream.socket().set_nonblocking(true).expect("a socket");
        let closed = match stream.socket().read(&mut [0]) {
            Ok(count) => count == 0,
            Err(error) => error.kind() != ErrorKind::WouldBlock,
        };
        stream.socket().set_nonblocking(false).expect("a socket");
        std::thread::sleep(Duration::from_millis(50));
        closed
    });
    proxy.await_metric("dnsweir_tcp_closed_total", &[("reason", "read")], 1.0);
}

/// An upstream with an answer of some 62 000 bytes, over TCP.
fn large() -> Upstream {
    let text: String = "x".repeat(250);
    let line = format!("big.example. 3600 TXT {}", vec![text; 247].join(" "));
    Upstream::start(move |asked| match asked.tcp {
        true => asked.answer(&[&line]),
        false => Reply::Message(asked.message_with(&[]).set(flags::TC)),
    })
}

/// Puts the large answer into the cache.
fn warm(proxy: &Proxy) {
    proxy.connect().ask(&Message::query("big.example", "TXT"));
}

/// This many queries for the large answer, pipelined.
fn many(count: usize) -> Vec<u8> {
    client::frame(&Message::query("big.example", "TXT").encode()).repeat(count)
}

/// Replies that a client does not read yet are not generated: its further queries wait, and all are answered
/// in the end.
#[test]
fn pipelined_queries_hold_bounded_memory() {
    const QUERIES: usize = 1000;
    let upstream = large();
    let proxy = Proxy::start(&forward(&upstream));
    warm(&proxy);
    let before = proxy.process.memory("VmHWM");
    let mut stream = proxy.connect();
    let mut writer = stream.socket().try_clone().expect("a socket");
    let writer = std::thread::spawn(move || writer.write_all(&many(QUERIES)));
    let held = || proxy.metrics().sum("dnsweir_tcp_bytes", &[]);
    until("replies to wait for the client", || held() > 200_000.0);
    for number in 0..QUERIES {
        let answer = stream
            .receive()
            .unwrap_or_else(|| panic!("closed after {number} answers"));
        assert_eq!(answer.answers.len(), 1);
    }
    assert!(writer.join().is_ok_and(|written| written.is_ok()));
    proxy.await_metric("dnsweir_tcp_bytes", &[], 0.0);
    // All replies together are 62 MB.
    let grown = proxy.process.memory("VmHWM") - before;
    assert!(grown < 16 << 20, "grown by {grown} octets");
}

/// When connections reach the memory limit, the largest one is closed; one that holds nothing is not
/// affected.
#[test]
fn when_memory_is_full_the_greediest_connection_goes() {
    let upstream = large();
    let proxy = Proxy::start(&format!(
        "listen \"$LISTEN\" {{ tcp-memory \"1MiB\"; tcp-write \"1m\" }}\n{}",
        forward(&upstream)
    ));
    warm(&proxy);
    let mut calm = proxy.connect();
    let greedy: Vec<Stream> = (1..=40)
        .map(|client| {
            let mut stream = Stream::connect_from([127, 1, 2, client].into(), proxy.address);
            stream.write(&many(40));
            stream
        })
        .collect();
    let closed = || {
        let metrics = proxy.metrics();
        assert!(metrics.sum("dnsweir_tcp_bytes", &[]) <= metrics.sum("dnsweir_tcp_limit_bytes", &[]));
        metrics.sum("dnsweir_tcp_closed_total", &[("reason", "memory")])
    };
    until("connections to make room", || {
        calm.ask(&Message::query("www.example", "A"));
        closed() > 20.0
    });
    calm.ask(&Message::query("big.example", "TXT"));
    drop(greedy);
    proxy.await_metric("dnsweir_tcp_bytes", &[], 0.0);
}

/// A client that does not read its replies is disconnected, and so is one that reads a byte now and then.
#[test]
fn a_client_that_does_not_read_is_let_go() {
    let upstream = large();
    let proxy = Proxy::start(&format!(
        "listen \"$LISTEN\" {{ tcp-write \"500ms\" }}\n{}",
        forward(&upstream)
    ));
    warm(&proxy);
    let mut silent = proxy.connect();
    // More than the kernel buffers for the client.
    silent.write(&many(200));
    proxy.await_metric("dnsweir_tcp_closed_total", &[("reason", "write")], 1.0);

    let mut slow = proxy.connect();
    slow.write(&many(200));
    until("the slow reader to be let go", || {
        let _ = std::io::Read::read(&mut slow.socket(), &mut [0]);
        proxy
            .metrics()
            .sum("dnsweir_tcp_closed_total", &[("reason", "write")])
            == 2.0
    });
    assert_eq!(proxy.query_edns("www.example", "A").rcode(), "NOERROR");
}

/// A client that reads steadily is not disconnected, however long it takes.
#[test]
fn a_steady_reader_gets_everything() {
    const QUERIES: usize = 150;
    let upstream = large();
    let proxy = Proxy::start(&format!(
        "listen \"$LISTEN\" {{ tcp-write \"3s\" }}\n{}",
        forward(&upstream)
    ));
    warm(&proxy);
    let begun = Instant::now();
    let mut stream = proxy.connect();
    stream.write(&many(QUERIES));
    for _ in 0..QUERIES {
        let answer = stream.receive().expect("the next answer");
        assert_eq!(answer.answers.len(), 1);
        std::thread::sleep(Duration::from_millis(40));
    }
    assert!(
        begun.elapsed() > Duration::from_secs(5),
        "too quick to show anything"
    );
}

/// Connections cannot use up the descriptors for upstreams and the admin address, even with a low soft limit.
#[test]
fn connections_leave_descriptors_for_others() {
    let upstream = plain();
    let limits = [("ulimit -n 1024", 1024), ("ulimit -Sn 300", usize::MAX)];
    for (limit, most) in limits {
        let proxy = Proxy::start_after(
            limit,
            &format!(
                "listen \"$LISTEN\" {{ tcp-idle \"1m\"; tcp-connections-per-client 5000 }}\nzone \".\" {{ {} }}",
                forward_once(upstream.address)
            ),
        );
        let idle: Vec<Stream> = (0..1100).map(|_| proxy.connect()).collect();
        for number in 0..50 {
            let answer = proxy.query(&format!("{number}.example"), "A");
            assert_eq!(answer.rcode(), "NOERROR", "{limit}: {answer}");
        }
        assert_eq!(proxy.get("/health").0, 200);
        let open = proxy.process.descriptors();
        assert!(open < most.min(1100), "{limit}: {open} descriptors");
        let mut newest = proxy.connect();
        newest.ask(&Message::query("www.example", "A"));
        drop(idle);
    }
}

/// A configuration that cannot get its descriptors does not start, and the error says how many it needs.
#[test]
fn a_configuration_that_needs_more_descriptors_is_refused() {
    let upstream = plain();
    let mut proxy = Proxy::launch_after(
        "ulimit -n 1024",
        &format!(
            "listen \"$LISTEN\" {{ tcp-connections 5000 }}\n{}",
            forward(&upstream)
        ),
    );
    assert!(!proxy.process.ended().success());
    let line = proxy.process.logged("file descriptors");
    assert!(
        line.contains("may have 1024") && line.contains("tcp-connections"),
        "{line}"
    );
}

/// Answers too large for a datagram are complete over TCP.
#[test]
fn large_answers_are_whole_over_tcp() {
    let text: String = "x".repeat(250);
    let line = format!("big.example. 300 TXT {}", vec![text; 200].join(" "));
    let upstream = Upstream::start(move |asked| match asked.tcp {
        true => asked.answer(&[&line]),
        false => Reply::Message(asked.message_with(&[]).set(flags::TC)),
    });
    let proxy = Proxy::start(&forward(&upstream));
    let query = Message::query("big.example", "TXT").edns(1232);
    for _ in 0..2 {
        let answer = proxy.connect().ask(&query);
        assert_eq!(answer.answers[0].data.len(), 200 * 251);
        assert!(!answer.has(flags::TC));
        assert!(proxy.ask(&query).has(flags::TC));
    }
}

/// Bytes that are no query end the connection or are answered, and harm no other client.
#[test]
fn nonsense_over_tcp_harms_nobody() {
    let upstream = plain();
    let proxy = Proxy::start(&forward(&upstream));
    let mut bystander = proxy.connect();
    for nonsense in [
        &[0, 0][..],
        &[0, 1, 7],
        &[0, 12, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12],
        b"GET / HTTP/1.1\r\n\r\n",
    ] {
        let mut stream = proxy.connect();
        stream.write(nonsense);
        stream.half_close();
        while stream.receive().is_some() {}
        bystander.ask(&Message::query("www.example", "A"));
    }
}
