//! Recorded questions: what a filter says to what, in a file that people read and write.
//!
//! ```kdl
//! config { block "ads.example" }
//! question "banner.ads.example" "A" client="192.0.2.7" {
//!     refuse "NXDOMAIN"
//!     count "blocked" 1
//! }
//! ```
//!
//! This decodes the file and, since only this part of the proxy knows KDL, also spells out what a filter
//! said ([`spell`](super::spell)) and writes it into the text ([`Questions::recorded`]). Who asks, and what differs, is
//! not decided here.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::ops::RangeInclusive;
use std::path::Path;
use std::str::FromStr;
use std::time::Duration;

use hickory_proto::rr::{Name, RecordType};
use kdl::{KdlEntry, KdlNode, KdlValue};

use super::decode::{Mistakes, Shape, Wrong, arguments, block, boolean, child, head, text, whole, word};
use super::error::{Diagnostic, Report, Source, Span};
use super::module::Modules;
use super::units::{duration, ms};
use super::{ConfigNode, config_block, spell, syntax};

/// Nodes at the top of a file.
const SECTIONS: [&str; 6] = ["zones", "config", "clock", "question", "response", "event"];
const REPEATED: [&str; 3] = ["question", "response", "event"];

/// What a case may say was observed, in the order in which it is written.
pub const OBSERVED: [&str; 17] = [
    "unasked",
    "pass",
    "rewrite",
    "answer",
    "alias",
    "refuse",
    "drop",
    "replace",
    "heard",
    "fail",
    "edit",
    "remember",
    "skip-response",
    "log",
    "print",
    "count",
    "cost",
];

const QUESTION: Shape = case(
    r#"question "www.example" "A" client="192.0.2.1""#,
    &[
        "client",
        "port",
        "transport",
        "class",
        "zone",
        "after",
        "edns",
        "dnssec",
    ],
);
const RESPONSE: Shape = case(
    r#"response "www.example" "A" rcode="NXDOMAIN""#,
    &[
        "client",
        "port",
        "transport",
        "class",
        "zone",
        "after",
        "edns",
        "dnssec",
        "rcode",
        "source",
        "ttl",
        "answers",
    ],
);
const EVENT: Shape = case(
    r#"event "www.example" "A" rcode="NXDOMAIN""#,
    &[
        "client",
        "port",
        "transport",
        "class",
        "zone",
        "after",
        "edns",
        "dnssec",
        "rcode",
        "source",
        "answers",
        "took",
        "size",
    ],
);

const fn case(example: &'static str, properties: &'static [&'static str]) -> Shape {
    Shape {
        example,
        arguments: 2..=2,
        properties,
        children: &OBSERVED,
        repeated: &["log", "print", "count"],
    }
}

/// Who asks where nothing else is written: an address of documentation (RFC 5737).
const CLIENT: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)), 1053);

/// 2026-01-01T00:00:00Z in Unix milliseconds: when the first question is asked, unless written.
const CLOCK: u64 = 1_767_225_600_000;

/// How far a question may be behind the one before.
const AFTER: RangeInclusive<Duration> = ms(0)..=ms(365 * 86_400_000);

/// A file of recorded questions.
#[derive(Debug, Clone)]
pub struct Questions {
    /// Its text.
    pub source: Source,
    /// `zones "example." …`: the zones that use the filter; the root unless written.
    pub zones: Vec<String>,
    /// `config { … }`: none, if the questions are for whatever configuration the filter has.
    pub config: Option<Vec<ConfigNode>>,
    /// `clock 1767225600000`: Unix time in milliseconds when the first question is asked.
    pub clock: u64,
    /// In the order they are asked, all of the same filter instance.
    pub cases: Vec<Case>,
}

