//! Identities by address, as the API server reports pods.

use std::net::{IpAddr, SocketAddr};

use serde_json::{Value, json};

use super::bounds::OF_OBJECT;
use super::objects::{read_namespace, read_pod};
use super::roster::{News, Roster};
use super::state::State;
use crate::api_server::{Change, Reading};
use dnsweir_answer::identity::{FIRST, Identity};

/// A pod's change as the API server would report it: `namespace/name`, creation second and address.
fn pod(key: &str, second: u32, address: &str, more: Value) -> News {
    let (namespace, name) = key.split_once('/').unwrap();
    let mut object = json!({
        "metadata": {
            "namespace": namespace, "name": name, "uid": format!("{key}@{second}"),
            "creationTimestamp": format!("2026-01-01T00:00:{second:02}Z"),
        },
        "spec": {"containers": [], "serviceAccountName": "default"},
        "status": {"podIP": address, "podIPs": [{"ip": address}], "hostIP": "192.0.2.1"},
    });
    merge(&mut object, more);
    let object = serde_json::from_value(object).unwrap();
    let Ok(reading) = read_pod(object);
    News::Pod(Change::Object(key.into(), reading))
}

fn merge(object: &mut Value, more: Value) {
    match (object, more) {
        (Value::Object(object), Value::Object(more)) => {
            for (key, value) in more {
                merge(object.entry(key).or_insert(Value::Null), value);
            }
        }
        (object, more) => *object = more,
    }
}

fn namespace(name: &str, annotations: Value) -> [News; 3] {
    let object =
        serde_json::from_value(json!({"metadata": {"name": name, "annotations": annotations}})).unwrap();
    let Ok(reading) = read_namespace(object);
    [
        Change::ListBegins,
        Change::Object(name.into(), reading),
        Change::ListEnds,
    ]
    .map(|change| News::Namespace(name.into(), change))
}

/// The state after some changes.
struct Node {
    state: &'static State,
    roster: Roster<'static>,
}

impl Node {
    fn new(memory: usize) -> Node {
        let state = Box::leak(Box::new(State::new()));
        Node {
            state,
            roster: Roster::new(state, memory),
        }
    }

    fn hear(&mut self, news: impl IntoIterator<Item = News>) {
        news.into_iter().for_each(|news| self.roster.take(news));
        self.roster.publish();
    }

    fn identity(&self, address: &str) -> Identity {
        let address: IpAddr = address.parse().unwrap();
        self.state.table.load().identify(address, &[])
    }

    fn who(&self, address: &str) -> String {
        self.identity(address).to_string()
    }
}

/// Knows the pod `shop/web` and its namespace.
fn shop() -> Node {
    let mut node = Node::new(1 << 20);
    node.hear([pod("shop/web", 1, "10.0.0.1", json!({}))]);
    node.hear(namespace("shop", json!({"team": "a"})));
    assert_eq!(node.who("10.0.0.1"), "shop/web");
    node
}

#[test]
fn pods_are_known_with_their_namespaces() {
    let mut node = Node::new(1 << 20);
    assert_eq!(node.who("10.0.0.1"), "unknown");
    node.hear([News::Pod(Change::ListBegins)]);
    node.hear([pod("shop/web", 1, "10.0.0.1", json!({}))]);
    node.hear([News::Pod(Change::ListEnds)]);
    assert_eq!(node.who("10.0.0.1"), "unknown", "its namespace is not known yet");
    assert!(!node.state.arrival.has_come());
    assert!(node.state.wanted.borrow().contains("shop"));
    node.hear(namespace("shop", json!({"team": "a"})));
    assert!(node.state.arrival.has_come());
    let Identity::Pod(known) = node.identity("::ffff:10.0.0.1") else {
        panic!("{}", node.who("10.0.0.1"))
    };
    assert_eq!(&*known.object.service_account, "default");
    assert_eq!(known.namespace.annotations["team"], "a");
    assert_eq!(node.who("10.0.0.2"), "unknown");
    node.hear([News::Pod(Change::Gone("shop/web".into()))]);
    assert_eq!(node.who("10.0.0.1"), "unknown");
    assert!(
        node.state.wanted.borrow().is_empty(),
        "the namespace has no pods here"
    );
}

#[test]
fn pods_that_end_are_nobody() {
    for end in [
        json!({"status": {"phase": "Succeeded"}}),
        json!({"status": {"phase": "Failed"}}),
    ] {
        let mut node = shop();
        node.hear([pod("shop/web", 1, "10.0.0.1", end.clone())]);
        assert_eq!(node.who("10.0.0.1"), "unknown", "{end}");
    }
    // The next list omits it.
    let mut node = shop();
    node.hear([News::Pod(Change::ListBegins)]);
    assert_eq!(node.who("10.0.0.1"), "shop/web");
    node.hear([News::Pod(Change::ListEnds)]);
    assert_eq!(node.who("10.0.0.1"), "unknown");
}

