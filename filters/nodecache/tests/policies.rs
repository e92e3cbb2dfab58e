//! Every option of the README, and the names it applies to.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::time::Duration;

use dnsweir_filter::test::{self, Node, Running, node};
use dnsweir_filter::{Manifest, NameBuf, ResponseEdit, Type, Verdict};
use dnsweir_filter_nodecache::Nodecache;

const ZONES: &[&str] = &["cluster.local.", "in-addr.arpa.", "."];

fn start(config: impl IntoIterator<Item = Node>) -> Running<Nodecache> {
    test::start_in::<Nodecache>(ZONES, config).unwrap()
}

fn verdict(edit: ResponseEdit) -> Verdict {
    let verdict = Verdict::pass().remember(Duration::from_secs(3600));
    if edit == ResponseEdit::new() {
        verdict
    } else {
        verdict.edit(edit)
    }
}

#[track_caller]
fn holds(filter: &mut Running<Nodecache>, name: &str, edit: ResponseEdit) {
    assert_eq!(filter.query(&test::query(name, Type::A)), verdict(edit), "{name}");
}

fn nothing() -> ResponseEdit {
    ResponseEdit::new()
}

fn no_store() -> ResponseEdit {
    ResponseEdit::new().no_store()
}

fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

#[test]
fn names_and_those_below_are_not_kept() {
    let mut filter = start([node("no-cache").arg("dev.svc.cluster.local").arg("Live.test")]);
    holds(&mut filter, "api.dev.svc.cluster.local", no_store());
    holds(&mut filter, "dev.svc.cluster.local", no_store());
    holds(&mut filter, "a.b.live.test", no_store());
    holds(&mut filter, "dev2.svc.cluster.local", nothing());
    let names: [NameBuf; 1] = ["live.test".parse().unwrap()];
    let one = start([node("no-cache").arg("live.test")]);
    assert_eq!(one.manifest(), &Manifest::new().queries().at_or_below(&names));
}

#[test]
fn the_longest_name_wins_per_aspect() {
    let mut filter = start([
        node("no-cache").arg("test"),
        node("cache").arg("kept.test"),
        node("ttl")
            .arg("a.kept.test")
            .prop("min", "5s")
            .prop("max", "10s"),
        node("ttl").arg("kept.test").prop("max", "60s"),
        node("stale").arg(false).arg("kept.test"),
        node("stale").arg(true).arg("b.kept.test"),
    ]);
    holds(&mut filter, "x.test", no_store());
    holds(
        &mut filter,
        "x.kept.test",
        nothing().ttl_max(seconds(60)).no_stale(),
    );
    // The bounds are one aspect: `max` and `min` never come from different names.
    holds(
        &mut filter,
        "x.a.kept.test",
        nothing().ttl_min(seconds(5)).ttl_max(seconds(10)).no_stale(),
    );
    holds(&mut filter, "b.kept.test", nothing().ttl_max(seconds(60)));
    holds(&mut filter, "example", nothing());
}

#[test]
fn exact_names_come_before_suffixes() {
    let mut filter = start([
        node("ttl").arg("a.test").prop("max", "10s"),
        node("ttl").arg("a.test").prop("max", "1s").prop("match", "exact"),
        node("no-cache").arg("b.test").prop("match", "exact"),
        node("stale").arg(false).arg("c.test").prop("match", "suffix"),
    ]);
    holds(&mut filter, "a.test", nothing().ttl_max(seconds(1)));
    holds(&mut filter, "x.a.test", nothing().ttl_max(seconds(10)));
    holds(&mut filter, "b.test", no_store());
    holds(&mut filter, "x.b.test", nothing());
    holds(&mut filter, "x.c.test", nothing().no_stale());
}