/// One question, response or event, and what was observed.
#[derive(Debug, Clone)]
pub struct Case {
    /// What the filter is asked about.
    pub what: What,
    /// The name in wire format, lowercased.
    pub name: Vec<u8>,
    /// `question "…" "AAAA"`
    pub qtype: u16,
    /// `class="CH"`
    pub qclass: u16,
    /// `client="192.0.2.1" port=1053`
    pub client: SocketAddr,
    /// `transport="tcp"`
    pub transport: Transport,
    /// `zone="example."`: index into [`Questions::zones`]; unless written, the longest that owns the name.
    pub zone: usize,
    /// `after="5s"`: how long after the case before.
    pub after: Duration,
    /// `edns=1232`: the UDP size of the OPT record; none: there is no such record.
    pub edns: Option<u16>,
    /// `dnssec=#true`: the DO bit.
    pub dnssec: bool,
    /// What was observed; none: that is still to be recorded.
    pub observed: Option<Vec<ConfigNode>>,
    /// The line as it is written, without its block.
    pub title: String,
    /// Where it stands, without its block.
    pub span: Span,
    /// Where it stands, with its block.
    whole: Span,
}

/// What a [`Case`] is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum What {
    /// `question`: the query phase.
    Question,
    /// `response`: the response phase.
    Response {
        /// `rcode="NXDOMAIN"`
        rcode: u16,
        /// `source="cache"`
        source: From,
        /// `ttl=30`: the lowest, in seconds.
        ttl: u32,
        /// `answers=1`: records in the answer section.
        answers: u16,
    },
    /// `event`: the event phase.
    Event {
        /// `rcode="NXDOMAIN"`
        rcode: u16,
        /// `source="cache"`
        source: From,
        /// `answers=1`: records in the answer section.
        answers: u16,
        /// `took="15ms"`: from query to response.
        took: Duration,
        /// `size=64`: octets of the response; 0: it was dropped.
        size: u32,
    },
}

/// `transport="udp" | "tcp" | "internal"`
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Transport {
    /// Over UDP.
    #[default]
    Udp,
    /// Over TCP.
    Tcp,
    /// Asked by the proxy itself.
    Internal,
}

/// `source="upstream" | "cache" | "stale" | "filter" | "local"`
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum From {
    /// An upstream, just now.
    #[default]
    Upstream,
    /// The cache.
    Cache,
    /// The cache, past its TTL.
    Stale,
    /// A filter.
    Filter,
    /// The proxy itself.
    Local,
}

/// Reads a file of recorded questions.
///
/// # Errors
/// Every mistake in it, or that it cannot be read.
pub fn load(path: &Path) -> Result<Questions, Report> {
    let source = read(path)?;
    parse(source)
}

/// Decodes the text of a file of recorded questions.
///
/// # Errors
/// Every mistake in it.
pub fn parse(source: Source) -> Result<Questions, Report> {
    let mut mistakes = Mistakes::default();
    let questions = match syntax::document(source.text()) {
        Ok(document) => decode(&mut mistakes, &source, document.nodes()),
        Err(diagnostics) => return Err(Report::new(source, diagnostics)),
    };
    match mistakes.is_empty() {
        true => Ok(questions),
        false => Err(Report::new(source, mistakes.into_diagnostics())),
    }
}

/// Reads a file that holds what a filter's `config` block holds.
///
/// # Errors
/// Every mistake in it, or that it cannot be read.
pub fn load_config(path: &Path) -> Result<(Source, Vec<ConfigNode>), Report> {
    let source = read(path)?;
    let document = match syntax::document(source.text()) {
        Ok(document) => document,
        Err(diagnostics) => return Err(Report::new(source, diagnostics)),
    };
    let mut mistakes = Mistakes::default();
    let mut modules = Modules::new(folder(&source), &[]);
    let nodes = config_block::nodes(&mut mistakes, &mut modules, document.nodes());
    match mistakes.is_empty() {
        true => Ok((source, nodes)),
        false => Err(Report::new(source, mistakes.into_diagnostics())),
    }
}

/// Where relative paths in a file begin.
fn folder(source: &Source) -> &Path {
    Path::new(source.name()).parent().unwrap_or(Path::new(""))
}

fn read(path: &Path) -> Result<Source, Report> {
    let name = path.display().to_string();
    fs::read_to_string(path)
        .map(|text| Source::new(name.clone(), text))
        .map_err(|error| {
            let problem = format!("{name} cannot be read: {error}");
            Report::new(
                Source::new(name, ""),
                vec![Diagnostic::new(Span::default(), problem)],
            )
        })
}

