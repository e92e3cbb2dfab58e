//! Who asks: pods of the node, as an API server with every fault tells of them.

use std::net::IpAddr;

use harness::api_server::ApiServer;
use harness::message::Message;
use harness::{Proxy, Upstream, client, until};
use serde_json::{Value, json};

/// A cluster with the namespaces `shop` and `bank`, and a proxy on its node `here`.
struct Cluster {
    server: ApiServer,
    proxy: Proxy,
    _folder: tempfile::TempDir,
}

impl Cluster {
    /// `pipeline` is what stands in the zone; `filters` what stands above it.
    fn start(filters: &str, pipeline: &str, objects: impl FnOnce(&ApiServer)) -> Cluster {
        let server = ApiServer::start();
        server.put("namespaces", "shop", json!({}));
        server.put("namespaces", "bank", json!({}));
        objects(&server);
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("kubeconfig");
        std::fs::write(&file, server.kubeconfig("secret")).unwrap();
        let proxy = Proxy::start(&format!(
            "pods {{ node \"here\"; kubeconfig {file:?} }}\n{filters}\nzone \".\" {{ {pipeline} }}"
        ));
        Cluster {
            server,
            proxy,
            _folder: folder,
        }
    }

    /// What a client at this address gets.
    fn ask(&self, address: &str, name: &str) -> Message {
        let address: IpAddr = address.parse().unwrap();
        client::ask_from(address, self.proxy.address, &Message::query(name, "A"))
    }

    /// Queries of a namespace's pods so far, or of others by what they are.
    fn count(&self, identity: &str, namespace: &str) -> f64 {
        let labels = [("identity", identity), ("namespace", namespace)];
        self.proxy.metrics().sum("dnsweir_pod_queries_total", &labels)
    }

    /// Waits until a query from an address counts as one of these.
    fn await_identity(&self, address: &str, identity: &str, namespace: &str) {
        until(&format!("{address} to be {identity} {namespace}"), || {
            let before = self.count(identity, namespace);
            self.ask(address, "www.example.");
            self.count(identity, namespace) > before
        });
    }
}

/// A running pod of the node `here`.
fn put_pod(server: &ApiServer, name: &str, address: &str, second: u32) {
    put_pod_with(server, name, address, second, json!({}));
}

fn put_pod_with(server: &ApiServer, name: &str, address: &str, second: u32, annotations: Value) {
    let created = format!("2026-01-01T00:00:{second:02}Z");
    server.put(
        "pods",
        name,
        json!({
            "metadata": {"uid": format!("{name}-{second}"), "creationTimestamp": created, "annotations": annotations},
            "spec": {"nodeName": "here", "containers": [], "serviceAccountName": "default"},
            "status": {"phase": "Running", "podIP": address, "podIPs": [{"ip": address}], "hostIP": "127.0.7.7"},
        }),
    );
}

fn forward() -> (Upstream, String) {
    let upstream = Upstream::zone(&["www.example. 60 A 192.0.2.1"]);
    let stages = format!("cache; forward \"{}\"", upstream.address);
    (upstream, stages)
}

#[test]
fn queries_are_counted_by_namespace() {
    let (_upstream, stages) = forward();
    let cluster = Cluster::start("", &stages, |server| {
        put_pod(server, "shop/web", "127.0.7.1", 1);
        put_pod(server, "bank/api", "127.0.7.2", 2);
    });
    // Ready means that all are known.
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
        status == 200 && page.contains("node here: 2 pods in 2 namespaces"),
        "{page}"
    );
    assert!(
        page.contains("\"identity\":\"shop/web\"") || page.contains("\"identity\": \"shop/web\""),
        "{page}"
    );
    // A pod of another node is nobody.
    assert!(cluster.server.count("fieldselector=spec.nodename%3dhere") > 0);
    // One list and one watch of the pods, and of each namespace with pods here; `zoo` has none.
    assert_eq!(cluster.server.count("fieldselector=metadata.name%3dzoo"), 0);
    assert!(cluster.server.count("fieldselector=metadata.name%3dshop") > 0);
}

/// An address that has another pod is never taken for the one before, and what was known stays while the API server is away.
#[test]
fn addresses_change_hands() {
    let (_upstream, stages) = forward();
    let cluster = Cluster::start("", &stages, |server| put_pod(server, "shop/web", "127.0.7.1", 1));
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
    // Only what was on the node can have sent from a loopback address.
    cluster.await_identity("127.0.7.1", "host", "");
    let shop = cluster.count("pod", "shop");
    put_pod(&cluster.server, "bank/api", "127.0.7.1", 2);
    cluster.await_identity("127.0.7.1", "pod", "bank");
    assert_eq!(cluster.count("pod", "shop"), shop);
}

#[test]
fn explain_says_who_asks() {
    let (upstream, stages) = forward();
    let server = ApiServer::start();
    server.put("namespaces", "shop", json!({}));
    put_pod(&server, "shop/web", "10.0.0.1", 1);
    let folder = tempfile::tempdir().unwrap();
    let kubeconfig = folder.path().join("kubeconfig");
    std::fs::write(&kubeconfig, server.kubeconfig("secret")).unwrap();
    let file = folder.path().join("dnsweir.kdl");
    let text = format!(
        "listen \"127.0.0.1\"\npods {{ node \"here\"; kubeconfig {kubeconfig:?} }}\nzone \".\" {{ {stages} }}"
    );
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
    drop(upstream);
}