#[test]
fn namespaces_are_services_and_pods_of_the_clusters_zones() {
    let mut filter = start([
        node("no-cache").prop("namespace", "dev"),
        node("ttl").prop("namespace", "staging").prop("min", "30s"),
        node("stale").arg(false).prop("namespace", "staging"),
        node("cache").arg("db.dev.svc.cluster.local"),
    ]);
    holds(&mut filter, "api.dev.svc.cluster.local", no_store());
    holds(&mut filter, "10-0-0-1.dev.pod.cluster.local", no_store());
    holds(&mut filter, "db.dev.svc.cluster.local", nothing());
    holds(
        &mut filter,
        "api.staging.svc.cluster.local",
        nothing().ttl_min(seconds(30)).no_stale(),
    );
    holds(&mut filter, "dev.svc.example", nothing());
    holds(&mut filter, "dev.svc.in-addr.arpa", nothing());
    let mut two = test::start_in::<Nodecache>(
        &["a.local", "b.local"],
        [node("no-cache").prop("namespace", "dev")],
    )
    .unwrap();
    holds(&mut two, "x.dev.svc.a.local", no_store());
    holds(&mut two, "x.dev.pod.b.local", no_store());
}

/// The host would refuse a manifest with all of them.
#[test]
fn more_names_than_a_manifest_holds_are_found_among_all() {
    let long = vec!["a".repeat(60); 3].join(".");
    let names = (0..5000).map(|number| format!("h{number}.{long}.test"));
    let mut filter = start([names.fold(node("no-cache"), |node, name| node.arg(&*name))]);
    let all = Manifest::new().queries().at_or_below(&[NameBuf::root()]);
    assert_eq!(filter.manifest(), &all);
    holds(&mut filter, &format!("x.h4999.{long}.test"), no_store());
    holds(&mut filter, "other.test", nothing());
}

#[test]
fn mistakes_are_told() {
    let told = |config: Vec<Node>| {
        let mistakes = test::start_in::<Nodecache>(ZONES, config).unwrap_err();
        assert_eq!(mistakes.len(), 1, "{mistakes:?}");
        mistakes[0].clone()
    };
    assert_eq!(told(vec![]).message, "no policies are configured");
    assert_eq!(
        told(vec![node("no-cache")]).message,
        "`no-cache` needs a domain name as its first argument"
    );
    assert_eq!(told(vec![node("no-cache").arg("a..b")]).argument, Some(0));
    assert_eq!(told(vec![node("ttl").arg("a.test")]).message, "`ttl` sets no TTL");
    let crossed = told(vec![
        node("ttl").arg("a.test").prop("min", "5s").prop("max", "1s"),
    ]);
    assert_eq!(crossed.message, "`min=` is more than `max=`");
    let stale = told(vec![node("stale").arg("a.test").arg("b.test")]);
    assert_eq!(
        stale.message,
        "the first argument of `stale` must be #true or #false, not \"a.test\""
    );
    let twice = told(vec![
        node("no-cache").arg("a.test"),
        node("cache").arg("b.test").arg("A.test."),
    ]);
    assert_eq!(
        (twice.message.as_str(), twice.argument),
        ("this contradicts an earlier policy for a.test.", Some(1))
    );
    let both = told(vec![node("no-cache").arg("a.test").prop("namespace", "dev")]);
    assert_eq!(both.message, "`namespace=` cannot be combined with names");
    assert_eq!(
        told(vec![node("no-cache").prop("namespace", "")]).message,
        "\"\" is not a namespace"
    );
    let matched = told(vec![
        node("no-cache").prop("namespace", "dev").prop("match", "exact"),
    ]);
    assert_eq!(matched.message, "`no-cache` knows no `match=`");
    assert!(
        told(vec![node("no-cache").arg("a.test").prop("match", "regex")])
            .help
            .contains("\"exact\"")
    );
    let root = test::start_in::<Nodecache>(&["."], [node("no-cache").prop("namespace", "dev")]).unwrap_err();
    assert_eq!(root[0].message, "no zone of a cluster uses this filter");
}
