//! `lists`: blocks names or overrides their answers, from common list formats.

use std::net::IpAddr;
use std::time::Duration;

use kdl::{KdlNode, KdlValue};

use super::clients::{NETWORK, network};
use super::decode::{Decoder, Shape, Wrong, arguments, block, child, named_nodes, text, word};
use super::kubernetes::label;
use super::location::{Access, SOURCE};
use super::name::zone_name;
use super::network::Network;
use super::pods::PODS;
use super::refresh::{RefreshOrigin, origin};
use super::selector::{Selector, selector};
use super::units::{duration, ms, s, size, ttl};
use super::words::{Table, words};

words! {
    /// `lists { list "NAME" { … } … }`
    #[derive(Debug, Clone, PartialEq, Eq, Hash)]
    pub struct Lists in LISTS(0..=0): r#"lists { list "ads" { source "https://lists.example/ads.txt" } }"#,
        then read_lists;

    /// A list, and its name in the log, metrics and `explain`. If a name is on several lists, the first one decides.
    hands "list" lists: Vec<List> = ("required") in LIST, "a name, up to 64 of them";
    /// Names that no list blocks, nor any name below them.
    list "allow"(1..=1024) allow: Vec<String> = ("none": "example.com" "cdn.example.net") in zone_name, "names";
    /// TTL of the answers.
    one "ttl" ttl: Duration = "1m" in ttl(s(0)..=s(86_400));
    /// Time between refreshes of lists that are fetched; files are read when they change.
    one "every" every: Duration = "1h" in duration(s(1)..=s(30 * 86_400));
    /// How long `/ready` may fail, and a reload may wait, until all lists are available.
    one "wait" wait: Duration = "10s" in duration(ms(0)..=s(3600));
}

words! {
    /// `list "NAME" { source "FILE OR URL"; … }`
    #[derive(Debug, Clone, PartialEq, Eq, Hash)]
    pub struct List in LIST(1..=1): r#"list "ads" { source "https://lists.example/ads.txt" }"#;

    /// Its name.
    values "NAME" name: String = ("required"), "a name";
    /// The location of the list.
    hand "source" origin: RefreshOrigin = ("required") in LOCATION, "a file or a URL";
    /// `"lines"`: each line is a name, a line of a hosts file, or a rule of an ad blocker; `"rpz"`: a zone
    /// file with response policies.
    one "format" format: ListFormat = "lines" in word(&[("lines", ListFormat::Lines), ("rpz", ListFormat::Rpz)]);
    /// The answer for its names: `"nxdomain"`, `"nodata"` or addresses; with `"pass"`, no list blocks them.
    table "answer" answer: ListAnswer = ("`\"nxdomain\"`") in ANSWER, "addresses, or a word";
    /// The clients that it applies to.
    list "clients"(1..=256) clients: Vec<Network> = ("all": "10.0.0.0/8") in network(NETWORK), "networks";
    /// Only pods of these namespaces.
    list "namespaces"(1..=256) namespaces: Vec<String> = ("all": "default" "shop") in label, "names";
    /// Only pods of namespaces with these labels.
    one "namespace-labels" namespace_labels: Option<Selector> = ("all": "team=shop") in selector, "a label selector";
    /// Only pods with these labels.
    one "labels" labels: Option<Selector> = ("all": "tier=web") in selector, "a label selector";
    /// A name alone on a line also stands for all names below it.
    switch "subdomains" subdomains: bool = off;
    /// Memory for its names: 16 bytes each while it is read, then 13; 128 for one with an address.
    one "memory" memory: usize = "32MiB" in size(1 << 10..=1 << 31);
    besides {
        /// Size limit of its text, in bytes.
        size: usize;
    }
}

/// Where a list is, and how to fetch it.
const LOCATION: Table<Access> = Table {
    shape: Shape {
        example: r#"source "https://lists.example/ads.txt""#,
        arguments: 1..=1,
        ..SOURCE.shape
    },
    ..SOURCE
};

const ANSWER: Table<ListAnswer> = Table::of_values(1..=16, r#"answer "nxdomain""#, read_answer);

/// The format of a list.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum ListFormat {
    /// Lines, each of which is understood on its own.
    #[default]
    Lines,
    /// A zone file: <https://datatracker.ietf.org/doc/html/draft-vixie-dnsop-dns-rpz-00>.
    Rpz,
}

