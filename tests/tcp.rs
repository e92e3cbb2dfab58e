//! TCP as a transport of its own (RFC 7766, RFC 9210, RFC 7828).

use std::io::{ErrorKind, Write as _};
use std::time::{Duration, Instant};

use crate::harness::message::KEEPALIVE;
use crate::harness::upstream::{Gate, Reply};
use crate::harness::{Message, Proxy, Upstream, client, flags, forward_once, until};

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

/// RFC 7766 section 8: a length and its message may come in any pieces.
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

    // Half a message is no activity.
    let mut stalled = proxy.connect();
    stalled.write(&[0, 40, 1, 2, 3]);
    assert_eq!(stalled.receive(), None);
}

/// RFC 7828 section 3.2.2 and 3.3.2: who asks is told how long, in units of 100 ms.
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
    // Not unasked.
    let answer = proxy
        .connect()
        .ask(&Message::query("www.example", "A").edns(1232));
    assert_eq!(answer.find_option(KEEPALIVE), None);
    // Section 3.2.1: over UDP it is ignored.
    let answer = proxy.ask(&asking);
    assert_eq!(answer.rcode(), "NOERROR");
    assert_eq!(answer.find_option(KEEPALIVE), None);
    // Section 3.1: a client's option has no timeout in it.
    let answer = proxy
        .connect()
        .ask(&Message::query("www.example", "A").option(KEEPALIVE, &[0, 70]));
    assert_eq!(answer.rcode(), "FORMERR");
}

/// No more connections than configured, and room again when one ends.
#[test]
fn connections_are_bounded() {
    let upstream = plain();
    let proxy = Proxy::start(&format!(
        "listen \"$LISTEN\" {{ tcp-connections 2 }}\n{}",
        forward(&upstream)
    ));
    let query = Message::query("www.example", "A");
    let (mut first, mut second) = (proxy.connect(), proxy.connect());
    first.ask(&query);
    second.ask(&query);

    let refused = attempt(&proxy, Duration::from_secs(1));
    assert!(!refused, "a third connection was served");
    // Those that are there are not affected, and neither is UDP.
    first.ask(&query);
    second.ask(&query);
    proxy.ask(&query);

    drop(first);
    until("room for another connection", || {
        attempt(&proxy, Duration::from_millis(500))
    });
}

/// Whether a new connection gets an answer within this time.
fn attempt(proxy: &Proxy, patience: Duration) -> bool {
    let Ok(mut stream) = std::net::TcpStream::connect(proxy.address) else {
        return false;
    };
    stream.set_read_timeout(Some(patience)).expect("a timeout");
    let query = client::frame(&Message::query("www.example", "A").encode());
    stream.write_all(&query).is_ok()
        && std::io::Read::read(&mut stream, &mut [0; 2]).is_ok_and(|read| read > 0)
}

/// A client that does not read what it asked for is let go.
#[test]
fn a_client_that_does_not_read_is_let_go() {
    let text: String = "x".repeat(250);
    let line = format!(
        "{}",
        format_args!("big.example. 300 TXT {}", vec![text; 16].join(" "))
    );
    let upstream = Upstream::start(move |asked| asked.answer(&[&line]));
    let proxy = Proxy::start(&format!(
        "listen \"$LISTEN\" {{ tcp-write \"500ms\" }}\n{}",
        forward(&upstream)
    ));
    let stream = proxy.connect();
    let query = client::frame(&Message::query("big.example", "TXT").encode());
    let begun = Instant::now();
    let error = loop {
        if let Err(error) = stream.socket().write_all(&query) {
            break error;
        }
        assert!(
            begun.elapsed() < crate::harness::PATIENCE,
            "nobody closed the connection"
        );
    };
    assert!(
        matches!(error.kind(), ErrorKind::ConnectionReset | ErrorKind::BrokenPipe),
        "{error}"
    );
    assert_eq!(proxy.query_edns("www.example", "TXT").rcode(), "NOERROR");
}

/// What does not fit a datagram is there over TCP.
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

/// Octets that are no queries end the connection or are answered, and harm nobody else.
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
