//! What a configuration needs on the node. A pure function, so that a plan can be shown before it is applied.

use std::collections::BTreeSet;
use std::fmt;
use std::net::{IpAddr, SocketAddr};

use super::self_test::SelfTest;
use crate::config::{Config, Node, NodeMode};

/// The comments of node-cache's rules. In bypass mode our rules are the same and have the same comments, so
/// that either program finds what the other left.
const SKIP: &str = "NodeLocal DNS Cache: skip conntrack";
const ALLOW: &str = "NodeLocal DNS Cache: allow DNS traffic";

/// Our comments in the other modes, so that a node-cache that ends does not remove our rules.
const OUR_SKIP: &str = "dnsweir: skip conntrack";
const OUR_ALLOW: &str = "dnsweir: allow DNS traffic";
const SKIP_FOR_SOCKET: &str = "dnsweir: skip conntrack while a socket takes it";
const ANSWER_INSTEAD: &str = "dnsweir: without a socket the cluster DNS answers";
const TRACK: &str = "dnsweir: queries of the node are tracked";
const LEAVE: &str = "dnsweir: what leaves the node bears its own address";

/// The wanted links, addresses and rules.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Plan {
    /// The link that carries the addresses, if it is managed.
    pub link: Option<Link>,
    /// The addresses and ports that clients query, on whichever link.
    pub listeners: Vec<SocketAddr>,
    /// In the order in which they are inserted at the head of their chains.
    pub rules: Vec<Rule>,
    /// For listeners where iptables rules alone cannot lead to the cluster's DNS.
    pub detours: Vec<Detour>,
    /// The self-test of whether pods get answers, if enabled.
    pub self_test: Option<SelfTest>,
}

/// While no socket takes what is sent to a listener, it is redirected to the cluster's DNS.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Detour {
    /// The listener.
    pub from: SocketAddr,
    /// The address of the cluster's DNS, of the same family.
    pub to: IpAddr,
}

/// A link and what it carries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Link {
    /// Its name.
    pub name: String,
    /// Single addresses: /32 or /128.
    pub addresses: Vec<IpAddr>,
}

/// IPv4 or IPv6.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs, reason = "each is what it is called")]
pub enum Family {
    V4,
    V6,
}

impl Family {
    /// The family of an address.
    pub fn of(address: IpAddr) -> Family {
        if address.is_ipv4() { Family::V4 } else { Family::V6 }
    }
}

/// The command that writes rules of the family.
impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Family::V4 => "iptables",
            Family::V6 => "ip6tables",
        })
    }
}

/// The end of a packet that a rule matches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum End {
    /// `-s`, `--sport`
    Source,
    /// `-d`, `--dport`
    Destination,
}

/// What happens to a packet that a rule matches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Target {
    /// Skips connection tracking, and so all NAT.
    Notrack,
    /// Accepts it in the table of the rule.
    Accept,
    /// Rewrites its destination.
    Dnat(SocketAddr),
    /// Rewrites the source to an address of the node, except for a listener's replies.
    Masquerade,
}

/// One rule of iptables or ip6tables.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Rule {
    /// `raw`, `filter` or `nat`.
    pub table: &'static str,
    /// `PREROUTING`, `INPUT`, `OUTPUT` or `POSTROUTING`.
    pub chain: &'static str,
    /// `tcp` or `udp`.
    pub protocol: &'static str,
    /// Which end `address` is matched against.
    pub end: End,
    /// One of ours.
    pub address: SocketAddr,
    /// Whether it only matches while a socket bound to exactly that address takes the packet.
    pub for_socket: bool,
    /// What happens to matching packets.
    pub target: Target,
    /// Says whose rule it is.
    pub comment: &'static str,
}

impl Rule {
    /// The address family, and so the command that writes it.
    pub fn family(&self) -> Family {
        Family::of(self.address.ip())
    }

    /// Returns whether it brings us queries from clients other than the node's own processes.
    pub(crate) fn brings_queries(&self) -> bool {
        (self.table, self.chain, self.target) == ("raw", "PREROUTING", Target::Notrack)
    }

    /// Returns whether it has the node's own queries tracked.
    pub(crate) fn has_queries_tracked(&self) -> bool {
        self.comment == TRACK
    }

    /// Returns whether node-cache writes rules with this comment, too.
    pub(crate) fn may_be_node_caches(&self) -> bool {
        NODE_CACHES.contains(&self.comment)
    }

    /// Returns whether this rule, if it comes first, keeps the packets that `other` matches from reaching it.
    pub(crate) fn hides(&self, other: &Rule) -> bool {
        let about = |rule: &Rule| (rule.table, rule.chain, rule.protocol, rule.end, rule.address);
        about(self) == about(other) && (self.target, other.target) == (Target::Notrack, Target::Accept)
    }

