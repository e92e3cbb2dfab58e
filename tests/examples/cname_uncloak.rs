//! `cname-uncloak`: aliases of names that another filter blocks.

use super::documented;
use crate::harness::guests::example;
use crate::harness::{Proxy, Upstream};

fn upstream() -> Upstream {
    Upstream::zone(&[
        "metrics.shop.test. 300 CNAME x.cdn.test.",
        "x.cdn.test. 300 CNAME t.tracker.example.",
        "t.tracker.example. 300 A 192.0.2.66",
        "www.shop.test. 300 CNAME edge.cdn.test.",
        "edge.cdn.test. 300 A 192.0.2.1",
    ])
}

/// The documented configuration with these replacements.
fn start(upstream: &Upstream, replaced: &[(&str, &str)]) -> Proxy {
    let block_list = example("block-list").display().to_string();
    let module = ("example_block_list.wasm", block_list.as_str());
    Proxy::start(&documented(
        "cname-uncloak",
        upstream.address,
        &[&[module], replaced].concat(),
    ))
}

#[test]
fn the_documented_configuration_blocks_aliases() {
    let upstream = upstream();
    let proxy = start(&upstream, &[]);
    // The second time from the cache.
    for _ in 0..2 {
        let tracker = proxy.query_edns("metrics.shop.test", "A");
        assert_eq!(
            (tracker.rcode().as_str(), tracker.answers.len()),
            ("NXDOMAIN", 0),
            "{tracker}"
        );
        assert_eq!(tracker.extended_errors(), [15], "{tracker}");
        assert_eq!(
            proxy.query("www.shop.test", "A").answers(),
            [
                "www.shop.test. CNAME edge.cdn.test.",
                "edge.cdn.test. A 192.0.2.1"
            ]
        );
    }
    // A name in the chain is looked up once, and a blocked one never.
    assert_eq!(upstream.count("edge.cdn.test"), 1);
    assert_eq!(upstream.count("t.tracker.example"), 0);
    let uncloaked = [("filter", "cname-uncloak"), ("name", "uncloaked")];
    assert_eq!(
        proxy.metrics().sum("dnsweir_filter_counter_total", &uncloaked),
        2.0
    );
}

#[test]
fn names_that_are_allowed_lead_anywhere() {
    let upstream = upstream();
    let module = "module \"example_cname_uncloak.wasm\"";
    let allow = format!("{module}\nconfig {{ allow \"metrics.shop.test\" }}");
    let proxy = start(&upstream, &[(module, &allow)]);
    assert_eq!(proxy.query("metrics.shop.test", "A").answers.len(), 3);
}
