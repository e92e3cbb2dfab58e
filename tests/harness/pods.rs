//! A proxy that knows which pods ask, from an API server of the test's.

use std::net::IpAddr;

use serde_json::json;

use crate::api_server::ApiServer;
use crate::message::Message;
use crate::proxy::Proxy;
use crate::{client, until};

/// A cluster with the namespaces `shop` and `bank`, and a proxy on its node `worker-1`.
pub struct Cluster {
    /// What the proxy asks about pods.
    pub server: ApiServer,
    /// The proxy, on the node `worker-1`.
    pub proxy: Proxy,
    _folder: tempfile::TempDir,
}

/// What a configuration says of its node, for which the test has an API server.
pub const PODS: &str = "pods { node \"worker-1\" }";

impl Cluster {
    /// A proxy with this configuration, when these objects are there.
    pub fn start(text: &str, objects: impl FnOnce(&ApiServer)) -> Cluster {
        let server = ApiServer::start();
        server.put("namespaces", "shop", json!({}));
        server.put("namespaces", "bank", json!({}));
        objects(&server);
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("kubeconfig");
        std::fs::write(&file, server.kubeconfig("secret")).unwrap();
        assert!(text.contains(PODS), "{text}");
        let pods = format!("pods {{ node \"worker-1\"; kubeconfig {file:?} }}");
        let proxy = Proxy::start(&text.replace(PODS, &pods));
        Cluster {
            server,
            proxy,
            _folder: folder,
        }
    }

    /// What a client at this address gets.
    pub fn ask(&self, address: &str, name: &str) -> Message {
        let address: IpAddr = address.parse().unwrap();
        client::ask_from(address, self.proxy.address, &Message::query(name, "A").edns(1232))
    }

    /// Queries of a namespace's pods so far, or of others by what they are.
    pub fn count(&self, identity: &str, namespace: &str) -> f64 {
        let labels = [("identity", identity), ("namespace", namespace)];
        self.proxy.metrics().sum("dnsweir_pod_queries_total", &labels)
    }

    /// Waits until a query from an address counts as one of these.
    #[track_caller]
    pub fn await_identity(&self, address: &str, identity: &str, namespace: &str) {
        until(&format!("{address} to be {identity} {namespace}"), || {
            let before = self.count(identity, namespace);
            self.ask(address, "www.example.");
            self.count(identity, namespace) > before
        });
    }
}

/// A running pod of the node `worker-1`, created in this second of the year.
pub fn put_pod(server: &ApiServer, name: &str, address: &str, second: u32) {
    let created = format!("2026-01-01T00:00:{second:02}Z");
    server.put(
        "pods",
        name,
        json!({
            "metadata": {"uid": format!("{name}-{second}"), "creationTimestamp": created},
            "spec": {"nodeName": "worker-1", "containers": [], "serviceAccountName": "default"},
            "status": {"phase": "Running", "podIP": address, "podIPs": [{"ip": address}], "hostIP": "127.0.7.7"},
        }),
    );
}

/// Gives a namespace this annotation, and no other.
pub fn annotate(server: &ApiServer, namespace: &str, name: &str, value: &str) {
    server.put(
        "namespaces",
        namespace,
        json!({"metadata": {"annotations": {name: value}}}),
    );
}
