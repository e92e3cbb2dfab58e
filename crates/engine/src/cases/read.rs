//! Reading a file of test cases.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::ops::RangeInclusive;
use std::path::Path;
use std::time::Duration;

use kdl::{KdlNode, KdlValue};

use super::file::{Case, Input, TestCases};
use super::given::Given;
use super::lookups::Lookups;
use super::snapshot::{Snapshot, WORDS};
use super::values::{origin, query_name, query_type, rcode};
use crate::config::decode::{
    Decoder, Shape, Wrong, arguments, block, boolean, child, document, head, named_nodes, text, whole, word,
};
use crate::config::files::unreadable_help;
use crate::config::name::zone_name;
use crate::config::units::{duration, ms};
use crate::config::{Diagnostic, Limits, Report, Source, Span, config_block, read_source};
use crate::dns::name::Name;
use crate::dns::suffix_map::SuffixMap;
use crate::dns::text::CLASSES;
use crate::dns::{CLASS_IN, Transport, edns, flag};
use crate::filter::{self, SourceFile, client_halves};

/// Top-level nodes of a file.
const SECTIONS: [&str; 8] = [
    "zones", "config", "clock", "lookup", "source", "query", "response", "event",
];
const REPEATED: [&str; 5] = ["lookup", "source", "query", "response", "event"];

const SOURCE: Shape = Shape::plain(2..=2, r#"source "list" "list.txt""#);

const QUERY: Shape = case(
    r#"query "www.example" "A" client="192.0.2.1""#,
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
        children: &CHILDREN,
        repeated: &["ask", "log", "print", "count"],
    }
}

/// What a case may contain: its input, and the words of a snapshot.
const CHILDREN: [&str; WORDS.len() + 1] = {
    let mut children = ["given"; WORDS.len() + 1];
    let mut at = 0;
    while at < WORDS.len() {
        children[at + 1] = WORDS[at];
        at += 1;
    }
    children
};

/// Transports, as named in test cases.
pub(super) const TRANSPORTS: [(&str, Transport); 6] = [
    ("udp", Transport::Udp),
    ("tcp", Transport::Tcp),
    ("tls", Transport::Tls),
    ("https", Transport::Https),
    ("quic", Transport::Quic),
    ("internal", Transport::Internal),
];

/// The default client: a documentation address (RFC 5737).
const CLIENT: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)), 1053);

/// 2026-01-01T00:00:00Z in Unix milliseconds: the default time of the first case.
const CLOCK: u64 = 1_767_225_600_000;

/// The range of time between a case and the previous one.
const AFTER: RangeInclusive<Duration> = ms(0)..=ms(365 * 86_400_000);

impl TestCases {
    /// Reads a file of test cases.
    ///
    /// # Errors
    /// Every mistake in it, or why it cannot be read.
    pub fn load(path: &Path) -> Result<TestCases, Report> {
        TestCases::parse(read_source(path)?)
    }

    /// Decodes the text of a file of test cases.
    ///
    /// # Errors
    /// Every mistake in it.
    pub fn parse(source: Source) -> Result<TestCases, Report> {
        let folder = Path::new(source.name()).parent().unwrap_or(Path::new(""));
        document(&source, folder, |decoder, nodes| {
            decoder.files.limit_data(Limits::default().data);
            decode(decoder, &source, nodes)
        })
    }
}

fn decode(decoder: &mut Decoder, source: &Source, nodes: &[KdlNode]) -> TestCases {
    decoder.check_block(nodes, None, &SECTIONS, &REPEATED);
    let mut zones = Vec::new();
    if let Some(node) = child(nodes, "zones") {
        decoder.check(node, &Shape::plain(1..=usize::MAX, "zones \"example\""));
        for entry in arguments(node) {
            zones.extend(decoder.value("zones", entry, zone_name));
        }
    }
    if zones.is_empty() {
        zones.push(".".to_owned());
    }
    let reader = Reader {
        source,
        owners: owners(&zones),
        zones: &zones,
    };
    let config = child(nodes, "config").map(|node| config_block::decode(decoder, node));
    let clock = decoder.scalar(nodes, "clock 1767225600000", whole(0..=u64::MAX / 2));
    let mut lookups = Lookups::default();
    for node in named_nodes(nodes, "lookup") {
        lookups.decode(decoder, node);
    }
    let sources = named_nodes(nodes, "source").filter_map(|node| source_file(decoder, node));
    let sources = sources.collect();
    let cases: Vec<Case> = nodes
        .iter()
        .filter_map(|node| reader.case(decoder, node))
        .collect();
    if cases.is_empty() && decoder.is_empty() {
        let missing = Diagnostic::new(Span::default(), "there is no test case");
        decoder.push(missing.help(format!("write one: {}", QUERY.example)));
    }
    TestCases {
        source: source.clone(),
        zones,
        config,
        clock: clock.unwrap_or(CLOCK),
        lookups,
        sources,
        cases,
    }
}

