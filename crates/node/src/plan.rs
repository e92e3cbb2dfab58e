//! What a configuration wants of the node: a pure function, so that it can be shown before it is done.

use std::collections::BTreeSet;
use std::fmt;
use std::net::{IpAddr, SocketAddr};

use super::self_test::SelfTest;
use crate::config::{Config, Node, NodeMode};

/// What node-cache writes beside its rules. In bypass mode ours are the same rules and carry the same words, so that
/// either program finds what the other left.
const SKIP: &str = "NodeLocal DNS Cache: skip conntrack";
const ALLOW: &str = "NodeLocal DNS Cache: allow DNS traffic";

/// What we write beside rules in the other modes, so that a node-cache that ends beside us does not take them along.
const OUR_SKIP: &str = "dnsweir: skip conntrack";
const OUR_ALLOW: &str = "dnsweir: allow DNS traffic";
const SKIP_FOR_SOCKET: &str = "dnsweir: skip conntrack while a socket takes it";
const ANSWER_INSTEAD: &str = "dnsweir: without a socket the cluster DNS answers";
const TRACK: &str = "dnsweir: queries of the node are tracked";
const LEAVE: &str = "dnsweir: what leaves the node bears its own address";

/// Links, addresses and rules as they ought to be.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Plan {
    /// The link that carries the addresses, if one is to be kept.
    pub link: Option<Link>,
    /// The addresses that clients ask, on whichever link, with their ports.
    pub listeners: Vec<SocketAddr>,
    /// In the order in which they are put at the head of their chains.
    pub rules: Vec<Rule>,
    /// Where no rule of iptables could lead to the cluster's DNS.
    pub detours: Vec<Detour>,
    /// How it is tested that pods get answers, if it is.
    pub self_test: Option<SelfTest>,
}

/// While no socket takes what is sent to a listener, it goes to an address of the cluster's DNS, as if it had
/// been sent there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Detour {
    /// The listener.
    pub from: SocketAddr,
    /// The address, of the same family.
    pub to: IpAddr,
}

/// A link and what it carries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Link {
    /// Its name.
    pub name: String,
    /// Each alone, as a /32 or a /128.
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

/// Names the command that writes rules of the family.
impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Family::V4 => "iptables",
            Family::V6 => "ip6tables",
        })
    }
}

/// Which end of a packet a rule looks at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum End {
    /// `-s`, `--sport`
    Source,
    /// `-d`, `--dport`
    Destination,
}

/// What becomes of a packet that a rule matches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Target {
    /// It skips connection tracking, and with it every NAT.
    Notrack,
    /// It passes the filter table.
    Accept,
    /// It goes elsewhere.
    Dnat(SocketAddr),
    /// It leaves the node with an address of the node as its source, if it is no reply of a listener.
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
    /// The end that is `address`.
    pub end: End,
    /// One of ours.
    pub address: SocketAddr,
    /// Whether it only matches while a socket bound to that very address takes the packet.
    pub for_socket: bool,
    /// What happens then.
    pub target: Target,
    /// Says whose it is.
    pub comment: &'static str,
}

impl Rule {
    /// Which of the two commands it is for.
    pub fn family(&self) -> Family {
        Family::of(self.address.ip())
    }

    /// Whether it is one of those that bring us queries of others than the node's own processes.
    pub(crate) fn brings_queries(&self) -> bool {
        (self.table, self.chain, self.target) == ("raw", "PREROUTING", Target::Notrack)
    }

    /// Whether it keeps tracked what the node itself asks.
    pub(crate) fn has_queries_tracked(&self) -> bool {
        self.comment == TRACK
    }

    /// Whether node-cache writes such rules, too.
    pub(crate) fn may_be_node_caches(&self) -> bool {
        NODE_CACHES.contains(&self.comment)
    }

    /// Whether packets that `other` is about do not get to it, if this rule comes before it.
    pub(crate) fn hides(&self, other: &Rule) -> bool {
        let about = |rule: &Rule| (rule.table, rule.chain, rule.protocol, rule.end, rule.address);
        about(self) == about(other) && (self.target, other.target) == (Target::Notrack, Target::Accept)
    }

    /// Everything behind the chain, in node-cache's order.
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

/// As one would type it.
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
    /// What a configuration wants; without a `node` section, nothing.
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