/// A deleted pod runs on for a grace period of the deleter's choice: no tenant sheds its identity that way.
#[test]
fn a_pod_that_is_being_deleted_stays_who_it_is() {
    let mut node = shop();
    let deleted = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:01:00Z", "deletionGracePeriodSeconds": 86400}});
    node.hear([pod("shop/web", 1, "10.0.0.1", deleted.clone())]);
    assert_eq!(node.who("10.0.0.1"), "shop/web");
    // Until the address is another pod's,
    node.hear([pod("shop/next", 2, "10.0.0.1", json!({}))]);
    assert_eq!(node.who("10.0.0.1"), "shop/next");
    // or the pod has ended or is gone.
    for end in [
        pod("shop/web", 1, "10.0.0.1", json!({"status": {"phase": "Failed"}})),
        News::Pod(Change::Gone("shop/web".into())),
    ] {
        let mut node = shop();
        node.hear([pod("shop/web", 1, "10.0.0.1", deleted.clone()), end]);
        assert_eq!(node.who("10.0.0.1"), "unknown");
    }
}

#[test]
fn the_host_is_told_from_pods() {
    let mut node = shop();
    let on_host = json!({"spec": {"hostNetwork": true}});
    node.hear([pod("kube-system/proxy", 1, "192.0.2.7", on_host)]);
    for address in ["192.0.2.7", "192.0.2.1", "127.0.0.1", "::1"] {
        assert_eq!(node.who(address), "host", "{address}");
    }
}

/// What the node itself asks a listener on one of its addresses comes from that same address.
#[test]
fn whoever_asks_from_the_listeners_address_is_the_host() {
    let node = shop();
    let own = ["169.254.20.10:53", "[fd00::a]:853", "0.0.0.0:54"];
    let own: [SocketAddr; 3] = own.map(|own| own.parse().unwrap());
    for (address, expected) in [
        ("169.254.20.10", "host"),
        ("::ffff:169.254.20.10", "host"),
        ("fd00::a", "host"),
        ("169.254.20.11", "unknown"),
        // A wildcard is nobody's address.
        ("0.0.0.0", "unknown"),
        ("10.0.0.1", "shop/web"),
    ] {
        let identity = node.state.table.load().identify(address.parse().unwrap(), &own);
        assert_eq!(identity.to_string(), expected, "{address}");
    }
}

#[test]
fn an_address_is_the_newest_pods() {
    let mut node = shop();
    node.hear(namespace("bank", json!({})));
    // Its namespace is unknown, but the address is no longer the older pod's.
    node.hear([pod("bank/api", 2, "10.0.0.1", json!({}))]);
    assert_eq!(node.who("10.0.0.1"), "unknown");
    node.hear(namespace("bank", json!({})));
    assert_eq!(node.who("10.0.0.1"), "bank/api");
    // Changes of the older one have no effect.
    node.hear([pod(
        "shop/web",
        1,
        "10.0.0.1",
        json!({"metadata": {"labels": {"a": "b"}}}),
    )]);
    assert_eq!(node.who("10.0.0.1"), "bank/api");
    // Neither of the two is newer.
    node.hear([pod("shop/other", 2, "10.0.0.1", json!({}))]);
    assert_eq!(node.who("10.0.0.1"), "unknown");
    node.hear([News::Pod(Change::Gone("bank/api".into()))]);
    assert_eq!(node.who("10.0.0.1"), "shop/other");
}

#[test]
fn whoever_changes_gets_another_number() {
    let mut node = shop();
    let number = |node: &Node| node.identity("10.0.0.1").number();
    let first = number(&node);
    assert!(first >= FIRST);
    // A change without effect.
    node.hear([pod(
        "shop/web",
        1,
        "10.0.0.1",
        json!({"status": {"message": "well"}}),
    )]);
    node.hear(namespace("shop", json!({"team": "a"})));
    assert_eq!(number(&node), first);
    node.hear(namespace("shop", json!({"team": "b"})));
    let second = number(&node);
    assert!(second > first, "its namespace's annotation has changed");
    node.hear([pod(
        "shop/web",
        1,
        "10.0.0.1",
        json!({"metadata": {"labels": {"a": "b"}}}),
    )]);
    assert!(number(&node) > second);
    // Another pod with the same name.
    let before = number(&node);
    node.hear([pod(
        "shop/web",
        2,
        "10.0.0.1",
        json!({"metadata": {"labels": {"a": "b"}}}),
    )]);
    assert!(number(&node) > before);
}

#[test]
fn namespaces_that_go_take_their_pods_along() {
    let mut node = shop();
    node.hear([News::Namespace("shop".into(), Change::Gone("shop".into()))]);
    assert_eq!(node.who("10.0.0.1"), "unknown");
    let mut node = shop();
    node.hear([Change::ListBegins, Change::ListEnds].map(|change| News::Namespace("shop".into(), change)));
    assert_eq!(node.who("10.0.0.1"), "unknown");
}

