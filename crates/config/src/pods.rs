//! `pods`: watches a node's pods, to identify clients.

use std::time::Duration;

use kdl::{KdlNode, KdlValue};

use super::decode::{Decoder, Wrong, block, child, fitting};
use super::kubernetes::{KUBECONFIG, Kubeconfig, kubeconfig};
use super::units::{duration, ms, s, size};
use super::words::words;

words! {
    /// `pods { … }`: the pods of a node, which may be clients.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct NodePods in PODS(0..=0): r#"pods { node (env)"NODE_NAME" }"#, then finish;

    /// The node, as in `kubectl get nodes`; in a cluster `node (env)"NODE_NAME"`.
    one "node" node: String = ("required": "worker-1", else String::new()) in node_name, "a name";
    /// How to connect to the API server.
    hand "kubeconfig" kubeconfig: Option<Kubeconfig> = ("the pod's service account") in KUBECONFIG, "a path";
    /// How long `/ready` may fail until all pods are known.
    one "wait" wait: Duration = "10s" in duration(ms(0)..=s(3600));
    /// Memory for pods and namespaces with their labels and annotations.
    one "memory" memory: usize = "16MiB" in size(1 << 20..=1 << 30);
}

/// Requires `node`, and reads `kubeconfig`.
fn finish(decoder: &mut Decoder, node: &KdlNode, pods: &mut NodePods) {
    let nodes = block(node);
    if child(nodes, "node").is_none() {
        decoder.report(node, "this `pods` has no `node`", PODS.shape.help());
    }
    pods.kubeconfig = kubeconfig(decoder, nodes);
}

/// Reads the name of a node, which is used in a field selector unescaped.
fn node_name(value: &KdlValue) -> Result<String, Wrong> {
    let allowed =
        |octet: u8| octet.is_ascii_lowercase() || octet.is_ascii_digit() || octet == b'-' || octet == b'.';
    let fits = |name: &str| (1..=253).contains(&name.len()) && name.bytes().all(allowed);
    let help = "a name has lower-case letters, digits, hyphens and dots, 253 at most: `kubectl get nodes` lists them";
    fitting(value, fits, "is not the name of a node", help)
}

#[cfg(test)]
mod tests {
    use super::super::tests::config;
    use super::*;

    const REST: &str = "listen \"127.0.0.1\"\nzone \".\" { forward \"192.0.2.1\" }\n";

    #[test]
    fn nobody_is_followed_unless_written() {
        assert_eq!(config(REST).pods, None);
    }

    #[test]
    fn every_word_is_read() {
        let read = |block: &str| config(&format!("{REST}pods {{ {block} }}")).pods;
        let expected = NodePods {
            node: "worker-1.example".into(),
            kubeconfig: None,
            wait: s(10),
            memory: 16 << 20,
        };
        assert_eq!(read("node \"worker-1.example\""), Some(expected.clone()));
        let other = NodePods {
            wait: s(0),
            memory: 1 << 20,
            ..expected
        };
        assert_eq!(
            read("node \"worker-1.example\"; wait \"0s\"; memory \"1MiB\""),
            Some(other)
        );
    }
}
