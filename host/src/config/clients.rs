//! `clients`: who may ask, and how much.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};

use kdl::{KdlNode, KdlValue};

use super::decode::{Mistakes, Shape, Wrong, arguments, block, child, head, named_nodes, whole};
use super::error::{Diagnostic, Span};
use super::network::left_aligned;
use super::{Clients, Network, Rate, encrypted};

/// In the file, for all listeners that have none of their own.
pub(super) const CLIENTS: Shape = Shape {
    example: r#"clients { allow "private" "192.0.2.0/24" }"#,
    arguments: 0..=0,
    properties: &[],
    children: &["allow", "refuse", "silent", "queries", "responses"],
    repeated: &[],
};

/// In `listen`, for some of its addresses.
pub(super) const OF_LISTENER: Shape = Shape {
    example: r#"clients "0.0.0.0" { allow "any" }"#,
    arguments: 1..=64,
    properties: &[],
    children: &["allow", "refuse", "silent"],
    repeated: &[],
};

/// In `zone`, for its names.
pub(super) const OF_ZONE: Shape = Shape {
    example: r#"clients { allow "private" }"#,
    arguments: 0..=0,
    ..OF_LISTENER
};

/// `allow` and `refuse`.
pub(super) const ALLOW: Shape = Shape::plain(1..=MOST, r#"allow "private" "192.0.2.0/24""#);

pub(super) const QUERIES: Shape = Shape {
    example: "queries 1000 burst=2000 ipv4=32 ipv6=128",
    arguments: 1..=1,
    properties: &["burst", "ipv4", "ipv6"],
    children: &[],
    repeated: &[],
};

pub(super) const RESPONSES: Shape = Shape {
    example: "responses 100 slip=2 ipv4=24 ipv6=56",
    arguments: 1..=1,
    properties: &["burst", "slip", "ipv4", "ipv6"],
    children: &[],
    repeated: &[],
};

/// Bits of an IPv4 and of an IPv6 address that say who a client is, unless the file says.
pub const CLIENT_BITS: (u8, u8) = (32, 128);

/// Networks of one `allow` or `refuse`.
const MOST: usize = 1024;

/// What `allow` and `refuse` name.
enum Who {
    Network(Network),
    /// A word, and the networks that it stands for, as far as they are known here.
    Word(&'static str, &'static [Network]),
}

/// The word for the networks that the node's addresses are in.
const NODE: &str = "node";

/// A network as it is written, and what is to become of those who ask from there.
struct Rule {
    network: Network,
    allowed: bool,
    span: Span,
    /// It is one of several that a word stands for.
    word: bool,
}

/// Decodes a `clients` of one of the three shapes.
pub(super) fn decode(mistakes: &mut Mistakes, shape: &Shape, node: &KdlNode) -> Clients {
    mistakes.check(node, shape);
    let nodes = block(node);
    if nodes.is_empty() {
        let empty = Diagnostic::new(head(node), "this `clients` is empty");
        mistakes.push(empty.help(format!("write: {}", shape.example)));
    }
    let mut rules = Vec::new();
    let mut words = Vec::new();
    for (name, allowed) in [("allow", true), ("refuse", false)] {
        let Some(list) = child(nodes, name) else { continue };
        mistakes.check(list, &ALLOW);
        for entry in arguments(list) {
            let Some(who) = mistakes.value(name, entry, |value: &KdlValue| who(value, allowed)) else {
                continue;
            };
            let span = Span::from(entry.span());
            let networks = match who {
                Who::Network(network) => vec![network],
                Who::Word(word, networks) => {
                    note(mistakes, &mut words, word, span);
                    networks.to_vec()
                }
            };
            let word = matches!(who, Who::Word(..));
            rules.extend(networks.into_iter().map(|network| Rule {
                network,
                allowed,
                span,
                word,
            }));
        }
    }
    let only_these = child(nodes, "allow").is_some();
    refuse_idle(mistakes, &rules, only_these);
    // A network that is written counts for more than the same one that a word stands for.
    let is_written = |network| rules.iter().any(|rule| !rule.word && rule.network == network);
    let networks = rules
        .iter()
        .filter(|rule| !rule.word || !is_written(rule.network));
    Clients {
        networks: networks.map(|rule| (rule.network, rule.allowed)).collect(),
        node: words.iter().any(|&(word, _)| word == NODE),
        only_these,
        silent: mistakes.switch(nodes, "silent"),
        queries: child(nodes, "queries").and_then(|node| rate(mistakes, node, &QUERIES, CLIENT_BITS, 0)),
        responses: child(nodes, "responses").and_then(|node| rate(mistakes, node, &RESPONSES, (24, 56), 2)),
    }
}

/// Decodes those of a `listen`: for each the addresses that it is for.
pub(super) fn decode_of_listener(
    mistakes: &mut Mistakes,
    nodes: &[KdlNode],
    addresses: &[SocketAddr],
) -> Vec<(SocketAddr, Clients)> {
    let mut found = Vec::new();
    let mut taken: HashMap<SocketAddr, Span> = HashMap::new();
    for node in named_nodes(nodes, "clients") {
        let clients = decode(mistakes, &OF_LISTENER, node);
        for entry in arguments(node) {
            let Some(address) = mistakes.value("clients", entry, encrypted::listening_address) else {
                continue;
            };
            let span = Span::from(entry.span());
            if !addresses.contains(&address) {
                let problem = format!("{address} is not an address of this `listen`");
                mistakes.push(
                    Diagnostic::new(span, problem).help("write one of the addresses that follow `listen`"),
                );
            } else if let Some(first) = taken.insert(address, span) {
                let twice = Diagnostic::new(span, format!("`clients` is written twice for {address}"));
                mistakes.push(
                    twice
                        .label("again")
                        .other(first, "first here")
                        .help("keep one of them"),
                );
            } else {
                found.push((address, clients.clone()));
            }
        }
    }
    found
}

/// Reads a word, a network or an address.
fn who(value: &KdlValue, allowed: bool) -> Result<Who, Wrong> {
    const HELP: &str = "write a network, an address or a word: \"192.0.2.0/24\", \"2001:db8::1\", \"private\", \"node\", \"any\"";
    let text = value
        .as_string()
        .ok_or_else(|| Wrong::new("is not a network", HELP))?;
    match text {
        "private" => Ok(Who::Word("private", &Network::PRIVATE)),
        "any" if allowed => Ok(Who::Word("any", &Network::ANY)),
        NODE if allowed => Ok(Who::Word(NODE, &[])),
        "any" | NODE => {
            let help = "write who may ask after `allow`: all others are refused";
            Err(Wrong::new("can only be allowed", help))
        }
        _ => network(value, HELP).map(Who::Network),
    }
}

/// Reads a network or an address; `help` says how they are written.
pub(super) fn network(value: &KdlValue, help: &'static str) -> Result<Network, Wrong> {
    let wrong = || Wrong::new("is not a network", help);
    let text = value.as_string().ok_or_else(wrong)?;
    let (address, length) = match text.split_once('/') {
        Some((address, length)) => (address, Some(length)),
        None => (text, None),
    };
    let address: IpAddr = address.parse().map_err(|_| wrong())?;
    let (width, _) = left_aligned(address);
    let length = match length {
        None => Some(width),
        Some(length) => length.parse().ok(),
    };
    let network = length.and_then(|length| Network::of(address, length));
    match network {
        None => {
            let help = format!("write a prefix of 0 to {width} bits");
            Err(Wrong::new("is not a network", help))
        }
        Some(network) if network.address != address => {
            let help = format!("write \"{network}\", or \"{address}\"");
            Err(Wrong::new("has bits set after its prefix", help))
        }
        Some(network) => Ok(network),
    }
}

/// Notes a word, or reports that it is known.
fn note(mistakes: &mut Mistakes, words: &mut Vec<(&'static str, Span)>, word: &'static str, span: Span) {
    match words.iter().find(|(known, _)| *known == word) {
        Some(&(_, first)) => {
            let twice = Diagnostic::new(span, format!("{word:?} is written twice"));
            mistakes.push(
                twice
                    .label("again")
                    .other(first, "first here")
                    .help("keep one of them"),
            );
        }
        None => words.push((word, span)),
    }
}

/// Reports networks without which nothing would be different. Of those that hold a client the smallest decides.
fn refuse_idle(mistakes: &mut Mistakes, rules: &[Rule], only_these: bool) {
    // A word stands for what it stands for, needed or not.
    let written = |rule: &&Rule| !rule.word;
    for (index, rule) in rules.iter().enumerate().filter(|(_, rule)| !rule.word) {
        let network = rule.network;
        let mut earlier = rules[..index].iter().filter(written);
        if let Some(same) = earlier.find(|earlier| earlier.network == network) {
            let problem = match same.allowed == rule.allowed {
                true => format!("{network} is written twice"),
                false => format!("{network} is both allowed and refused"),
            };
            let twice = Diagnostic::new(rule.span, problem).label("again");
            mistakes.push(twice.other(same.span, "first here").help("keep one of them"));
            continue;
        }
        let around = rules
            .iter()
            .filter(|other| other.network.covers(&network) && (other.word || other.network != network))
            .max_by_key(|other| (other.network.length, other.word));
        let (idle, why) = match around {
            Some(around) => (
                around.allowed == rule.allowed,
                format!("{} says so already", around.network),
            ),
            None => (
                only_these && !rule.allowed,
                "what is not allowed is refused".to_owned(),
            ),
        };
        if idle {
            let problem = format!("{network} makes no difference: {why}");
            let idle = Diagnostic::new(rule.span, problem);
            let idle = around
                .into_iter()
                .fold(idle, |idle, around| idle.other(around.span, "here"));
            mistakes.push(idle.help("remove it"));
        }
    }
}

/// The longest that a burst may be in the making, in seconds.
const LONGEST_BURST: u32 = 60;

fn rate(
    mistakes: &mut Mistakes,
    node: &KdlNode,
    shape: &Shape,
    (ipv4, ipv6): (u8, u8),
    slip: u32,
) -> Option<Rate> {
    mistakes.check(node, shape);
    let per_second = mistakes.argument(node, whole(1..=1_000_000_u32));
    let most = per_second.unwrap_or(1).saturating_mul(LONGEST_BURST);
    let burst = mistakes.property(node, "burst", whole(1..=most));
    let rate = Rate {
        per_second: per_second?,
        burst: burst.or(per_second)?,
        slip: mistakes.property(node, "slip", whole(0..=10)).unwrap_or(slip),
        ipv4: mistakes.property(node, "ipv4", whole(8..=32)).unwrap_or(ipv4),
        ipv6: mistakes.property(node, "ipv6", whole(16..=128)).unwrap_or(ipv6),
    };
    Some(rate)
}

#[cfg(test)]
mod tests {
    use super::super::tests::{config, problems};
    use super::*;

    const REST: &str = "zone \".\" { forward \"192.0.2.1\" }\n";

    fn network(text: &str) -> Network {
        let (address, length) = text.split_once('/').unwrap();
        Network::of(address.parse().unwrap(), length.parse().unwrap()).unwrap()
    }

    #[test]
    fn every_word_is_read() {
        let text = r#"listen "0.0.0.0" "::" {
                clients "::" { allow "any"; silent }
            }
            clients {
                allow "node" "192.0.2.0/24" "2001:db8::1"
                refuse "192.0.2.7"
                queries 100 burst=300 ipv6=64
                responses 20 slip=3 ipv4=20
            }
            zone "." { clients { refuse "private" }; forward "192.0.2.1" }"#;
        let config = config(text);
        let clients = config.clients.unwrap();
        let networks = [
            (network("192.0.2.0/24"), true),
            (network("2001:db8::1/128"), true),
            (network("192.0.2.7/32"), false),
        ];
        assert_eq!(clients.networks, networks);
        assert!(clients.node && clients.only_these && !clients.silent);
        let queries = Rate {
            per_second: 100,
            burst: 300,
            slip: 0,
            ipv4: 32,
            ipv6: 64,
        };
        let responses = Rate {
            per_second: 20,
            burst: 20,
            slip: 3,
            ipv4: 20,
            ipv6: 56,
        };
        assert_eq!(
            (clients.queries, clients.responses),
            (Some(queries), Some(responses))
        );
        let [(address, clients)] = &config.listen.clients[..] else {
            panic!()
        };
        assert_eq!(address.to_string(), "[::]:53");
        assert!(clients.silent && clients.networks == Network::ANY.map(|network| (network, true)));
        let clients = config.zones[0].clients.as_ref().unwrap();
        assert!(!clients.only_these && clients.networks.len() == Network::PRIVATE.len());
    }

    #[test]
    fn nobody_is_named_unless_written() {
        let config = config(&format!("listen \"0.0.0.0\"\n{REST}"));
        assert!(config.clients.is_none() && config.listen.clients.is_empty());
        assert!(config.zones[0].clients.is_none());
    }

    #[test]
    fn mistakes_are_found() {
        for (text, expected) in [
            ("", "this `clients` is empty"),
            ("allow", "`allow` needs a value"),
            ("allow 10", "`allow`: 10 is not a network"),
            ("allow \"pods\"", "`allow`: \"pods\" is not a network"),
            (
                "allow \"10.0.0.0/33\"",
                "`allow`: \"10.0.0.0/33\" is not a network",
            ),
            (
                "allow \"10.0.0.1/8\"",
                "`allow`: \"10.0.0.1/8\" has bits set after its prefix",
            ),
            ("refuse \"any\"", "`refuse`: \"any\" can only be allowed"),
            ("allow \"node\" \"node\"", "\"node\" is written twice"),
            (
                "allow \"10.0.0.0/8\" \"10.0.0.0/8\"",
                "10.0.0.0/8 is written twice",
            ),
            (
                "allow \"10.0.0.0/8\"; refuse \"10.0.0.0/8\"",
                "10.0.0.0/8 is both allowed and refused",
            ),
            ("allow \"any\"; allow \"private\"", "`allow` is written twice"),
            (
                "allow \"10.1.0.0/16\" \"10.0.0.0/8\"",
                "10.1.0.0/16 makes no difference: 10.0.0.0/8 says so already",
            ),
            (
                "allow \"private\" \"192.168.1.0/24\"",
                "192.168.1.0/24 makes no difference: 192.168.0.0/16 says so already",
            ),
            (
                "allow \"10.0.0.0/8\"; refuse \"192.0.2.1\"",
                "192.0.2.1/32 makes no difference: what is not allowed is refused",
            ),
            ("queries 0", "`queries`: 0 is out of range"),
            ("queries 10 burst=601", "`burst`: 601 is out of range"),
            ("queries 10 slip=2", "`queries` has no property `slip`"),
            ("responses 10 ipv4=7", "`ipv4`: 7 is out of range"),
        ] {
            let text = format!("listen \"::1\"\nclients {{ {text} }}\n{REST}");
            assert_eq!(problems(&text), [expected], "{text}");
        }
    }

    #[test]
    fn mistakes_of_a_listener_are_found() {
        for (text, expected) in [
            ("clients { silent }", "`clients` needs a value"),
            (
                "clients \"::2\" { silent }",
                "[::2]:53 is not an address of this `listen`",
            ),
            (
                "clients \"::1\" { silent }; clients \"::1\" { silent }",
                "`clients` is written twice for [::1]:53",
            ),
            (
                "clients \"::1\" { queries 1 }",
                "`queries` is not allowed in `clients`",
            ),
        ] {
            let text = format!("listen \"::1\" {{ {text} }}\n{REST}");
            assert_eq!(problems(&text), [expected], "{text}");
        }
    }

    #[test]
    fn mistakes_of_a_zone_are_found() {
        let zone = |stages: &str| problems(&format!("listen \"::1\"\nzone \".\" {{ {stages} }}"));
        assert_eq!(
            zone("cache; clients { silent }; forward \"192.0.2.1\""),
            ["`clients` must come first in a zone"]
        );
        let nested = "clients { allow \"10.0.0.0/8\" \"10.1.2.0/24\"; refuse \"10.1.0.0/16\" }";
        let but = "clients { allow \"private\"; refuse \"10.0.0.0/8\" }";
        assert!(
            zone(&format!("{but}; forward \"192.0.2.1\"")).is_empty(),
            "a word, less what is written"
        );
        assert!(
            zone(&format!("{nested}; forward \"192.0.2.1\"")).is_empty(),
            "an island in a hole"
        );
    }
}
