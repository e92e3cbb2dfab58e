//! The effect of each trigger and each action.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::net::SocketAddr;
use std::time::Duration;

use dnsweir_filter::test::{self, QueryLiteral, Running, node};
use dnsweir_filter::{
    Answer, NameBuf, Rcode, Rdata, ResponseEdit, ResponseVerdict, Transport, Type, Verdict,
};
use example_policy_zones::PolicyZones;

const ZONE: &str = "\
$TTL 300
@ SOA ns.rpz.test. root.rpz.test. 1 3600 600 86400 60
@ NS ns.rpz.test.
gone.test CNAME .
*.gone.test CNAME .
empty.test CNAME *.
good.gone.test CNAME rpz-passthru.
quiet.test CNAME rpz-drop.
tcp.test CNAME rpz-tcp-only.
garden.test CNAME wall.corp.test.
*.far.test CNAME *.proxy.corp.test.
local.test A 192.0.2.1
local.test A 192.0.2.2
local.test 60 TXT \"local\"
24.0.2.0.198.rpz-ip CNAME .
128.1.zz.db8.2001.rpz-ip CNAME rpz-passthru.
32.zz.db8.2001.rpz-ip CNAME *.
ns.bad.test.rpz-nsdname CNAME .
";

fn start(text: &str) -> Running<PolicyZones> {
    test::start([node("zone").arg("rpz.test").arg(text)]).unwrap()
}

fn ask(filter: &mut Running<PolicyZones>, name: &str) -> Verdict {
    filter.query(&test::query(name, Type::A))
}

fn held(verdict: Verdict) -> Verdict {
    verdict.remember(Duration::from_secs(60))
}

#[test]
fn policies_about_names() {
    let mut filter = start(ZONE);
    let nxdomain = || held(Verdict::answer(Answer::new(Rcode::NXDOMAIN)));
    let name = |text: &str| text.parse::<NameBuf>().unwrap();
    for (asked, expected) in [
        ("gone.test", nxdomain()),
        ("a.b.gone.test", nxdomain()),
        ("good.gone.test", held(Verdict::pass().skip_response())),
        ("empty.test", held(Verdict::answer(Answer::noerror()))),
        ("quiet.test", held(Verdict::drop_for("policy zone"))),
        ("garden.test", held(Verdict::alias(name("wall.corp.test")))),
        (
            "x.far.test",
            held(Verdict::alias(name("x.far.test.proxy.corp.test"))),
        ),
        ("far.test", held(Verdict::pass())),
        ("www.test", held(Verdict::pass())),
        ("bad.test", held(Verdict::pass())),
    ] {
        assert_eq!(ask(&mut filter, asked), expected, "{asked}");
    }
    assert_eq!(filter.counter_with("hits", &[("zone", "rpz.test.")]), 7);
}

#[test]
fn local_data_is_answered_by_type() {
    let mut filter = start(ZONE);
    let owner: NameBuf = "local.test".parse().unwrap();
    let minutes = Duration::from_secs(300);
    let answer = Answer::noerror()
        .record(&owner, minutes, Rdata::Other(Type::A, vec![192, 0, 2, 1]))
        .record(&owner, minutes, Rdata::Other(Type::A, vec![192, 0, 2, 2]));
    assert_eq!(ask(&mut filter, "local.test"), held(Verdict::answer(answer)));
    let other = filter.query(&test::query("local.test", Type::AAAA));
    assert_eq!(other, held(Verdict::answer(Answer::noerror())));
}

#[test]
fn tcp_only_is_for_datagrams() {
    let mut filter = start(ZONE);
    let truncated = Verdict::answer(Answer::noerror()).edit(ResponseEdit::new().truncated(true));
    assert_eq!(ask(&mut filter, "tcp.test"), truncated);
    let over_tcp = test::query("tcp.test", Type::A).transport(Transport::Tcp);
    assert_eq!(filter.query(&over_tcp), Verdict::pass());
}

#[test]
fn policies_about_clients_come_first_and_are_for_them_alone() {
    let mut filter = start(
        "$TTL 60\n8.0.0.0.10.rpz-client-ip CNAME rpz-drop.\n32.1.0.0.10.rpz-client-ip CNAME rpz-passthru.\ngone.test CNAME .\n",
    );
    let from = |client: &str| -> QueryLiteral {
        test::query("gone.test", Type::A).client(SocketAddr::new(client.parse().unwrap(), 1053))
    };
    assert_eq!(filter.query(&from("10.1.2.3")), Verdict::drop_for("policy zone"));
    assert_eq!(filter.query(&from("10.0.0.1")), Verdict::pass().skip_response());
    assert_eq!(
        filter.query(&from("192.0.2.1")),
        Verdict::answer(Answer::new(Rcode::NXDOMAIN))
    );
}

#[test]
fn policies_about_addresses() {
    let mut filter = start(ZONE);
    let mut with = |data: Rdata| {
        let response = test::response(test::query("www.test", Type::ANY)).records([("www.test", data)]);
        filter.response(&response)
    };
    let v4 = |text: &str| Rdata::A(text.parse().unwrap());
    let v6 = |text: &str| Rdata::Aaaa(text.parse().unwrap());
    assert_eq!(
        with(v4("198.0.2.77")),
        ResponseVerdict::replace(Answer::new(Rcode::NXDOMAIN))
    );
    assert_eq!(with(v4("198.0.3.1")), ResponseVerdict::pass());
    assert_eq!(with(v6("2001:db8::1")), ResponseVerdict::pass());
    assert_eq!(
        with(v6("2001:db8::2")),
        ResponseVerdict::replace(Answer::noerror())
    );
}

#[test]
fn a_zone_that_is_none_is_refused_with_its_reason() {
    let mistakes = test::start::<PolicyZones>([node("zone").arg("rpz.test").arg("$TTL 60\na.test CNAME\n")])
        .err()
        .unwrap();
    assert_eq!(
        (mistakes[0].node.as_deref(), mistakes[0].argument),
        (Some("zone"), Some(1))
    );
}