/// Labels or annotations beyond the limits take no object's name away.
#[test]
fn what_does_not_fit_is_left_out_and_the_name_stays() {
    let mut node = shop();
    let said = |node: &Node| {
        let Identity::Pod(known) = node.identity("10.0.0.1") else {
            panic!("{}", node.who("10.0.0.1"))
        };
        let count = |labels: &dnsweir_answer::identity::Labels| labels.len();
        let (object, namespace) = (&known.object, &known.namespace);
        [
            count(&object.labels),
            count(&object.annotations),
            count(&namespace.labels),
            count(&namespace.annotations),
        ]
    };
    let large = json!({"note": "x".repeat(OF_OBJECT), "team": "a"});
    let more = |labels: &Value, annotations: &Value| {
        pod(
            "shop/web",
            1,
            "10.0.0.1",
            json!({"metadata": {"labels": labels, "annotations": annotations}}),
        )
    };
    let small = json!({"team": "a"});
    node.hear([more(&small, &large)]);
    assert_eq!(said(&node), [1, 0, 0, 1], "annotations go first");
    node.hear([more(&large, &small)]);
    assert_eq!(said(&node), [0, 0, 0, 1]);
    node.hear([more(&small, &small)]);
    assert_eq!(said(&node), [1, 1, 0, 1]);
    node.hear(namespace("shop", large));
    assert_eq!(said(&node), [1, 1, 0, 0]);
    let refused =
        |followed: &crate::api_server::Followed| followed.refused.load(std::sync::atomic::Ordering::Relaxed);
    assert_eq!(
        (refused(&node.state.pods), refused(&node.state.namespaces)),
        (2, 1)
    );
    // The annotation of `kubectl apply` is dropped.
    let kept = json!({"kubectl.kubernetes.io/last-applied-configuration": "x".repeat(OF_OBJECT)});
    node.hear(namespace("shop", kept));
    assert_eq!(refused(&node.state.namespaces), 1);
    // Each fits alone, but not all together.
    let mut node = Node::new(1 << 16);
    let half = json!({"metadata": {"annotations": {"note": "x".repeat(OF_OBJECT / 2)}}});
    node.hear([pod("shop/first", 1, "10.0.0.1", json!({}))]);
    node.hear(namespace("shop", json!({})));
    node.hear((0..20).map(|n| pod(&format!("shop/p{n}"), n, &format!("10.0.1.{n}"), half.clone())));
    let known = |n: &u32| node.who(&format!("10.0.1.{n}")) == format!("shop/p{n}");
    assert_eq!((0..20).filter(known).count(), 20);
    assert!((1..20).contains(&refused(&node.state.pods)));
    let octets = node.state.octets.load(std::sync::atomic::Ordering::Relaxed);
    assert!(octets <= (1 << 16) + 20 * 512, "{octets}");
}

#[test]
fn too_many_pods_are_nobody() {
    let mut node = shop();
    let address = |n: usize| format!("10.1.{}.{}", n / 250, n % 250);
    node.hear((0..super::bounds::PODS).map(|n| pod(&format!("shop/p{n}"), 2, &address(n), json!({}))));
    assert_eq!(
        node.who("10.0.0.1"),
        "unknown",
        "one is missing, and could have this address"
    );
    assert_eq!(node.who("10.1.0.0"), "unknown");
    // The one that ended may not be the one left out. The next list settles it.
    node.hear([News::Pod(Change::Gone("shop/p0".into()))]);
    assert_eq!(node.who("10.0.0.1"), "unknown");
    node.hear([News::Pod(Change::ListBegins)]);
    node.hear([pod("shop/web", 1, "10.0.0.1", json!({}))]);
    node.hear([News::Pod(Change::ListEnds)]);
    assert_eq!(node.who("10.0.0.1"), "shop/web");
}

#[test]
fn few_namespaces_are_counted_by_name() {
    let state = State::new();
    for n in 0..100 {
        state
            .counters
            .of(&format!("n{n}"))
            .fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    }
    let read = state.counters.read();
    assert_eq!(read.len(), 3 + super::bounds::COUNTED);
    let other = read.iter().find(|(who, _, _)| *who == "other").unwrap();
    assert_eq!(other.2, 100 - super::bounds::COUNTED as u64);
    let sum: u64 = read.iter().map(|(_, _, count)| count).sum();
    assert_eq!(sum, 100);
}

#[test]
fn an_unchanged_reading_changes_nothing() {
    let mut node = shop();
    node.hear([News::Pod(Change::Object("shop/web".into(), Reading::Unchanged))]);
    assert_eq!(node.who("10.0.0.1"), "shop/web");
}
