//! Blocks the names on lists, such as people publish them.
//!
//! Whether a name is blocked depends on nothing but the name, so the host remembers what it was told.

mod list;

use std::net::IpAddr;
use std::time::Duration;

use dnsweir_filter::{
    Answer, Filter, FromValue, Invalid, Level, Manifest, NameBuf, Node, Query, Rcode, Setup, Ttl, Value,
    Verdict,
};

use list::Table;

/// How long the host may go without asking again. Not forever, so that its memory of names that
/// nobody asks for any more has an end.
const REMEMBER: Duration = Duration::from_secs(3600);

/// Wrong lines that are shown of one list: whoever mends these will see the others.
const SHOWN: usize = 10;

/// The filter.
pub struct BlockList {
    table: Table,
    reply: Reply,
    ttl: Duration,
}

/// What a query for a blocked name gets.
enum Reply {
    /// There is no such name.
    Nxdomain,
    /// These addresses.
    Addresses(Vec<IpAddr>),
}

impl Filter for BlockList {
    fn configure(setup: Setup<'_>) -> Result<(BlockList, Manifest), Invalid> {
        let config = setup.config();
        let ttl = config.setting_or("ttl", Ttl::HOUR).into();
        let reply = Reply::read(config);
        let mut table = Table::default();
        for node in config.nodes(&["list"]) {
            read_lists(node, &mut table);
        }
        for node in config.nodes(&["block"]) {
            for name in node.arguments::<NameBuf>(0).unwrap_or_default() {
                table.block_below(name);
            }
        }
        for node in config.nodes(&["allow"]) {
            for name in node.arguments::<NameBuf>(0).unwrap_or_default() {
                table.allow_below(name);
            }
        }
        // A download that failed must not open the gates: the host keeps the filter that it has.
        if !table.blocks_anything() {
            let help = "such as: list (file)\"block-list.txt\"";
            return Err(config.mistake("nothing is blocked").help(help).report());
        }
        let manifest = Manifest::new().queries();
        Ok((
            BlockList {
                table,
                reply: reply?,
                ttl,
            },
            manifest,
        ))
    }

    fn query(&mut self, query: &Query<'_>) -> Verdict {
        if !self.table.blocks(query.name()) {
            return Verdict::pass().remember(REMEMBER);
        }
        let verdict = match &self.reply {
            Reply::Nxdomain => Verdict::refuse(Rcode::NXDOMAIN),
            Reply::Addresses(addresses) => Verdict::answer(Answer::of_host(query, addresses, self.ttl)),
        };
        verdict.remember(REMEMBER)
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

impl Reply {
    /// `answer "nxdomain" | "null" | ADDRESS…`
    fn read(config: Node<'_>) -> Result<Reply, Invalid> {
        let Some(node) = config.node("answer")? else {
            return Ok(Reply::Nxdomain);
        };
        let words = node.arguments(0)?;
        let alone = words.len() == 1;
        let mut addresses = Vec::new();
        for (index, word) in words.into_iter().enumerate() {
            match word {
                Word::Nxdomain if alone => return Ok(Reply::Nxdomain),
                // What nothing can be reached at (RFC 1122 section 3.2.1.3, RFC 4291 section 2.5.2).
                Word::Null if alone => addresses.extend([[0; 4].into(), IpAddr::from([0; 16])]),
                Word::Address(address) => addresses.push(address),
                Word::Nxdomain | Word::Null => {
                    let mistake = node.mistake("a word stands alone, or there are addresses");
                    return Err(mistake.argument(index).help("keep one of them").report());
                }
            }
        }
        Ok(Reply::Addresses(addresses))
    }
}

/// What becomes of lines that no list should have.
#[derive(PartialEq)]
enum Unknown {
    Error,
    Skip,
}

impl FromValue for Unknown {
    const EXPECTED: &'static str = "what becomes of unknown lines";

    fn from_value(value: Value<'_>) -> Result<Unknown, String> {
        match value {
            Value::Text("error") => Ok(Unknown::Error),
            Value::Text("skip") => Ok(Unknown::Skip),
            _ => Err("\"error\" or \"skip\"".to_owned()),
        }
    }
}

/// `list TEXT… unknown="error" | "skip"`
fn read_lists(node: Node<'_>, table: &mut Table) {
    let unknown = node.property("unknown");
    for index in 0..node.argument_count().max(1) {
        let Ok(text) = node.text(index) else { continue };
        let wrong = table.read(text);
        let Some((line, problem)) = wrong.first() else {
            continue;
        };
        if unknown == Ok(Some(Unknown::Skip)) {
            let count = wrong.len();
            let message = format!("{count} lines of a list skipped; the first is line {line}: {problem}");
            dnsweir_filter::log(Level::Warn, &message);
            continue;
        }
        for (line, problem) in wrong.iter().take(SHOWN) {
            let mistake = node.mistake(format!("line {line}: {problem}"));
            let _ = mistake
                .argument(index)
                .help("unknown=\"skip\" takes the rest of the list")
                .report();
        }
        if wrong.len() > SHOWN {
            let more = format!("and {} more lines", wrong.len() - SHOWN);
            let _ = node.mistake(more).argument(index).report();
        }
    }
}

dnsweir_filter::export!(BlockList);
