//! `pods`: which node's pods are followed, to tell who asks.

use std::path::Path;

use kdl::{KdlNode, KdlValue};

use super::NodePods;
use super::decode::{Mistakes, Shape, Wrong, block, child, head, text};
use super::error::Diagnostic;
use super::kubernetes::kubeconfig;
use super::units::{duration, ms, s, size};

pub(super) const PODS: Shape = Shape {
    example: r#"pods { node (env)"NODE_NAME" }"#,
    arguments: 0..=0,
    properties: &[],
    children: &["node", "kubeconfig", "wait", "memory"],
    repeated: &[],
};

/// Decodes `pods`, if it is there.
pub(super) fn decode(mistakes: &mut Mistakes, folder: &Path, nodes: &[KdlNode]) -> Option<NodePods> {
    let node = child(nodes, "pods")?;
    mistakes.check(node, &PODS);
    let nodes = block(node);
    if child(nodes, "node").is_none() {
        let missing = Diagnostic::new(head(node), "this `pods` does not say of which node");
        mistakes.push(missing.help(format!("write: {}", PODS.example)));
    }
    Some(NodePods {
        node: mistakes
            .scalar(nodes, r#"node "worker-1""#, node_name)
            .unwrap_or_default(),
        kubeconfig: kubeconfig(mistakes, folder, nodes),
        wait: mistakes
            .scalar(nodes, r#"wait "10s""#, duration(ms(0)..=s(3600)))
            .unwrap_or(s(10)),
        memory: mistakes
            .scalar(nodes, r#"memory "16MiB""#, size(1 << 20..=1 << 30))
            .unwrap_or(16 << 20),
    })
}

/// The name of a node: it goes into a field selector as it is.
fn node_name(value: &KdlValue) -> Result<String, Wrong> {
    let name = text(value)?;
    let allowed =
        |octet: u8| octet.is_ascii_lowercase() || octet.is_ascii_digit() || octet == b'-' || octet == b'.';
    match name.len() {
        1..=253 if name.bytes().all(allowed) => Ok(name),
        _ => Err(Wrong::new(
            "is not the name of a node",
            "a name has lower-case letters, digits, hyphens and dots, 253 at most: `kubectl get nodes` lists them",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{config, problems};
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

    #[test]
    fn mistakes_are_found() {
        for (text, expected) in [
            ("pods", "this `pods` does not say of which node"),
            (
                "pods { node \"a,status.phase=Failed\" }",
                "`node`: \"a,status.phase=Failed\" is not the name of a node",
            ),
            ("pods { node \"\" }", "`node`: \"\" is not the name of a node"),
            (
                "pods { node \"a\"; memory \"1KiB\" }",
                "`memory`: \"1KiB\" is out of range",
            ),
        ] {
            assert_eq!(problems(&format!("{REST}{text}")), [expected], "{text}");
        }
    }
}