/// The answer for names on a list.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub enum ListAnswer {
    /// NXDOMAIN.
    #[default]
    Nxdomain,
    /// NODATA.
    Nodata,
    /// These addresses, and nothing else.
    Addresses(Vec<IpAddr>),
    /// The answer they would get without lists.
    Pass,
}

/// Words for answers.
const ANSWERS: [(&str, ListAnswer); 3] = [
    ("nxdomain", ListAnswer::Nxdomain),
    ("nodata", ListAnswer::Nodata),
    ("pass", ListAnswer::Pass),
];

/// The most lists in one stage.
const MOST: usize = 64;

/// The words of a list that name the clients whom it is for; all but the first select pods.
const FOR_SOME: [&str; 4] = ["clients", "namespaces", "namespace-labels", "labels"];

impl List {
    /// Whether it is for some clients only.
    pub fn is_for_some(&self) -> bool {
        !self.clients.is_empty() || self.is_for_pods()
    }

    /// Whether it is for some pods only.
    pub fn is_for_pods(&self) -> bool {
        !self.namespaces.is_empty() || self.namespace_labels.is_some() || self.labels.is_some()
    }
}

/// The nodes of a list that name the clients whom it is for.
pub(super) fn for_some(list: &KdlNode) -> impl Iterator<Item = &KdlNode> {
    FOR_SOME.iter().filter_map(move |word| child(block(list), word))
}

fn read_lists(decoder: &mut Decoder, node: &KdlNode, lists: &mut Lists) {
    let nodes = block(node);
    let of_lists = named_nodes(nodes, "list").flat_map(for_some);
    let of_pods = of_lists.filter(|node| node.name().value() != FOR_SOME[0]);
    let pods = decoder.around.pods;
    for word in of_pods.filter(|_| !pods) {
        let problem = format!("`{}` has to know which pod asks", word.name().value());
        let help = format!("write `{}` beside the zones", PODS.shape.example);
        decoder.report(word, problem, help);
    }
    for node in named_nodes(nodes, "list") {
        let Some(list) = list(decoder, node) else {
            continue;
        };
        if lists.lists.iter().any(|known| known.name == list.name) {
            let problem = format!("there are two lists {:?}", list.name);
            decoder.report(node, problem, "give one of them another name");
        }
        lists.lists.push(list);
    }
    if child(nodes, "list").is_none() {
        decoder.report(node, "these `lists` have no list", LIST.shape.help());
    }
    if lists.lists.len() > MOST {
        let problem = format!("{} lists are more than the {MOST} allowed", lists.lists.len());
        decoder.report(node, problem, "put several into one file");
    }
}

fn list(decoder: &mut Decoder, node: &KdlNode) -> Option<List> {
    let mut list = LIST.read(decoder, node);
    let nodes = block(node);
    list.name = decoder.argument(node, text)?;
    let Some(source) = child(nodes, "source") else {
        decoder.report(node, "this list has no source", LOCATION.shape.help());
        return None;
    };
    let access = LOCATION.read(decoder, source);
    let entry = arguments(source).next()?;
    (list.origin, list.size) = origin(decoder, source, access, entry)?;
    Some(list)
}

fn read_answer(decoder: &mut Decoder, node: &KdlNode, _: &[KdlNode]) -> ListAnswer {
    let mut addresses: Vec<IpAddr> = Vec::new();
    let count = arguments(node).count();
    for entry in arguments(node) {
        let found = entry.value().as_string().unwrap_or_default();
        match ANSWERS.iter().find(|(name, _)| *name == found) {
            Some((_, answer)) if count == 1 => return answer.clone(),
            Some(_) => {
                let problem = format!("{found:?} cannot be combined with other values");
                decoder.report(entry, problem, "write one word, or addresses");
            }
            None => addresses.extend(decoder.value("answer", entry, address)),
        }
    }
    ListAnswer::Addresses(addresses)
}

fn address(value: &KdlValue) -> Result<IpAddr, Wrong> {
    let help = "write \"nxdomain\", \"nodata\", \"pass\", or addresses: \"192.0.2.1\" \"2001:db8::1\"";
    let address = value.as_string().and_then(|text| text.parse().ok());
    address.ok_or_else(|| Wrong::new("is not an answer", help))
}
