//! `dns-lists`: names and addresses on DNS-based lists.

use super::{documented, start, upstream_says};
use crate::harness::upstream::Reply;
use crate::harness::{Proxy, Upstream};

/// Lists with one entry each; every other name has an address.
fn upstream() -> Upstream {
    Upstream::start(|asked| {
        let name = asked.name();
        let soa = Some("list.example. 300 SOA ns.list.example. root.list.example. 1 2 3 4 300");
        match name.as_str() {
            "bad.test.dbl.list.example." => asked.answer(&["bad.test.dbl.list.example. 300 A 127.0.1.2"]),
            "77.2.0.192.zen.list.example." => asked.answer(&["77.2.0.192.zen.list.example. 300 A 127.0.0.2"]),
            "late.test.dbl.list.example." => Reply::Silence,
            list if list.ends_with(".list.example.") => asked.denial("NXDOMAIN", soa),
            "hacked.test." => asked.answer(&["hacked.test. 300 A 192.0.2.77"]),
            _ => asked.answer(&[&format!("{name} 300 A 192.0.2.1")]),
        }
    })
}

fn listed(proxy: &Proxy, by: &str) -> f64 {
    let labels = [("name", "listed"), ("by", by)];
    proxy.metrics().sum("dnsweir_filter_counter_total", &labels)
}

#[test]
fn the_documented_configuration_asks_the_lists() {
    let upstream = upstream();
    // With enough time for the lists.
    let names = "names \"dbl.list.example\"";
    let patient = format!("{names}; time \"10s\"");
    let proxy = Proxy::start(&documented("dns-lists", upstream.address, &[(names, &patient)]));
    for _ in 0..2 {
        for bad in ["bad.test", "hacked.test"] {
            let refused = proxy.query_edns(bad, "A");
            assert_eq!(
                (refused.rcode().as_str(), refused.answers.len()),
                ("NXDOMAIN", 0),
                "{refused}"
            );
            assert_eq!(refused.extended_errors(), [15], "{refused}");
        }
        assert_eq!(proxy.query("www.test", "A").answers(), upstream_says("www.test"));
    }
    // Each worker remembers it for itself.
    assert!([1.0, 2.0].contains(&listed(&proxy, "name")));
    assert_eq!(listed(&proxy, "address"), 2.0);
    assert_eq!(upstream.count("bad.test"), 0);
    for list in [
        "bad.test.dbl.list.example",
        "www.test.dbl.list.example",
        "1.2.0.192.zen.list.example",
    ] {
        assert_eq!(upstream.count(list), 1, "{list}");
    }
}

#[test]
fn a_list_that_does_not_answer_blocks_nothing() {
    let upstream = upstream();
    let proxy = start(
        "dns-lists",
        "names \"dbl.list.example\"; time \"200ms\"",
        &upstream,
    );
    assert_eq!(
        proxy.query("late.test", "A").answers(),
        upstream_says("late.test")
    );
    let late = [("filter", "f"), ("status", "timed-out")];
    assert_eq!(proxy.metrics().sum("dnsweir_filter_lookups_total", &late), 1.0);
}
