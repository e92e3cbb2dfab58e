//! Clients and upstreams over QUIC.

use std::net::SocketAddr;
use std::process::Command;

use super::upstreams::refusals;
use super::{NAME, authority_in, folder, kdig, named};
use crate::harness::certificates::{Authority, Certificate};
use crate::harness::guests::root;
use crate::harness::process::Process;
use crate::harness::{Message, ONCE, Proxy, Upstream, address, client, needs, tools, until};

/// A proxy with listeners for QUIC and TLS at one address.
struct Secured {
    proxy: Proxy,
    address: SocketAddr,
    upstream: Upstream,
    _folder: tempfile::TempDir,
}

impl Secured {
    fn start(certificate: &Certificate, options: &str) -> Secured {
        let folder = folder();
        let upstream = Upstream::zone(&["www.example. 300 A 192.0.2.1", "example. 300 SOA . . 1 1 1 1 60"]);
        let (certificate, key) = certificate.write(folder.path(), "server");
        let address = address::fresh_socket();
        let text = format!(
            "listen \"$LISTEN\" \"quic://{address}\" \"tls://{address}\" {{ certificate \"{}\" key=\"{}\"; {options} }}\n\
             admin \"$ADMIN\"\nworkers 1\nzone \".\" {{ cache; forward \"{}\" }}",
            certificate.display(),
            key.display(),
            upstream.address
        );
        Secured {
            proxy: Proxy::start(&text),
            address,
            upstream,
            _folder: folder,
        }
    }
}

/// A proxy with a single upstream over QUIC.
fn asking(to: &str, tls: &str, options: &str) -> Proxy {
    Proxy::start(&format!(
        "workers 1\nzone \"example\" {{ forward \"quic://{to}\" {{ tls {{ {tls} }}\n{options}\n{ONCE} }} }}"
    ))
}

/// They use different protocols: port 853 of UDP and of TCP.
#[test]
fn quic_and_tls_share_an_address() {
    if !needs(&["kdig"]) {
        return;
    }
    let (folder, authority) = (folder(), Authority::new());
    let ca = authority_in(folder.path(), &authority);
    let secured = Secured::start(&authority.issue(&[NAME]), "");
    let mut command = kdig(secured.address, &ca, NAME, &["+tls"]);
    let said = tools::output(command.args(["www.example", "A"]));
    assert!(said.contains("192.0.2.1"), "{said}");
    let proxy = asking(&named(secured.address, NAME), &format!("ca \"{ca}\""), "");
    let answer = proxy.query("www.example", "A");
    assert_eq!(answer.answers(), ["www.example. A 192.0.2.1"]);
    let metrics = secured.proxy.metrics();
    let requests = |proto| metrics.sum("dnsweir_requests_total", &[("proto", proto)]);
    // Probes use QUIC, too.
    assert!(requests("tls") == 1.0 && requests("quic") >= 1.0);
}

/// dnsweir as an upstream of dnsweir.
#[test]
fn an_upstream_is_asked_over_quic() {
    let (folder, authority) = (folder(), Authority::new());
    let ca = format!("ca \"{}\"", authority_in(folder.path(), &authority));
    let secured = Secured::start(&authority.issue(&[NAME]), "");
    let proxy = asking(&named(secured.address, NAME), &ca, "");
    for _ in 0..20 {
        let answer = proxy.query("www.example", "A");
        assert_eq!(answer.answers(), ["www.example. A 192.0.2.1"]);
    }
    assert_eq!(proxy.query("no.example", "A").rcode(), "NXDOMAIN");
    let to = secured.address.to_string();
    let metrics = proxy.metrics();
    let requests = [("to", &*to), ("proto", "quic")];
    assert!(metrics.sum("dnsweir_forward_requests_total", &requests) >= 21.0);
    assert_eq!(metrics.sum("dnsweir_forward_failed_probes_total", &[]), 0.0);
    // One each for the probes, one for all queries.
    assert!(metrics.sum("dnsweir_forward_tls_handshakes_total", &[("to", &to)]) <= 3.0);
    let expiry = "dnsweir_forward_certificate_expiry_timestamp_seconds";
    // 1 January 2080.
    assert_eq!(metrics.sum(expiry, &[("to", &to)]), 3_471_292_800.0);
    assert_eq!(secured.upstream.count("www.example"), 1, "the rest was cached");
}

#[test]
fn whoever_is_not_who_they_should_be_is_not_asked_over_quic() {
    let (folder, authority) = (folder(), Authority::new());
    let ca = format!("ca \"{}\"", authority_in(folder.path(), &authority));
    for (certificate, name, tls, reason, logged) in refusals(&authority, &ca) {
        let secured = Secured::start(&certificate, "");
        let to = match name {
            Some(name) => named(secured.address, name),
            None => secured.address.to_string(),
        };
        let proxy = asking(&to, &tls, "");
        assert_eq!(proxy.query("www.example", "A").rcode(), "SERVFAIL", "{reason}");
        let line = proxy.process.logged(logged);
        assert!(line.contains(&secured.address.to_string()), "{line}");
        let failures = [("reason", reason)];
        let failures = proxy.metrics().sum("dnsweir_forward_failures_total", &failures);
        assert!(failures >= 1.0, "{reason}");
        assert_eq!(secured.upstream.count("www.example"), 0, "{reason}");
    }
}