/// A map from each zone to its index.
fn owners(zones: &[String]) -> SuffixMap<usize> {
    let mut owners = SuffixMap::default();
    for (index, zone) in zones.iter().enumerate() {
        if let Ok(name) = Name::parse(zone) {
            owners.insert(name.as_bytes(), index);
        }
    }
    owners
}

/// A file for the filter's refresh.
fn source_file(decoder: &mut Decoder, node: &KdlNode) -> Option<SourceFile> {
    decoder.check(node, &SOURCE);
    let name = decoder.argument(node, text)?;
    let entry = arguments(node).nth(1)?;
    let written = decoder.value("source", entry, text)?;
    let path = decoder.files.at(written);
    match decoder.files.data(&path) {
        Ok(data) => Some(SourceFile {
            name,
            file: String::new(),
            data,
        }),
        Err(error) => {
            let problem = format!("{} cannot be read: {error}", path.display());
            let usual = "name a file; a relative path begins at the folder of the test cases";
            let help = unreadable_help(&path, usual);
            decoder.push(Diagnostic::new(entry.span().into(), problem).help(help));
            None
        }
    }
}

/// The context for reading cases.
struct Reader<'a> {
    source: &'a Source,
    zones: &'a [String],
    owners: SuffixMap<usize>,
}

impl Reader<'_> {
    /// Decodes a case; none if the node is something else or has mistakes.
    fn case(&self, decoder: &mut Decoder, node: &KdlNode) -> Option<Case> {
        let shape = match node.name().value() {
            "query" => &QUERY,
            "response" => &RESPONSE,
            "event" => &EVENT,
            _ => return None,
        };
        decoder.check(node, shape);
        let mut given = arguments(node);
        let (name, qtype) = (given.next(), given.next());
        let name = name.and_then(|entry| decoder.value("name", entry, query_name));
        let qtype = qtype.and_then(|entry| decoder.value("type", entry, query_type));
        let query = self.query(decoder, node, name.as_ref(), qtype);
        let rcode = match node.name().value() {
            "query" => 0,
            _ => rcode(decoder, node),
        };
        let asked = name.as_ref().map_or(&[0][..], Name::as_bytes);
        let question = [asked, &query.qtype.to_be_bytes()[..], &query.qclass.to_be_bytes()].concat();
        let given = Given::decode(
            decoder,
            child(block(node), "given"),
            &question,
            rcode,
            self.source.text(),
        );
        let input = match node.name().value() {
            "query" => Input::Query(query),
            "response" => Input::Response(response(decoder, node, query, rcode, &given)),
            _ => Input::Event(event(decoder, node, query, rcode, &given)),
        };
        let after = decoder.property(node, "after", duration(AFTER));
        let said: Vec<KdlNode> = block(node)
            .iter()
            .filter(|node| node.name().value() != "given")
            .cloned()
            .collect();
        let recorded = node.children().is_some() && (given.text.is_none() || !said.is_empty());
        let snapshot = recorded.then(|| Snapshot::from(config_block::nodes(decoder, &said)));
        let _ = qtype?;
        let span = head(node);
        let text = self.source.text();
        Some(Case {
            input,
            name: name?.as_bytes().to_vec(),
            given,
            after: after.unwrap_or_default(),
            snapshot,
            title: text.get(span.start..span.end()).unwrap_or_default().to_owned(),
            head: span,
            whole: trimmed(text, span, node.span().into()),
        })
    }

    /// Decodes the query record of a case.
    fn query(
        &self,
        decoder: &mut Decoder,
        node: &KdlNode,
        name: Option<&Name>,
        qtype: Option<u16>,
    ) -> filter::Query {
        let client = decoder.property(node, "client", address).unwrap_or(CLIENT.ip());
        let [client_high, client_low] = client_halves(client);
        let port = decoder.property(node, "port", whole(0..=u16::MAX));
        let transport = decoder.property(node, "transport", word(&TRANSPORTS));
        let edns = decoder.property(node, "edns", whole(0..=u16::MAX));
        let dnssec = decoder.property(node, "dnssec", boolean).unwrap_or(false);
        let zone = decoder.property(node, "zone", |value| self.zone(value));
        let owner = || name.and_then(|name| self.owners.longest(name.as_bytes()).copied());
        filter::Query {
            client_high,
            client_low,
            name_start: 0,
            name_length: 0,
            qtype: qtype.unwrap_or_default(),
            qclass: decoder
                .property(node, "class", word(&CLASSES))
                .unwrap_or(CLASS_IN),
            header: flag::RD,
            udp_size: edns.unwrap_or(edns::UDP_CLASSIC).max(edns::UDP_CLASSIC),
            edns_flags: if dnssec { edns::DO } else { 0 },
            client_port: port.unwrap_or(CLIENT.port()),
            zone: zone.or_else(owner).unwrap_or_default() as u16,
            transport: filter::transport_number(transport.unwrap_or(Transport::Udp)),
            edns: (edns.is_some() || dnssec).into(),
            details_length: 0,
        }
    }

    /// The index of a zone.
    fn zone(&self, value: &KdlValue) -> Result<usize, Wrong> {
        let name = zone_name(value)?;
        let found = self.zones.iter().position(|zone| *zone == name);
        found.ok_or_else(|| {
            Wrong::new(
                "is not one of the zones",
                format!("valid here: {}", self.zones.join(", ")),
            )
        })
    }
}

