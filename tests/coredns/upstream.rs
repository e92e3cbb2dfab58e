//! The common upstream: the first label of a name selects its answer.

use crate::harness::upstream::Asked;
use crate::harness::{Record, Reply, Upstream, flags};

const SOA: &str = "example.org. 300 SOA ns.example.org. root.example.org. 7 3600 600 86400 120";

/// Names asked in every case.
pub const NAMES: [&str; 18] = [
    "a-1.example.org",
    "a-3.example.org",
    "A-3.Example.ORG",
    "big-40.example.org",
    "alias.example.org",
    "chain.example.org",
    "extra.example.org",
    "short.example.org",
    "long.example.org",
    "nx.example.org",
    "nosoa.example.org",
    "none.example.org",
    "refused.example.org",
    "notimp.example.org",
    "x.live.example.org",
    "other.test",
    "1.0.0.127.in-addr.arpa",
    "example.org",
];

pub fn start() -> Upstream {
    Upstream::start(answer)
}

fn answer(asked: &Asked) -> Reply {
    let name = asked.name();
    let label = name.split('.').next().unwrap_or_default();
    let (kind, number) = label.split_once('-').unwrap_or((label, ""));
    let number: u8 = number.parse().unwrap_or(1);
    match kind {
        "nx" => return asked.denial("NXDOMAIN", Some(SOA)),
        "nosoa" => return asked.denial("NXDOMAIN", None),
        "none" => return asked.denial("NOERROR", Some(SOA)),
        "refused" => return asked.denial("REFUSED", None),
        "notimp" => return asked.denial("NOTIMP", None),
        _ => {}
    }
    let ttl = match kind {
        "short" => 2,
        "long" => 100_000,
        _ => 300,
    };
    let lines: Vec<String> = match (kind, type_of(asked)) {
        ("alias", "A") => vec![
            format!("{name} 60 CNAME a-1.example.org."),
            "a-1.example.org. 300 A 192.0.2.1".into(),
        ],
        ("chain", "A" | "AAAA") => vec![
            format!("{name} 60 CNAME middle.example.org."),
            "middle.example.org. 600 CNAME end.test.".into(),
        ],
        (_, "A") => (1..=number)
            .map(|last| format!("{name} {ttl} A 192.0.2.{last}"))
            .collect(),
        ("a", "AAAA") => vec![format!("{name} {ttl} AAAA 2001:db8::{number}")],
        (_, "MX") => vec![
            format!("{name} {ttl} MX 10 mail.{name}"),
            format!("{name} {ttl} MX 20 backup.test."),
        ],
        (_, "TXT") => vec![format!("{name} {ttl} TXT \"text of {label}\"")],
        (_, "SRV") => vec![format!("{name} {ttl} SRV 1 2 5060 host.{name}")],
        (_, "PTR") if name.ends_with("arpa.") => vec![format!("{name} {ttl} PTR localhost.")],
        _ => return asked.denial("NOERROR", Some(SOA)),
    };
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    let mut message = asked.message_with(&lines);
    if kind == "extra" {
        message.authority = vec![Record::parse("example.org. 500 NS ns.example.org.")];
        message.additional = vec![Record::parse("ns.example.org. 700 A 192.0.2.53")];
    }
    let room = asked
        .message
        .edns
        .as_ref()
        .map_or(512, |edns| usize::from(edns.size).max(512));
    if !asked.tcp && message.encode().len() > room {
        message.answers.clear();
        message.header |= flags::TC;
    }
    Reply::Message(message)
}

fn type_of(asked: &Asked) -> &'static str {
    super::TYPES
        .into_iter()
        .find(|qtype| asked.is(qtype))
        .unwrap_or("")
}