    /// The arguments after the chain, in node-cache's order.
    pub fn arguments(&self) -> String {
        let Rule {
            protocol,
            address,
            comment,
            ..
        } = self;
        let (ip, port) = (address.ip(), address.port());
        let (end, end_port) = match (self.end, self.target) {
            (End::Source, Target::Masquerade) => ("-s", "! -o lo ! --sport"),
            (End::Source, _) => ("-s", "--sport"),
            (End::Destination, _) => ("-d", "--dport"),
        };
        let socket = if self.for_socket { " -m socket" } else { "" };
        let target = match self.target {
            Target::Notrack => "NOTRACK".to_string(),
            Target::Accept => "ACCEPT".to_string(),
            Target::Dnat(to) => format!("DNAT --to-destination {to}"),
            Target::Masquerade => "MASQUERADE".to_string(),
        };
        format!(
            "-p {protocol} {end} {ip} {end_port} {port}{socket} -j {target} -m comment --comment \"{comment}\""
        )
    }
}

/// The command line that inserts it.
impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} -t {} -I {} {}",
            self.family(),
            self.table,
            self.chain,
            self.arguments()
        )
    }
}

impl Plan {
    /// What a configuration needs; empty without a `node` section.
    pub fn of(config: &Config) -> Plan {
        let Some(node) = &config.node else {
            return Plan::default();
        };
        let listeners: Vec<SocketAddr> = config
            .listen
            .plain()
            .filter(|&listener| concerns(node, listener))
            .collect();
        let mut addresses: Vec<IpAddr> = Vec::new();
        for listener in &listeners {
            if !addresses.contains(&listener.ip()) {
                addresses.push(listener.ip());
            }
        }
        let ruled: &[SocketAddr] = if node.iptables { &listeners } else { &[] };
        Plan {
            link: node.interface.clone().map(|name| Link { name, addresses }),
            rules: ruled
                .iter()
                .flat_map(|&listener| rules_for(node, listener, &config.admin.addresses))
                .collect(),
            detours: ruled
                .iter()
                .filter_map(|&listener| detour_for(node, listener))
                .collect(),
            self_test: SelfTest::of(config, node, &listeners),
            listeners,
        }
    }

    /// The rules for the node's own queries to a listener's address. Needed before the node has that address.
    pub fn leaving(&self) -> Vec<Rule> {
        let leaving = self
            .rules
            .iter()
            .filter(|rule| [TRACK, LEAVE].contains(&rule.comment));
        leaving.cloned().collect()
    }

    /// The rules that stay until the listeners are closed and their addresses gone: those for the node's own
    /// queries, and those that leave UDP replies as untracked as their queries. TCP reply rules go:
    /// connection tracking picks up a connection midstream with the next packet of either side, and that had
    /// better be ours than one that is translated.
    pub fn closing(&self) -> Vec<Rule> {
        let is_reply = |rule: &&Rule| (rule.protocol, rule.chain, rule.end) == ("udp", "OUTPUT", End::Source);
        let replies = self.rules.iter().filter(is_reply).cloned();
        self.leaving().into_iter().chain(replies).collect()
    }

    /// The address of each listener.
    pub(crate) fn listening_ips(&self) -> Vec<IpAddr> {
        self.listeners.iter().map(|listener| listener.ip()).collect()
    }

    /// Returns whether the plan is empty.
    pub fn is_empty(&self) -> bool {
        self.link.is_none() && self.rules.is_empty()
    }
}

/// Returns whether the plan covers a listener. Loopback addresses exist without us and no other program has
/// their packets tracked; a wildcard names no address. A link-local IPv6 address belongs to the link that its
/// listener names, which no rule could tell from others. In IPVS clusters the cluster's DNS address is on
/// kube-proxy's own link, whoever listens there.
fn concerns(node: &Node, listener: SocketAddr) -> bool {
    let ip = listener.ip();
    let taken = node.mode == NodeMode::LinkLocal && node.cluster_dns.contains(&ip);
    let of_a_link = matches!(ip, IpAddr::V6(ip) if ip.is_unicast_link_local());
    !ip.is_loopback() && !ip.is_unspecified() && !of_a_link && !taken
}

/// The cluster DNS address of the listener's family.
fn cluster_dns(node: &Node, listener: SocketAddr) -> Option<IpAddr> {
    let same_family = |dns: &&IpAddr| dns.is_ipv4() == listener.is_ipv4();
    node.cluster_dns.iter().find(same_family).copied()
}

fn detour_for(node: &Node, from: SocketAddr) -> Option<Detour> {
    let needed = node.mode == NodeMode::FallThrough && !node.cluster_dns.contains(&from.ip());
    let to = cluster_dns(node, from).filter(|_| needed)?;
    Some(Detour { from, to })
}

