//! Every option of the README, and which clients are canaries.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use dnsweir_filter::test::{self, Literal, Node, Running, node};
use dnsweir_filter::{Answer, Class, Manifest, NameBuf, Rdata, Rewrite, Soa, Type, Verdict};
use example_canary::Canary;

/// The number of pods of a large cluster.
const CLIENTS: u32 = 20_000;

fn start(config: impl IntoIterator<Item = Node>) -> Running<Canary> {
    test::start::<Canary>(config).unwrap()
}

fn canary(name: &str, targets: &[&str], share: impl Into<Literal>) -> Node {
    let node = node("canary").arg(name).prop("share", share);
    targets.iter().fold(node, |node, target| node.arg(*target))
}

fn ask(filter: &mut Running<Canary>, client: IpAddr, name: &str, qtype: Type) -> Verdict {
    filter.query(&test::query(name, qtype).client(SocketAddr::new(client, 1053)))
}

fn pod(number: u32) -> IpAddr {
    Ipv4Addr::from_bits(0x0af4_0000 + number).into()
}

/// The pods that get another answer.
fn canaries(filter: &mut Running<Canary>, name: &str) -> BTreeSet<u32> {
    (0..CLIENTS)
        .filter(|&number| ask(filter, pod(number), name, Type::A) != Verdict::pass())
        .collect()
}

fn with_share(share: impl Into<Literal>) -> BTreeSet<u32> {
    canaries(&mut start([canary("a.test", &["b.test"], share)]), "a.test")
}

#[test]
fn the_share_is_what_is_written() {
    assert_eq!(with_share(0).len(), 0);
    assert_eq!(with_share(100).len(), CLIENTS as usize);
    for (share, expected) in [
        (0.5, 100),
        (1.0, 200),
        (10.0, 2000),
        (50.0, 10_000),
        (99.0, 19_800),
    ] {
        // Four standard deviations of a fair coin: the addresses are fixed, so this passes always or never.
        let deviation = (f64::from(expected) * (1.0 - share / 100.0)).sqrt();
        let found = with_share(share).len() as f64;
        assert!(
            (found - f64::from(expected)).abs() < 4.0 * deviation,
            "{share} %: {found}"
        );
    }
}

/// A canary of a small share is one of every larger share, too.
#[test]
fn another_share_moves_no_more_clients_than_it_must() {
    let (small, large) = (with_share(10), with_share(12.5));
    assert!(small.is_subset(&large));
    assert!(large.len() - small.len() < 700, "{}", large.len() - small.len());
}

/// The canaries must not change from release to release.
#[test]
fn who_is_a_canary_is_fixed() {
    let first: Vec<u32> = with_share(1).into_iter().take(8).collect();
    assert_eq!(first, FIRST);
}

#[test]
fn names_have_canaries_of_their_own_unless_they_are_a_group() {
    let names = ["a.test", "b.test", "c.test"];
    let canary = |name: &str| canary(name, &["192.0.2.1"], 10);
    let mut filter = start(names.map(canary));
    let [a, b, _] = names.map(|name| canaries(&mut filter, name));
    let both = a.intersection(&b).count();
    assert!(
        (100..300).contains(&both),
        "{both} of {} and {}",
        a.len(),
        b.len()
    );
    let mut filter = start(names.map(|name| canary(name).prop("group", "release 7")));
    let [a, b, c] = names.map(|name| canaries(&mut filter, name));
    assert!(a == b && b == c && !a.is_empty());
}

#[test]
fn prefixes_are_one_client() {
    let mut filter = start([
        canary("a.test", &["b.test"], 50),
        node("prefix").prop("ipv4", 24).prop("ipv6", 64),
    ]);
    let found = canaries(&mut filter, "a.test");
    for number in 0..CLIENTS {
        assert_eq!(
            found.contains(&number),
            found.contains(&(number & !0xff)),
            "{}",
            pod(number)
        );
    }
    let v6 = |text: &str| text.parse().unwrap();
    for network in 0..100 {
        let [one, other] = ["1", "ffff:0:2"].map(|host| {
            ask(
                &mut filter,
                v6(&format!("2001:db8:0:{network:x}::{host}")),
                "a.test",
                Type::A,
            )
        });
        assert_eq!(one, other);
    }
}

