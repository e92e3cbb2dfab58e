//! Every option of the README, and its effect on answers.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::net::IpAddr;
use std::time::Duration;

use dnsweir_filter::test::{self, Node, Running, node};
use dnsweir_filter::{Answer, Class, Manifest, NameBuf, Rcode, Rdata, Soa, Type, Verdict};
use dnsweir_filter_hosts::Hosts;

const HOUR: Duration = Duration::from_secs(3600);

fn start(config: impl IntoIterator<Item = Node>) -> Running<Hosts> {
    test::start::<Hosts>(config).unwrap()
}

fn host(name: &str, addresses: &[&str]) -> Node {
    addresses
        .iter()
        .fold(node("host").arg(name), |node, address| node.arg(*address))
}

fn name(text: &str) -> NameBuf {
    text.parse().unwrap()
}

fn answer(answer: Answer) -> Verdict {
    Verdict::answer(answer.authoritative()).remember(HOUR)
}

/// An answer with these addresses, in this order.
fn addresses(owner: &str, ttl: u64, addresses: &[&str]) -> Verdict {
    let owner = name(owner);
    answer(addresses.iter().fold(Answer::noerror(), |answer, address| {
        let address: IpAddr = address.parse().unwrap();
        answer.record(&owner, Duration::from_secs(ttl), Rdata::address(address))
    }))
}

fn pointers(owner: NameBuf, names: &[&str]) -> Verdict {
    answer(names.iter().fold(Answer::noerror(), |answer, pointer| {
        answer.record(&owner, HOUR, Rdata::Ptr(name(pointer)))
    }))
}

/// Without a zone in the configuration, the name serves as its own zone.
fn nodata(owner: &str, ttl: Duration) -> Verdict {
    answer(Answer::nodata(&Soa::new(name(owner), ttl)))
}

fn pass() -> Verdict {
    Verdict::pass().remember(HOUR)
}

fn ask(filter: &mut Running<Hosts>, name: &str, qtype: Type) -> Verdict {
    filter.query(&test::query(name, qtype))
}

#[test]
fn hosts_have_their_addresses_in_the_order_written() {
    let mut filter = start([
        host("hello.demo.test", &["127.0.0.53", "::1", "127.0.0.1"]),
        host("Hello.demo.test.", &["127.0.0.9"]),
    ]);
    let a = addresses("hello.demo.test", 3600, &["127.0.0.53", "127.0.0.1", "127.0.0.9"]);
    assert_eq!(ask(&mut filter, "hello.demo.test", Type::A), a);
    assert_eq!(
        ask(&mut filter, "hello.demo.test", Type::AAAA),
        addresses("hello.demo.test", 3600, &["::1"])
    );
    let all = addresses(
        "hello.demo.test",
        3600,
        &["127.0.0.53", "::1", "127.0.0.1", "127.0.0.9"],
    );
    assert_eq!(ask(&mut filter, "hello.demo.test", Type::ANY), all);
    // The name exists, the type does not.
    assert_eq!(
        ask(&mut filter, "hello.demo.test", Type::MX),
        nodata("hello.demo.test", HOUR)
    );
    for other in ["demo.test", "x.hello.demo.test", "example.org"] {
        assert_eq!(ask(&mut filter, other, Type::A), pass(), "{other}");
    }
    let chaos = test::query("hello.demo.test", Type::A).class(Class::CH);
    assert_eq!(filter.query(&chaos), pass());
}

#[test]
fn the_ttl_is_what_is_written() {
    let mut filter = start([host("a.test", &["192.0.2.1"]), node("ttl").arg("60s")]);
    assert_eq!(
        ask(&mut filter, "a.test", Type::A),
        addresses("a.test", 60, &["192.0.2.1"])
    );
}

#[test]
fn addresses_have_their_names() {
    let config = [
        host("a.test", &["192.0.2.1"]),
        host("b.test", &["192.0.2.1", "2001:db8::1"]),
        host("*.w.test", &["192.0.2.2"]),
    ];
    let mut filter = start(config.clone());
    let v4 = NameBuf::reverse([192, 0, 2, 1].into());
    let v6 = NameBuf::reverse("2001:db8::1".parse().unwrap());
    assert_eq!(
        ask(&mut filter, &v4.to_string(), Type::PTR),
        pointers(v4.clone(), &["a.test", "b.test"])
    );
    assert_eq!(
        ask(&mut filter, &v4.to_string(), Type::ANY),
        pointers(v4.clone(), &["a.test", "b.test"])
    );
    assert_eq!(
        ask(&mut filter, &v4.to_string(), Type::A),
        nodata(&v4.to_string(), HOUR)
    );
    assert_eq!(
        ask(&mut filter, &v6.to_string(), Type::PTR),
        pointers(v6.clone(), &["b.test"])
    );
    assert_eq!(ask(&mut filter, "2.2.0.192.in-addr.arpa", Type::PTR), pass());
    assert_eq!(ask(&mut filter, "2.0.192.in-addr.arpa", Type::PTR), pass());
    let mut off = start(config.into_iter().chain([node("reverse").arg(false)]));
    assert_eq!(ask(&mut off, &v4.to_string(), Type::PTR), pass());
}

