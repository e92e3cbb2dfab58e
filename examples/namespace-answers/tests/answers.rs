//! Every option of the README, and the effect of an annotation on a name.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::net::IpAddr;
use std::time::Duration;

use dnsweir_filter::test::{self, QueryLiteral, Running, node};
use dnsweir_filter::{Answer, Class, Manifest, NameBuf, Rdata, Soa, Type, Verdict};
use example_namespace_answers::NamespaceAnswers;

const ANNOTATION: &str = "example.com/answers";

fn start() -> Running<NamespaceAnswers> {
    test::start::<NamespaceAnswers>([node("annotation").arg(ANNOTATION)]).unwrap()
}

/// A query from a pod whose namespace has this annotation.
fn query(name: &str, qtype: Type, said: &str) -> QueryLiteral {
    test::query(name, qtype)
        .pod("shop", "web")
        .namespace_annotation(ANNOTATION, said)
}

fn remembered(verdict: Verdict) -> Verdict {
    verdict.remember(Duration::from_secs(3600))
}

fn addresses(owner: &str, ttl: u64, addresses: &[&str]) -> Verdict {
    let owner: NameBuf = owner.parse().unwrap();
    let ttl = Duration::from_secs(ttl);
    remembered(Verdict::answer(addresses.iter().fold(
        Answer::noerror(),
        |answer, address| {
            let address: IpAddr = address.parse().unwrap();
            answer.record(&owner, ttl, Rdata::address(address))
        },
    )))
}

#[test]
fn a_namespace_says_what_a_name_is() {
    let mut filter = start();
    assert_eq!(
        filter.manifest(),
        &Manifest::new().queries().namespace_annotation(ANNOTATION)
    );
    let said = "db.example 10.0.0.7 fd00::7 10.0.0.8; api.example api.shop.svc.cluster.local\n WWW.example 192.0.2.1";
    for (name, qtype, expected) in [
        (
            "db.example",
            Type::A,
            addresses("db.example", 60, &["10.0.0.7", "10.0.0.8"]),
        ),
        (
            "db.example",
            Type::AAAA,
            addresses("db.example", 60, &["fd00::7"]),
        ),
        (
            "www.example",
            Type::A,
            addresses("www.example", 60, &["192.0.2.1"]),
        ),
        (
            "api.example",
            Type::TXT,
            remembered(Verdict::alias("api.shop.svc.cluster.local".parse().unwrap())),
        ),
        ("a.db.example", Type::A, remembered(Verdict::pass())),
    ] {
        assert_eq!(
            filter.query(&query(name, qtype, said)),
            expected,
            "{name} {qtype}"
        );
    }
    let owner: NameBuf = "www.example".parse().unwrap();
    let nothing = Answer::nodata(&Soa::new(owner, Duration::from_secs(60)));
    assert_eq!(
        filter.query(&query("www.example", Type::MX, said)),
        remembered(Verdict::answer(nothing))
    );
    assert_eq!(
        filter.query(&query("db.example", Type::A, said).class(Class::CH)),
        remembered(Verdict::pass())
    );
}

#[test]
fn others_go_on() {
    let mut filter = start();
    let name = || test::query("db.example", Type::A);
    for query in [name(), name().host(), name().pod("shop", "web")] {
        assert_eq!(filter.query(&query), remembered(Verdict::pass()));
    }
}

#[test]
fn what_is_no_entry_says_nothing() {
    let mut filter = start();
    for said in [
        "db.example",
        "db.example ..",
        "db.example a.example b.example",
        "db.example 10.0.0.1 b.example",
        "; ;\n\u{e9} 10.0.0.1",
        "..bad.. 10.0.0.1",
    ] {
        assert_eq!(
            filter.query(&query("db.example", Type::A, said)),
            remembered(Verdict::pass()),
            "{said:?}"
        );
    }
}

#[test]
fn the_ttl_is_configured() {
    let config = [node("annotation").arg(ANNOTATION), node("ttl").arg("5s")];
    let mut filter = test::start::<NamespaceAnswers>(config).unwrap();
    assert_eq!(
        filter.query(&query("db.example", Type::A, "db.example 10.0.0.7")),
        addresses("db.example", 5, &["10.0.0.7"])
    );
    assert_eq!(test::start::<NamespaceAnswers>([]).unwrap_err().len(), 1);
}
