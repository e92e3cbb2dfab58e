//! Names with only IPv4 addresses, for hosts with only IPv6.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::net::Ipv6Addr;
use std::time::Duration;

use dnsweir_filter::test::{self, Running, node, query};
use dnsweir_filter::{
    Answer, FromValue, LookupStatus, NameBuf, Rcode, Rdata, ResponseEdit, ResponseVerdict, Section, Selector,
    Type, Value, Verdict,
};
use dnsweir_filter_dns64::{Dns64, Translation};

fn name(text: &str) -> NameBuf {
    text.parse().unwrap()
}

fn start() -> Running<Dns64> {
    let mut filter = test::start([]).unwrap();
    let answer = Answer::noerror()
        .record(
            &name("old.test"),
            Duration::from_secs(300),
            Rdata::Cname(name("web.test")),
        )
        .record(
            &name("web.test"),
            Duration::from_secs(30),
            Rdata::A([192, 0, 2, 33].into()),
        );
    Running::finds(&mut filter, "old.test", Type::A, answer);
    filter
}

/// The examples of RFC 6052 section 2.4.
#[test]
fn addresses_are_embedded_as_the_rfc_has_it() {
    for (prefix, expected) in [
        ("2001:db8::/32", "2001:db8:c000:221::"),
        ("2001:db8:100::/40", "2001:db8:1c0:2:21::"),
        ("2001:db8:122::/48", "2001:db8:122:c000:2:2100::"),
        ("2001:db8:122:300::/56", "2001:db8:122:3c0:0:221::"),
        ("2001:db8:122:344::/64", "2001:db8:122:344:c0:2:2100::"),
        ("2001:db8:122:344::/96", "2001:db8:122:344::192.0.2.33"),
        ("64:ff9b::/96", "64:ff9b::192.0.2.33"),
    ] {
        let translation = Translation::from_value(Value::Text(prefix)).unwrap();
        let expected: Ipv6Addr = expected.parse().unwrap();
        assert_eq!(
            translation.embed([192, 0, 2, 33].into()),
            Some(expected),
            "{prefix}"
        );
        let reverse = NameBuf::reverse(expected.into());
        assert_eq!(
            translation.extract(reverse.as_name()),
            Some([192, 0, 2, 33].into()),
            "{prefix}"
        );
    }
    // The well-known prefix is only for globally reachable addresses.
    assert_eq!(Translation::WELL_KNOWN.embed([10, 0, 0, 1].into()), None);
}

/// The answer to an AAAA query for a name without such records.
fn translated(ttls: [u64; 2]) -> ResponseVerdict {
    let address: Ipv6Addr = "64:ff9b::192.0.2.33".parse().unwrap();
    let [alias, record] = ttls.map(Duration::from_secs);
    let answer = Answer::noerror()
        .record(&name("old.test"), alias, Rdata::Cname(name("web.test")))
        .record(&name("web.test"), record, Rdata::Aaaa(address));
    ResponseVerdict::replace(answer)
}

/// A message with an SOA record in the authority section, with this TTL.
fn denial(ttl: u32) -> Vec<u8> {
    let mut message = test::message("old.test", Type::AAAA, []);
    message[9] = 1;
    message.extend(b"\0\0\x06\0\x01");
    message.extend(ttl.to_be_bytes());
    message.extend([&[0, 22][..], &[0; 22]].concat());
    message
}

#[test]
fn a_name_without_ipv6_addresses_gets_translated_ones() {
    let mut filter = start();
    let empty = test::response(query("old.test", Type::AAAA)).message(&denial(120));
    let told = filter.response(&empty);
    assert_eq!(told, translated([120, 30]));
    assert_eq!(filter.asked(), ["old.test. A below"]);
    // Ten minutes if there is no SOA.
    let failed = test::response(query("old.test", Type::AAAA)).rcode(Rcode::SERVFAIL);
    let told = filter.response(&failed.records([]));
    assert_eq!(told, translated([300, 30]));
}

#[test]
fn what_cannot_be_found_out_is_an_error() {
    let mut filter = start();
    filter.loses("lost.test", Type::A, LookupStatus::TimedOut);
    let empty = || test::response(query("lost.test", Type::AAAA)).records([]);
    let servfail = ResponseVerdict::replace(Answer::new(Rcode::SERVFAIL));
    assert_eq!(filter.response(&empty()), servfail);
}

#[test]
fn excluded_addresses_are_left_out_of_others() {
    let mut filter = start();
    let record = |text: &str| ("old.test", Rdata::Aaaa(text.parse().unwrap()));
    let mixed = ["::ffff:192.0.2.1", "2001:db8::1", "::ffff:192.0.2.2"].map(record);
    let answer = Selector::all().section(Section::Answer);
    let edit = ResponseEdit::new()
        .remove(answer.clone().index(2))
        .remove(answer.clone().index(0));
    let response = test::response(query("old.test", Type::AAAA)).records(mixed);
    assert_eq!(filter.response(&response), ResponseVerdict::edit(edit));
    assert!(filter.asked().is_empty());
    // If there is no other address, it counts as none at all.
    let response = test::response(query("other.test", Type::AAAA)).records([record("::ffff:192.0.2.1")]);
    let edit = ResponseEdit::new().remove(answer.index(0));
    assert_eq!(filter.response(&response), ResponseVerdict::edit(edit));
    assert_eq!(filter.asked(), ["other.test. A below"]);
}

#[test]
fn others_stay_as_they_are() {
    let mut filter = start();
    let native = Rdata::Aaaa("2001:db8::1".parse().unwrap());
    let response = test::response(query("old.test", Type::AAAA)).records([("old.test", native)]);
    assert_eq!(filter.response(&response), ResponseVerdict::pass());
    let missing = test::response(query("old.test", Type::AAAA)).rcode(Rcode::NXDOMAIN);
    assert_eq!(filter.response(&missing), ResponseVerdict::pass());
    let validating = query("old.test", Type::AAAA).edns(1232, true).header(0x0110);
    assert_eq!(
        filter.response(&test::response(validating)),
        ResponseVerdict::pass()
    );
    assert!(filter.asked().is_empty());
    // There is no A record either.
    let other = test::response(query("other.test", Type::AAAA)).records([]);
    assert_eq!(filter.response(&other), ResponseVerdict::pass());
}

#[test]
fn translated_addresses_have_the_names_of_the_originals() {
    let mut filter = start();
    let reverse = |text: &str| NameBuf::reverse(text.parse().unwrap());
    let asked = reverse("64:ff9b::192.0.2.33").to_string();
    let verdict = filter.query(&query(&asked, Type::PTR));
    assert_eq!(verdict, Verdict::alias(reverse("192.0.2.33")));
    let other = reverse("2001:db8::1").to_string();
    assert_eq!(filter.query(&query(&other, Type::PTR)), Verdict::pass());
}

#[test]
fn a_prefix_of_another_length_is_a_mistake() {
    assert!(test::start::<Dns64>([node("prefix").arg("64:ff9b::/80")]).is_err());
}
