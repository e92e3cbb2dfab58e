//! `pods`: watches a node's pods, to identify clients.

use std::time::Duration;

use kdl::{KdlNode, KdlValue};

use super::decode::{Decoder, Wrong, block, child, fitting};
use super::kubernetes::{KUBECONFIG, Kubeconfig};
use super::units::{duration, ms, s, size};
use super::words::words;

words! {
    /// `pods { … }`: the pods of a node, which may be clients.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct NodePods in PODS(0..=0): r#"pods { node (env)"NODE_NAME" }"#, then require_node;

    /// The node, as in `kubectl get nodes`; in a cluster `node (env)"NODE_NAME"`.
    one "node" node: String = ("required": "worker-1", else String::new()) in node_name, "a name";
    /// How to connect to the API server.
    table "kubeconfig" kubeconfig: Option<Kubeconfig> = (none: "the pod's service account") in KUBECONFIG, "a path";
    /// How long `/ready` may fail until all pods are known.
    one "wait" wait: Duration = "10s" in duration(ms(0)..=s(3600));
    /// Memory for pods and namespaces with their labels and annotations.
    one "memory" memory: usize = "16MiB" in size(1 << 20..=1 << 30);
}

fn require_node(decoder: &mut Decoder, node: &KdlNode, _: &mut NodePods) {
    if child(block(node), "node").is_none() {
        decoder.report(node, "this `pods` has no `node`", PODS.shape.help());
    }
}

/// Reads the name of a node, which is used in a field selector unescaped.
fn node_name(value: &KdlValue) -> Result<String, Wrong> {
    let allowed =
        |octet: u8| octet.is_ascii_lowercase() || octet.is_ascii_digit() || octet == b'-' || octet == b'.';
    let fits = |name: &str| (1..=253).contains(&name.len()) && name.bytes().all(allowed);
    let help = "a name has lower-case letters, digits, hyphens and dots, 253 at most: `kubectl get nodes` lists them";
    fitting(value, fits, "is not the name of a node", help)
}
