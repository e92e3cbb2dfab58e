//! `traffic`: queries as metrics.

use super::{anything, documented, start};
use crate::harness::{Proxy, Upstream};

#[test]
fn the_documented_configuration_shows_what_was_asked() {
    let upstream = anything();
    let replaced = [
        ("window \"15m\"", "window \"1h\"; slow \"1m\""),
        ("prefix ipv4=24 ipv6=64", "prefix ipv4=16 ipv6=48"),
    ];
    let proxy = Proxy::start(&documented("traffic", upstream.address, &replaced));
    for name in ["www.example", "www.example", "other.example"] {
        proxy.query(name, "A");
    }
    let value = "dnsweir_filter_table_value";
    let of = |table, key, count| {
        let labels = [("filter", "traffic"), ("table", table), ("key", key)];
        proxy.await_metric(value, &labels, count);
    };
    of("names", "www.example.", 2.0);
    of("names", "other.example.", 1.0);
    of("clients", "127.0.0.0/16", 3.0);
    // Nothing has failed, and nothing took a minute.
    let metrics = proxy.metrics();
    for table in ["failing", "slow"] {
        assert!(!metrics.has(value, &[("table", table)]), "{table}");
    }
    for (source, count) in [("upstream", 2.0), ("cache", 1.0)] {
        let labels = [
            ("name", "queries"),
            ("type", "A"),
            ("rcode", "NOERROR"),
            ("source", source),
        ];
        proxy.await_metric("dnsweir_filter_counter_total", &labels, count);
    }
}

/// Failing and slow names have separate tables.
#[test]
fn failing_and_slow_names_are_told() {
    let upstream = Upstream::start(|asked| match asked.name().trim_end_matches('.') {
        "broken.example" => asked.denial("SERVFAIL", None),
        "gone.example" => asked.denial(
            "NXDOMAIN",
            Some("example. 300 SOA ns.example. root.example. 1 2 3 4 300"),
        ),
        _ => asked.answer(&[&format!("{} 300 A 192.0.2.1", asked.name())]),
    });
    // No duration is shorter than this: every query counts as slow.
    let proxy = start("traffic", "slow \"0ms\"", &upstream);
    for name in ["broken.example", "gone.example", "www.example", "www.example"] {
        proxy.query(name, "A");
    }
    let of = |table, key, count| {
        let labels = [("filter", "f"), ("table", table), ("key", key)];
        proxy.await_metric("dnsweir_filter_table_value", &labels, count);
    };
    for (name, count) in [
        ("broken.example.", 1.0),
        ("gone.example.", 1.0),
        ("www.example.", 2.0),
    ] {
        of("names", name, count);
        of("slow", name, count);
    }
    of("failing", "broken.example.", 1.0);
    let failing = proxy.metrics().values("dnsweir_filter_table_value", "table");
    assert_eq!(
        failing,
        ["clients", "failing", "names", "slow"].map(str::to_owned).into()
    );
    for name in ["gone.example.", "www.example."] {
        let labels = [("table", "failing"), ("key", name)];
        assert!(
            !proxy.metrics().has("dnsweir_filter_table_value", &labels),
            "{name}"
        );
    }
}
