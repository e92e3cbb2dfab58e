//! Searching on behalf of the pod that asks.

use super::*;

/// Pods in two namespaces, one on the node's network, and an address in both namespaces.
fn searching(autopath: &[&str]) -> Zoo {
    let mut zoo = zoo(config::Kubernetes {
        pods: Pods::Verified,
        autopath: Some(autopath.iter().map(|&domain| domain.to_owned()).collect()),
        ..config()
    });
    zoo.add(Interest::namespace, json!({"metadata": {"name": "shop"}}));
    for (namespace, name, address, on_host) in [
        ("shop", "web", "10.244.2.1", false),
        ("shop", "agent", "192.0.2.7", true),
        ("shop", "ended", "10.244.2.9", false),
        ("zoo", "new", "10.244.2.9", false),
        ("shop", "twin-1", "10.244.2.10", false),
        ("shop", "twin-2", "10.244.2.10", false),
    ] {
        zoo.add(
            Interest::pod,
            json!({"metadata": {"name": name, "namespace": namespace}, "spec": {"hostNetwork": on_host, "containers": []},
                   "status": {"podIP": address}}),
        );
    }
    zoo
}

fn ask(zoo: &Zoo, client: &str, name: &str) -> String {
    match zoo.resolve_for(client.parse().unwrap(), "cluster.local.", name, rtype::A) {
        Resolution::Alias(found) => alias(&found),
        Resolution::Answer { answer, .. } => rcode_text(answer.rcode),
        other => format!("{other:?}"),
    }
}

/// The search for a name that does not exist depends on the client.
#[test]
fn a_pods_search_is_made_for_it() {
    let zoo = searching(&["corp.example."]);
    let found = "alias of www.example.svc.cluster.local. www.example.cluster.local. www.example.corp.example. www.example.";
    let in_shop = "www.example.shop.svc.cluster.local.";
    for (client, name, expected) in [
        ("10.244.2.1", in_shop, found),
        ("::ffff:10.244.2.1", in_shop, found),
        // A pod in another namespace, on the node's network, no pod, and an address in two namespaces.
        ("10.244.1.1", in_shop, "NXDOMAIN"),
        ("192.0.2.7", in_shop, "NXDOMAIN"),
        ("10.9.9.9", in_shop, "NXDOMAIN"),
        ("10.244.2.9", in_shop, "NXDOMAIN"),
        ("10.244.2.10", in_shop, found),
        // Not the first name of this pod's search.
        ("10.244.2.1", "www.example.svc.cluster.local.", "NXDOMAIN"),
        ("10.244.2.1", "www.example.zoo.svc.cluster.local.", "NXDOMAIN"),
        ("10.244.2.1", "www.ashop.svc.cluster.local.", "NXDOMAIN"),
        ("10.244.2.1", "shop.svc.cluster.local.", "NOERROR"),
        // A name that exists is answered.
        ("10.244.1.1", "web.zoo.svc.cluster.local.", "NOERROR"),
        (
            "10.244.1.1",
            "web.shop.zoo.svc.cluster.local.",
            "alias of web.shop.svc.cluster.local. web.shop.cluster.local. web.shop.corp.example. web.shop.",
        ),
    ] {
        assert_eq!(ask(&zoo, client, name), expected, "{client} {name}");
    }
}

/// A search within a search would multiply the cost of one query.
#[test]
fn the_proxys_own_queries_are_not_searched_for() {
    let mut zoo = searching(&[]);
    zoo.direct = false;
    assert_eq!(
        ask(&zoo, "10.244.2.1", "www.example.shop.svc.cluster.local."),
        "NXDOMAIN"
    );
}

#[test]
fn names_that_get_too_long_are_left_out() {
    let zoo = searching(&[&format!("{}.example.", "b".repeat(60))]);
    let long = vec!["a".repeat(63); 3].join(".");
    assert_eq!(
        ask(&zoo, "10.244.2.1", &format!("{long}.shop.svc.cluster.local.")),
        format!("alias of {long}.svc.cluster.local. {long}.cluster.local. {long}.")
    );
}

#[test]
fn without_the_word_nobody_searches() {
    let mut zoo = searching(&[]);
    zoo.config.autopath = None;
    assert_eq!(
        ask(&zoo, "10.244.2.1", "www.example.shop.svc.cluster.local."),
        "NXDOMAIN"
    );
}
