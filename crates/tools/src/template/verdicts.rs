//! Tests the filter's verdicts without a proxy. `cargo test` runs this on your machine.
#![cfg(not(target_family = "wasm"))]

use std::time::Duration;

use dnsweir_filter::test::{self, Running, node};
use dnsweir_filter::{Rcode, Type, Verdict};
use {crate}::{Type};

const HOUR: Duration = Duration::from_secs(3600);

fn start() -> Running<{Type}> {
    let config = [
        node("answer").arg("hello.example").arg("192.0.2.1"),
        node("block").arg("ads.example"),
    ];
    test::start(config).expect("a valid configuration")
}

#[test]
fn blocked_names_do_not_exist() {
    let mut filter = start();
    for name in ["ads.example", "banner.ads.example"] {
        let verdict = filter.query(&test::query(name, Type::A));
        assert_eq!(verdict, Verdict::refuse(Rcode::NXDOMAIN).remember(HOUR), "{name}");
    }
    assert_eq!(filter.counter("blocked"), 2);
}

#[test]
fn other_names_pass() {
    let verdict = start().query(&test::query("below.hello.example", Type::A));
    assert_eq!(verdict, Verdict::pass().remember(HOUR));
}

#[test]
fn mistakes_are_pointed_at() {
    let config = [
        node("block").arg("ads.example"),
        node("blok").arg("tracker.example"),
    ];
    let mistakes = test::start::<{Type}>(config).expect_err("a mistake");
    assert_eq!(mistakes[0].message, "this filter knows no `blok`");
}