fn decode(mistakes: &mut Mistakes, source: &Source, nodes: &[KdlNode]) -> Questions {
    mistakes.check_block(nodes, None, &SECTIONS, &REPEATED);
    let mut zones = Vec::new();
    if let Some(node) = child(nodes, "zones") {
        mistakes.check(node, &Shape::plain(1..=usize::MAX, "zones \"example\""));
        for entry in arguments(node) {
            zones.extend(mistakes.value("zones", entry, super::name::zone_name));
        }
    }
    if zones.is_empty() {
        zones.push(".".to_owned());
    }
    let mut modules = Modules::new(folder(source), &[]);
    let config = child(nodes, "config").map(|node| config_block::decode(mistakes, &mut modules, node));
    let clock = mistakes.scalar(nodes, "clock 1767225600000", whole(0..=u64::MAX / 2));
    let cases: Vec<Case> = nodes
        .iter()
        .filter_map(|node| decode_case(mistakes, &mut modules, source, &zones, node))
        .collect();
    if cases.is_empty() && mistakes.is_empty() {
        let missing = Diagnostic::new(Span::default(), "there is no question");
        mistakes.push(missing.help(format!("write one: {}", QUESTION.example)));
    }
    Questions {
        source: source.clone(),
        zones,
        config,
        clock: clock.unwrap_or(CLOCK),
        cases,
    }
}

fn decode_case(
    mistakes: &mut Mistakes,
    modules: &mut Modules<'_>,
    source: &Source,
    zones: &[String],
    node: &KdlNode,
) -> Option<Case> {
    let shape = match node.name().value() {
        "question" => &QUESTION,
        "response" => &RESPONSE,
        "event" => &EVENT,
        _ => return None,
    };
    mistakes.check(node, shape);
    let mut given = arguments(node);
    let entry = |given: Option<&KdlEntry>| given.cloned();
    let (name, qtype) = (entry(given.next()), entry(given.next()));
    let name = name.and_then(|entry| mistakes.value("name", &entry, query_name));
    let qtype = qtype.and_then(|entry| mistakes.value("type", &entry, record_type));

    let client = mistakes.property(node, "client", address).unwrap_or(CLIENT.ip());
    let port = mistakes
        .property(node, "port", whole(0..=u16::MAX))
        .unwrap_or(CLIENT.port());
    let transports = [
        ("udp", Transport::Udp),
        ("tcp", Transport::Tcp),
        ("internal", Transport::Internal),
    ];
    let transport = mistakes
        .property(node, "transport", word(&transports))
        .unwrap_or_default();
    let classes = [("IN", 1), ("CH", 3), ("HS", 4), ("ANY", 255)];
    let qclass = mistakes.property(node, "class", word(&classes)).unwrap_or(1);
    let after = mistakes
        .property(node, "after", duration(AFTER))
        .unwrap_or_default();
    let edns = mistakes.property(node, "edns", whole(0..=u16::MAX));
    let dnssec = mistakes.property(node, "dnssec", boolean).unwrap_or(false);
    let zone = mistakes.property(node, "zone", |value| among(zones, value));

    let rcode = mistakes.property(node, "rcode", word(&RCODES)).unwrap_or(0);
    let sources = [
        ("upstream", From::Upstream),
        ("cache", From::Cache),
        ("stale", From::Stale),
        ("filter", From::Filter),
        ("local", From::Local),
    ];
    let from = mistakes
        .property(node, "source", word(&sources))
        .unwrap_or_default();
    let ttl = mistakes
        .property(node, "ttl", whole(0..=i32::MAX as u32))
        .unwrap_or(0);
    let answers = mistakes
        .property(node, "answers", whole(0..=u16::MAX))
        .unwrap_or(0);
    let took = mistakes
        .property(node, "took", duration(ms(0)..=ms(3_600_000)))
        .unwrap_or_default();
    let size = mistakes.property(node, "size", whole(0..=65_535)).unwrap_or(64);
    let what = match node.name().value() {
        "question" => What::Question,
        "response" => What::Response {
            rcode,
            source: from,
            ttl,
            answers,
        },
        _ => What::Event {
            rcode,
            source: from,
            answers,
            took,
            size,
        },
    };
    let observed = node
        .children()
        .map(|_| config_block::nodes(mistakes, modules, block(node)));
    let (name, qtype) = (name?, qtype?);
    let span = head(node);
    Some(Case {
        what,
        zone: zone.unwrap_or_else(|| owner(zones, &name)),
        name,
        qtype,
        qclass,
        client: SocketAddr::new(client, port),
        transport,
        after,
        edns,
        dnssec,
        observed,
        title: source
            .text()
            .get(span.start..span.end())
            .unwrap_or_default()
            .to_owned(),
        span,
        whole: within(source, span, node.span().into()),
    })
}

