//! Every option of the README, and which service a name belongs to.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::net::IpAddr;
use std::time::Duration;

use dnsweir_filter::test::{self, Node, Running, node};
use dnsweir_filter::{Answer, Class, NameBuf, Prefix, Rdata, Soa, Type, Verdict};
use example_services::Services;

const HOUR: Duration = Duration::from_secs(3600);

fn start(config: impl IntoIterator<Item = Node>) -> Running<Services> {
    test::start::<Services>(config).unwrap()
}

fn service(name: &str, addresses: &[&str]) -> Node {
    addresses
        .iter()
        .fold(node("service").arg(name), |node, address| node.arg(*address))
}

fn ask(filter: &mut Running<Services>, name: &str, qtype: Type) -> Verdict {
    filter.query(&test::query(name, qtype))
}

fn name(text: &str) -> NameBuf {
    text.parse().unwrap()
}

fn addresses(owner: &str, ttl: u64, addresses: &[&str]) -> Verdict {
    let answer = addresses.iter().fold(Answer::noerror(), |answer, address| {
        let address: IpAddr = address.parse().unwrap();
        answer.record(&name(owner), Duration::from_secs(ttl), Rdata::address(address))
    });
    Verdict::answer(answer).remember(HOUR)
}

fn nodata(owner: &str, ttl: u64) -> Verdict {
    let soa = Soa::new(name(owner), Duration::from_secs(ttl));
    Verdict::answer(Answer::nodata(&soa)).remember(HOUR)
}

fn pass() -> Verdict {
    Verdict::pass().remember(HOUR)
}

/// The address allocated to a service, found by trying all addresses of a prefix.
fn given(filter: &mut Running<Services>, owner: &str, prefix: &str) -> IpAddr {
    let prefix: Prefix = prefix.parse().unwrap();
    let IpAddr::V4(first) = prefix.address() else {
        panic!()
    };
    let verdict = ask(filter, owner, Type::A);
    (first.to_bits()..)
        .map(|bits| IpAddr::from(std::net::Ipv4Addr::from_bits(bits)))
        .take_while(|address| prefix.contains(*address))
        .find(|address| verdict == addresses(owner, 60, &[&address.to_string()]))
        .unwrap_or_else(|| panic!("{verdict:?}"))
}

#[test]
fn exact_names_win_over_wildcards_and_long_wildcards_over_short_ones() {
    let mut filter = start([
        service("*.test.global", &["240.0.0.1"]),
        service("*.eu.test.global", &["240.0.0.2"]),
        service("db.eu.test.global", &["240.0.0.3", "240.0.0.4", "2001:2::3"]),
        service("eu.test.global", &["240.0.0.5"]),
    ]);
    for (asked, address) in [
        ("x.test.global", "240.0.0.1"),
        ("x.y.test.global", "240.0.0.1"),
        ("x.eu.test.global", "240.0.0.2"),
        ("x.y.eu.test.global", "240.0.0.2"),
        // Unlike with RFC 4592's closest encloser, the wildcard also covers a name below a service.
        ("x.db.eu.test.global", "240.0.0.2"),
        ("eu.test.global", "240.0.0.5"),
    ] {
        assert_eq!(
            ask(&mut filter, asked, Type::A),
            addresses(asked, 60, &[address]),
            "{asked}"
        );
    }
    let db = "db.eu.test.global";
    assert_eq!(
        ask(&mut filter, db, Type::A),
        addresses(db, 60, &["240.0.0.3", "240.0.0.4"])
    );
    assert_eq!(
        ask(&mut filter, db, Type::AAAA),
        addresses(db, 60, &["2001:2::3"])
    );
    for other in ["test.global", "global", "xtest.global"] {
        assert_eq!(ask(&mut filter, other, Type::A), pass(), "{other}");
    }
    let chaos = test::query("x.test.global", Type::A).class(Class::CH);
    assert_eq!(filter.query(&chaos), pass());
}

#[test]
fn a_service_has_nothing_but_its_addresses() {
    let mut filter = start([service("*.test.global", &["240.0.0.1"]), node("ttl").arg("5s")]);
    assert_eq!(
        ask(&mut filter, "x.test.global", Type::A),
        addresses("x.test.global", 5, &["240.0.0.1"])
    );
    for qtype in [Type::AAAA, Type::HTTPS, Type::SRV] {
        assert_eq!(
            ask(&mut filter, "x.test.global", qtype),
            nodata("x.test.global", 5),
            "{qtype}"
        );
    }
}

#[test]
fn addresses_are_given_out_where_none_is_written() {
    let pool = "240.240.0.0/16";
    let allocate = || node("allocate").arg(pool).arg("2001:2::/48");
    let mut filter = start([allocate(), service("a.test", &[]), service("*.b.test", &[])]);
    let a = given(&mut filter, "a.test", pool);
    let b = given(&mut filter, "x.b.test", pool);
    assert_ne!(a, b);
    assert_ne!(ask(&mut filter, "a.test", Type::AAAA), nodata("a.test", 60));

    // Order and other services change nothing, but a configured address is never allocated.
    let written = a.to_string();
    let mut other = start([
        service("*.b.test", &[]),
        service("c.test", &[]),
        service("a.test", &[]),
        allocate(),
    ]);
    assert_eq!(given(&mut other, "a.test", pool), a);
    assert_eq!(given(&mut other, "y.b.test", pool), b);
    let mut taken = start([allocate(), service("a.test", &[]), service("z.test", &[&written])]);
    assert_ne!(given(&mut taken, "a.test", pool), a);
    assert_eq!(ask(&mut taken, "z.test", Type::AAAA), nodata("z.test", 60));
}

/// The addresses must not change from release to release.
#[test]
fn who_gets_which_address_is_fixed() {
    let mut filter = start([node("allocate").arg("240.240.0.0/16"), service("a.test", &[])]);
    assert_eq!(given(&mut filter, "a.test", "240.240.0.0/16").to_string(), FIXED);
}

#[test]
fn mistakes_are_told() {
    let told = |config: Vec<Node>| {
        let mistakes = test::start::<Services>(config).unwrap_err();
        assert_eq!(mistakes.len(), 1, "{mistakes:?}");
        mistakes[0].message.clone()
    };
    assert_eq!(told(vec![]), "there is no service");
    assert_eq!(told(vec![service("a.test", &[])]), "this service has no address");
    assert_eq!(
        told(vec![service("a.*.test", &["240.0.0.1"])]),
        "a.*.test. is neither a name nor a wildcard"
    );
    assert_eq!(
        told(vec![
            service("a.test", &["240.0.0.1"]),
            service("A.test", &["240.0.0.2"])
        ]),
        "this service is written twice"
    );
    assert_eq!(
        told(vec![
            node("allocate").arg("192.0.2.0/31"),
            service("a.test", &["240.0.0.1"])
        ]),
        "192.0.2.0/31 has no addresses to give out"
    );
    let full = ["a", "b", "c"].map(|host| service(&format!("{host}.test"), &[]));
    let full = [node("allocate").arg("192.0.2.0/30")].into_iter().chain(full);
    assert_eq!(told(full.collect()), "there is no address left for this service");
    assert_eq!(
        told(vec![service("a.test", &["b.test"])]),
        "the second argument of `service` must be an IP address, not \"b.test\""
    );
}

/// Computed from the hash's definition, not by this implementation.
const FIXED: &str = "240.240.108.55";
