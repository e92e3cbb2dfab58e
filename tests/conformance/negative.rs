//! Negative answers: RFC 2308 for denials, RFC 9520 for failures.

use std::time::{Duration, Instant};

use crate::harness::upstream::Reply;
use crate::harness::{Proxy, Upstream, until};

fn cached(upstream: &Upstream, cache: &str) -> Proxy {
    cached_within(upstream, cache, "timeout \"20s\"; deadline \"25s\"")
}

/// The same with this timeout.
fn cached_within(upstream: &Upstream, cache: &str, timeout: &str) -> Proxy {
    Proxy::start(&format!(
        "zone \".\" {{ cache {{ {cache} }}; forward \"{}\" {{ {timeout}; attempts 1; max-fails 0 }} }}",
        upstream.address
    ))
}

/// An upstream that denies everything, with this SOA record or none.
fn denying(rcode: &'static str, soa: Option<&'static str>) -> Upstream {
    Upstream::start(move |asked| asked.denial(rcode, soa))
}

/// RFC 2308 section 5: cached for the lower of the SOA record's TTL and its MINIMUM, counting down.
#[test]
fn a_denial_lives_as_long_as_its_soa_says() {
    for rcode in ["NXDOMAIN", "NOERROR"] {
        for (soa, lifetime) in [
            ("example. 300 SOA ns.example. root.example. 1 2 3 4 2", 2),
            ("example. 2 SOA ns.example. root.example. 1 2 3 4 300", 2),
        ] {
            let upstream = denying(rcode, Some(soa));
            let proxy = cached(&upstream, "");
            let first = proxy.query("none.example", "A");
            assert_eq!((first.rcode().as_str(), first.answers.len()), (rcode, 0));
            assert_eq!(first.authority[0].ttl, lifetime, "{soa}");
            until("the TTL to count down", || {
                let answer = proxy.query("none.example", "A");
                assert_eq!(answer.rcode(), rcode);
                assert!(answer.authority[0].ttl <= lifetime);
                answer.authority[0].ttl < lifetime
            });
            assert_eq!(upstream.count("none.example"), 1, "{soa}");
            until("the denial to end", || {
                proxy.query("none.example", "A");
                upstream.count("none.example") > 1
            });
        }
    }
}

/// RFC 2308 section 5: a denial without an SOA record is not cached.
#[test]
fn a_denial_without_soa_is_not_kept() {
    for rcode in ["NXDOMAIN", "NOERROR"] {
        let upstream = denying(rcode, None);
        let proxy = cached(&upstream, "");
        for count in 1..=3 {
            assert_eq!(proxy.query("none.example", "A").rcode(), rcode);
            assert_eq!(upstream.count("none.example"), count);
        }
    }
}

/// RFC 2308 section 5: NODATA is for one type. Whether NXDOMAIN for one type applies to others is left to the
/// upstream (the key is name and type).
#[test]
fn no_data_is_about_one_type() {
    let upstream = Upstream::zone(&[
        "www.example. 300 A 192.0.2.1",
        "example. 300 SOA ns.example. root.example. 1 2 3 4 300",
    ]);
    let proxy = cached(&upstream, "");
    for _ in 0..2 {
        assert_eq!(proxy.query("www.example", "AAAA").answers.len(), 0);
        assert_eq!(
            proxy.query("www.example", "A").answers(),
            ["www.example. A 192.0.2.1"]
        );
    }
    assert_eq!(upstream.count("www.example"), 2);
}

/// RFC 2308 section 2.1: NXDOMAIN after an alias is for the alias's target; both are cached together, for the
/// shorter TTL.
#[test]
fn a_denial_behind_an_alias_is_kept_with_it() {
    let upstream = Upstream::zone(&[
        "www.example. 300 CNAME gone.example.",
        "example. 300 SOA ns.example. root.example. 1 2 3 4 300",
    ]);
    let proxy = cached(&upstream, "");
    for _ in 0..2 {
        let answer = proxy.query("www.example", "A");
        assert_eq!(answer.rcode(), "NXDOMAIN");
        assert_eq!(answer.answers(), ["www.example. CNAME gone.example."]);
        assert_eq!(answer.authority.len(), 1);
    }
    assert_eq!(upstream.count("www.example"), 1);
}

/// RFC 9520 section 3.2: failures are cached for at least 1 s and at most 5 min.
#[test]
fn failures_are_kept_briefly() {
    let upstream = denying("SERVFAIL", None);
    let proxy = cached(&upstream, "failure \"1s\"");
    assert_eq!(proxy.query("fail.example", "A").rcode(), "SERVFAIL");
    let begun = Instant::now();
    let asked = upstream.count("fail.example");
    assert_eq!(proxy.query("fail.example", "A").rcode(), "SERVFAIL");
    assert!(upstream.count("fail.example") == asked || begun.elapsed() > Duration::from_millis(900));
    proxy.await_metric("dnsweir_cache_hits_total", &[("type", "failure")], 1.0);
    until("the failure to be forgotten", || {
        proxy.query("fail.example", "A");
        upstream.count("fail.example") > asked
    });
    // Another type is a different question.
    let asked = upstream.count("fail.example");
    proxy.query("fail.example", "AAAA");
    assert!(upstream.count("fail.example") > asked);
}

/// The same for servers that do not answer: one client waits, the next one gets the failure immediately.
#[test]
fn silence_is_a_failure_that_is_kept() {
    let upstream = Upstream::start(|_| Reply::Silence);
    let proxy = cached_within(&upstream, "failure \"1m\"", "timeout \"200ms\"; deadline \"1s\"");
    assert_eq!(proxy.query("fail.example", "A").rcode(), "SERVFAIL");
    let asked = upstream.count("fail.example");
    let answer = proxy.query_edns("fail.example", "A");
    assert_eq!(answer.rcode(), "SERVFAIL");
    // 13: Cached Error (RFC 8914 section 4.14).
    assert!(answer.extended_errors().contains(&13), "{answer}");
    assert_eq!(upstream.count("fail.example"), asked);
}

/// The standard's bounds apply to the configuration.
#[test]
fn failures_cannot_be_kept_longer_than_five_minutes() {
    for (failure, valid) in [("999ms", false), ("1s", true), ("5m", true), ("301s", false)] {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let file = folder.path().join("dnsweir.kdl");
        let text = format!(
            "listen \"127.0.0.1\"\nzone \".\" {{\n    cache {{ failure \"{failure}\" }}\n    forward \"192.0.2.1\"\n}}\n"
        );
        std::fs::write(&file, text).expect("a configuration file");
        assert_eq!(
            crate::harness::proxy::check(&file).status.success(),
            valid,
            "{failure}"
        );
    }
}
