//! `clients`: which clients may ask, and how much.

use std::net::SocketAddr;
use std::ops::RangeInclusive;

use kdl::{KdlNode, KdlValue};

use super::decode::{Decoder, Kind, Shape, Wrong, block, child, named_nodes, whole};
use super::encrypted;
use super::error::{Diagnostic, Span};
use super::network::{self, Network, left_aligned};
use super::words::{Table, words};

words! {
    // At the top level, for all listeners that have no `clients`.
    () in CLIENTS(0..=0): r#"clients { allow "private" "192.0.2.0/24" }"#;
    by hand {
        /// Only these clients may ask.
        hand "allow" = ("as without `clients`") in ALLOW, "networks, addresses and keywords";
        /// These clients may not ask.
        hand "refuse" = none in ALLOW, "networks, addresses and keywords";
        /// Send no reply to refused clients; over TCP, close the connection.
        switch "silent" = off;
        /// Queries per second of one client, over UDP and TCP. More get REFUSED, or with `silent` no reply.
        hand "queries" = ("unlimited") in QUERIES;
        /// Responses per second to one network over UDP.
        hand "responses" = ("unlimited") in RESPONSES;
    }
}

/// In `listen`, for some of its addresses.
pub(super) const OF_LISTENER: Table<()> = restricted(1..=64, r#"clients "0.0.0.0" { allow "any" }"#);

/// In `zone`, for its names.
pub(super) const OF_ZONE: Table<()> = restricted(0..=0, r#"clients { allow "private" }"#);

/// `clients` without rates.
const fn restricted(values: RangeInclusive<usize>, example: &'static str) -> Table<()> {
    Table {
        shape: Shape {
            example,
            arguments: values,
            children: CLIENTS.shape.children.split_at(3).0,
            ..CLIENTS.shape
        },
        words: CLIENTS.words.split_at(3).0,
        ..CLIENTS
    }
}

/// `allow` and `refuse`.
pub(super) const ALLOW: Table<()> = Table::plain(1..=MOST, r#"allow "private" "192.0.2.0/24""#);

words! {
    /// A rate limit.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct Rate in QUERIES(1..=1): "queries 1000 burst=2000 ipv4=32 ipv6=128", then read_burst;

    /// A second.
    value "NUMBER" per_second: u32 = ("required": 1000, else 1) in whole(1..=1_000_000);
    /// Bits of an IPv4 address that count as one client.
    property "ipv4" ipv4: u8 = 32 in whole(8..=32);
    /// Bits of an IPv6 address that count as one client.
    property "ipv6" ipv6: u8 = 128 in whole(16..=128);
    by hand {
        /// Queries allowed at once after a pause, at most one minute's worth.
        property "burst" = ("one second's worth") in whole(1..=1_000_000 * LONGEST_BURST);
    }
    besides {
        /// How many are allowed at once after a pause.
        burst: u32;
        /// One in this many excess responses is sent truncated; 0: none.
        slip: u32;
    }
}

words! {
    Rate in RESPONSES(1..=1): "responses 100 slip=2 ipv4=24 ipv6=56", then read_burst;

    /// A second.
    value "NUMBER" per_second: u32 = ("required": 100, else 1) in whole(1..=1_000_000);
    /// One in this many excess responses is sent truncated, so that real clients retry over TCP. The others are dropped;
    /// with 0, all.
    property "slip" slip: u32 = 2 in whole(0..=10);
    /// Bits of an IPv4 address that count as one network.
    property "ipv4" ipv4: u8 = 24 in whole(8..=32);
    /// Bits of an IPv6 address that count as one network.
    property "ipv6" ipv6: u8 = 56 in whole(16..=128);
    by hand {
        /// Responses allowed at once after a pause, at most one minute's worth.
        property "burst" = ("one second's worth") in whole(1..=1_000_000 * LONGEST_BURST);
    }
    besides {
        /// How many are allowed at once after a pause.
        burst: u32;
    }
}

/// The most seconds' worth of a rate that a burst may hold.
const LONGEST_BURST: u32 = 60;

/// Reads `burst`, whose bounds and default depend on the rate.
fn read_burst(decoder: &mut Decoder, node: &KdlNode, rate: &mut Rate) {
    let most = rate.per_second.saturating_mul(LONGEST_BURST);
    let burst = decoder.property(node, "burst", whole(1..=most));
    rate.burst = burst.unwrap_or(rate.per_second);
}

/// The most networks in one `allow` or `refuse`.
const MOST: usize = 1024;

/// `clients { … }`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Clients {
    /// `allow "NETWORK"…` and `refuse "NETWORK"…`: each network once, and whether it is allowed. The smallest
    /// network that contains the client decides.
    pub networks: Vec<(Network, bool)>,
    /// `allow "node"`: the networks of the node's own addresses.
    pub node: bool,
    /// Whether there is an `allow`; if so, all other clients are refused.
    pub only_these: bool,
    /// `silent`: refused clients get no reply.
    pub silent: bool,
    /// `queries 1000 burst=1000 ipv4=32 ipv6=128`: the limit per client.
    pub queries: Option<Rate>,
    /// `responses 100 burst=100 slip=2 ipv4=24 ipv6=56`: the limit per network over UDP.
    pub responses: Option<Rate>,
}

/// The keyword for the networks of the node's addresses.
const NODE: &str = "node";

/// A network as written, and whether its clients are allowed.
struct Rule {
    network: Network,
    allowed: bool,
    span: Span,
    /// Whether it comes from a keyword that stands for several.
    word: bool,
}

/// Decodes a `clients` node; `shape` is one of three, by position in the file.
pub(super) fn decode(decoder: &mut Decoder, shape: &Shape, node: &KdlNode) -> Clients {
    decoder.check(node, shape);
    let nodes = block(node);
    if nodes.is_empty() {
        decoder.report(node, "this `clients` is empty", shape.help());
    }
    let mut rules = Vec::new();
    let mut words = Vec::new();
    for (name, allowed) in [("allow", true), ("refuse", false)] {
        let Some(list) = child(nodes, name) else { continue };
        decoder.check(list, &ALLOW.shape);
        for ((word, networks), span) in decoder.values_at(list, |value: &KdlValue| who(value, allowed)) {
            if let Some(word) = word {
                let problem = format!("{word:?} is written twice");
                decoder.meet(&mut words, word, span, problem, "keep one of them");
            }
            let word = word.is_some();
            rules.extend(networks.into_iter().map(|network| Rule {
                network,
                allowed,
                span,
                word,
            }));
        }
    }
    let only_these = child(nodes, "allow").is_some();
    refuse_idle(decoder, &rules, only_these);
    // An explicit network overrides the same network from a keyword.
    let is_written = |network| rules.iter().any(|rule| !rule.word && rule.network == network);
    let networks = rules
        .iter()
        .filter(|rule| !rule.word || !is_written(rule.network));
    Clients {
        networks: networks.map(|rule| (rule.network, rule.allowed)).collect(),
        node: words.iter().any(|&(word, _)| word == NODE),
        only_these,
        silent: decoder.switch(nodes, "silent"),
        queries: child(nodes, "queries").map(|node| QUERIES.read(decoder, node)),
        responses: child(nodes, "responses").map(|node| RESPONSES.read(decoder, node)),
    }
}

/// Decodes each `clients` of a `listen`, with the addresses that it applies to.
pub(super) fn decode_of_listener(
    decoder: &mut Decoder,
    nodes: &[KdlNode],
    addresses: &[SocketAddr],
) -> Vec<(SocketAddr, Clients)> {
    let mut found = Vec::new();
    let mut taken = Vec::new();
    for node in named_nodes(nodes, "clients") {
        let clients = decode(decoder, &OF_LISTENER.shape, node);
        for (address, span) in decoder.values_at(node, encrypted::listening_address) {
            let problem = format!("`clients` is written twice for {address}");
            if !addresses.contains(&address) {
                let problem = format!("{address} is not an address of this `listen`");
                decoder.report(span, problem, "write one of the addresses that follow `listen`");
            } else if decoder.meet(&mut taken, address, span, problem, "keep one of them") {
                found.push((address, clients.clone()));
            }
        }
    }
    found
}

/// Reads a keyword, a network or an address. Returns the keyword, if it is one, and the networks that it stands
/// for, as far as they are known here.
fn who(value: &KdlValue, allowed: bool) -> Result<(Option<&'static str>, Vec<Network>), Wrong> {
    const HELP: &str = "write a network, an address or a word: \"192.0.2.0/24\", \"2001:db8::1\", \"private\", \"node\", \"any\"";
    let text = value
        .as_string()
        .ok_or_else(|| Wrong::new("is not a network", HELP))?;
    match text {
        "private" => Ok((Some("private"), Network::PRIVATE.to_vec())),
        "any" if allowed => Ok((Some("any"), Network::ANY.to_vec())),
        NODE if allowed => Ok((Some(NODE), Vec::new())),
        "any" | NODE => {
            let help = "list the clients that may ask in `allow`: all others are refused";
            Err(Wrong::new("can only be allowed", help))
        }
        _ => Ok((None, vec![network(HELP)(value)?])),
    }
}

/// Reads a network or an address; `help` explains the syntax.
pub(super) fn network(help: &'static str) -> impl Kind<Network> {
    move |value: &KdlValue| {
        let parsed = value.as_string().and_then(network::parse);
        let (address, length) = parsed.ok_or_else(|| Wrong::new("is not a network", help))?;
        match length.and_then(|length| Network::of(address, length)) {
            None => {
                let help = format!("write a prefix of 0 to {} bits", left_aligned(address).0);
                Err(Wrong::new("is not a network", help))
            }
            Some(network) if network.address != address => {
                let help = format!("write \"{network}\", or \"{address}\"");
                Err(Wrong::new("has bits set after its prefix", help))
            }
            Some(network) => Ok(network),
        }
    }
}

/// The help for a network or an address.
pub(super) const NETWORK: &str = "write a network or an address: \"192.0.2.0/24\", \"2001:db8::1\"";

/// Reports networks that make no difference. The smallest network that contains a client decides.
fn refuse_idle(decoder: &mut Decoder, rules: &[Rule], only_these: bool) {
    // Networks from keywords are exempt: the keyword was not written for each of them.
    let written = |rule: &&Rule| !rule.word;
    for (index, rule) in rules.iter().enumerate().filter(|(_, rule)| !rule.word) {
        let network = rule.network;
        let mut earlier = rules[..index].iter().filter(written);
        if let Some(same) = earlier.find(|earlier| earlier.network == network) {
            let problem = match same.allowed == rule.allowed {
                true => format!("{network} is written twice"),
                false => format!("{network} is both allowed and refused"),
            };
            decoder.report_again(rule.span, same.span, problem, "keep one of them");
            continue;
        }
        let around = rules
            .iter()
            .filter(|other| other.network.covers(&network) && (other.word || other.network != network))
            .max_by_key(|other| (other.network.length, other.word));
        let (idle, why) = match around {
            Some(around) => (
                around.allowed == rule.allowed,
                format!("{} already has the same effect", around.network),
            ),
            None => (
                only_these && !rule.allowed,
                "what is not allowed is refused".to_owned(),
            ),
        };
        if idle {
            let problem = format!("{network} makes no difference: {why}");
            let mut idle = Diagnostic::new(rule.span, problem).help("remove it");
            if let Some(around) = around {
                idle = idle.other(around.span, "here");
            }
            decoder.push(idle);
        }
    }
}
