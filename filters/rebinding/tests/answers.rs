//! Which addresses are removed from which answers.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::net::Ipv4Addr;

use dnsweir_filter::test::{self, Node, Running, node};
use dnsweir_filter::{
    Answer, ExtendedError, Rcode, Rdata, ResponseEdit, ResponseVerdict, Section, Selector, Type,
};
use dnsweir_filter_rebinding::Rebinding;

fn start(config: impl IntoIterator<Item = Node>) -> Running<Rebinding> {
    test::start(config).unwrap()
}

fn address(text: &str) -> Rdata {
    Rdata::address(text.parse().unwrap())
}

fn verdict(filter: &mut Running<Rebinding>, name: &str, data: Vec<Rdata>) -> ResponseVerdict {
    let records = data.into_iter().map(|data| (name, data));
    filter.response(&test::response(test::query(name, Type::A)).records(records))
}

/// Removes these records of the answer section, given last to first.
fn without(indexes: &[u32]) -> ResponseVerdict {
    let edit = ResponseEdit::new().error(ExtendedError::new(17).text("private address"));
    ResponseVerdict::edit(indexes.iter().fold(edit, |edit, &index| {
        edit.remove(Selector::all().section(Section::Answer).index(index))
    }))
}

#[test]
fn private_addresses_go_and_others_stay() {
    let mut filter = start([]);
    for private in [
        "0.0.0.0",
        "10.1.2.3",
        "100.127.0.1",
        "127.0.0.1",
        "169.254.169.254",
        "172.31.255.255",
        "192.168.1.1",
        "::",
        "::1",
        "fd12::1",
        "fe80::1",
        "::ffff:192.168.1.1",
        "64:ff9b::192.168.1.1",
    ] {
        assert_eq!(
            verdict(&mut filter, "evil.test", vec![address(private)]),
            without(&[0]),
            "{private}"
        );
    }
    for public in [
        "192.0.2.1",
        "172.32.0.1",
        "100.128.0.1",
        "2001:db8::1",
        "64:ff9b::192.0.2.1",
        "::2",
    ] {
        assert_eq!(
            verdict(&mut filter, "good.test", vec![address(public)]),
            ResponseVerdict::pass(),
            "{public}"
        );
    }
    assert_eq!(filter.counter("stripped"), 13);
}

#[test]
fn of_several_records_only_the_private_ones_go() {
    let data = vec![
        Rdata::Cname("other.test.".parse().unwrap()),
        address("10.0.0.1"),
        address("192.0.2.1"),
        address("10.0.0.2"),
    ];
    assert_eq!(verdict(&mut start([]), "evil.test", data), without(&[3, 1]));
}

#[test]
fn hints_of_services_count() {
    let hint = |text: &str| {
        let address: Ipv4Addr = text.parse().unwrap();
        let service = b"\0\x01\x03svc\x04test\0\0\x04\0\x04";
        Rdata::Other(Type::HTTPS, [&service[..], &address.octets()].concat())
    };
    assert_eq!(
        verdict(&mut start([]), "evil.test", vec![hint("192.168.1.1")]),
        without(&[0])
    );
    assert_eq!(
        verdict(&mut start([]), "good.test", vec![hint("192.0.2.1")]),
        ResponseVerdict::pass()
    );
}

#[test]
fn what_is_allowed_and_what_is_added() {
    let config = || {
        [
            node("allow").arg("home.test"),
            node("private").arg("192.0.2.0/24"),
        ]
    };
    let mut filter = start(config());
    for allowed in ["home.test", "nas.home.test"] {
        assert_eq!(
            verdict(&mut filter, allowed, vec![address("10.0.0.1")]),
            ResponseVerdict::pass()
        );
    }
    assert_eq!(
        verdict(&mut filter, "nothome.test", vec![address("10.0.0.1")]),
        without(&[0])
    );
    assert_eq!(
        verdict(&mut filter, "evil.test", vec![address("192.0.2.1")]),
        without(&[0])
    );
}

#[test]
fn what_cannot_be_read_is_not_relayed() {
    let response = test::response(test::query("evil.test", Type::A))
        .message(b"no message")
        .answers(1, 300);
    assert_eq!(
        start([]).response(&response),
        ResponseVerdict::replace(Answer::new(Rcode::SERVFAIL))
    );
}
