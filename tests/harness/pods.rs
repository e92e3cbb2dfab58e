//! A proxy that identifies pods, with the test's API server.

use std::net::IpAddr;

use serde_json::json;

use crate::api_server::ApiServer;
use crate::message::Message;
use crate::proxy::Proxy;
use crate::{client, until};

/// A cluster with the namespaces `shop` and `bank`, and a proxy on its node `worker-1`.
pub struct Cluster {
    /// The source of pods.
    pub server: ApiServer,
    /// The proxy, on the node `worker-1`.
    pub proxy: Proxy,
    _folder: tempfile::TempDir,
}

/// A configuration's line about its node; [`Cluster::start`] adds the API server.
pub const PODS: &str = "pods { node \"worker-1\" }";

impl Cluster {
    /// Starts a proxy with this configuration, after creating these objects.
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

    /// Returns the answer for a client at this address.
    pub fn ask(&self, address: &str, name: &str) -> Message {
        let address: IpAddr = address.parse().unwrap();
        client::ask_from(address, self.proxy.address, &Message::query(name, "A").edns(1232))
    }

    /// Returns the number of queries so far with this identity and namespace.
    pub fn count(&self, identity: &str, namespace: &str) -> f64 {
        let labels = [("identity", identity), ("namespace", namespace)];
        self.proxy.metrics().sum("dnsweir_pod_queries_total", &labels)
    }

    /// Waits until a query from an address counts under this identity and namespace.
    #[track_caller]
    pub fn await_identity(&self, address: &str, identity: &str, namespace: &str) {
        until(&format!("{address} to be {identity} {namespace}"), || {
            let before = self.count(identity, namespace);
            self.ask(address, "www.example.");
            self.count(identity, namespace) > before
        });
    }
}

/// Creates a running pod on the node `worker-1`, created in this second of the year.
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

/// Sets this annotation of a namespace, and removes others.
pub fn annotate(server: &ApiServer, namespace: &str, name: &str, value: &str) {
    server.put(
        "namespaces",
        namespace,
        json!({"metadata": {"annotations": {name: value}}}),
    );
}
