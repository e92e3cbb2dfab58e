//! How events are counted.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::time::Duration;

use dnsweir_filter::test::{Running, event, node, query, start};
use dnsweir_filter::{Rcode, Source, Type};
use example_traffic::Traffic;

fn counted(filter: &Running<Traffic>, qtype: &str, rcode: &str, source: &str) -> u64 {
    filter.counter_with(
        "queries",
        &[("type", qtype), ("rcode", rcode), ("source", source)],
    )
}

#[test]
fn there_are_few_counters_whatever_is_asked() {
    let mut filter: Running<Traffic> = start([node("prefix").prop("ipv4", 24)]).unwrap();
    for _ in 0..2 {
        filter.event(&event(query("www.example", Type::A)).source(Source::Cache));
    }
    filter.event(&event(query("www.example", Type::AAAA)).rcode(Rcode::NXDOMAIN));
    filter.event(&event(query("a.example", Type(4711))).source(Source::Upstream));
    filter.event(&event(query("b.example", Type(4712))).source(Source::Upstream));
    filter.event(
        &event(query("b.example", Type::A))
            .dropped()
            .duration(Duration::from_secs(2)),
    );
    assert_eq!(counted(&filter, "A", "NOERROR", "cache"), 2);
    assert_eq!(counted(&filter, "other", "NOERROR", "upstream"), 2);
    let sources = ["upstream", "cache", "stale", "filter", "local"];
    let sum = |qtype: &str, rcode: &str| -> u64 {
        sources
            .iter()
            .map(|source| counted(&filter, qtype, rcode, source))
            .sum()
    };
    assert_eq!(sum("AAAA", "NXDOMAIN"), 1);
    assert_eq!(sum("A", "dropped"), 1);
}

#[test]
fn mistakes_are_found() {
    for node in [
        node("prefix").prop("ipv4", 33),
        node("window").arg("soon"),
        node("slow").arg(1),
    ] {
        assert_eq!(start::<Traffic>([node]).unwrap_err().len(), 1);
    }
}
