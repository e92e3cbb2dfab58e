//! Upstreams over TLS.

use std::net::{SocketAddr, TcpListener};

use super::{NAME, authority_in, folder};
use crate::harness::certificates::{Authority, Certificate};
use crate::harness::encrypted::TlsFront;
use crate::harness::servers::unbound_over;
use crate::harness::{Message, ONCE, Proxy, Upstream, address, needs, until};

/// The same address with the TLS scheme.
fn named(address: SocketAddr, name: &str) -> String {
    format!("tls://{}", super::named(address, name))
}

fn www() -> Upstream {
    Upstream::start(|asked| asked.answer(&[&format!("{} 300 A 192.0.2.1", asked.name())]))
}

/// A zone with only this upstream, with these options in `tls`.
fn forward(upstream: &str, tls: &str) -> String {
    format!("zone \".\" {{ forward \"{upstream}\" {{ tls {{ {tls} }}; {ONCE} }} }}")
}

#[test]
fn unbound_is_asked_over_tls_and_sessions_are_resumed() {
    if !needs(&["unbound"]) {
        return;
    }
    let (folder, authority) = (folder(), Authority::new());
    let files = authority.issue(&[NAME]).write(folder.path(), "server");
    let (server, address) = unbound_over("tls", "example.", &["www.example. 300 A 192.0.2.1"], &files);
    let ca = authority_in(folder.path(), &authority);
    let text = format!(
        "workers 1\nzone \".\" {{ forward \"{}\" {{ tls {{ ca \"{ca}\" }}; idle \"100ms\"; {ONCE} }} }}",
        named(address, NAME)
    );
    let proxy = Proxy::start(&text);
    assert_eq!(
        proxy.query("www.example", "A").answers(),
        ["www.example. A 192.0.2.1"]
    );
    assert_eq!(server.queries("www.example"), 1);
    let to = address.to_string();
    // The probe at startup uses a separate connection.
    let metrics = proxy.metrics();
    assert!(
        metrics.sum(
            "dnsweir_forward_tls_handshakes_total",
            &[("to", &to), ("resumed", "false")]
        ) >= 1.0
    );
    assert_eq!(
        metrics.sum(
            "dnsweir_forward_certificate_expiry_timestamp_seconds",
            &[("to", &to)]
        ),
        // 1 January 2080.
        3_471_292_800.0
    );
    assert!(metrics.sum("dnsweir_forward_requests_total", &[("to", &to), ("proto", "tls")]) >= 1.0);
    // An idle connection is closed; the next query opens a new one and resumes the session.
    crate::harness::until("a session to be resumed", || {
        proxy.query(&format!("{}.example", rand_label()), "A");
        let resumed = [("to", &*to), ("resumed", "true")];
        proxy
            .metrics()
            .sum("dnsweir_forward_tls_handshakes_total", &resumed)
            >= 1.0
    });
}

/// A label that has not been asked for before.
fn rand_label() -> String {
    use std::sync::atomic::{AtomicU32, Ordering};
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("n{}", NEXT.fetch_add(1, Ordering::Relaxed))
}

/// Reasons for TLS to fail: the certificate, the configured name, options of `tls`, the reason in the
/// metrics, and the log message.
pub(super) type Refusal = (
    Certificate,
    Option<&'static str>,
    String,
    &'static str,
    &'static str,
);

pub(super) fn refusals(authority: &Authority, ca: &str) -> Vec<Refusal> {
    let wrong_pin = "pin \"sha256/AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=\"";
    let ca = ca.to_owned();
    vec![
        (
            authority.issue(&["other.example"]),
            Some(NAME),
            ca.clone(),
            "certificate_name",
            "its certificate is not for dns.example but for other.example: write the name that it is for",
        ),
        (
            authority.issue(&["other.example"]),
            None,
            ca.clone(),
            "certificate_name",
            "but for other.example",
        ),
        (
            authority.issue_between(&[NAME], 2020, 2021),
            Some(NAME),
            ca.clone(),
            "certificate_expired",
            "its certificate expired on Jan  1 00:00:00 2021 +00:00: its operator must renew it",
        ),
        (
            authority.issue_between(&[NAME], 2079, 2080),
            Some(NAME),
            ca.clone(),
            "certificate_early",
            "its certificate is not valid yet: check this machine's clock",
        ),
        (
            Authority::new().issue(&[NAME]),
            Some(NAME),
            ca.clone(),
            "certificate_issuer",
            "its certificate is of an authority that is not trusted here",
        ),
        (
            authority.issue(&[NAME]),
            Some(NAME),
            format!("{ca}; {wrong_pin}"),
            "certificate_key",
            "its key is none of those pinned but sha256/",
        ),
    ]
}