#[test]
fn canaries_get_another_name_or_other_addresses() {
    let name = |text: &str| text.parse::<NameBuf>().unwrap();
    let mut filter = start([
        canary("a.test", &["b.test"], 100),
        canary("c.test", &["192.0.2.1", "::1", "192.0.2.2"], 100),
        node("ttl").arg("5s"),
    ]);
    assert_eq!(
        ask(&mut filter, pod(1), "a.test", Type::MX),
        Verdict::rewrite(Rewrite::new().name(name("b.test")))
    );
    let records = |addresses: &[&str]| {
        Verdict::answer(addresses.iter().fold(Answer::noerror(), |answer, address| {
            let data = Rdata::address(address.parse().unwrap());
            answer.record(&name("c.test"), Duration::from_secs(5), data)
        }))
    };
    assert_eq!(
        ask(&mut filter, pod(1), "c.test", Type::A),
        records(&["192.0.2.1", "192.0.2.2"])
    );
    assert_eq!(ask(&mut filter, pod(1), "c.test", Type::AAAA), records(&["::1"]));
    let nodata = Answer::nodata(&Soa::new(name("c.test"), Duration::from_secs(5)));
    assert_eq!(
        ask(&mut filter, pod(1), "c.test", Type::TXT),
        Verdict::answer(nodata)
    );
    assert_eq!(filter.counter("canaries"), 4);

    // Names below, other classes, and clients that are not canaries.
    assert_eq!(ask(&mut filter, pod(1), "x.a.test", Type::A), Verdict::pass());
    assert_eq!(
        filter.query(&test::query("a.test", Type::A).class(Class::CH)),
        Verdict::pass()
    );
    let suffixes = filter.manifest().clone();
    assert!(
        [["a.test", "c.test"], ["c.test", "a.test"]]
            .iter()
            .any(|names| suffixes == Manifest::new().queries().at_or_below(&names.map(name)))
    );
    let mut nobody = start([canary("a.test", &["b.test"], 0)]);
    assert_eq!(ask(&mut nobody, pod(1), "a.test", Type::A), Verdict::pass());
    assert_eq!(nobody.counter("others"), 1);
}

#[test]
fn mistakes_are_told() {
    let told = |config: Vec<Node>| {
        let mistakes = test::start::<Canary>(config).unwrap_err();
        assert_eq!(mistakes.len(), 1, "{mistakes:?}");
        mistakes[0].message.clone()
    };
    assert_eq!(told(vec![]), "there is no canary");
    let bits = node("prefix").prop("ipv4", 33);
    assert!(told(vec![bits, canary("a.test", &["b.test"], 5)]).starts_with("`ipv4` of `prefix` must be"));
    assert_eq!(
        told(vec![node("canary").arg("a.test").arg("b.test")]),
        "`canary` does not say which share of the clients"
    );
    for share in [-1.0, 100.5] {
        assert!(told(vec![canary("a.test", &["b.test"], share)]).starts_with("`share` of `canary` must be"));
    }
    assert_eq!(
        told(vec![canary("a.test", &["192.0.2.1", "b.test"], 5)]),
        "there is one other name, or there are addresses"
    );
    assert_eq!(
        told(vec![
            canary("a.test", &["b.test"], 5),
            canary("A.test", &["c.test"], 5)
        ]),
        "this name has a canary already"
    );
    assert_eq!(
        told(vec![canary("a.test", &[], 5)]),
        "`canary` needs an address or a domain name as its second argument"
    );
}

/// Computed from the function's definition, not by this implementation.
const FIRST: [u32; 8] = [86, 132, 158, 245, 390, 430, 452, 663];
