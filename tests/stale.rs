//! Expired answers when upstreams fail (RFC 8767).

use std::time::{Duration, Instant};

use crate::harness::upstream::Reply;
use crate::harness::{Message, Proxy, Upstream, eventually, needs, servers, until};

/// Extended errors (RFC 8914 section 4).
const STALE_ANSWER: u16 = 3;
const STALE_NXDOMAIN: u16 = 19;

fn stale(address: std::net::SocketAddr, serve_stale: &str) -> String {
    format!(
        "zone \".\" {{ cache {{ {serve_stale} }}; forward \"{address}\" {{ timeout \"1s\"; deadline \"2s\" }} }}"
    )
}

/// After the upstream has stopped, an expired entry still answers, with EDE 3 (unbound).
#[test]
fn an_expired_entry_answers_when_unbound_is_gone() {
    if !needs(&["unbound"]) {
        return;
    }
    let mut unbound = servers::unbound("example", &["www.example. 1 IN A 192.0.2.1"]);
    let proxy = Proxy::start(&stale(unbound.address, "serve-stale \"1h\""));
    assert!(proxy.query_edns("www.example", "A").extended_errors().is_empty());
    unbound.process.stop();
    let answer = eventually("a stale answer", || {
        let answer = proxy.query_edns("www.example", "A");
        answer.extended_errors().contains(&STALE_ANSWER).then_some(answer)
    });
    assert_eq!(answer.answers(), ["www.example. A 192.0.2.1"]);
    assert_eq!(answer.rcode(), "NOERROR");
    // RFC 8767 section 4: the TTL must be greater than 0; 30 s is recommended.
    assert_eq!(answer.ttl(), 30);
    assert!(proxy.metrics().sum("dnsweir_cache_stale_total", &[]) >= 1.0);
}

/// A slow upstream gets the configured time (section 5: the client response timer), and its answer replaces
/// the stale one.
#[test]
fn a_slow_upstream_is_waited_for_so_long_and_no_longer() {
    let upstream = Upstream::zone(&["www.example. 1 A 192.0.2.1"]);
    let proxy = Proxy::start(&format!(
        "zone \".\" {{ cache {{ serve-stale \"1h\" ttl=\"7s\" after=\"200ms\" }}; forward \"{}\" {{ timeout \"20s\"; deadline \"25s\" }} }}",
        upstream.address
    ));
    proxy.query("www.example", "A");
    upstream.becomes(|_| Reply::Silence);
    let (answer, took) = eventually("a stale answer", || {
        let begun = Instant::now();
        let answer = proxy.query_edns("www.example", "A");
        answer
            .extended_errors()
            .contains(&STALE_ANSWER)
            .then(|| (answer, begun.elapsed()))
    });
    assert_eq!(answer.ttl(), 7);
    assert_eq!(answer.answers(), ["www.example. A 192.0.2.1"]);
    assert!(
        took >= Duration::from_millis(150),
        "it did not wait for the upstream: {took:?}"
    );
    assert!(took < Duration::from_secs(10), "{took:?}");
}

/// RFC 8767 section 5: NXDOMAIN and NODATA are answers, which replace the stale entry.
#[test]
fn a_denial_replaces_a_stale_entry() {
    let upstream = Upstream::zone(&["www.example. 1 A 192.0.2.1"]);
    let proxy = Proxy::start(&stale(upstream.address, "serve-stale \"1h\""));
    proxy.query("www.example", "A");
    upstream.becomes(|asked| {
        asked.denial(
            "NXDOMAIN",
            Some("example. 300 SOA ns.example. root.example. 1 2 3 4 300"),
        )
    });
    until("the denial", || {
        proxy.query("www.example", "A").rcode() == "NXDOMAIN"
    });
}

/// Section 4: so they are if they must not be kept themselves. The stale entry does not come back.
#[test]
fn a_denial_that_is_not_kept_ends_a_stale_entry() {
    let soa = "example. 300 SOA ns.example. root.example. 1 2 3 4 300";
    for (cache, soa) in [
        ("serve-stale \"1h\"", None),
        ("serve-stale \"1h\"; denial store=#false", Some(soa)),
    ] {
        let upstream = Upstream::zone(&["www.example. 1 A 192.0.2.1"]);
        let proxy = Proxy::start(&stale(upstream.address, cache));
        proxy.query("www.example", "A");
        upstream.becomes(move |asked| asked.denial("NXDOMAIN", soa));
        until("the denial", || {
            proxy.query("www.example", "A").rcode() == "NXDOMAIN"
        });
        for _ in 0..5 {
            assert_eq!(proxy.query("www.example", "A").rcode(), "NXDOMAIN", "{cache}");
        }
    }
}

/// Section 4: SERVFAIL from the upstream is a failure to refresh.
#[test]
fn an_upstream_that_fails_is_no_reason_to_fail() {
    let upstream = Upstream::zone(&["www.example. 1 A 192.0.2.1"]);
    let proxy = Proxy::start(&stale(upstream.address, "serve-stale \"1h\""));
    proxy.query("www.example", "A");
    upstream.becomes(|asked| asked.denial("SERVFAIL", None));
    let answer = eventually("a stale answer", || {
        let answer = proxy.query_edns("www.example", "A");
        assert_ne!(answer.rcode(), "SERVFAIL", "{answer}");
        answer.extended_errors().contains(&STALE_ANSWER).then_some(answer)
    });
    assert_eq!(answer.answers(), ["www.example. A 192.0.2.1"]);
}

/// A stale denial has its own code.
#[test]
fn a_stale_denial_has_its_own_code() {
    let upstream = Upstream::zone(&["example. 1 SOA ns.example. root.example. 1 2 3 4 1"]);
    let proxy = Proxy::start(&stale(upstream.address, "serve-stale \"1h\""));
    assert_eq!(proxy.query("none.example", "A").rcode(), "NXDOMAIN");
    let address = upstream.stop();
    let answer = eventually("a stale denial", || {
        let answer = proxy.query_edns("none.example", "A");
        answer
            .extended_errors()
            .contains(&STALE_NXDOMAIN)
            .then_some(answer)
    });
    assert_eq!(answer.rcode(), "NXDOMAIN");

    // The upstream is back, and with it fresh answers.
    let _upstream = Upstream::start_at(address, |asked| asked.answer(&["none.example. 300 A 192.0.2.9"]));
    until("a fresh answer", || {
        proxy.query("none.example", "A").answers() == ["none.example. A 192.0.2.9"]
    });
}

/// After its window, an entry is gone.
#[test]
fn the_window_ends() {
    let upstream = Upstream::zone(&["www.example. 1 A 192.0.2.1"]);
    let proxy = Proxy::start(&stale(upstream.address, "serve-stale \"2s\" ttl=\"1s\""));
    proxy.query("www.example", "A");
    drop(upstream);
    until("the window to end", || {
        proxy.query("www.example", "A").rcode() == "SERVFAIL"
    });
}

/// Without the option, nothing stale is served.
#[test]
fn without_serve_stale_nothing_is_stale() {
    let upstream = Upstream::zone(&["www.example. 1 A 192.0.2.1"]);
    let proxy = Proxy::start(&stale(upstream.address, ""));
    proxy.query("www.example", "A");
    drop(upstream);
    until("the entry to end", || {
        let answer = proxy.ask(&Message::query("www.example", "A").edns(1232));
        assert!(!answer.extended_errors().contains(&STALE_ANSWER), "{answer}");
        answer.rcode() == "SERVFAIL"
    });
}
