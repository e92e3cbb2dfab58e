//! Every option of the README, and which pods may resolve which names.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::time::Duration;

use dnsweir_filter::test::{self, Node, QueryLiteral, Running, node};
use dnsweir_filter::{ExtendedError, Manifest, Rcode, Type, Verdict};
use example_egress_names::EgressNames;

const ANNOTATION: &str = "example.com/egress";

fn start(more: impl IntoIterator<Item = Node>) -> Running<EgressNames> {
    let config = [node("annotation").arg(ANNOTATION)].into_iter().chain(more);
    test::start::<EgressNames>(config).unwrap()
}

fn query(name: &str) -> QueryLiteral {
    test::query(name, Type::A)
}

/// A query from a pod of `shop` with this annotation.
fn listed(name: &str, list: &str) -> QueryLiteral {
    query(name)
        .pod("shop", "web")
        .namespace_annotation(ANNOTATION, list)
}

fn allowed() -> Verdict {
    Verdict::pass().remember(Duration::from_secs(3600))
}

fn refused() -> Verdict {
    let why = ExtendedError::BLOCKED.text("not among the names that this namespace may resolve");
    Verdict::refuse(Rcode::REFUSED).error(why)
}

#[test]
fn pods_resolve_what_is_listed() {
    let mut filter = start([]);
    assert_eq!(
        filter.manifest(),
        &Manifest::new().queries().namespace_annotation(ANNOTATION)
    );
    let list = "api.example, *.pkg.example\n  WWW.example ..bad.. \u{e9}";
    for (name, expected) in [
        ("api.example", true),
        ("www.example", true),
        ("a.api.example", false),
        ("a.b.pkg.example", true),
        ("pkg.example", false),
        ("xpkg.example", false),
        ("example", false),
        (".", false),
    ] {
        let verdict = filter.query(&listed(name, list));
        assert_eq!(verdict, if expected { allowed() } else { refused() }, "{name}");
    }
    assert_eq!(filter.counter_with("refused", &[("namespace", "shop")]), 5);
}

#[test]
fn an_empty_list_allows_nothing() {
    let mut filter = start([]);
    assert_eq!(filter.query(&listed("www.example", " ")), refused());
}

#[test]
fn who_has_no_list_is_met_by_a_policy() {
    let pod = || query("www.example").pod("shop", "web");
    let mut filter = start([]);
    assert_eq!(filter.query(&pod()), allowed());
    assert_eq!(filter.query(&query("www.example").host()), allowed());
    assert_eq!(filter.query(&query("www.example")), refused());
    let other = [("unlisted", "refuse"), ("host", "refuse"), ("unknown", "allow")];
    let mut filter = start(other.map(|(name, policy)| node(name).arg(policy)));
    assert_eq!(filter.query(&pod()), refused());
    assert_eq!(filter.query(&query("www.example").host()), refused());
    assert_eq!(filter.query(&query("www.example")), allowed());
}

#[test]
fn some_names_are_for_everybody() {
    let mut filter = start([node("always").arg("cluster.local").arg("in-addr.arpa")]);
    for name in [
        "cluster.local",
        "api.shop.svc.cluster.local",
        "1.0.0.10.in-addr.arpa",
    ] {
        assert_eq!(filter.query(&query(name)), allowed(), "{name}");
        assert_eq!(filter.query(&listed(name, "")), allowed(), "{name}");
    }
}

#[test]
fn mistakes_are_found() {
    let mistakes = |config: Vec<Node>| test::start::<EgressNames>(config).unwrap_err();
    assert_eq!(mistakes(vec![]).len(), 1);
    let policy = node("unknown").arg("drop");
    assert_eq!(
        mistakes(vec![node("annotation").arg(ANNOTATION), policy]).len(),
        1
    );
}
