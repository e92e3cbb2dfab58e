//! Every option of the README, and its effect on clients.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::net::SocketAddr;
use std::time::Duration;

use dnsweir_filter::test::{self, Node, Running, node};
use dnsweir_filter::{Answer, Rcode, ResponseEdit, Transport, Type, Verdict};
use example_rate_limit::RateLimit;

fn start(config: impl IntoIterator<Item = Node>) -> Running<RateLimit> {
    test::start::<RateLimit>(config).unwrap()
}

fn rate(tokens: i64) -> Node {
    node("rate").arg(tokens)
}

/// How many of these simultaneous queries pass.
fn ask(filter: &mut Running<RateLimit>, client: &str, seconds: u64, queries: usize) -> usize {
    let client = SocketAddr::new(client.parse().unwrap(), 1053);
    let query = test::query("a.test", Type::A)
        .client(client)
        .time(Duration::from_secs(seconds));
    (0..queries)
        .filter(|_| filter.query(&query) == Verdict::pass())
        .count()
}

fn refused(filter: &mut Running<RateLimit>) -> Verdict {
    let query = test::query("a.test", Type::A);
    (0..100)
        .map(|_| filter.query(&query))
        .find(|verdict| *verdict != Verdict::pass())
        .unwrap()
}

#[test]
fn a_client_gets_its_rate_and_its_burst() {
    let mut filter = start([rate(5), node("burst").arg(20)]);
    assert_eq!(ask(&mut filter, "192.0.2.1", 0, 50), 20);
    assert_eq!(ask(&mut filter, "192.0.2.2", 0, 50), 20);
    assert_eq!(ask(&mut filter, "192.0.2.1", 1, 50), 5);
    assert_eq!(ask(&mut filter, "192.0.2.1", 1000, 50), 20);
    assert_eq!(filter.counter("limited"), 30 + 30 + 45 + 30);
}

#[test]
fn without_a_burst_it_is_the_rate() {
    assert_eq!(ask(&mut start([rate(7)]), "192.0.2.1", 0, 50), 7);
}

#[test]
fn rates_may_be_slow() {
    let mut filter = start([rate(2).prop("per", "1m")]);
    assert_eq!(ask(&mut filter, "192.0.2.1", 0, 9), 2);
    assert_eq!(ask(&mut filter, "192.0.2.1", 29, 9), 0);
    assert_eq!(ask(&mut filter, "192.0.2.1", 30, 9), 1);
}

#[test]
fn beyond_is_what_is_written() {
    assert_eq!(refused(&mut start([rate(1)])), Verdict::refuse(Rcode::REFUSED));
    let mut refuse = start([rate(1), node("beyond").arg("refuse")]);
    assert_eq!(refused(&mut refuse), Verdict::refuse(Rcode::REFUSED));
    let mut silent = start([rate(1), node("beyond").arg("drop")]);
    assert_eq!(refused(&mut silent), Verdict::drop());
}

/// The source of a datagram may be forged; that of a connection is not, so its queries are not counted.
#[test]
fn clients_are_sent_to_connections() {
    let mut filter = start([rate(1), node("beyond").arg("truncate")]);
    let truncated = Verdict::answer(Answer::noerror()).edit(ResponseEdit::new().truncated(true));
    assert_eq!(refused(&mut filter), truncated);
    let over = |transport| test::query("a.test", Type::A).transport(transport);
    for transport in [Transport::Tcp, Transport::Tls, Transport::Internal] {
        assert_eq!(filter.query(&over(transport)), Verdict::pass());
    }
    assert_eq!(filter.query(&over(Transport::Udp)), truncated);
    // With other actions, they are counted.
    let mut refuse = start([rate(1)]);
    assert_eq!(refuse.query(&over(Transport::Tcp)), Verdict::pass());
    assert_eq!(
        refuse.query(&over(Transport::Tcp)),
        Verdict::refuse(Rcode::REFUSED)
    );
}

#[test]
fn prefixes_are_one_client() {
    let mut filter = start([rate(1), node("prefix").prop("ipv4", 24).prop("ipv6", 64)]);
    assert_eq!(ask(&mut filter, "192.0.2.1", 0, 1), 1);
    assert_eq!(ask(&mut filter, "192.0.2.2", 0, 1), 0);
    assert_eq!(ask(&mut filter, "192.0.3.1", 0, 1), 1);
    assert_eq!(ask(&mut filter, "2001:db8::1", 0, 1), 1);
    assert_eq!(ask(&mut filter, "2001:db8::ffff:2", 0, 1), 0);
    // By default, whole addresses count.
    let mut one = start([rate(1), node("prefix").prop("ipv4", 8)]);
    assert_eq!(ask(&mut one, "2001:db8::1", 0, 1), 1);
    assert_eq!(ask(&mut one, "2001:db8::2", 0, 1), 1);
}

#[test]
fn some_are_not_limited() {
    let mut filter = start([
        rate(1),
        node("except").arg("192.0.2.0/25").arg("2001:db8::/32"),
        node("except").arg("203.0.113.7"),
    ]);
    for client in ["192.0.2.1", "2001:db8::1", "203.0.113.7"] {
        assert_eq!(ask(&mut filter, client, 0, 9), 9, "{client}");
    }
    assert_eq!(ask(&mut filter, "192.0.2.128", 0, 9), 1);
    // The proxy's own queries carry the address of the client that caused them.
    let internal = test::query("a.test", Type::A).transport(Transport::Internal);
    assert!((0..9).all(|_| filter.query(&internal) == Verdict::pass()));
}

/// Every worker and every generation has its own instance.
#[test]
fn instances_share_what_a_client_may_do() {
    let mut one = start([rate(5)]);
    let mut other = test::start_beside::<RateLimit, _>(&one, [rate(5)]).unwrap();
    assert_eq!(ask(&mut one, "192.0.2.1", 0, 3), 3);
    assert_eq!(ask(&mut other, "192.0.2.1", 0, 9), 2);
    assert_eq!(ask(&mut one, "192.0.2.1", 1, 9), 5);
}

#[test]
fn mistakes_are_told() {
    let told = |config: Vec<Node>| test::start::<RateLimit>(config).unwrap_err()[0].message.clone();
    assert_eq!(told(vec![]), "there is no limit");
    assert_eq!(
        told(vec![rate(0)]),
        "the first argument of `rate` must be a number, not 0"
    );
    assert_eq!(
        told(vec![rate(1).prop("per", "0s")]),
        "`per=` must be more than zero"
    );
    assert!(told(vec![rate(1), node("beyond").arg("delay")]).starts_with("the first argument of `beyond`"));
    assert!(
        told(vec![rate(1), node("clients").arg(2_000_000)]).starts_with("the first argument of `clients`")
    );
    assert!(told(vec![rate(1), node("prefix").prop("ipv4", 33)]).starts_with("`ipv4` of `prefix`"));
    assert!(
        told(vec![rate(1), node("except").arg("192.0.2.1/24")]).starts_with("the first argument of `except`")
    );
}
