//! Every option of the README, and which clients see what.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use dnsweir_filter::test::{self, Node, Running, node};
use dnsweir_filter::{Answer, Class, Manifest, NameBuf, Rdata, Rewrite, Soa, Type, Verdict};
use example_split_horizon::SplitHorizon;

fn start(config: impl IntoIterator<Item = Node>) -> Running<SplitHorizon> {
    test::start::<SplitHorizon>(config).unwrap()
}

fn ask(filter: &mut Running<SplitHorizon>, client: &str, name: &str, qtype: Type) -> Verdict {
    let client = SocketAddr::new(client.parse().unwrap(), 1053);
    filter.query(&test::query(name, qtype).client(client))
}

fn name(text: &str) -> NameBuf {
    text.parse().unwrap()
}

fn addresses(owner: &str, ttl: u64, addresses: &[&str]) -> Verdict {
    Verdict::answer(addresses.iter().fold(Answer::noerror(), |answer, address| {
        let address: IpAddr = address.parse().unwrap();
        answer.record(&name(owner), Duration::from_secs(ttl), Rdata::address(address))
    }))
}

fn host(name: &str, addresses: &[&str]) -> Node {
    addresses
        .iter()
        .fold(node("host").arg(name), |node, address| node.arg(*address))
}

fn views() -> [Node; 2] {
    [
        node("view")
            .arg("10.0.0.0/8")
            .arg("fd00::/8")
            .child(host("shop.example", &["10.0.0.7", "fd00::7", "10.0.0.8"]))
            .child(node("rewrite").arg("www.example").arg("www.internal.example")),
        node("view")
            .arg("10.1.0.0/16")
            .arg("192.0.2.0/24")
            .child(host("shop.example", &["192.0.2.7"])),
    ]
}

#[test]
fn clients_see_the_first_view_that_has_them() {
    let mut filter = start(views());
    let inside = addresses("shop.example", 60, &["10.0.0.7", "10.0.0.8"]);
    for client in ["10.0.0.1", "10.1.0.1", "fd12::1"] {
        assert_eq!(
            ask(&mut filter, client, "shop.example", Type::A),
            inside,
            "{client}"
        );
    }
    assert_eq!(
        ask(&mut filter, "fd12::1", "shop.example", Type::AAAA),
        addresses("shop.example", 60, &["fd00::7"])
    );
    assert_eq!(
        ask(&mut filter, "192.0.2.200", "shop.example", Type::A),
        addresses("shop.example", 60, &["192.0.2.7"])
    );
    assert_eq!(
        ask(&mut filter, "192.0.2.200", "shop.example", Type::ANY),
        addresses("shop.example", 60, &["192.0.2.7"])
    );
    for client in ["11.0.0.1", "192.0.3.1", "2001:db8::1"] {
        assert_eq!(
            ask(&mut filter, client, "shop.example", Type::A),
            Verdict::pass(),
            "{client}"
        );
    }
}

#[test]
fn names_may_lead_elsewhere() {
    let mut filter = start(views());
    let other = Verdict::rewrite(Rewrite::new().name(name("www.internal.example")));
    assert_eq!(ask(&mut filter, "10.0.0.1", "www.example", Type::MX), other);
    // The second view does not mention it.
    assert_eq!(
        ask(&mut filter, "192.0.2.1", "www.example", Type::A),
        Verdict::pass()
    );
}

#[test]
fn a_host_has_nothing_but_its_addresses() {
    let mut filter = start(views().into_iter().chain([node("ttl").arg("5s")]));
    let nodata =
        |owner: &str| Verdict::answer(Answer::nodata(&Soa::new(name(owner), Duration::from_secs(5))));
    assert_eq!(
        ask(&mut filter, "192.0.2.1", "shop.example", Type::AAAA),
        nodata("shop.example")
    );
    assert_eq!(
        ask(&mut filter, "10.0.0.1", "shop.example", Type::TXT),
        nodata("shop.example")
    );
    assert_eq!(
        ask(&mut filter, "192.0.2.1", "shop.example", Type::A),
        addresses("shop.example", 5, &["192.0.2.7"])
    );
    assert_eq!(
        ask(&mut filter, "10.0.0.1", "x.shop.example", Type::A),
        Verdict::pass()
    );
    let chaos = test::query("shop.example", Type::A)
        .class(Class::CH)
        .client("10.0.0.1:53".parse().unwrap());
    assert_eq!(filter.query(&chaos), Verdict::pass());
}

#[test]
fn it_is_called_for_its_own_names_only() {
    let view = node("view").arg("::/0").child(host("a.test", &["::1"]));
    let filter = start([view]);
    assert_eq!(
        filter.manifest(),
        &Manifest::new().queries().at_or_below(&[name("a.test")])
    );
}

#[test]
fn mistakes_are_told() {
    let told = |config: Vec<Node>| {
        let mistakes = test::start::<SplitHorizon>(config).unwrap_err();
        assert_eq!(mistakes.len(), 1, "{mistakes:?}");
        mistakes[0].message.clone()
    };
    let view = || node("view").arg("10.0.0.0/8");
    let shop = || host("shop.example", &["10.0.0.7"]);
    assert_eq!(told(vec![]), "there is no view");
    assert_eq!(told(vec![view()]), "this view shows nothing of its own");
    assert_eq!(
        told(vec![
            view()
                .child(shop())
                .child(node("rewrite").arg("Shop.example").arg("a.test"))
        ]),
        "this view says twice what shop.example. is"
    );
    assert_eq!(
        told(vec![node("view").arg("10.0.0.1/8").child(shop())]),
        "the first argument of `view` must be an address prefix, not \"10.0.0.1/8\""
    );
    assert_eq!(
        told(vec![view().child(shop()).child(node("hots"))]),
        "`view` knows no `hots`"
    );
}
