//! `nodecache`: cache policies by name.

use super::{anything, start};
use crate::harness::{Proxy, Upstream, eventually, forward_once};

fn below(config: &str, upstream: &Upstream) -> Proxy {
    start(
        "nodecache",
        config,
        "cache { serve-stale \"1h\" }; use \"f\"",
        upstream,
    )
}

/// The number of upstream queries for two client queries.
fn asked_for_two(proxy: &Proxy, upstream: &Upstream, name: &str) -> usize {
    for _ in 0..2 {
        assert_eq!(proxy.query(name, "A").rcode(), "NOERROR");
    }
    upstream.count(name)
}

/// Above or below the cache, excluded names are not cached.
#[test]
fn names_can_be_kept_out_of_the_cache() {
    for pipeline in ["use \"f\"; cache", "cache; use \"f\""] {
        let upstream = anything();
        let config = "no-cache \"dev.test\" \"live.test\"\ncache \"kept.dev.test\"";
        let proxy = start("nodecache", config, pipeline, &upstream);
        assert_eq!(asked_for_two(&proxy, &upstream, "api.dev.test"), 2, "{pipeline}");
        assert_eq!(asked_for_two(&proxy, &upstream, "dev.test"), 2, "{pipeline}");
        assert_eq!(asked_for_two(&proxy, &upstream, "live.test"), 2, "{pipeline}");
        assert_eq!(asked_for_two(&proxy, &upstream, "kept.dev.test"), 1, "{pipeline}");
        assert_eq!(asked_for_two(&proxy, &upstream, "dev2.test"), 1, "{pipeline}");
    }
}

#[test]
fn ttls_are_bounded_by_name() {
    let upstream = Upstream::start(|asked| {
        let ttl = if asked.name().starts_with("short") {
            1
        } else {
            3000
        };
        asked.answer(&[&format!("{} {ttl} A 192.0.2.1", asked.name())])
    });
    let proxy = below(
        "ttl \"prod.test\" max=\"10s\"\nttl \"slow.test\" min=\"100s\"\nttl \"x.prod.test\" max=\"5s\" match=\"exact\"",
        &upstream,
    );
    assert_eq!(proxy.query("api.prod.test", "A").ttl(), 10);
    assert_eq!(proxy.query("x.prod.test", "A").ttl(), 5);
    assert_eq!(proxy.query("y.x.prod.test", "A").ttl(), 10);
    assert_eq!(proxy.query("short.slow.test", "A").ttl(), 100);
    assert_eq!(proxy.query("other.test", "A").ttl(), 3000);
    // Below the cache, the bound applies to the cached TTL.
    assert!((90..=100).contains(&proxy.query("short.slow.test", "A").ttl()));
    assert_eq!(upstream.count("short.slow.test"), 1);
}

/// A namespace stands for its services and pods, in the zones that use the filter.
#[test]
fn namespaces_have_policies() {
    let upstream = anything();
    let proxy = Proxy::start(&format!(
        "filter \"f\" {{ module \"builtin:nodecache\"; limits time=\"1s\"; config {{ no-cache namespace=\"dev\" }} }}\n\
         zone \"cluster.local\" {{ cache; use \"f\"; {} }}",
        forward_once(upstream.address)
    ));
    assert_eq!(asked_for_two(&proxy, &upstream, "api.dev.svc.cluster.local"), 2);
    assert_eq!(
        asked_for_two(&proxy, &upstream, "10-0-0-1.dev.pod.cluster.local"),
        2
    );
    assert_eq!(asked_for_two(&proxy, &upstream, "api.prod.svc.cluster.local"), 1);
}

/// Stale answers for some names and not for others.
#[test]
fn stale_answers_can_be_forbidden_by_name() {
    let upstream = Upstream::start(|asked| asked.answer(&[&format!("{} 1 A 192.0.2.1", asked.name())]));
    let proxy = below(
        "stale #false \"fresh.test\"\nstale #true \"stale.fresh.test\"",
        &upstream,
    );
    for name in ["fresh.test", "stale.fresh.test", "other.test"] {
        proxy.query(name, "A");
    }
    drop(upstream);
    for (name, stale) in [
        ("other.test", true),
        ("stale.fresh.test", true),
        ("fresh.test", false),
    ] {
        let answer = eventually("the entry to end", || {
            let answer = proxy.query_edns(name, "A");
            (answer.rcode() == "SERVFAIL" || !answer.extended_errors().is_empty()).then_some(answer)
        });
        assert_eq!(answer.extended_errors().contains(&3), stale, "{name}: {answer}");
        assert_eq!(answer.rcode() == "NOERROR", stale, "{name}: {answer}");
    }
}
