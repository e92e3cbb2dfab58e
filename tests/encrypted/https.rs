//! Clients and upstreams over HTTPS.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;

use super::{NAME, authority_in, folder, kdig, named};
use crate::harness::certificates::Authority;
use crate::harness::encrypted::{TlsClient, frame, preface, trusting_for};
use crate::harness::servers::{dnsdist_over_https, unbound_over};
use crate::harness::{Message, ONCE, Proxy, Upstream, address, needs, tools, until};

/// A proxy with a listener for HTTPS.
struct Secured {
    proxy: Proxy,
    address: SocketAddr,
    authority: Authority,
    ca: String,
    folder: tempfile::TempDir,
    upstream: Upstream,
}

impl Secured {
    fn start(options: &str) -> Secured {
        let (folder, authority) = (folder(), Authority::new());
        let upstream = Upstream::zone(&["www.example. 300 A 192.0.2.1", "example. 300 SOA . . 1 1 1 1 60"]);
        let (certificate, key) = authority.issue(&[NAME]).write(folder.path(), "server");
        let address = address::fresh_socket();
        let ca = authority_in(folder.path(), &authority);
        let text = format!(
            "listen \"$LISTEN\" \"https://{address}\" {{ certificate \"{}\" key=\"{}\"; {options} }}\nadmin \"$ADMIN\"\nworkers 1\n\
             zone \".\" {{ cache; forward \"{}\" }}",
            certificate.display(),
            key.display(),
            upstream.address
        );
        Secured {
            proxy: Proxy::start(&text),
            address,
            authority,
            ca,
            folder,
            upstream,
        }
    }

    fn url(&self, path: &str) -> String {
        format!("https://{NAME}:{}{path}", self.address.port())
    }

    /// The output of curl, which can reach the server and trusts its authority.
    fn curl(&self, more: &[&str]) -> String {
        let resolve = format!("{NAME}:{}:{}", self.address.port(), self.address.ip());
        let mut command: Command = tools::command("curl");
        command.args(["-sS", "-m", "20", "--cacert", &self.ca, "--resolve", &resolve]);
        tools::output(command.args(more))
    }

    /// A file with a query.
    fn query(&self, message: &Message) -> PathBuf {
        let path = self.folder.path().join("query");
        std::fs::write(&path, message.encode()).expect("a file");
        path
    }

    fn sum(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        self.proxy.metrics().sum(name, labels)
    }

    /// Whether an uninvolved client is answered.
    fn works(&self) -> bool {
        let mut client = self.client(&["http/1.1"]);
        client.write(b"GET /dns-query?dns=AAABAAABAAAAAAAAA3d3dwdleGFtcGxlAAABAAE HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n");
        client.read_to_end().starts_with(b"HTTP/1.1 200 OK\r\n")
    }

    fn client(&self, protocols: &[&str]) -> TlsClient {
        TlsClient::connect(self.address, NAME, trusting_for(&self.authority, protocols))
    }
}

#[test]
fn curl_asks_by_post_and_get_over_both_versions() {
    if !needs(&["curl"]) {
        return;
    }
    let secured = Secured::start("");
    let query = secured.query(&Message::query("www.example", "A").edns(1232));
    let answer = secured.folder.path().join("answer");
    let (data, out) = (format!("@{}", query.display()), answer.display().to_string());
    for version in ["--http2", "--http1.1"] {
        let shown = secured.curl(&[
            version,
            "-H",
            "content-type: application/dns-message",
            "--data-binary",
            &data,
            "-D",
            "-",
            "-o",
            &out,
            &secured.url("/dns-query"),
        ]);
        let shown = shown.to_lowercase();
        assert!(
            shown.contains(" 200") && shown.contains("content-type: application/dns-message"),
            "{shown}"
        );
        // RFC 8484 section 5.1.
        let age = shown.split("cache-control: max-age=").nth(1).expect("a lifetime");
        let age: u32 = age
            .split_whitespace()
            .next()
            .expect("a number")
            .parse()
            .expect("seconds");
        assert!((200..=300).contains(&age), "{shown}");
        let octets = std::fs::read(&answer).expect("an answer");
        assert_eq!(octets.len() % 468, 0, "RFC 8467 section 4.1");
        assert_eq!(
            Message::decode(&octets).expect("a message").answers(),
            ["www.example. A 192.0.2.1"]
        );
    }
    // RFC 8484 section 4.1.1.
    let url = secured.url("/dns-query?dns=AAABAAABAAAAAAAAA3d3dwdleGFtcGxlAAABAAE");
    secured.curl(&["--http2", "-o", &out, &url]);
    let octets = std::fs::read(&answer).expect("an answer");
    assert_eq!(
        Message::decode(&octets).expect("a message").answers(),
        ["www.example. A 192.0.2.1"]
    );
    assert_eq!(secured.sum("dnsweir_requests_total", &[("proto", "https")]), 3.0);
}