#[test]
fn wildcards_cover_names_that_do_not_exist() {
    let mut filter = start([
        host("*.apps.test", &["192.0.2.1"]),
        host("db.eu.apps.test", &["192.0.2.2"]),
        host("*.eu.apps.test", &["::2"]),
        host("db.us.apps.test", &["192.0.2.3"]),
    ]);
    assert_eq!(
        ask(&mut filter, "x.apps.test", Type::A),
        addresses("x.apps.test", 3600, &["192.0.2.1"])
    );
    assert_eq!(
        ask(&mut filter, "x.y.apps.test", Type::A),
        addresses("x.y.apps.test", 3600, &["192.0.2.1"])
    );
    assert_eq!(
        ask(&mut filter, "*.apps.test", Type::A),
        addresses("*.apps.test", 3600, &["192.0.2.1"])
    );
    assert_eq!(
        ask(&mut filter, "x.apps.test", Type::AAAA),
        nodata("x.apps.test", HOUR)
    );
    // It covers neither the name itself, nor a listed name, nor names below one.
    assert_eq!(ask(&mut filter, "apps.test", Type::A), pass());
    assert_eq!(
        ask(&mut filter, "db.us.apps.test", Type::A),
        addresses("db.us.apps.test", 3600, &["192.0.2.3"])
    );
    assert_eq!(ask(&mut filter, "x.db.us.apps.test", Type::A), pass());
    // `us.apps.test` exists, because a name below it does.
    assert_eq!(ask(&mut filter, "us.apps.test", Type::A), pass());
    assert_eq!(ask(&mut filter, "x.us.apps.test", Type::A), pass());
    // The closest wildcard applies.
    assert_eq!(
        ask(&mut filter, "x.eu.apps.test", Type::AAAA),
        addresses("x.eu.apps.test", 3600, &["::2"])
    );
    assert_eq!(
        ask(&mut filter, "x.eu.apps.test", Type::A),
        nodata("x.eu.apps.test", HOUR)
    );
    let mut root = start([host("*", &["192.0.2.9"])]);
    assert_eq!(
        ask(&mut root, "any.name.test", Type::A),
        addresses("any.name.test", 3600, &["192.0.2.9"])
    );
}

#[test]
fn a_zone_holds_nothing_but_the_table() {
    let mut filter = start([
        node("zone").arg("demo.test").arg("2.0.192.in-addr.arpa"),
        host("a.b.demo.test", &["192.0.2.1"]),
        host("*.w.demo.test", &["192.0.2.2"]),
        host("outside.test", &["192.0.3.1"]),
        node("ttl").arg("30s"),
    ]);
    let soa = Soa::new(name("demo.test"), Duration::from_secs(30));
    let denied = answer(Answer::nxdomain(&soa));
    let empty = answer(Answer::nodata(&soa));
    assert_eq!(ask(&mut filter, "x.demo.test", Type::A), denied);
    assert_eq!(ask(&mut filter, "x.a.b.demo.test", Type::A), denied);
    assert_eq!(
        ask(&mut filter, "a.b.demo.test", Type::A),
        addresses("a.b.demo.test", 30, &["192.0.2.1"])
    );
    assert_eq!(ask(&mut filter, "a.b.demo.test", Type::TXT), empty);
    assert_eq!(ask(&mut filter, "b.demo.test", Type::A), empty);
    assert_eq!(ask(&mut filter, "w.demo.test", Type::A), empty);
    assert_eq!(ask(&mut filter, "x.w.demo.test", Type::AAAA), empty);
    assert_eq!(ask(&mut filter, "demo.test", Type::A), empty);
    let record = Answer::noerror().record(&soa.zone.clone(), Duration::from_secs(30), Rdata::Soa(soa));
    assert_eq!(ask(&mut filter, "demo.test", Type::SOA), answer(record));
    let arpa = Soa::new(name("2.0.192.in-addr.arpa"), Duration::from_secs(30));
    assert_eq!(
        ask(&mut filter, "7.2.0.192.in-addr.arpa", Type::PTR),
        answer(Answer::nxdomain(&arpa))
    );
    assert_eq!(
        ask(&mut filter, "outside.test", Type::TXT),
        nodata("outside.test", Duration::from_secs(30))
    );
    assert_eq!(ask(&mut filter, "x.outside.test", Type::A), pass());
    assert_eq!(ask(&mut filter, "test", Type::A), pass());
}

