//! Clients over TLS.

use std::io::Write as _;
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};

use super::{NAME, authority_in, folder, kdig};
use crate::harness::certificates::{Authority, Certificate};
use crate::harness::encrypted::{TlsClient, trusting};
use crate::harness::{Message, Proxy, Upstream, address, needs, until};

/// A proxy with a TLS listener, and its certificate authority.
struct Secured {
    proxy: Proxy,
    address: SocketAddr,
    authority: Authority,
    ca: String,
    folder: tempfile::TempDir,
    _upstream: Upstream,
}

const ZONE: &str = "www.example. 300 A 192.0.2.1";

impl Secured {
    fn start(options: &str) -> Secured {
        let authority = Authority::new();
        let certificate = authority.issue(&[NAME]);
        Secured::start_with(authority, &certificate, options)
    }

    fn start_with(authority: Authority, certificate: &Certificate, options: &str) -> Secured {
        let (folder, upstream) = (
            folder(),
            Upstream::zone(&[ZONE, "example. 300 SOA . . 1 1 1 1 1"]),
        );
        let files = certificate.write(folder.path(), "server");
        let address = address::fresh_socket();
        let ca = authority_in(folder.path(), &authority);
        let proxy = Proxy::start(&text(address, &files, options, upstream.address));
        Secured {
            proxy,
            address,
            authority,
            ca,
            folder,
            _upstream: upstream,
        }
    }

    /// kdig over TLS: whether it succeeds, and its output.
    fn over_tls(&self, name: &str, more: &[&str]) -> (bool, String) {
        let done = kdig(self.address, &self.ca, name, &["+tls"])
            .args(["www.example", "A"])
            .args(more)
            .output()
            .expect("kdig");
        let said = [done.stdout, done.stderr].concat();
        (done.status.success(), String::from_utf8_lossy(&said).into_owned())
    }

    fn client(&self) -> TlsClient {
        TlsClient::connect(self.address, NAME, trusting(&self.authority))
    }

    fn sum(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        self.proxy.metrics().sum(name, labels)
    }
}

fn text(
    address: SocketAddr,
    (certificate, key): &(PathBuf, PathBuf),
    options: &str,
    upstream: SocketAddr,
) -> String {
    format!(
        "listen \"$LISTEN\" \"tls://{address}\" {{ certificate \"{}\" key=\"{}\"; {options} }}\nadmin \"$ADMIN\"\nworkers 1\n\
         zone \".\" {{ cache; forward \"{upstream}\" }}",
        certificate.display(),
        key.display()
    )
}

#[test]
fn kdig_asks_over_tls() {
    if !needs(&["kdig"]) {
        return;
    }
    let secured = Secured::start("");
    for _ in 0..2 {
        let (content, said) = secured.over_tls(NAME, &[]);
        assert!(
            content && said.contains("192.0.2.1") && said.contains("TLS session"),
            "{said}"
        );
    }
    // RFC 8467 section 4.1: the reply to a padded query is padded to 468 octets.
    let (_, said) = secured.over_tls(NAME, &["+padding"]);
    assert!(said.contains("Received 468 B"), "{said}");
    assert_eq!(secured.sum("dnsweir_requests_total", &[("proto", "tls")]), 3.0);
    assert!(secured.sum("dnsweir_tls_handshakes_total", &[("outcome", "full")]) >= 3.0);
    assert_eq!(
        secured.sum("dnsweir_listen_certificate_expiry_timestamp_seconds", &[]),
        3_471_292_800.0
    );
    // Other listeners are not affected.
    assert_eq!(secured.proxy.query("www.example", "A").answers().len(), 1);
}