#[test]
fn what_is_wrong_with_a_request_is_told_by_its_status() {
    if !needs(&["curl"]) {
        return;
    }
    let secured = Secured::start("");
    let status = |more: &[&str]| {
        let status = ["-o", "/dev/null", "-w", "%{http_code}"];
        secured.curl(&[&status, more].concat())
    };
    let media = ["-H", "content-type: application/dns-message"];
    let large = secured.folder.path().join("large");
    std::fs::write(&large, vec![0; 5000]).expect("a file");
    let large = format!("@{}", large.display());
    let dns = secured.url("/dns-query");
    let asked = secured.url("/dns-query?dns=AAABAAABAAAAAAAAA3d3dwdleGFtcGxlAAABAAE");
    for (expected, more) in [
        ("404", vec![secured.url("/")]),
        ("400", vec![dns.clone()]),
        ("400", vec![secured.url("/dns-query?dns=%%%")]),
        ("400", vec![secured.url("/dns-query?dns=AAAA")]),
        ("415", vec!["--data-binary".into(), "x".into(), dns.clone()]),
        ("405", vec!["-X".into(), "PUT".into(), dns.clone()]),
        // RFC 9112 section 3.2: exactly one Host header.
        (
            "400",
            vec!["--http1.1".into(), "-H".into(), "Host:".into(), asked.clone()],
        ),
    ] {
        let more: Vec<&str> = more.iter().map(String::as_str).collect();
        assert_eq!(status(&more), expected, "{more:?}");
    }
    assert_eq!(
        status(&[&media[..], &["--data-binary", &large, &dns]].concat()),
        "413"
    );
    assert_eq!(
        status(&[&media[..], &["--data-binary", "x", &dns]].concat()),
        "400"
    );
    assert!(secured.works());
}

/// RFC 9110 sections 8.3.1 and 9.3.2, RFC 3986 section 2.3.
#[test]
fn the_same_may_be_written_in_other_ways() {
    if !needs(&["curl"]) {
        return;
    }
    let secured = Secured::start("");
    let query = Message::query("www.example", "A").encode();
    let file = secured.folder.path().join("query");
    std::fs::write(&file, &query).expect("a file");
    let posted = format!("@{}", file.display());
    let dns = secured.url("/dns%2Dquery");
    let size = ["-o", "/dev/null", "-w", "%{http_code} %{size_download}"];
    for media in [
        "Application/DNS-Message",
        "application/dns-message; charset=binary",
    ] {
        let header = format!("content-type: {media}");
        let answered = secured.curl(&[&size[..], &["-H", &header, "--data-binary", &posted, &dns]].concat());
        assert!(
            answered.starts_with("200 ") && !answered.ends_with(" 0"),
            "{answered}"
        );
    }
    // With percent-encoding: `AA` is `%41A`.
    let encoded = "?dns=%41AABAAABAAAAAAAAA3d3dwdleGFtcGxlAAABAAE";
    for version in ["--http1.1", "--http2"] {
        let url = secured.url(&format!("/dns-query{encoded}"));
        let answered = secured.curl(&[&size[..], &[version, &url]].concat());
        assert!(
            answered.starts_with("200 ") && !answered.ends_with(" 0"),
            "{answered}"
        );
        let head = secured.curl(&["-I", version, &url]);
        let length = head.lines().find_map(|line| {
            line.to_ascii_lowercase()
                .strip_prefix("content-length: ")
                .map(|length| length.trim().to_owned())
        });
        assert!(head.contains(" 200"), "{head}");
        assert_ne!(length.as_deref(), Some("0"), "{head}");
        assert!(length.is_some(), "{head}");
    }
    assert!(secured.works());
}

#[test]
fn kdig_asks_over_https() {
    if !needs(&["kdig"]) {
        return;
    }
    let secured = Secured::start("");
    for method in ["+https", "+https-get"] {
        let mut command = kdig(secured.address, &secured.ca, NAME, &["+https", method]);
        let said = tools::output(command.args(["www.example", "A"]));
        assert!(said.contains("192.0.2.1") && said.contains("HTTP/2"), "{said}");
    }
}

/// RFC 9113 section 10.5: opening and resetting streams, or endless headers, cost no more than one
/// connection.
#[test]
fn floods_of_http_cost_one_connection() {
    let secured = Secured::start("");
    let preface = preface(&[]);
    // GET https / without authority, with END_STREAM and END_HEADERS.
    let request = [0x82, 0x87, 0x84];
    let resets: Vec<u8> = (0..2000_u32)
        .flat_map(|number| {
            [
                frame(1, 5, 2 * number + 1, &request),
                frame(3, 0, 2 * number + 1, &[0, 0, 0, 8]),
            ]
        })
        .flatten()
        .collect();
    // A header block with endless continuations: literals that are not indexed.
    let literal = [
        &[0x00, 0x7f, 0x81, 0x07][..],
        &[b'a'; 256],
        &[0x7f, 0x81, 0x07],
        &[b'b'; 256],
    ]
    .concat();
    let mut endless = frame(1, 1, 1, &request);
    for _ in 0..400 {
        endless.extend(frame(9, 0, 1, &literal));
    }
    for flood in [resets, endless] {
        let mut client = secured.client(&["h2"]);
        let _ = client.try_write(&preface);
        let _ = client.try_write(&flood);
        // It ends with a GOAWAY frame or less; if the flood were processed, it would stay open.
        client.read_to_end();
        assert!(secured.works());
    }
    until("the connections to end", || {
        secured.sum("dnsweir_tcp_connections", &[]) == 0.0
    });
}