#[test]
fn a_zone_may_be_all_there_is() {
    let mut filter = start([node("zone").arg("blocked.test")]);
    assert_eq!(
        filter.manifest(),
        &Manifest::new().queries().at_or_below(&[name("blocked.test")])
    );
    let denied = answer(Answer::nxdomain(&Soa::new(name("blocked.test"), HOUR)));
    assert_eq!(ask(&mut filter, "x.y.blocked.test", Type::A), denied);
}

#[test]
fn ten_thousand_hosts_answer_alike() {
    let hosts: Vec<Node> = (0..10_000u32)
        .map(|number| {
            host(
                &format!("h{number}.test"),
                &[&std::net::Ipv4Addr::from(0x0a00_0000 + number).to_string()],
            )
        })
        .collect();
    let mut filter = start(hosts);
    assert_eq!(
        ask(&mut filter, "h257.test", Type::A),
        addresses("h257.test", 3600, &["10.0.1.1"])
    );
    assert_eq!(
        ask(&mut filter, "1.1.0.10.in-addr.arpa", Type::PTR),
        pointers(name("1.1.0.10.in-addr.arpa"), &["h257.test"])
    );
}

#[test]
fn mistakes_are_told() {
    let told = |config: Vec<Node>| {
        let mistakes = test::start::<Hosts>(config).unwrap_err();
        assert_eq!(mistakes.len(), 1, "{mistakes:?}");
        (mistakes[0].message.clone(), mistakes[0].argument)
    };
    assert_eq!(told(vec![]).0, "no hosts are configured");
    assert_eq!(
        told(vec![host("a.test", &[])]).0,
        "`host` needs an IP address as its second argument"
    );
    assert_eq!(told(vec![host("a.test", &["1.2.3"])]).1, Some(1));
    assert_eq!(
        told(vec![host("a.*.test", &["::1"])]).0,
        "a.*.test. is neither a name nor a wildcard"
    );
    assert_eq!(told(vec![host("*.*.test", &["::1"])]).1, Some(0));
    let twice = told(vec![host("a.test", &["::1"]), host("a.test", &["::2", "::1"])]);
    assert_eq!(twice, ("a.test. has the address ::1 already".to_owned(), Some(2)));
    assert_eq!(
        told(vec![node("zone").arg("a.test").arg("a.test")]).0,
        "the zone a.test. is written twice"
    );
    assert_eq!(
        told(vec![host("a.test", &["::1"]), node("ttl").arg("0.5s")]).1,
        Some(0)
    );
    assert_eq!(
        told(vec![host("a.test", &["::1"]), node("reverse").arg("no")]).1,
        Some(0)
    );
}

#[test]
fn a_hosts_file_is_a_table() {
    let text = "# the machine's own\n127.0.0.1 localhost.test Printer.test # both\n\n\
                fe80::7%eth0 printer.test\nnot an address\n192.0.2.7\tbad..name printer.test printer.test\n";
    let mut filter = start([node("file").arg(text)]);
    let found = ask(&mut filter, "printer.test", Type::A);
    assert_eq!(
        found,
        addresses("printer.test", 3600, &["127.0.0.1", "192.0.2.7"])
    );
    assert_eq!(
        ask(&mut filter, "printer.test", Type::AAAA),
        addresses("printer.test", 3600, &["fe80::7"])
    );
    let reverse = NameBuf::reverse("127.0.0.1".parse().unwrap());
    assert_eq!(
        filter.query(&test::query(&reverse.to_string(), Type::PTR)),
        pointers(reverse, &["localhost.test", "printer.test"])
    );
    assert_eq!(ask(&mut filter, "an.test", Type::A), pass());
}

/// A block list has one address for all names, more than a call may hand over.
#[test]
fn an_address_has_so_many_names_and_no_more() {
    let text: String = (0..5000)
        .map(|number| format!("0.0.0.0 h{number}.test\n"))
        .collect();
    let mut filter = start([node("file").arg(&*text)]);
    let names: Vec<String> = (0..2048).map(|number| format!("h{number}.test")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let reverse = NameBuf::reverse([0, 0, 0, 0].into());
    assert_eq!(
        ask(&mut filter, &reverse.to_string(), Type::PTR),
        pointers(reverse, &names)
    );
    let last = addresses("h4999.test", 3600, &["0.0.0.0"]);
    assert_eq!(ask(&mut filter, "h4999.test", Type::A), last);
}

#[test]
fn unlisted_names_can_be_failures() {
    let config = [host("a.test", &["192.0.2.1"]), node("unlisted").arg("servfail")];
    let mut filter = start(config);
    let servfail = Verdict::answer(Answer::new(Rcode::SERVFAIL)).remember(HOUR);
    assert_eq!(ask(&mut filter, "b.test", Type::MX), servfail);
    assert_eq!(ask(&mut filter, "a.test", Type::MX), nodata("a.test", HOUR));
    assert_eq!(ask(&mut filter, "9.2.0.192.in-addr.arpa", Type::PTR), pass());
}