    /// The rules for the node's own queries to a listener's address, which are there before the node has that address.
    pub fn leaving(&self) -> Vec<Rule> {
        let leaving = self
            .rules
            .iter()
            .filter(|rule| [TRACK, LEAVE].contains(&rule.comment));
        leaving.cloned().collect()
    }

    /// What remains until the listeners are closed and their addresses gone: the rules for the node's own queries, and
    /// those by which replies over UDP leave as untracked as their queries came. Not those for TCP: tracking takes up a
    /// connection in its middle with the next packet of either side, which had better be ours than one that is translated.
    pub fn closing(&self) -> Vec<Rule> {
        let is_reply = |rule: &&Rule| (rule.protocol, rule.chain, rule.end) == ("udp", "OUTPUT", End::Source);
        let replies = self.rules.iter().filter(is_reply).cloned();
        self.leaving().into_iter().chain(replies).collect()
    }

    /// The addresses of the listeners, one for each.
    pub(crate) fn listening_ips(&self) -> Vec<IpAddr> {
        self.listeners.iter().map(|listener| listener.ip()).collect()
    }

    /// Whether nothing is wanted.
    pub fn is_empty(&self) -> bool {
        self.link.is_none() && self.rules.is_empty()
    }
}

/// Whether anything is kept for a listener. The machine has its loopback addresses without us, and none
/// of its packets are tracked by another's rules; a wildcard names no address at all. In IPVS clusters
/// the cluster's DNS address belongs to kube-proxy's own link, whoever listens there.
fn concerns(node: &Node, listener: SocketAddr) -> bool {
    let ip = listener.ip();
    let taken = node.mode == NodeMode::LinkLocal && node.cluster_dns.contains(&ip);
    !ip.is_loopback() && !ip.is_unspecified() && !taken
}

/// The address of the cluster's DNS that is of the listener's family.
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
        // kube-proxy's own rules stand behind this address, and the node's own queries to it are meant for them.
        (NodeMode::FallThrough, _) if node.cluster_dns.contains(&ip) => {
            let mut rules = switched(listener);
            rules.extend(leaving(listener));
            rules
        }
        // A detour does.
        (NodeMode::FallThrough, Some(_)) => {
            let mut rules = switched(listener);
            rules.extend(from_the_node(listener));
            rules.extend(probed());
            rules
        }
        // IPVS stands behind the cluster DNS address, and takes packets after every DNAT.
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
        // Nothing stands behind it: a rule that always holds costs less than one that looks for a socket.
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

/// What the node itself asks the cluster's DNS.
///
/// Such a query is tracked, so that kube-proxy translates it, whatever a node-cache beside us has written. It has the
/// address that it asks as its source, since that is the node's own; translated to a pod of another node it would leave as
/// such, and the reply never come back: that node has the same address. kube-proxy gives it an address of the node only if
/// it was told which addresses are pods'. Replies of the listener keep theirs.
fn leaving(listener: SocketAddr) -> Vec<Rule> {
    use End::{Destination, Source};
    let both = |table, chain, end, target, comment| both(listener, table, chain, end, target, comment);
    [
        both("raw", "OUTPUT", Destination, Target::Accept, TRACK),
        both("nat", "POSTROUTING", Source, Target::Masquerade, LEAVE),
    ]
    .concat()
}

/// A rule for TCP and the same for UDP.
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

/// The first eight of node-cache's twelve rules, those last that bring us queries: by then whatever these and their replies
/// need is there. A reply that is tracked while its query was not is a new connection to the kernel: it leaves from another
/// port if one from the client's was translated before, and what the client sends from its port later is taken for replies,
/// which nobody translates.
fn always(listener: SocketAddr) -> Vec<Rule> {
    use End::{Destination, Source};
    let both = |table, chain, end, target, comment| both(listener, table, chain, end, target, comment);
    [
        // Firewalls that accept tracked connections only would drop what we leave untracked.
        both("filter", "INPUT", Destination, Target::Accept, ALLOW),
        both("filter", "OUTPUT", Source, Target::Accept, ALLOW),
        both("raw", "OUTPUT", Source, Target::Notrack, SKIP),
        both("raw", "PREROUTING", Destination, Target::Notrack, SKIP),
    ]
    .concat()
}

/// The same eight, except that queries are only left untracked while a socket takes them. Without one
/// they are tracked, and whoever has a NAT rule for the address translates them.
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

/// The comments of rules that may be node-cache's.
pub(super) const NODE_CACHES: [&str; 2] = [SKIP, ALLOW];

/// The comments of rules that may be ours or node-cache's.
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