#[test]
fn whoever_is_not_who_they_should_be_is_not_asked() {
    let (folder, authority) = (folder(), Authority::new());
    let ca = format!("ca \"{}\"", authority_in(folder.path(), &authority));
    let schemes = ["tls", "https"].into_iter();
    for (scheme, (certificate, name, tls, reason, logged)) in schemes.flat_map(|scheme| {
        refusals(&authority, &ca)
            .into_iter()
            .map(move |refusal| (scheme, refusal))
    }) {
        let upstream = www();
        let front = TlsFront::before(upstream.address, certificate.server(None));
        let to = match name {
            Some(name) => format!("{scheme}://{}", super::named(front.address, name)),
            None => format!("{scheme}://{}", front.address),
        };
        let proxy = Proxy::start(&forward(&to, &tls));
        assert_eq!(proxy.query("www.example", "A").rcode(), "SERVFAIL", "{reason}");
        let line = proxy.process.logged(logged);
        assert!(line.contains(&front.address.to_string()), "{line}");
        let to = front.address.to_string();
        let failures = [("to", &*to), ("reason", reason)];
        assert!(
            proxy.metrics().sum("dnsweir_forward_failures_total", &failures) >= 1.0,
            "{reason}"
        );
        assert_eq!(front.queries().len() + upstream.everything().len(), 0, "{reason}");
        if reason == "certificate_expired" {
            let expiry = proxy.metrics().sum(
                "dnsweir_forward_certificate_expiry_timestamp_seconds",
                &[("to", &to)],
            );
            assert_eq!(expiry, 1_609_459_200.0);
        }
    }
}

#[test]
fn a_pinned_key_needs_no_authority() {
    let upstream = www();
    let certificate = Authority::new().issue(&["elsewhere.example"]);
    let front = TlsFront::before(upstream.address, certificate.server(None));
    let to = format!("tls://{}", front.address);
    let wrong = "pin \"sha256/AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=\"";
    let proxy = Proxy::start(&forward(&to, wrong));
    assert_eq!(proxy.query("www.example", "A").rcode(), "SERVFAIL");
    // The log names the key that was found.
    let line = proxy.process.logged("none of those pinned but ");
    let start = line.find("but sha256/").expect("a key") + "but ".len();
    let pin: String = line[start..]
        .chars()
        .take_while(|&letter| letter != ':')
        .collect();
    proxy.reload(&forward(&to, &format!("pin \"{pin}\"")));
    assert_eq!(
        proxy.query("www.example", "A").answers(),
        ["www.example. A 192.0.2.1"]
    );
}

#[test]
fn an_upstream_may_want_to_know_who_asks() {
    let (folder, authority, clients) = (folder(), Authority::new(), Authority::new());
    let ca = format!("ca \"{}\"", authority_in(folder.path(), &authority));
    let upstream = www();
    let certificate = authority.issue(&[NAME]);
    let front = TlsFront::before(upstream.address, certificate.server(Some(&clients)));
    let to = named(front.address, NAME);
    let proxy = Proxy::start(&forward(&to, &ca));
    assert_eq!(proxy.query("www.example", "A").rcode(), "SERVFAIL");
    let failures = [("reason", "tls")];
    assert!(proxy.metrics().sum("dnsweir_forward_failures_total", &failures) >= 1.0);
    let (pem, key) = clients.issue(&["client.example"]).write(folder.path(), "client");
    let with = format!(
        "{ca}; certificate \"{}\" key=\"{}\"",
        pem.display(),
        key.display()
    );
    proxy.reload(&forward(&to, &with));
    assert_eq!(
        proxy.query("www.example", "A").answers(),
        ["www.example. A 192.0.2.1"]
    );
}

