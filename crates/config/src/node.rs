//! `node`: the node's network around the proxy.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use kdl::{KdlNode, KdlValue};

use super::address::{ip, is_interface_name};
use super::decode::{Decoder, Wrong, arguments, block, boolean, child, fitting, head, word};
use super::error::Diagnostic;
use super::units::{duration, s};
use super::words::{Table, words};

words! {
    /// `node { … }`: the node's network. Checked here, applied by the node set-up.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Node in NODE(0..=0): r#"node { interface "nodelocaldns"; iptables }"#, then check;

    /// The link to create for the listen addresses, which may not be `"0.0.0.0"` or `"::"`.
    one "interface" interface: Option<String> = ("none": "nodelocaldns") in interface, "1 to 15 characters";
    /// Manage iptables rules.
    switch "iptables" iptables: bool = off;
    /// How often everything is checked and repaired.
    one "interval" interval: Duration = "60s" in duration(s(1)..=s(3600));
    /// Which rules: below.
    one "mode" mode: NodeMode = "fall-through" in word(&MODES);
    /// Addresses of the cluster's DNS service.
    table "cluster-dns" cluster_dns: Vec<IpAddr> = ("none") in CLUSTER_DNS, "IP addresses";
    /// Leave links and rules when the process ends.
    switch "skip-teardown" skip_teardown: bool = off;
    /// Source addresses of the [self-test](node.md#self-test)'s queries, one of each family.
    table "self-test" self_test: Vec<IpAddr> = ("`\"192.0.0.8\"`, `\"100:0:0:1::8\"`") in SELF_TEST, "addresses; `#true`: these; `#false`: none";
}

impl Node {
    /// Addresses of the cluster's DNS that the node's own queries reach, though the proxy listens on them: those of
    /// fall-through rules.
    pub(super) fn past_us(&self) -> &[IpAddr] {
        match self.iptables && self.mode == NodeMode::FallThrough {
            true => &self.cluster_dns,
            false => &[],
        }
    }
}

/// Which rules are installed, and what happens to queries when the process dies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum NodeMode {
    /// node-cache's rules: all packets to the listen addresses skip connection tracking.
    Bypass,
    /// For a link-local address that no service uses.
    LinkLocal,
    /// Packets skip connection tracking only while a socket takes them; without one, the cluster DNS answers.
    #[default]
    FallThrough,
}

const MODES: [(&str, NodeMode); 3] = [
    ("bypass", NodeMode::Bypass),
    ("link-local", NodeMode::LinkLocal),
    ("fall-through", NodeMode::FallThrough),
];

const CLUSTER_DNS: Table<Vec<IpAddr>> =
    Table::of_values(1..=16, r#"cluster-dns "10.96.0.10""#, read_cluster_dns);

const SELF_TEST: Table<Vec<IpAddr>> = Table {
    default: || DUMMIES.to_vec(),
    ..Table::of_values(0..=2, r#"self-test "10.244.255.254""#, read_self_test)
};

/// Default source addresses of the self-test: dummy addresses that no host has (RFC 7600, RFC 9780).
pub(super) const DUMMIES: [IpAddr; 2] = [
    IpAddr::V4(Ipv4Addr::new(192, 0, 0, 8)),
    IpAddr::V6(Ipv6Addr::new(0x100, 0, 0, 1, 0, 0, 0, 8)),
];

fn check(decoder: &mut Decoder, node: &KdlNode, read: &mut Node) {
    let nodes = block(node);
    if child(nodes, "interface").is_none() && !read.iptables {
        let help = format!("{}; or remove it", NODE.shape.help());
        decoder.report(node, "this `node` has no effect", help);
    }
    let wildcard = decoder.around.listeners.wildcard();
    if let (Some(interface), Some((listener, place))) = (&read.interface, wildcard) {
        let span = child(nodes, "interface").map_or(head(node), head);
        let problem = format!("{interface} cannot carry the wildcard address {listener}");
        let wildcard = Diagnostic::new(span, problem).other(place, "this listens on every address");
        let help = "listen on the addresses that the interface is to carry, or remove `interface`";
        decoder.push(wildcard.help(help));
    }
}

fn read_cluster_dns(decoder: &mut Decoder, node: &KdlNode, _: &[KdlNode]) -> Vec<IpAddr> {
    let mut addresses = Vec::new();
    for (ip, span) in decoder.values_at(node, ip) {
        let problem = format!("{ip} is written twice");
        decoder.meet(&mut addresses, ip, span, problem, "keep one of them");
    }
    addresses.into_iter().map(|(ip, _)| ip).collect()
}

/// The self-test's source addresses: none with `#false`; otherwise one per family, the configured ones first,
/// then dummies for the families that have none.
fn read_self_test(decoder: &mut Decoder, node: &KdlNode, _: &[KdlNode]) -> Vec<IpAddr> {
    let mut addresses: Vec<IpAddr> = Vec::new();
    for entry in arguments(node) {
        if let Ok(on) = boolean(entry.value()) {
            if on {
                continue;
            }
            return Vec::new();
        }
        match decoder.value("self-test", entry, ip) {
            Some(ip) if addresses.iter().any(|other| other.is_ipv4() == ip.is_ipv4()) => {
                let problem = format!("{ip} is the second address of its family");
                decoder.report(entry, problem, "keep one IPv4 and one IPv6 address");
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
    let help = "write 1 to 15 ASCII characters, no space, slash or colon: \"nodelocaldns\"";
    fitting(value, is_interface_name, "is not the name of an interface", help)
}
