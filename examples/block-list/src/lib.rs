//! Blocks the names on published block lists.
//!
//! Whether a name is blocked depends only on the name, so the host remembers the verdict.

use std::net::IpAddr;
use std::time::Duration;

use dnsweir_filter::{
    Answer, Filter, FromValue, Invalid, Level, Listed, Manifest, Name, NameList, NameMap, Node, Query, Rcode,
    Setup, Ttl, Value, Verdict, log,
};

/// How long the host may remember a verdict. Bounded, so that it forgets names that are no longer asked for.
const REMEMBER: Duration = Duration::from_secs(3600);

/// The number of wrong lines reported per list: fixing them reveals the others.
const SHOWN: usize = 10;

/// The filter.
pub struct BlockList {
    names: NameMap<Marks>,
    /// The addresses that answer blocked names; `None` for NXDOMAIN.
    addresses: Option<Vec<IpAddr>>,
    ttl: Duration,
}

/// The entries for a name: blocked alone, blocked with all names below, and allowed with all names below,
/// which overrides the others.
#[derive(Default)]
struct Marks {
    exact: bool,
    below: bool,
    allowed: bool,
}

impl Filter for BlockList {
    fn configure(setup: Setup<'_>) -> Result<(BlockList, Manifest), Invalid> {
        let config = setup.config();
        let ttl = config.setting_or("ttl", Ttl::HOUR).into();
        let addresses = read_answer(config);
        let mut names = NameMap::new();
        for node in config.nodes(&["list"]) {
            read_lists(node, &mut names);
        }
        for node in config.nodes(&["block", "allow"]) {
            for name in node.arguments(0).unwrap_or_default() {
                mark(
                    &mut names,
                    match node.name() {
                        "allow" => Listed::Except(name),
                        _ => Listed::Below(name),
                    },
                );
            }
        }
        // A failed download must not unblock everything: the host keeps the previous filter.
        if !names.iter().any(|(_, marks)| marks.exact || marks.below) {
            let help = "such as: list (file)\"block-list.txt\"";
            return Err(config.mistake("nothing is blocked").help(help).report());
        }
        let addresses = addresses?;
        let filter = BlockList {
            names,
            addresses,
            ttl,
        };
        Ok((filter, Manifest::new().queries()))
    }

    fn query(&mut self, query: &Query<'_>) -> Verdict {
        let verdict = match &self.addresses {
            _ if !self.blocks(query.name()) => Verdict::pass(),
            Some(addresses) => Verdict::answer(Answer::of_host(query, addresses, self.ttl)),
            None => Verdict::refuse(Rcode::NXDOMAIN),
        };
        verdict.remember(REMEMBER)
    }
}

impl BlockList {
    /// Makes one lookup per label of a name, however long the lists are.
    fn blocks(&self, name: Name<'_>) -> bool {
        let mut blocked = false;
        for (suffix, marks) in self.names.suffixes(name) {
            if marks.allowed {
                return false;
            }
            blocked |= marks.below || (marks.exact && suffix == name);
        }
        blocked
    }
}

fn mark(names: &mut NameMap<Marks>, listed: Listed) {
    match listed {
        Listed::Exact(name) => names.entry(name).exact = true,
        Listed::Below(name) => names.entry(name).below = true,
        Listed::Except(name) => names.entry(name).allowed = true,
    }
}

/// A word of `answer`.
enum Word {
    Nxdomain,
    Null,
    Address(IpAddr),
}

impl FromValue for Word {
    const EXPECTED: &'static str = "what blocked names are answered with";

    fn from_value(value: Value<'_>) -> Result<Word, String> {
        match value {
            Value::Text("nxdomain") => Ok(Word::Nxdomain),
            Value::Text("null") => Ok(Word::Null),
            value => IpAddr::from_value(value)
                .map(Word::Address)
                .map_err(|_| "\"nxdomain\", \"null\", or addresses".to_owned()),
        }
    }
}

/// `answer "nxdomain" | "null" | ADDRESS…`
fn read_answer(config: Node<'_>) -> Result<Option<Vec<IpAddr>>, Invalid> {
    let Some(node) = config.node("answer")? else {
        return Ok(None);
    };
    let words = node.arguments(0)?;
    let mut addresses = Vec::new();
    for (index, word) in words.iter().enumerate() {
        match word {
            Word::Address(address) => addresses.push(*address),
            _ if words.len() > 1 => {
                let mistake = node.mistake("a word stands alone, or there are addresses");
                return Err(mistake.argument(index).help("keep one of them").report());
            }
            Word::Nxdomain => return Ok(None),
            // The unspecified addresses, where nothing can be reached (RFC 1122 section 3.2.1.3, RFC 4291
            // section 2.5.2).
            Word::Null => addresses.extend([[0; 4].into(), IpAddr::from([0; 16])]),
        }
    }
    Ok(Some(addresses))
}

/// Whether lines of an unknown form are skipped.
#[derive(Clone, Copy, PartialEq)]
struct Skips(bool);

impl FromValue for Skips {
    const EXPECTED: &'static str = "what becomes of unknown lines";

    fn from_value(value: Value<'_>) -> Result<Skips, String> {
        value.one_of(&[("error", Skips(false)), ("skip", Skips(true))])
    }
}

/// `list TEXT… unknown="error" | "skip"`
fn read_lists(node: Node<'_>, names: &mut NameMap<Marks>) {
    let skips = node.property("unknown") == Ok(Some(Skips(true)));
    for index in 0..node.argument_count().max(1) {
        let Ok(text) = node.text(index) else { continue };
        let mut wrong = Vec::new();
        for listed in NameList::new(text) {
            listed.map_or_else(|error| wrong.push(error), |listed| mark(names, listed));
        }
        let count = wrong.len();
        if let Some(first) = wrong.first().filter(|_| skips) {
            let message = format!("{count} lines of a list skipped; the first is {first}");
            log(Level::Warn, &message);
            continue;
        }
        let report = |message: String, help| {
            let _ = node.mistake(message).argument(index).help(help).report();
        };
        for error in wrong.iter().take(SHOWN) {
            report(error.to_string(), "unknown=\"skip\" takes the rest of the list");
        }
        if count > SHOWN {
            report(format!("and {} more lines", count - SHOWN), "");
        }
    }
}

dnsweir_filter::export!(BlockList);
