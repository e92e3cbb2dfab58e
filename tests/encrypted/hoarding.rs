//! Clients over HTTPS and QUIC that do not take their replies, or do not finish their requests.

use std::net::SocketAddr;

use super::{NAME, folder};
use crate::harness::certificates::Authority;
use crate::harness::client::{self, Stream};
use crate::harness::encrypted::{TlsClient, first_datagram, frame, post, preface, trusting_for};
use crate::harness::upstream::Reply;
use crate::harness::{Message, Proxy, Upstream, address, flags, until};

/// Requests per connection.
const REQUESTS: u32 = 90;

/// Connections of the greedy client.
const CONNECTIONS: usize = 20;

/// A proxy with listeners for HTTPS and QUIC at one address.
struct Secured {
    proxy: Proxy,
    address: SocketAddr,
    authority: Authority,
    _upstream: Upstream,
    _folder: tempfile::TempDir,
}

impl Secured {
    fn start(options: &str) -> Secured {
        let (folder, authority) = (folder(), Authority::new());
        let line = format!("big.example. 3600 TXT {}", vec!["x".repeat(250); 235].join(" "));
        let upstream = Upstream::start(move |asked| match asked.tcp {
            true => asked.answer(&[&line]),
            false => Reply::Message(asked.message_with(&[]).set(flags::TC)),
        });
        let (certificate, key) = authority.issue(&[NAME]).write(folder.path(), "server");
        let address = address::fresh_socket();
        let text = format!(
            "listen \"$LISTEN\" \"https://{address}\" \"quic://{address}\" {{ certificate \"{}\" key=\"{}\"; {options} }}\n\
             admin \"$ADMIN\"\nworkers 1\nzone \".\" {{ cache; forward \"{}\" }}",
            certificate.display(),
            key.display(),
            upstream.address
        );
        Secured {
            proxy: Proxy::start(&text),
            address,
            authority,
            _upstream: upstream,
            _folder: folder,
        }
    }

    /// A connection with many requests, each followed by `body`; all have been processed.
    fn posts(&self, body: impl Fn(u32) -> Vec<u8>) -> TlsClient {
        let config = trusting_for(&self.authority, &["h2"]);
        let mut client = TlsClient::connect(self.address, NAME, config);
        // SETTINGS_INITIAL_WINDOW_SIZE is 0: the server may not send any reply.
        client.write(&preface(&[0, 4, 0, 0, 0, 0]));
        for number in 0..REQUESTS {
            let stream = 2 * number + 1;
            // The server may have closed the connection already.
            let _ = client.try_write(&[post(stream), body(stream)].concat());
        }
        client
    }

    fn closed(&self, reason: &str) -> f64 {
        let metrics = self.proxy.metrics();
        metrics.sum("dnsweir_tcp_closed_total", &[("reason", reason)])
    }
}

/// All answers together would be 106 MB. A client's answers are not generated before it has taken earlier
/// ones, and closed connections hold nothing.
#[test]
fn answers_that_nobody_takes_hold_bounded_memory() {
    let secured = Secured::start("tcp-memory \"2MiB\"");
    let big = Message::query("big.example", "TXT");
    secured.proxy.connect().ask(&big);
    let query = big.encode();
    let before = secured.proxy.process.memory("VmHWM");
    let mut calm = Stream::connect_from([127, 1, 2, 3].into(), secured.proxy.address);
    let greedy: Vec<TlsClient> = (0..CONNECTIONS)
        .map(|_| secured.posts(|stream| frame(0, 1, stream, &query)))
        .collect();
    let requests = || {
        secured
            .proxy
            .metrics()
            .sum("dnsweir_requests_total", &[("proto", "https")])
    };
    until("requests to be answered", || requests() >= 8.0);
    for _ in 0..20 {
        calm.ask(&Message::query("www.example", "A"));
        let metrics = secured.proxy.metrics();
        assert!(metrics.sum("dnsweir_tcp_bytes", &[]) <= f64::from(2 << 20));
    }
    assert_eq!(secured.closed("memory"), 0.0, "it waits");
    let grown = secured.proxy.process.memory("VmHWM") - before;
    assert!(grown < 24 << 20, "grown by {grown} octets");
    drop(greedy);
    secured.proxy.await_metric("dnsweir_tcp_bytes", &[], 0.0);
}

/// A request counts with the bytes that have arrived. If there are none, no connection is closed for it.
#[test]
fn bodies_that_do_not_come_displace_nobody() {
    let secured = Secured::start("tcp-memory \"1MiB\"; tcp-read \"1m\"");
    // More than any of the other connections holds.
    let mut calm = Stream::connect_from([127, 1, 2, 3].into(), secured.proxy.address);
    let query = client::frame(&Message::query("www.example", "A").encode());
    calm.write(&query[..query.len() - 1]);
    let open: Vec<TlsClient> = (0..CONNECTIONS)
        .map(|_| {
            let mut client = secured.posts(|_| Vec::new());
            client.write(&frame(6, 0, 0, b"all read"));
            client.read_until(&frame(6, 1, 0, b"all read"));
            client
        })
        .collect();
    assert_eq!(secured.closed("memory"), 0.0);
    calm.write(&query[query.len() - 1..]);
    assert!(calm.receive().is_some());
    assert_eq!(open.len(), CONNECTIONS);
}

/// The source address of a first datagram may be forged.
#[test]
fn forged_first_datagrams_close_nobodys_connections() {
    let secured = Secured::start("tcp-connections-per-client 4; tcp-connections 8; tcp-read \"1m\"");
    let mut victim = secured.proxy.connect();
    victim.ask(&Message::query("www.example", "A"));
    let socket = client::socket(secured.address);
    let config = trusting_for(&secured.authority, &["doq"]);
    for number in 0..100 {
        let datagram = first_datagram(&config, NAME, number);
        socket.send(&datagram).expect("a datagram");
    }
    // Some complete the handshake; all others must first prove their address.
    let handshakes = |outcome| {
        let metrics = secured.proxy.metrics();
        metrics.sum("dnsweir_tls_handshakes_total", &[("outcome", outcome)])
    };
    until("handshakes to be put off", || handshakes("retried") >= 84.0);
    victim.ask(&Message::query("www.example", "A"));
    let closed = ["connections-per-client", "connections"].map(|reason| secured.closed(reason));
    assert_eq!(closed, [0.0; 2]);
    assert_eq!(secured.proxy.metrics().sum("dnsweir_tcp_connections", &[]), 1.0);
}

/// One line of a dependency's log per frame would be 20 000 lines for 340 KB.
#[test]
fn frames_that_nobody_asked_for_write_few_lines() {
    const FRAMES: usize = 20_000;
    let secured = Secured::start("");
    let mut client = TlsClient::connect(secured.address, NAME, trusting_for(&secured.authority, &["h2"]));
    client.write(&preface(&[]));
    // PING frames with ACK without a PING before (RFC 9113 section 6.7).
    let _ = client.try_write(&frame(6, 1, 0, b"anything").repeat(FRAMES));
    let _ = client.try_write(&frame(6, 0, 0, b"all read"));
    client.read_until(&frame(6, 1, 0, b"all read"));
    let left_out = || {
        secured
            .proxy
            .metrics()
            .sum("dnsweir_log_lines_left_out_total", &[])
    };
    assert!(left_out() > 10_000.0, "{} lines", left_out());
}
