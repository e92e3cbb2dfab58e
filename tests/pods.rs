//! The identity of clients: pods of the node, as reported by an API server with every fault.

use harness::api_server::ApiServer;
use harness::pods::{Cluster, PODS, put_pod};
use harness::{Upstream, until};
use serde_json::json;

/// An upstream with `www.example`, and a configuration that uses it.
fn forward() -> (Upstream, String) {
    let upstream = Upstream::zone(&["www.example. 60 A 192.0.2.1"]);
    let text = format!("{PODS}\nzone \".\" {{ cache; forward \"{}\" }}", upstream.address);
    (upstream, text)
}

#[test]
fn queries_are_counted_by_namespace() {
    let (_upstream, text) = forward();
    let cluster = Cluster::start(&text, |server| {
        put_pod(server, "shop/web", "127.0.7.1", 1);
        put_pod(server, "bank/api", "127.0.7.2", 2);
    });
    // Ready means that all pods are known.
    for (address, identity, namespace) in [
        ("127.0.7.1", "pod", "shop"),
        ("127.0.7.2", "pod", "bank"),
        ("127.0.7.7", "host", ""),
        ("127.0.0.1", "host", ""),
    ] {
        let before = cluster.count(identity, namespace);
        cluster.ask(address, "www.example.");
        assert_eq!(cluster.count(identity, namespace), before + 1.0, "{address}");
    }
    let (status, page) = cluster.proxy.get("/status");
    assert!(
        status == 200 && page.contains("node worker-1: 2 pods in 2 namespaces"),
        "{page}"
    );
    assert!(
        page.contains("\"identity\":\"shop/web\"") || page.contains("\"identity\": \"shop/web\""),
        "{page}"
    );
    // A pod of another node is unknown.
    assert!(cluster.server.count("fieldselector=spec.nodename%3dworker-1") > 0);
    // One list and one watch of the pods, and of each namespace with pods here; `zoo` has none.
    assert_eq!(cluster.server.count("fieldselector=metadata.name%3dzoo"), 0);
    assert!(cluster.server.count("fieldselector=metadata.name%3dshop") > 0);
}

/// An address reused by another pod never counts as the old pod, and known pods stay while the API server is
/// down.
#[test]
fn addresses_change_hands() {
    let (_upstream, text) = forward();
    let cluster = Cluster::start(&text, |server| put_pod(server, "shop/web", "127.0.7.1", 1));
    cluster.await_identity("127.0.7.1", "pod", "shop");
    cluster.server.fail(|_| Some(Vec::new()));
    let failures = || cluster.proxy.metrics().sum("dnsweir_pod_failures_total", &[]);
    let before = failures();
    until("the fault to be met", || failures() > before + 1.0);
    let shop = cluster.count("pod", "shop");
    cluster.ask("127.0.7.1", "www.example.");
    assert_eq!(cluster.count("pod", "shop"), shop + 1.0);
    cluster.server.delete("pods", "shop/web");
    cluster.server.recover();
    // Only the node itself can send from a loopback address.
    cluster.await_identity("127.0.7.1", "host", "");
    let shop = cluster.count("pod", "shop");
    put_pod(&cluster.server, "bank/api", "127.0.7.1", 2);
    cluster.await_identity("127.0.7.1", "pod", "bank");
    assert_eq!(cluster.count("pod", "shop"), shop);
}

#[test]
fn explain_says_who_asks() {
    let (_upstream, text) = forward();
    let server = ApiServer::start();
    server.put("namespaces", "shop", json!({}));
    put_pod(&server, "shop/web", "10.0.0.1", 1);
    let folder = tempfile::tempdir().unwrap();
    let kubeconfig = folder.path().join("kubeconfig");
    std::fs::write(&kubeconfig, server.kubeconfig("secret")).unwrap();
    let file = folder.path().join("dnsweir.kdl");
    let pods = format!("pods {{ node \"worker-1\"; kubeconfig {kubeconfig:?} }}");
    let listen = "listen \"127.0.0.1\" \"169.254.20.10\"";
    let text = format!("{listen}\n{}", text.replace(PODS, &pods));
    std::fs::write(&file, text).unwrap();
    let explain = |client: &str| {
        let mut command = harness::proxy::command();
        command
            .args(["explain", "www.example", "A", "--client", client, "--config"])
            .arg(&file);
        harness::tools::output(&mut command)
    };
    let said = explain("10.0.0.1");
    assert!(
        said.starts_with("www.example. A asked by 10.0.0.1 (shop/web)\n"),
        "{said}"
    );
    let said = explain("10.0.0.2");
    assert!(
        said.starts_with("www.example. A asked by 10.0.0.2 (unknown)\n"),
        "{said}"
    );
    // As the node's own processes do.
    let said = explain("169.254.20.10");
    assert!(
        said.starts_with("www.example. A asked by 169.254.20.10 (host)\n"),
        "{said}"
    );
}