/// RFC 8467 section 4.1: queries are padded to 128 octets, which hides the length of a name.
#[test]
fn queries_are_padded_and_clients_do_not_see_it() {
    let (folder, authority) = (folder(), Authority::new());
    let ca = format!("ca \"{}\"", authority_in(folder.path(), &authority));
    let upstream = Upstream::start(|asked| {
        let answer = asked.message_with(&[&format!("{} 300 A 192.0.2.1", asked.name())]);
        crate::harness::Reply::Message(answer.edns(1232).option(12, &[0; 100]))
    });
    let front = TlsFront::before(upstream.address, authority.issue(&[NAME]).server(None));
    let proxy = Proxy::start(&forward(&named(front.address, NAME), &ca));
    for name in [
        "a.example".to_owned(),
        format!("{}.example", "b".repeat(60)),
        format!("{0}.{0}.example", "c".repeat(60)),
    ] {
        let query = Message::query(&name, "A").edns(1232);
        let answer = proxy.ask(&query);
        assert_eq!(answer.answers().len(), 1);
        assert_eq!(answer.find_option(12), None, "{name}");
        let sent = front.queries();
        // Probes contain nothing that their length could reveal.
        let is_ours = |octets: &&Vec<u8>| {
            Message::decode(octets).is_ok_and(|read| read.questions[0].name == format!("{name}."))
        };
        let sent = sent.iter().find(is_ours).expect("a query");
        assert_eq!(sent.len() % 128, 0, "{name}");
        let read = Message::decode(sent).expect("a message");
        assert!(
            read.find_option(12)
                .expect("padding")
                .iter()
                .all(|&octet| octet == 0)
        );
    }
}

/// A handshake may take only the rest of the attempt's time; then the next upstream is tried.
#[test]
fn a_handshake_that_hangs_costs_one_attempt() {
    let (folder, authority) = (folder(), Authority::new());
    let ca = authority_in(folder.path(), &authority);
    let silent = TcpListener::bind(address::fresh_socket()).expect("a port");
    let silent_address = silent.local_addr().expect("its address");
    let upstream = www();
    let front = TlsFront::before(upstream.address, authority.issue(&[NAME]).server(None));
    let text = format!(
        "zone \".\" {{ forward \"{}\" \"{}\" {{ policy \"sequential\"; timeout \"1s\"; \
         tls {{ ca \"{ca}\" }} }} }}",
        named(silent_address, NAME),
        named(front.address, NAME)
    );
    let proxy = Proxy::start(&text);
    assert_eq!(
        proxy.query("www.example", "A").answers(),
        ["www.example. A 192.0.2.1"]
    );
    assert_eq!(upstream.count("www.example"), 1);
    // A server with another protocol fails immediately.
    proxy.reload(&forward(&named(upstream.address, NAME), &format!("ca \"{ca}\"")));
    assert_eq!(proxy.query("other.example", "A").rcode(), "SERVFAIL");
    drop(silent);
}

/// The configuration says which server resolves its name. An upstream not resolved at the start is used once
/// it is.
#[test]
fn an_upstream_by_its_name_alone_is_found_and_asked() {
    let (folder, authority, www) = (folder(), Authority::new(), www());
    let ca = authority_in(folder.path(), &authority);
    let front = TlsFront::before(www.address, authority.issue(&[NAME]).server(None));
    let (ip, port) = (front.address.ip(), front.address.port());
    let bootstrap = address::fresh_socket();
    let zone =
        format!("forward \"tls://{NAME}:{port}\" {{ bootstrap \"{bootstrap}\"; tls {{ ca \"{ca}\" }} }}");
    let proxy = Proxy::start(&format!("zone \".\" {{ {zone} }}"));
    let unknown = || {
        proxy
            .get("/status")
            .1
            .contains("dns.example: no address of it is known yet")
    };
    assert!(unknown());
    assert_eq!(proxy.query("www.example", "A").rcode(), "SERVFAIL");
    let record = format!("{NAME} 300 A {ip}");
    let server = Upstream::start_at(bootstrap, move |asked| match asked.is("A") {
        true => asked.answer(&[&record]),
        false => asked.denial("NOERROR", None),
    });
    until("the upstream to be found", || {
        proxy.query("www.example", "A").rcode() == "NOERROR"
    });
    assert!(!unknown());
    let asked = server.count(NAME);
    assert!(asked >= 2, "for both families: {asked}");
    // Known addresses stay when the resolver is down, and across a reload.
    server.stop();
    proxy.reload(&format!("zone \".\" {{ cache; {zone} }}"));
    assert_eq!(
        proxy.query("a.example", "A").answers(),
        ["a.example. A 192.0.2.1"]
    );
}