/// Either end closes an idle connection, and the next query opens a new one.
#[test]
fn idle_connections_end() {
    let (folder, authority) = (folder(), Authority::new());
    let ca = format!("ca \"{}\"", authority_in(folder.path(), &authority));
    for (ours, theirs) in [
        ("idle \"1m\"", "tcp-idle \"200ms\""),
        ("idle \"200ms\"", "tcp-idle \"1m\""),
    ] {
        let secured = Secured::start(&authority.issue(&[NAME]), theirs);
        let proxy = asking(&named(secured.address, NAME), &ca, ours);
        for _ in 0..2 {
            assert_eq!(proxy.query("www.example", "A").rcode(), "NOERROR");
            until("the connections to end", || {
                secured.proxy.metrics().sum("dnsweir_tcp_connections", &[]) == 0.0
            });
        }
    }
}

/// Datagrams that are not QUIC, and handshakes that stop after their first one, block no other client.
#[test]
fn noise_keeps_nobody_out() {
    let (folder, authority) = (folder(), Authority::new());
    let ca = format!("ca \"{}\"", authority_in(folder.path(), &authority));
    let secured = Secured::start(&authority.issue(&[NAME]), "tcp-connections 8; tcp-read \"300ms\"");
    let socket = client::socket(secured.address);
    for number in 0..2000_usize {
        // A long header of version 1, of an unencrypted Initial packet (RFC 9000 section 17.2.2).
        let mut octets = vec![0xc3, 0, 0, 0, 1, 8];
        octets.extend((0..8).map(|at| (number >> at) as u8));
        octets.extend([0, 0, 0x44, 0x90]);
        octets.resize(number % 1300, number as u8);
        let _ = socket.send(&octets);
    }
    let proxy = asking(&named(secured.address, NAME), &ca, "");
    let answer = proxy.query("www.example", "A");
    assert_eq!(answer.answers(), ["www.example. A 192.0.2.1"]);
    assert!(secured.proxy.metrics().sum("dnsweir_tcp_connections", &[]) <= 8.0);
}

/// A client that shares nothing with this implementation but the specifications.
#[test]
fn a_client_of_another_make_asks_over_quic() {
    if !needs(&["go"]) {
        return;
    }
    let (folder, authority) = (folder(), Authority::new());
    let ca = authority_in(folder.path(), &authority);
    let program = folder.path().join("doq");
    let mut build = tools::command("go");
    build
        .current_dir(root().join("tests/encrypted/doq"))
        .env("CGO_ENABLED", "0")
        .args(["build", "-buildvcs=false", "-o"]);
    tools::output(build.arg(&program));
    let secured = Secured::start(&authority.issue(&[NAME]), "");
    let asks = |name: &str| {
        let mut ask = Command::new(&program);
        ask.arg(secured.address.to_string()).args([&*ca, name]);
        let done = ask.args(["www.example", "no.example", "www.example"]).output();
        done.expect("the client")
    };
    let said = asks(NAME);
    let text = String::from_utf8_lossy(&said.stdout);
    let addresses = text.matches("www.example.\t300\tIN\tA\t192.0.2.1").count();
    assert_eq!(
        (addresses, text.matches("status: NXDOMAIN").count()),
        (2, 1),
        "{said:?}"
    );
    assert!(text.contains("group X25519MLKEM768\n"), "{text}");
    assert_eq!(secured.upstream.count("www.example"), 1, "the second was cached");
    // It verifies the server's name.
    assert!(!asks("other.example").status.success());
}

/// CoreDNS's server for DNS over QUIC.
mod coredns {
    use super::*;

    #[test]
    #[ignore = "needs CoreDNS, which `cargo xtask test cluster` builds"]
    fn coredns_is_asked_over_quic() {
        let (folder, authority) = (folder(), Authority::new());
        let ca = format!("ca \"{}\"", authority_in(folder.path(), &authority));
        let (certificate, key) = authority.issue(&[NAME]).write(folder.path(), "server");
        let address = address::fresh_socket();
        let text = format!(
            "quic://example:{} {{\n bind {}\n tls {} {}\n template IN A {{\n answer \"{{{{ .Name }}}} 60 IN A 192.0.2.1\"\n }}\n}}\n",
            address.port(),
            address.ip(),
            certificate.display(),
            key.display(),
        );
        let file = folder.path().join("Corefile");
        std::fs::write(&file, text).expect("a Corefile");
        let program = std::env::var("COREDNS").expect("COREDNS, the path of the program");
        let _coredns = Process::start(Command::new(program).arg("-conf").arg(&file));
        let proxy = asking(&named(address, NAME), &ca, "");
        until("CoreDNS to answer", || {
            proxy.query("a.example", "A").rcode() == "NOERROR"
        });
        let answer = proxy.ask(&Message::query("b.example", "A").edns(1232));
        assert_eq!(answer.answers(), ["b.example. A 192.0.2.1"]);
    }
}
