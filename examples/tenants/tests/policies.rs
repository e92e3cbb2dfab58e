//! Which tenant's policy applies, and its effect.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::net::SocketAddr;

use dnsweir_filter::test::{self, Node, Running, node};
use dnsweir_filter::{ExtendedError, Rcode, Type, Verdict};
use example_tenants::Tenants;

fn start(config: impl IntoIterator<Item = Node>) -> Running<Tenants> {
    test::start(config).unwrap()
}

fn ask(filter: &mut Running<Tenants>, client: &str, name: &str) -> Verdict {
    let client = SocketAddr::new(client.parse().unwrap(), 1053);
    filter.query(&test::query(name, Type::A).client(client))
}

fn refused(rcode: Rcode, error: u16, text: &str) -> Verdict {
    Verdict::refuse(rcode).error(ExtendedError::new(error).text(text))
}

fn tenants() -> [Node; 2] {
    [
        node("tenant")
            .arg("kids")
            .arg("10.1.0.0/16")
            .arg("fd01::/16")
            .child(node("block").arg("social.test").arg("games.test"))
            .child(node("allow").arg("chess.games.test")),
        node("tenant")
            .arg("guests")
            .arg("10.0.0.0/8")
            .child(node("block").arg("."))
            .child(node("allow").arg("example.org"))
            .child(node("rcode").arg("REFUSED")),
    ]
}

#[test]
fn each_client_has_its_tenants_policy() {
    let mut filter = start(tenants());
    let kids = refused(Rcode::NXDOMAIN, 15, "kids");
    for (client, name, expected) in [
        ("10.1.2.3", "www.social.test", kids.clone()),
        ("fd01::1", "games.test", kids),
        ("10.1.2.3", "chess.games.test", Verdict::pass()),
        ("10.1.2.3", "www.test", Verdict::pass()),
        ("10.2.0.1", "www.example.org", Verdict::pass()),
        (
            "10.2.0.1",
            "chess.games.test",
            refused(Rcode::REFUSED, 15, "guests"),
        ),
        ("192.0.2.1", "social.test", Verdict::pass()),
    ] {
        assert_eq!(ask(&mut filter, client, name), expected, "{client} {name}");
    }
    assert_eq!(filter.counter_with("refused", &[("tenant", "kids")]), 2);
    assert_eq!(filter.counter_with("refused", &[("tenant", "guests")]), 1);
}

#[test]
fn strangers_may_be_turned_away() {
    let mut filter = start(tenants().into_iter().chain([node("others").arg(false)]));
    let expected = refused(Rcode::REFUSED, 18, "no tenant has this address");
    assert_eq!(ask(&mut filter, "192.0.2.1", "www.test"), expected);
}

#[test]
fn mistakes_are_told() {
    assert_eq!(
        test::start::<Tenants>([]).err().unwrap()[0].message,
        "there is no tenant"
    );
    let both = node("tenant")
        .arg("t")
        .arg("10.0.0.0/8")
        .child(node("block").arg("a.test"))
        .child(node("allow").arg("a.test"));
    let mistakes = test::start::<Tenants>([both]).err().unwrap();
    assert_eq!(mistakes[0].message, "this name is blocked and allowed");
}