#[test]
fn clients_refuse_a_certificate_that_is_not_right() {
    if !needs(&["kdig"]) {
        return;
    }
    let secured = Secured::start("");
    let refused = |(content, said): (bool, String)| {
        assert!(!content && said.contains("Error in the certificate"), "{said}");
    };
    refused(secured.over_tls("other.example", &[]));
    let authority = Authority::new();
    let expired = authority.issue_between(&[NAME], 2020, 2021);
    refused(Secured::start_with(authority, &expired, "").over_tls(NAME, &[]));
    // An authority unknown to the client.
    std::fs::write(&secured.ca, Authority::new().pem()).expect("a file");
    refused(secured.over_tls(NAME, &[]));
    // A client that sends an alert is counted, one that just closes is not.
    until("the connections to end", || {
        secured.sum("dnsweir_tcp_connections", &[]) == 0.0
    });
}

#[test]
fn sessions_are_resumed_and_queries_pipelined() {
    let secured = Secured::start("");
    let config = trusting(&secured.authority);
    for round in 0..2 {
        let mut client = TlsClient::connect(secured.address, NAME, config.clone());
        let queries: Vec<Message> = (0..20)
            .map(|_| Message::query("www.example", "A").edns(1232))
            .collect();
        client.send(&queries);
        let mut ids: Vec<u16> = queries.iter().map(|query| query.id).collect();
        for _ in &queries {
            let (octets, answer) = client.receive().expect("an answer");
            assert_eq!(answer.answers(), ["www.example. A 192.0.2.1"]);
            assert_eq!(octets % 468, 0, "RFC 8467 section 4.1");
            ids.retain(|id| *id != answer.id);
        }
        assert_eq!(ids, [0; 0]);
        assert_eq!(client.is_resumed(), round == 1);
    }
    // A client without OPT gets no OPT, and so no padding (RFC 7830 section 4).
    let mut client = secured.client();
    client.send(&[Message::query("www.example", "A")]);
    let (octets, answer) = client.receive().expect("an answer");
    assert!(octets < 100 && answer.edns.is_none());
}

/// A new pair is loaded without a restart; an invalid one is reported and keeps the old pair.
#[test]
fn certificates_are_reloaded_when_their_files_change() {
    let secured = Secured::start("");
    let folder = secured.folder.path();
    let expires = |year: i32| match year {
        2079 => 3_439_756_800.0,
        _ => 3_471_292_800.0,
    };
    let shown =
        |expected: f64| secured.sum("dnsweir_listen_certificate_expiry_timestamp_seconds", &[]) == expected;
    let works = || {
        let mut client = secured.client();
        client.send(&[Message::query("www.example", "A")]);
        client.receive().is_some()
    };
    assert!(shown(expires(2080)) && works());
    let failures = || secured.sum("dnsweir_reloads_total", &[("result", "failed")]);
    for spoil in [garbage as fn(&Path), vanish, mismatch] {
        let before = failures();
        spoil(folder);
        secured.proxy.process.signal("HUP");
        until("a reload that fails", || failures() > before);
        assert!(shown(expires(2080)) && works());
    }
    let mut old = secured.client();
    secured
        .authority
        .issue_between(&[NAME], 2020, 2079)
        .write(folder, "server");
    until("the new certificate", || shown(expires(2079)));
    assert!(works());
    // Existing connections stay open.
    old.send(&[Message::query("www.example", "A")]);
    assert!(old.receive().is_some());
}

fn garbage(folder: &Path) {
    std::fs::write(folder.join("server.pem"), [0x55; 5000]).expect("a file");
}

fn vanish(folder: &Path) {
    std::fs::remove_file(folder.join("server.key")).expect("a file");
}

fn mismatch(folder: &Path) {
    let authority = Authority::new();
    authority.issue(&[NAME]).write(folder, "server");
    std::fs::write(folder.join("server.key"), authority.issue(&[NAME]).key_pem).expect("a file");
}

