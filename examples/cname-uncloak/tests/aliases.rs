//! Aliases of blocked names.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use dnsweir_filter::test::{self, Running, node, query};
use dnsweir_filter::{Rdata, ResponseVerdict, Type};
use example_cname_uncloak::CnameUncloak;

fn response() -> test::ResponseLiteral {
    test::response(query("metrics.shop.test", Type::A)).records([
        (
            "metrics.shop.test",
            Rdata::Cname("t.tracker.test.".parse().unwrap()),
        ),
        ("t.tracker.test", Rdata::A([192, 0, 2, 1].into())),
    ])
}

fn start() -> Running<CnameUncloak> {
    test::start([]).unwrap()
}

#[test]
fn the_names_an_answer_leads_through_are_asked_for() {
    let mut filter = start();
    // An upstream's answer, even NXDOMAIN, is not a filter's decision.
    assert_eq!(filter.response(&response()), ResponseVerdict::pass());
    assert_eq!(filter.asked(), ["t.tracker.test. A below"]);
}

#[test]
fn names_that_are_allowed_lead_anywhere() {
    let mut filter: Running<CnameUncloak> = test::start([node("allow").arg("shop.test")]).unwrap();
    assert_eq!(filter.response(&response()), ResponseVerdict::pass());
    assert!(filter.asked().is_empty());
}

#[test]
fn answers_without_aliases_cost_nothing() {
    let mut filter = start();
    let plain = test::response(query("www.test", Type::A));
    let plain = plain.records([("www.test", Rdata::A([192, 0, 2, 1].into()))]);
    assert_eq!(filter.response(&plain), ResponseVerdict::pass());
    assert!(filter.asked().is_empty());
}
