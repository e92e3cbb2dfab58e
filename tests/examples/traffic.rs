//! `traffic`: what was asked is in the metrics.

use super::{anything, documented};
use crate::harness::Proxy;

#[test]
fn the_documented_configuration_shows_what_was_asked() {
    let upstream = anything();
    let proxy = Proxy::start(&documented("traffic", upstream.address, &[]));
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
    of("clients", "127.0.0.0/24", 3.0);
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
