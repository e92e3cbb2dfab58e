//! What DNS-based lists say, and its effect on the query.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::time::Duration;

use dnsweir_filter::test::{self, Running, node, query};
use dnsweir_filter::{
    Answer, ExtendedError, LookupStatus, NameBuf, Rcode, Rdata, ResponseVerdict, Type, Verdict,
};
use example_dns_lists::DnsLists;

fn start(node: test::Node) -> Running<DnsLists> {
    test::start([node]).unwrap()
}

fn says(address: [u8; 4], name: &str) -> Answer {
    let name: NameBuf = name.parse().unwrap();
    Answer::noerror().record(&name, Duration::from_secs(90), Rdata::A(address.into()))
}

fn why() -> ExtendedError {
    ExtendedError::BLOCKED.text("on a list in DNS")
}

#[test]
fn names_on_a_list_are_refused_for_as_long_as_it_says() {
    let mut filter = start(node("names").arg("dbl.test").arg("other.test"));
    filter.finds(
        "bad.example.other.test",
        Type::A,
        says([127, 0, 1, 2], "bad.example.other.test"),
    );
    let refused = Verdict::refuse(Rcode::NXDOMAIN)
        .error(why())
        .remember(Duration::from_secs(90));
    assert_eq!(filter.query(&query("bad.example", Type::MX)), refused);
    assert_eq!(
        filter.asked(),
        ["bad.example.dbl.test. A", "bad.example.other.test. A"]
    );
    let minute = Duration::from_secs(60);
    assert_eq!(
        filter.query(&query("good.example", Type::A)),
        Verdict::pass().remember(minute)
    );
    // The filter's own lookup.
    let inner = query("bad.example.dbl.test", Type::A);
    assert_eq!(filter.query(&inner), Verdict::pass());
}

#[test]
fn a_list_that_does_not_answer_lets_everything_pass() {
    let mut filter = start(node("names").arg("dbl.test"));
    filter.loses("www.example.dbl.test", Type::A, LookupStatus::TimedOut);
    assert_eq!(filter.query(&query("www.example", Type::A)), Verdict::pass());
    // "Your resolver may not ask" is not a listing, and neither is the answer of a hijacked list.
    for address in [[127, 255, 255, 254], [192, 0, 2, 1]] {
        filter.finds(
            "www.example.dbl.test",
            Type::A,
            says(address, "www.example.dbl.test"),
        );
        let passed = Verdict::pass().remember(Duration::from_secs(60));
        assert_eq!(filter.query(&query("www.example", Type::A)), passed);
    }
}

#[test]
fn addresses_on_a_list_take_the_answer_with_them() {
    let mut filter = start(node("addresses").arg("zen.test"));
    filter.finds(
        "7.2.0.192.zen.test",
        Type::A,
        says([127, 0, 0, 2], "7.2.0.192.zen.test"),
    );
    let bad = Rdata::A([192, 0, 2, 7].into());
    let response = test::response(query("www.example", Type::A)).records([("www.example", bad)]);
    let replaced = ResponseVerdict::replace(Answer::new(Rcode::NXDOMAIN).error(why()));
    assert_eq!(filter.response(&response), replaced);
    let good = Rdata::A([192, 0, 2, 8].into());
    let response = test::response(query("www.example", Type::A)).records([("www.example", good)]);
    assert_eq!(filter.response(&response), ResponseVerdict::pass());
    assert_eq!(filter.asked(), ["7.2.0.192.zen.test. A", "8.2.0.192.zen.test. A"]);
}

#[test]
fn a_filter_without_a_list_is_a_mistake() {
    assert_eq!(test::start::<DnsLists>([]).unwrap_err().len(), 1);
}