fn rules_for(node: &Node, listener: SocketAddr, admin: &[SocketAddr]) -> Vec<Rule> {
    let ip = listener.ip();
    let ports: BTreeSet<u16> = admin.iter().map(SocketAddr::port).collect();
    let probed = || ports.iter().flat_map(|port| probes(ip, *port));
    let mut rules = match (node.mode, cluster_dns(node, listener)) {
        // kube-proxy's rules handle this address, and the node's own queries to it are meant for them.
        (NodeMode::FallThrough, _) if node.cluster_dns.contains(&ip) => {
            let mut rules = switched(listener);
            rules.extend(leaving(listener));
            rules
        }
        // A detour leads to the cluster's DNS.
        (NodeMode::FallThrough, Some(_)) => {
            let mut rules = switched(listener);
            rules.extend(from_the_node(listener));
            rules.extend(probed());
            rules
        }
        // IPVS handles the cluster DNS address, and sees packets after every DNAT.
        (NodeMode::LinkLocal, Some(dns)) => {
            let mut rules = switched(listener);
            rules.extend(from_the_node(listener));
            let instead = Target::Dnat(SocketAddr::new(dns, listener.port()));
            rules.extend(both(
                listener,
                "nat",
                "PREROUTING",
                End::Destination,
                instead,
                ANSWER_INSTEAD,
            ));
            rules
        }
        // Nothing else answers there: an unconditional rule costs less than a socket lookup.
        _ => {
            let mut rules = always(listener);
            rules.extend(from_the_node(listener));
            rules.extend(probed());
            rules
        }
    };
    if node.mode != NodeMode::Bypass {
        for rule in &mut rules {
            rule.comment = match rule.comment {
                SKIP => OUR_SKIP,
                ALLOW => OUR_ALLOW,
                ours => ours,
            };
        }
    }
    rules
}

/// The rules for the node's own queries to the cluster's DNS.
///
/// Such a query is tracked so that kube-proxy translates it, whatever rules a node-cache beside us has
/// written. Its source is the address it is sent to, since the node has that address. If it were translated
/// to a pod on another node and kept that source, the reply would never return: that node has the same
/// address. kube-proxy rewrites the source only if it knows the pods' address range. The listener's replies
/// keep their source.
fn leaving(listener: SocketAddr) -> Vec<Rule> {
    use End::{Destination, Source};
    let both = |table, chain, end, target, comment| both(listener, table, chain, end, target, comment);
    [
        both("raw", "OUTPUT", Destination, Target::Accept, TRACK),
        both("nat", "POSTROUTING", Source, Target::Masquerade, LEAVE),
    ]
    .concat()
}

/// The same rule for TCP and for UDP.
fn both(
    address: SocketAddr,
    table: &'static str,
    chain: &'static str,
    end: End,
    target: Target,
    comment: &'static str,
) -> [Rule; 2] {
    ["tcp", "udp"].map(|protocol| Rule {
        table,
        chain,
        protocol,
        end,
        address,
        for_socket: false,
        target,
        comment,
    })
}

/// The first eight of node-cache's twelve rules. Those that bring us queries come last, when everything that
/// queries and replies need is in place. A tracked reply to an untracked query is a new connection to the
/// kernel: it leaves from another port if a connection from the client's was translated before, and later
/// packets from the client's port are taken for replies, which are never translated.
fn always(listener: SocketAddr) -> Vec<Rule> {
    use End::{Destination, Source};
    let both = |table, chain, end, target, comment| both(listener, table, chain, end, target, comment);
    [
        // Firewalls that only accept tracked connections would drop our untracked packets.
        both("filter", "INPUT", Destination, Target::Accept, ALLOW),
        both("filter", "OUTPUT", Source, Target::Accept, ALLOW),
        both("raw", "OUTPUT", Source, Target::Notrack, SKIP),
        both("raw", "PREROUTING", Destination, Target::Notrack, SKIP),
    ]
    .concat()
}

/// The same eight, except that queries are untracked only while a socket takes them. Otherwise they are
/// tracked, and translated by any NAT rule for the address.
fn switched(listener: SocketAddr) -> Vec<Rule> {
    let mut rules = always(listener);
    for rule in rules.iter_mut().filter(|rule| rule.chain == "PREROUTING") {
        rule.for_socket = true;
        rule.comment = SKIP_FOR_SOCKET;
    }
    rules
}

/// Rules nine and ten: queries of clients on the node itself.
fn from_the_node(listener: SocketAddr) -> [Rule; 2] {
    both(listener, "raw", "OUTPUT", End::Destination, Target::Notrack, SKIP)
}

/// Rules eleven and twelve: the kubelet's probes.
fn probes(ip: IpAddr, port: u16) -> [Rule; 2] {
    [End::Destination, End::Source].map(|end| Rule {
        table: "raw",
        chain: "OUTPUT",
        protocol: "tcp",
        end,
        address: SocketAddr::new(ip, port),
        for_socket: false,
        target: Target::Notrack,
        comment: SKIP,
    })
}

/// The comments that node-cache's rules have.
pub(super) const NODE_CACHES: [&str; 2] = [SKIP, ALLOW];

/// The comments that our rules or node-cache's have.
pub(super) const COMMENTS: [&str; 8] = [
    SKIP,
    ALLOW,
    OUR_SKIP,
    OUR_ALLOW,
    SKIP_FOR_SOCKET,
    ANSWER_INSTEAD,
    TRACK,
    LEAVE,
];

#[cfg(test)]
#[path = "plan/tests.rs"]
mod tests;
