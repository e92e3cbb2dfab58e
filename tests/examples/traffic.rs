//! `traffic`: what was asked is in the metrics.

use super::{anything, documented};
use crate::harness::Proxy;

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
