//! `node`: what is kept set up around the proxy.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use kdl::{KdlNode, KdlValue};

use super::address::{ip, is_interface_name};
use super::decode::{Mistakes, Shape, Wrong, arguments, block, boolean, child, head, text, word};
use super::error::Diagnostic;
use super::listen::Listeners;
use super::units::{duration, s};
use super::{Node, NodeMode};

pub(super) const NODE: Shape = Shape {
    example: r#"node { interface "nodelocaldns"; iptables }"#,
    arguments: 0..=0,
    properties: &[],
    children: &[
        "interface",
        "iptables",
        "interval",
        "mode",
        "cluster-dns",
        "skip-teardown",
        "self-test",
    ],
    repeated: &[],
};

pub(super) const CLUSTER_DNS: Shape = Shape::plain(1..=16, r#"cluster-dns "10.96.0.10""#);

pub(super) const SELF_TEST: Shape = Shape::plain(0..=2, r#"self-test "10.244.255.254""#);

/// The addresses from which the self-test asks where none are written: the dummy ones, which no host has (RFC 7600,
/// RFC 9780).
const DUMMIES: [IpAddr; 2] = [
    IpAddr::V4(Ipv4Addr::new(192, 0, 0, 8)),
    IpAddr::V6(Ipv6Addr::new(0x100, 0, 0, 1, 0, 0, 0, 8)),
];

/// Decodes `node`.
pub(super) fn decode(mistakes: &mut Mistakes, listeners: &Listeners, node: &KdlNode) -> Node {
    mistakes.check(node, &NODE);
    let nodes = block(node);
    let modes = [
        ("bypass", NodeMode::Bypass),
        ("link-local", NodeMode::LinkLocal),
        ("fall-through", NodeMode::FallThrough),
    ];
    let mut cluster_dns = Vec::new();
    if let Some(node) = child(nodes, "cluster-dns") {
        mistakes.check(node, &CLUSTER_DNS);
        for entry in arguments(node) {
            match mistakes.value("cluster-dns", entry, ip) {
                Some(ip) if cluster_dns.contains(&ip) => {
                    let twice = Diagnostic::new(entry.span().into(), format!("{ip} is written twice"));
                    mistakes.push(twice.label("again").help("keep one of them"));
                }
                Some(ip) => cluster_dns.push(ip),
                None => {}
            }
        }
    }
    let decoded = Node {
        interface: mistakes.scalar(nodes, r#"interface "nodelocaldns""#, interface),
        iptables: mistakes.switch(nodes, "iptables"),
        interval: mistakes
            .scalar(nodes, r#"interval "60s""#, duration(s(1)..=s(3600)))
            .unwrap_or(s(60)),
        mode: mistakes
            .scalar(nodes, r#"mode "fall-through""#, word(&modes))
            .unwrap_or_default(),
        cluster_dns,
        skip_teardown: mistakes.switch(nodes, "skip-teardown"),
        self_test: self_test(mistakes, nodes),
    };
    if child(nodes, "interface").is_none() && !decoded.iptables {
        let idle = Diagnostic::new(head(node), "this `node` has no effect");
        mistakes.push(idle.help(format!("write: {}; or remove it", NODE.example)));
    }
    if let (Some(interface), Some((listener, place))) = (&decoded.interface, listeners.wildcard()) {
        let span = child(nodes, "interface").map_or(head(node), head);
        let problem = format!("{interface} cannot carry the wildcard address {listener}");
        mistakes.push(
            Diagnostic::new(span, problem)
                .other(place, "this listens on every address")
                .help("listen on the addresses that the interface is to carry, or remove `interface`"),
        );
    }
    decoded
}

/// Off by `#false`; otherwise one address of each family, the written ones before those that stand for none.
fn self_test(mistakes: &mut Mistakes, nodes: &[KdlNode]) -> Vec<IpAddr> {
    let Some(node) = child(nodes, "self-test") else {
        return DUMMIES.to_vec();
    };
    mistakes.check(node, &SELF_TEST);
    let mut addresses: Vec<IpAddr> = Vec::new();
    for entry in arguments(node) {
        if let Ok(on) = boolean(entry.value()) {
            if on {
                continue;
            }
            return Vec::new();
        }
        match mistakes.value("self-test", entry, ip) {
            Some(ip) if addresses.iter().any(|other| other.is_ipv4() == ip.is_ipv4()) => {
                let second = Diagnostic::new(
                    entry.span().into(),
                    format!("{ip} is the second address of its family"),
                );
                mistakes.push(second.help("keep one IPv4 and one IPv6 address"));
            }
            Some(ip) => addresses.push(ip),
            None => {}
        }
    }
    let unwritten = |dummy: &IpAddr| addresses.iter().all(|ip| ip.is_ipv4() != dummy.is_ipv4());
    let dummies: Vec<IpAddr> = DUMMIES.into_iter().filter(unwritten).collect();
    addresses.extend(dummies);
    addresses
}

fn interface(value: &KdlValue) -> Result<String, Wrong> {
    let name = text(value)?;
    if !is_interface_name(&name) {
        let help = "write 1 to 15 ASCII characters, no space, slash or colon: \"nodelocaldns\"";
        return Err(Wrong::new("is not the name of an interface", help));
    }
    Ok(name)
}

#[cfg(test)]
mod tests {
    use super::super::tests::{config, problems};
    use super::*;

    const REST: &str = "listen \"169.254.20.10\"\nzone \".\" { forward \"192.0.2.1\" }\n";

    fn node(text: &str) -> Option<Node> {
        config(&format!("{REST}{text}")).node
    }

    #[test]
    fn nothing_is_set_up_unless_written() {
        assert_eq!(node(""), None);
    }

    #[test]
    fn most_has_a_default() {
        let expected = Node {
            interface: None,
            iptables: true,
            interval: s(60),
            mode: NodeMode::FallThrough,
            cluster_dns: Vec::new(),
            skip_teardown: false,
            self_test: DUMMIES.to_vec(),
        };
        assert_eq!(node("node { iptables }"), Some(expected.clone()));
        assert_eq!(
            node("node { iptables #true; skip-teardown #false; self-test #true }"),
            Some(expected)
        );
    }

    #[test]
    fn every_word_is_read() {
        let expected = Node {
            interface: Some("dns0".into()),
            iptables: true,
            interval: s(10),
            mode: NodeMode::Bypass,
            cluster_dns: vec!["10.96.0.10".parse().unwrap(), "fd00::10".parse().unwrap()],
            skip_teardown: true,
            self_test: vec!["10.244.255.254".parse().unwrap(), DUMMIES[1]],
        };
        let text = r#"node { interface "dns0"; iptables; interval "10s"; mode "bypass"
            cluster-dns "10.96.0.10" "fd00::10"; skip-teardown
            self-test "10.244.255.254" }"#;
        assert_eq!(node(text), Some(expected));
    }

    #[test]
    fn the_self_test_can_be_off() {
        let off = node("node { iptables; self-test #false }").unwrap();
        assert_eq!(off.self_test, Vec::<IpAddr>::new());
    }

    #[test]
    fn mistakes_are_found() {
        for (text, expected) in [
            ("node", "this `node` has no effect"),
            ("node { iptables #false }", "this `node` has no effect"),
            (
                "node { interface \"a b\" }",
                "`interface`: \"a b\" is not the name of an interface",
            ),
            (
                "node { iptables \"yes\" }",
                "`iptables`: \"yes\" is not a boolean",
            ),
            (
                "node { iptables; interval \"0s\" }",
                "`interval`: \"0s\" is out of range",
            ),
            (
                "node { iptables; mode \"ipvs\" }",
                "`mode`: \"ipvs\" is not a valid value",
            ),
            ("node { iptables; cluster-dns }", "`cluster-dns` needs a value"),
            (
                "node { iptables; cluster-dns \"kube-dns\" }",
                "`cluster-dns`: \"kube-dns\" is not the IP address of a host",
            ),
            (
                "node { iptables; cluster-dns \"::1\" \"::1\" }",
                "::1 is written twice",
            ),
            (
                "node { iptables; self-test \"pods\" }",
                "`self-test`: \"pods\" is not the IP address of a host",
            ),
            (
                "node { iptables; self-test \"10.0.0.1\" \"10.0.0.2\" }",
                "10.0.0.2 is the second address of its family",
            ),
            ("node { iptables }\nnode { iptables }", "`node` is written twice"),
        ] {
            assert_eq!(problems(&format!("{REST}{text}")), [expected], "{text}");
        }
        let wildcard = "listen \"0.0.0.0\"\nzone \".\" { forward \"192.0.2.1\" }\nnode { interface \"dns\" }";
        assert_eq!(
            problems(wildcard),
            ["dns cannot carry the wildcard address 0.0.0.0:53"]
        );
    }
}
