//! Every option of the README, and the names tried for each name.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use dnsweir_filter::test::{self, Node, Running, node};
use dnsweir_filter::{Class, Manifest, NameBuf, Transport, Type, Verdict};
use example_search_path::SearchPath;

fn start(config: impl IntoIterator<Item = Node>) -> Running<SearchPath> {
    test::start::<SearchPath>(config).unwrap()
}

fn ask(filter: &mut Running<SearchPath>, name: &str) -> Verdict {
    filter.query(&test::query(name, Type::A))
}

fn first_of(names: &[&str]) -> Verdict {
    Verdict::first_of(names.iter().map(|name| name.parse::<NameBuf>().unwrap()))
}

#[test]
fn the_first_name_stands_for_the_whole_search() {
    let mut filter = start([]);
    assert_eq!(
        ask(&mut filter, "api.example.com.shop.svc.cluster.local"),
        first_of(&[
            "api.example.com.shop.svc.cluster.local",
            "api.example.com.svc.cluster.local",
            "api.example.com.cluster.local",
            "api.example.com",
        ])
    );
    // `db.prod`, a service of another namespace.
    assert_eq!(
        ask(&mut filter, "db.prod.shop.svc.cluster.local"),
        first_of(&[
            "db.prod.shop.svc.cluster.local",
            "db.prod.svc.cluster.local",
            "db.prod.cluster.local",
            "db.prod"
        ])
    );
    assert_eq!(filter.counter("searched"), 2);
    let suffix: NameBuf = "svc.cluster.local".parse().unwrap();
    assert_eq!(
        filter.manifest(),
        &Manifest::new().queries().at_or_below([&suffix])
    );
}

#[test]
fn the_nodes_search_list_comes_behind_the_clusters() {
    let mut filter = start([
        node("cluster").arg("k8s.test"),
        node("search").arg("eu.corp.example").arg("corp.example"),
    ]);
    assert_eq!(
        ask(&mut filter, "a.b.ns.svc.k8s.test"),
        first_of(&[
            "a.b.ns.svc.k8s.test",
            "a.b.svc.k8s.test",
            "a.b.k8s.test",
            "a.b.eu.corp.example",
            "a.b.corp.example",
            "a.b"
        ])
    );
    assert_eq!(ask(&mut filter, "a.b.ns.svc.cluster.local"), Verdict::pass());
}

/// Fully qualified names of clients that need no search pass.
#[test]
fn other_names_pass() {
    let mut filter = start([]);
    for name in [
        "svc.cluster.local",
        "shop.svc.cluster.local",
        // A service by its full name: there is no dot before the namespace.
        "db.shop.svc.cluster.local",
        "api.example.com",
        "api.example.com.cluster.local",
    ] {
        assert_eq!(ask(&mut filter, name), Verdict::pass(), "{name}");
    }
    let name = "api.example.com.shop.svc.cluster.local";
    let internal = test::query(name, Type::A).transport(Transport::Internal);
    assert_eq!(filter.query(&internal), Verdict::pass());
    assert_eq!(
        filter.query(&test::query(name, Type::TXT).class(Class::CH)),
        Verdict::pass()
    );
}

#[test]
fn how_many_dots_make_a_search_is_an_option() {
    let mut all = start([node("dots").arg(0)]);
    assert_eq!(
        ask(&mut all, "db.shop.svc.cluster.local"),
        first_of(&[
            "db.shop.svc.cluster.local",
            "db.svc.cluster.local",
            "db.cluster.local",
            "db"
        ])
    );
    let mut two = start([node("dots").arg(2)]);
    assert_eq!(ask(&mut two, "db.prod.shop.svc.cluster.local"), Verdict::pass());
    assert_ne!(
        ask(&mut two, "api.example.com.shop.svc.cluster.local"),
        Verdict::pass()
    );
}

/// With `own`, the namespace is not guessed: it must be that of the client's pod.
#[test]
fn a_pod_can_be_given_its_own_search_only() {
    let mut filter = start([node("own")]);
    let suffix: NameBuf = "svc.cluster.local".parse().unwrap();
    let manifest = Manifest::new().queries().at_or_below([&suffix]).identity();
    assert_eq!(filter.manifest(), &manifest);
    let name = "db.prod.shop.svc.cluster.local";
    let searched = first_of(&[
        name,
        "db.prod.svc.cluster.local",
        "db.prod.cluster.local",
        "db.prod",
    ]);
    let query = || test::query(name, Type::A);
    for (query, expected) in [
        (query().pod("shop", "web"), searched),
        (query().pod("bank", "api"), Verdict::pass()),
        (query().pod("sho", "web"), Verdict::pass()),
        (query().host(), Verdict::pass()),
        (query(), Verdict::pass()),
    ] {
        assert_eq!(filter.query(&query), expected);
    }
    assert_eq!(filter.counter("searched"), 1);
}

#[test]
fn names_that_get_too_long_are_left_out() {
    let long = vec!["a".repeat(63); 3].join(".");
    let mut filter = start([node("search").arg(&*format!("{}.example", "b".repeat(60)))]);
    let asked = format!("{long}.ns.svc.cluster.local");
    let names = [
        &*asked,
        &format!("{long}.svc.cluster.local"),
        &format!("{long}.cluster.local"),
        &long,
    ];
    assert_eq!(ask(&mut filter, &asked), first_of(&names));
}

#[test]
fn mistakes_are_told() {
    let many = (0..30).fold(node("search"), |node, number| {
        node.arg(&*format!("d{number}.test"))
    });
    assert_eq!(
        test::start::<SearchPath>([many]).unwrap_err()[0].message,
        "30 domains are too many to try"
    );
    assert!(test::start::<SearchPath>([node("cluster").arg("a..b")]).is_err());
    assert!(test::start::<SearchPath>([node("dots").arg("many")]).is_err());
    let long = format!("{}.{}", vec!["a".repeat(63); 3].join("."), "b".repeat(60));
    let mistakes = test::start::<SearchPath>([node("cluster").arg(&*long)]).unwrap_err();
    assert_eq!(mistakes[0].message, "the cluster's name is too long");
}