/// A node's span without the line breaks and the semicolon behind it.
fn within(source: &Source, head: Span, whole: Span) -> Span {
    let text = source.text().get(head.start..whole.end()).unwrap_or_default();
    let text = text.trim_end_matches(|c: char| c.is_whitespace() || c == ';');
    (head.start..(head.start + text.len()).max(head.end())).into()
}

/// The index of the longest of `zones` that owns a wire name.
fn owner(zones: &[String], name: &[u8]) -> usize {
    let wires = zones.iter().map(|zone| wire(zone).unwrap_or_default());
    let owning = wires.enumerate().filter(|(_, zone)| {
        let mut rest = name;
        loop {
            if rest == zone.as_slice() {
                return true;
            }
            match rest.first() {
                Some(&length) if length > 0 => rest = rest.get(1 + usize::from(length)..).unwrap_or_default(),
                _ => return false,
            }
        }
    });
    owning
        .max_by_key(|(_, zone)| zone.len())
        .map_or(0, |(index, _)| index)
}

fn wire(text: &str) -> Option<Vec<u8>> {
    let mut wire = Vec::new();
    let name = Name::from_ascii(text).ok()?.to_lowercase();
    for label in name.iter() {
        wire.push(u8::try_from(label.len()).ok()?);
        wire.extend_from_slice(label);
    }
    wire.push(0);
    (wire.len() <= 255).then_some(wire)
}

fn query_name(value: &KdlValue) -> Result<Vec<u8>, Wrong> {
    let text = text(value)?;
    let wire = if text.is_empty() { None } else { wire(&text) };
    wire.ok_or_else(|| {
        Wrong::new(
            "is not a domain name",
            "write \"www.example\", or \".\" for the root",
        )
    })
}

/// A type by its name, or as `TYPE65280` (RFC 3597 section 5).
fn record_type(value: &KdlValue) -> Result<u16, Wrong> {
    let text = text(value)?.to_ascii_uppercase();
    let number = text.strip_prefix("TYPE").and_then(|number| number.parse().ok());
    number
        .or_else(|| RecordType::from_str(&text).ok().map(u16::from))
        .ok_or_else(|| {
            Wrong::new(
                "is not a type",
                "write \"AAAA\", or \"TYPE65280\" for one without a name",
            )
        })
}

fn address(value: &KdlValue) -> Result<IpAddr, Wrong> {
    let parsed = text(value)?.parse();
    parsed.map_err(|_| Wrong::new("is not an IP address", "write \"192.0.2.1\" or \"2001:db8::1\""))
}

fn among(zones: &[String], value: &KdlValue) -> Result<usize, Wrong> {
    let name = super::name::zone_name(value)?;
    let found = zones.iter().position(|zone| *zone == name);
    found.ok_or_else(|| {
        Wrong::new(
            "is not one of the zones",
            format!("valid here: {}", zones.join(", ")),
        )
    })
}

/// Response codes by name, as `dig` prints them.
const RCODES: [(&str, u16); 13] = [
    ("NOERROR", 0),
    ("FORMERR", 1),
    ("SERVFAIL", 2),
    ("NXDOMAIN", 3),
    ("NOTIMP", 4),
    ("REFUSED", 5),
    ("YXDOMAIN", 6),
    ("YXRRSET", 7),
    ("NXRRSET", 8),
    ("NOTAUTH", 9),
    ("NOTZONE", 10),
    ("BADVERS", 16),
    ("BADCOOKIE", 23),
];