/// A body that does not arrive, an incomplete request, an idle connection.
#[test]
fn slow_clients_are_let_go() {
    let secured = Secured::start("tcp-read \"300ms\"; tcp-idle \"300ms\"; tcp-write \"300ms\"");
    let head = format!(
        "POST /dns-query HTTP/1.1\r\nhost: {NAME}\r\ncontent-type: application/dns-message\r\ncontent-length: 30\r\n\r\n"
    );
    let mut bodiless = secured.client(&["http/1.1"]);
    bodiless.write(head.as_bytes());
    assert!(bodiless.read_to_end().starts_with(b"HTTP/1.1 408"));
    for octets in [&b"GET /dns-query HTTP/1.1\r\nhost:"[..], b"", b"PRI"] {
        let mut slow = secured.client(&["http/1.1"]);
        slow.write(octets);
        slow.read_to_end();
        let mut slow = secured.client(&["h2"]);
        slow.write(octets);
        slow.read_to_end();
    }
    assert!(secured.works());
    until("the connections to end", || {
        secured.sum("dnsweir_tcp_connections", &[]) == 0.0
    });
}

/// dnsweir as an upstream of dnsweir.
#[test]
fn an_upstream_is_asked_over_https() {
    let secured = Secured::start("");
    for method in ["POST", "GET"] {
        let text = format!(
            "workers 1\nzone \"example\" {{ forward \"https://{}\" {{ https-method \"{method}\"; tls {{ ca \"{}\" }}; {ONCE} }} }}",
            named(secured.address, NAME),
            secured.ca
        );
        let asking = Proxy::start(&text);
        for _ in 0..20 {
            assert_eq!(
                asking.query("www.example", "A").answers(),
                ["www.example. A 192.0.2.1"]
            );
        }
        let denied = asking.query(&format!("{}.example", method.to_lowercase()), "A");
        assert_eq!(denied.rcode(), "NXDOMAIN");
        let to = secured.address.to_string();
        let metrics = asking.metrics();
        assert!(
            metrics.sum(
                "dnsweir_forward_requests_total",
                &[("to", &to), ("proto", "https")]
            ) >= 21.0
        );
        assert_eq!(metrics.sum("dnsweir_forward_failed_probes_total", &[]), 0.0);
        // One for the probes, one for all queries.
        assert!(metrics.sum("dnsweir_forward_tls_handshakes_total", &[("to", &to)]) <= 3.0);
    }
    // A server without DNS over HTTPS is recognized by its status.
    let text = format!(
        "zone \".\" {{ forward \"https://{}/other\" {{ tls {{ ca \"{}\" }}; {ONCE} }} }}",
        named(secured.address, NAME),
        secured.ca
    );
    let asking = Proxy::start(&text);
    assert_eq!(asking.query("www.example", "A").rcode(), "SERVFAIL");
    assert!(
        asking
            .metrics()
            .sum("dnsweir_forward_failures_total", &[("reason", "http")])
            >= 1.0
    );
    assert_eq!(secured.upstream.count("www.example"), 1, "the rest was cached");
}

#[test]
fn unbound_and_dnsdist_are_asked_over_https() {
    if !needs(&["unbound", "dnsdist"]) {
        return;
    }
    let (folder, authority) = (folder(), Authority::new());
    let files = authority.issue(&[NAME]).write(folder.path(), "server");
    let ca = authority_in(folder.path(), &authority);
    let large = format!(
        "large.example. 300 TXT {}",
        "\"0123456789abcdef0123456789abcdef\" ".repeat(200)
    );
    let data = ["www.example. 300 A 192.0.2.1", large.as_str()];
    let (unbound, asked) = unbound_over("https", "example.", &data, &files);
    let (_dnsdist, before) = dnsdist_over_https("example.", unbound.address, &files);
    for (address, method) in [asked, before]
        .into_iter()
        .flat_map(|address| [(address, "POST"), (address, "GET")])
    {
        let proxy = Proxy::start(&format!(
            "workers 1\nzone \"example\" {{ forward \"https://{}\" {{ https-method \"{method}\"; tls {{ ca \"{ca}\" }}; {ONCE} }} }}",
            named(address, NAME)
        ));
        assert_eq!(
            proxy.query("www.example", "A").answers(),
            ["www.example. A 192.0.2.1"],
            "{address} {method}"
        );
        assert_eq!(proxy.query("no.example", "A").rcode(), "NXDOMAIN");
        assert_eq!(
            proxy.metrics().sum("dnsweir_forward_failed_probes_total", &[]),
            0.0
        );
        if address == asked {
            let whole = proxy.connect().ask(&Message::query("large.example", "TXT"));
            assert!(whole.answers[0].data.len() > 6000);
        }
    }
}