fn response(
    decoder: &mut Decoder,
    node: &KdlNode,
    query: filter::Query,
    rcode: u16,
    given: &Given,
) -> filter::Response {
    let ttl = decoder.property(node, "ttl", whole(0..=i32::MAX as u32));
    filter::Response {
        query,
        rcode,
        source: source(decoder, node),
        answer_count: answers(decoder, node, given),
        ttl: ttl.unwrap_or(given.ttl),
        message_start: 0,
        message_length: 0,
    }
}

fn event(
    decoder: &mut Decoder,
    node: &KdlNode,
    query: filter::Query,
    rcode: u16,
    given: &Given,
) -> filter::Event {
    let took = decoder.property(node, "took", duration(ms(0)..=ms(3_600_000)));
    let size = decoder.property(node, "size", whole(0..=65_535));
    let size = size.unwrap_or(if given.text.is_none() {
        64
    } else {
        given.message.len() as u32
    });
    filter::Event {
        query,
        time: 0,
        duration: took.unwrap_or_default().as_micros() as u32,
        id: 1,
        query_size: 0,
        response_size: size,
        rcode,
        // Nothing was sent if the query was dropped.
        response_header: match size {
            0 => 0,
            _ => flag::QR | flag::RD | flag::RA | rcode & flag::RCODE,
        },
        has_answers: (answers(decoder, node, given) > 0).into(),
        source: source(decoder, node),
        message_start: 0,
        message_length: 0,
    }
}

fn answers(decoder: &mut Decoder, node: &KdlNode, given: &Given) -> u16 {
    decoder
        .property(node, "answers", whole(0..=u16::MAX))
        .unwrap_or(given.answers)
}

fn source(decoder: &mut Decoder, node: &KdlNode) -> u8 {
    filter::source_number(origin(decoder, node))
}

/// A node's span without trailing whitespace and semicolons.
fn trimmed(text: &str, head: Span, whole: Span) -> Span {
    let text = text.get(head.start..whole.end()).unwrap_or_default();
    let text = text.trim_end_matches(|c: char| c.is_whitespace() || c == ';');
    (head.start..(head.start + text.len()).max(head.end())).into()
}

fn address(value: &KdlValue) -> Result<IpAddr, Wrong> {
    let parsed = text(value)?.parse();
    parsed.map_err(|_| Wrong::new("is not an IP address", "write \"192.0.2.1\" or \"2001:db8::1\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<TestCases, Vec<String>> {
        TestCases::parse(Source::new("test", text)).map_err(|report| {
            report
                .diagnostics()
                .iter()
                .map(|found| format!("{} | {}", found.message, found.help))
                .collect()
        })
    }

    fn query(case: &Case) -> filter::Query {
        match case.input {
            Input::Query(query) => query,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_query_has_defaults() {
        let cases = parse("query \"WWW.Example\" aaaa").unwrap();
        let case = &cases.cases[0];
        assert_eq!(case.name, b"\x03www\x07example\0");
        let query = query(case);
        let client = [query.client_high, query.client_low];
        assert_eq!((query.qtype, query.qclass, query.zone), (28, 1, 0));
        assert_eq!(
            (client, query.client_port),
            (client_halves(CLIENT.ip()), CLIENT.port())
        );
        assert!(case.snapshot.is_none(), "nothing is recorded yet");
    }

    #[test]
    fn the_longest_zone_owns_a_name() {
        let text = "zones \"example\" \".\" \"b.example\"\nquery \"a.b.example\" A\nquery \"c\" A\n\
                    query \"example\" A\nquery \"b.example\" A zone=\"example\"";
        let cases = parse(text).unwrap().cases;
        let zones: Vec<u16> = cases.iter().map(|case| query(case).zone).collect();
        assert_eq!(zones, [2, 1, 0, 0]);
    }

    #[test]
    fn mistakes_are_told() {
        for (text, expected) in [
            (
                "",
                "there is no test case | write one: query \"www.example\" \"A\" client=\"192.0.2.1\"",
            ),
            (
                "query \"a\" \"AAAAA\"",
                "`type`: \"AAAAA\" is not a type | write \"AAAA\", or \"TYPE65280\" for one without a name",
            ),
            (
                "query \"a\" \"A\" { refuze \"NXDOMAIN\" }",
                "`refuze` is not allowed in `query` | did you mean `refuse`?",
            ),
            (
                "query \"a\" \"A\" rcode=\"NXDOMAIN\"",
                "`query` has no property `rcode` | valid here: client, port, transport, class, zone, \
                 after, edns, dnssec",
            ),
        ] {
            assert_eq!(parse(text).unwrap_err(), [expected], "{text}");
        }
    }
}