impl Questions {
    /// The text with what was observed written into these cases (indices into [`Questions::cases`]), and
    /// all else as it was.
    pub fn recorded(&self, observed: &[(usize, Vec<ConfigNode>)]) -> String {
        let mut text = self.source.text().to_owned();
        let mut observed: Vec<_> = observed.iter().collect();
        // From the end, so that places before stay where they are.
        observed.sort_by_key(|(index, _)| std::cmp::Reverse(*index));
        for (index, nodes) in observed {
            let Some(case) = self.cases.get(*index) else {
                continue;
            };
            let block: String = spell(nodes).iter().map(|line| format!("    {line}\n")).collect();
            text.replace_range(case.span.end()..case.whole.end(), &format!(" {{\n{block}}}"));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::ConfigValue;

    fn parse(text: &str) -> Result<Questions, Vec<String>> {
        super::parse(Source::new("test", text)).map_err(|report| {
            report
                .diagnostics()
                .iter()
                .map(|found| format!("{} | {}", found.message, found.help))
                .collect()
        })
    }

    #[test]
    fn a_question_has_defaults() {
        let questions = parse("question \"WWW.Example\" aaaa").unwrap();
        let case = &questions.cases[0];
        assert_eq!(case.name, b"\x03www\x07example\0");
        assert_eq!(
            (case.qtype, case.qclass, case.client, case.zone),
            (28, 1, CLIENT, 0)
        );
        assert!(case.observed.is_none(), "nothing is recorded yet");
    }

    #[test]
    fn the_longest_zone_owns_a_name() {
        let text = "zones \"example\" \".\" \"b.example\"\nquestion \"a.b.example\" A\nquestion \"c\" A\n\
                    question \"example\" A\nquestion \"b.example\" A zone=\"example\"";
        let zones: Vec<usize> = parse(text).unwrap().cases.iter().map(|case| case.zone).collect();
        assert_eq!(zones, [2, 1, 0, 0]);
    }

    #[test]
    fn mistakes_are_told() {
        for (text, expected) in [
            (
                "",
                "there is no question | write one: question \"www.example\" \"A\" client=\"192.0.2.1\"",
            ),
            (
                "question \"a\" \"AAAAA\"",
                "`type`: \"AAAAA\" is not a type | write \"AAAA\", or \"TYPE65280\" for one without a name",
            ),
            (
                "question \"a\" \"A\" { refuze \"NXDOMAIN\" }",
                "`question` takes no `refuze` | did you mean `refuse`?",
            ),
            (
                "question \"a\" \"A\" rcode=\"NXDOMAIN\"",
                "`question` has no property `rcode` | valid here: client, port, transport, class, zone, \
                 after, edns, dnssec",
            ),
        ] {
            assert_eq!(parse(text).unwrap_err(), [expected], "{text}");
        }
    }

    /// What is recorded reads back as what was observed, and the rest of the text stays.
    #[test]
    fn observations_are_written_into_their_cases() {
        let text = "// first\nquestion \"a\" \"A\" {\n    pass // as before\n}\n// second\nquestion \"b\" \"A\"\n\
                    question \"c\" \"A\" { pass }; question \"d\" \"A\" { drop }\n";
        let questions = parse(text).unwrap();
        let node = |name: &str, parent, argument: &str| ConfigNode {
            name: name.to_owned(),
            arguments: vec![ConfigValue::Text(argument.into())],
            properties: vec![("ttl".to_owned(), ConfigValue::Integer(-3))],
            parent,
            span: Span::default(),
            argument_spans: Vec::new(),
            property_spans: Vec::new(),
        };
        let seen = vec![
            node("answer", None, "\u{1b}\"\\\n"),
            node("1 x", Some(0), "y"),
            node("log", None, "z"),
        ];
        let written = questions.recorded(&[(0, seen.clone()), (1, seen.clone()), (2, seen.clone())]);
        let again = parse(&written.replace("1 x", "record").replace("\"record\"", "record")).unwrap();
        for case in &again.cases[..3] {
            let observed = case.observed.as_deref().unwrap();
            assert_eq!(
                spell(observed),
                spell(&seen)
                    .join("\n")
                    .replace("\"1 x\"", "record")
                    .split('\n')
                    .collect::<Vec<_>>()
            );
        }
        assert_eq!(spell(again.cases[3].observed.as_deref().unwrap()), ["drop"]);
        assert!(
            written.starts_with("// first\n") && written.contains("\n// second\nquestion \"b\""),
            "{written}"
        );
    }
}