/// An unfinished handshake ends after `tcp-read`, even if bytes keep arriving.
#[test]
fn handshakes_that_do_not_end_are_given_up() {
    let secured = Secured::start("tcp-read \"300ms\"; tcp-idle \"1m\"");
    let silent = TcpStream::connect(secured.address).expect("a connection");
    let mut half = TcpStream::connect(secured.address).expect("a connection");
    // A record that announces a handshake of 16 KiB, and a part of it.
    half.write_all(&[0x16, 3, 1, 0x40, 0, 1, 0, 0x3f, 0xfc])
        .expect("a write");
    let mut garbage = TcpStream::connect(secured.address).expect("a connection");
    garbage.write_all(b"GET / HTTP/1.1\r\n\r\n").expect("a write");
    until("handshakes to be given up", || {
        secured.sum("dnsweir_tcp_closed_total", &[("reason", "handshake")]) == 2.0
            && secured.sum("dnsweir_tls_handshakes_total", &[("outcome", "failed")]) == 3.0
            && secured.sum("dnsweir_tcp_connections", &[]) == 0.0
    });
    drop((silent, half, garbage));
}

/// Connections that never finish a handshake block no one else: the longest idle one makes room.
#[test]
fn idle_handshakes_keep_nobody_out() {
    let secured = Secured::start("tcp-connections 8; tcp-read \"1m\"; tcp-idle \"1m\"");
    let idle: Vec<TcpStream> = (0..50)
        .map(|_| TcpStream::connect(secured.address).expect("a connection"))
        .collect();
    let mut client = secured.client();
    client.send(&[Message::query("www.example", "A")]);
    assert!(client.receive().is_some());
    assert!(secured.sum("dnsweir_tcp_connections", &[]) <= 8.0);
    assert!(secured.sum("dnsweir_tcp_closed_total", &[("reason", "connections")]) >= 43.0);
    drop(idle);
}

/// An invalid query ends the connection, and an idle client is disconnected, as over TCP.
#[test]
fn the_bounds_of_tcp_hold() {
    let secured = Secured::start("tcp-idle \"300ms\"");
    let mut client = secured.client();
    client.write(&[0, 3, 1, 2, 3]);
    assert!(client.receive().is_none());
    let mut client = secured.client();
    client.send(&[Message::query("www.example", "A")]);
    assert!(client.receive().is_some());
    assert!(client.receive().is_none(), "idle for too long");
    // The client notices first.
    until("both ends to be counted", || {
        secured.sum("dnsweir_tcp_closed_total", &[("reason", "idle")]) >= 1.0
            && secured.sum("dnsweir_tcp_closed_total", &[("reason", "malformed")]) >= 1.0
    });
}

/// RFC 9462 section 4: discovery of encrypted listeners by clients that ask unencrypted.
#[test]
fn clients_are_told_where_to_ask_encrypted() {
    let secured = Secured::start("");
    let answer = secured.proxy.query("_dns.resolver.arpa", "TYPE64");
    assert_eq!(answer.rcode(), "NOERROR");
    let [record] = &answer.answers[..] else {
        panic!("{answer}")
    };
    let (address, port) = (secured.address, secured.address.port());
    let SocketAddr::V4(v4) = address else {
        panic!("{address}")
    };
    let expected = [
        &[0, 1][..],
        b"\x03dns\x07example\0",
        b"\0\x01\0\x04\x03dot",
        b"\0\x03\0\x02",
        &port.to_be_bytes(),
        b"\0\x04\0\x04",
        &v4.ip().octets(),
    ];
    assert_eq!(record.data, expected.concat());
    // There is nothing else, and nothing at all without encrypted listeners.
    assert_eq!(secured.proxy.query("_dns.resolver.arpa", "A").answers().len(), 0);
    assert_eq!(secured.proxy.query("resolver.arpa", "TYPE64").answers().len(), 0);
    let plain = Proxy::start("zone \".\" { forward \"192.0.2.1\" }");
    assert_eq!(plain.query("_dns.resolver.arpa", "TYPE64").answers().len(), 0);
}
