//! Compares with CoreDNS itself: both run the same Corefile with the same upstream, get the same questions,
//! and give the same answers, except for the differences listed here with their reasons.
//!
//! `cargo xtask test cluster` builds CoreDNS and runs this test; `COREDNS` is the path of the program.

mod corefiles;
mod differences;
mod upstream;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::process::Command;
use std::time::{Duration, Instant};

use corefiles::{CASES, Case};
use differences::EVERYWHERE;

use crate::harness::process::Process;
use crate::harness::{Message, Proxy, Record, Stream, address, client, flags, proxy, until};

/// The types asked for every name.
const TYPES: [&str; 9] = ["A", "AAAA", "MX", "TXT", "SRV", "CNAME", "PTR", "SOA", "HTTPS"];

/// All intended differences.
fn differences() -> impl Iterator<Item = &'static Difference> {
    EVERYWHERE
        .iter()
        .chain(CASES.iter().flat_map(|case| case.differences))
}

/// The manner of a query.
#[derive(Debug, Clone, Copy)]
enum Manner {
    Plain,
    /// Once more, from the cache.
    Again,
    /// With EDNS, and DO.
    Dnssec,
    /// With a small UDP size, which some answers exceed.
    Small,
    Tcp,
}

const MANNERS: [Manner; 5] = [
    Manner::Plain,
    Manner::Again,
    Manner::Dnssec,
    Manner::Small,
    Manner::Tcp,
];

/// An intended difference.
struct Difference {
    /// Removes the difference from both replies to a question.
    settle: fn(&Asked, &mut Said, &mut Said),
    why: &'static str,
}

/// A question.
#[derive(Debug, Clone, Copy)]
struct Asked {
    name: &'static str,
    qtype: &'static str,
    manner: Manner,
}

/// The compared parts of a reply.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Said {
    rcode: String,
    flags: Vec<&'static str>,
    answers: Vec<(String, u32)>,
    authority: Vec<(String, u32)>,
    additional: Vec<(String, u32)>,
    errors: Vec<u16>,
    edns: bool,
}

const FLAGS: [(u16, &str); 5] = [
    (flags::AA, "AA"),
    (flags::TC, "TC"),
    (flags::RA, "RA"),
    (flags::AD, "AD"),
    (flags::CD, "CD"),
];

impl Said {
    fn of(message: &Message, case: &Case) -> Said {
        let section = |records: &[Record], sorted: bool| {
            let mut records: Vec<_> = records
                .iter()
                .map(|record| (record.without_ttl().to_ascii_lowercase(), record.ttl))
                .collect();
            if sorted {
                records.sort();
            }
            records
        };
        let present = FLAGS.iter().filter(|(bit, _)| message.has(*bit));
        Said {
            rcode: message.rcode(),
            flags: present.map(|(_, name)| *name).collect(),
            answers: section(&message.answers, case.in_any_order),
            authority: section(&message.authority, true),
            additional: section(&message.additional, true),
            errors: message.extended_errors(),
            edns: message.edns.is_some(),
        }
    }

    /// Whether both are the same, apart from this many seconds between them.
    fn agrees(&self, other: &Said, seconds: u32) -> bool {
        let bare = |said: &Said| {
            let mut bare = said.clone();
            let sections = [&mut bare.answers, &mut bare.authority, &mut bare.additional];
            for record in sections.into_iter().flatten() {
                record.1 = 0;
            }
            bare
        };
        let ttls = |said: &Said| -> Vec<u32> {
            let sections = [&said.answers, &said.authority, &said.additional];
            sections.into_iter().flatten().map(|(_, ttl)| *ttl).collect()
        };
        bare(self) == bare(other)
            && ttls(self)
                .iter()
                .zip(&ttls(other))
                .all(|(one, other)| one.abs_diff(*other) <= seconds)
    }
}

fn start_coredns(text: &str, address: SocketAddr) -> (Process, tempfile::TempDir) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("Corefile");
    std::fs::write(&file, text).expect("a Corefile");
    let program = std::env::var("COREDNS").expect("COREDNS, the path of the program");
    let mut process = Process::start(Command::new(program).arg("-conf").arg(&file));
    // This name is not compared, because it is in the cache from here on.
    let probe = Message::query("a-99.example.org", "A").encode();
    until("CoreDNS to answer", || {
        assert!(process.running(), "it ended: {:#?}", process.stderr());
        let socket = client::socket(address);
        let short = Some(Duration::from_millis(200));
        socket.set_read_timeout(short).expect("a timeout");
        socket.send(&probe).is_ok() && socket.recv(&mut [0; 512]).is_ok()
    });
    (process, folder)
}

/// dnsweir with its translation of a Corefile that is bound to an address.
fn start_dnsweir(text: &str, address: SocketAddr) -> Proxy {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("Corefile");
    std::fs::write(&file, text).expect("a Corefile");
    let done = proxy::command()
        .arg("import")
        .arg(&file)
        .output()
        .expect("dnsweir import");
    assert!(
        done.status.success(),
        "{text}\n{}",
        String::from_utf8_lossy(&done.stderr)
    );
    let imported = String::from_utf8_lossy(&done.stdout).into_owned();
    // The time limit of filters is generous, because the test machine may be slow.
    let imported = imported.replace(
        "    module \"builtin:",
        "    limits time=\"1s\"\n    module \"builtin:",
    );
    let imported = imported.replace(&format!("\"{address}\""), "\"$LISTEN\"");
    Proxy::start(&imported.replacen("listen ", "admin \"$ADMIN\"\nlisten ", 1))
}

fn exchange(server: SocketAddr, asked: &Asked) -> Message {
    let mut query = Message::query(asked.name, asked.qtype);
    query = match asked.manner {
        Manner::Dnssec => query.edns(4096).dnssec_ok(),
        Manner::Small => query.edns(512),
        _ => query,
    };
    match asked.manner {
        Manner::Tcp => {
            // Not `ask`, which checks conformance with the standards.
            let mut stream = Stream::connect(server);
            stream.send(&[&query]);
            stream.receive().expect("a reply")
        }
        _ => Message::decode(&client::exchange(server, &query.encode())).expect("a reply"),
    }
}

/// All questions of a case.
fn questions(case: &Case) -> impl Iterator<Item = Asked> {
    let names = upstream::NAMES.iter().chain(case.names).copied();
    names.flat_map(|name| {
        TYPES.into_iter().flat_map(move |qtype| {
            MANNERS
                .into_iter()
                .map(move |manner| Asked { name, qtype, manner })
        })
    })
}

/// Asks both all questions of a case. Returns their number, and the unexplained disagreements as text.
fn compare(case: &Case, tally: &mut BTreeMap<&'static str, usize>) -> (usize, Vec<String>) {
    let upstream = upstream::start();
    let written = |at: SocketAddr| {
        let text = case.text.replace("$UPSTREAM", &upstream.address.to_string());
        let text = text.replace("$BIND", &at.ip().to_string());
        text.replace("$PORT", &at.port().to_string())
    };
    let (theirs, ours) = (address::fresh_socket(), address::fresh_socket());
    let (_coredns, _folder) = start_coredns(&written(theirs), theirs);
    let proxy = start_dnsweir(&written(ours), ours);
    let (mut count, mut disagreements) = (0, Vec::new());
    // An answer that is cached later has the longer TTL from then on, by the time between the two queries.
    let mut apart = 2;
    for asked in questions(case) {
        let begun = Instant::now();
        let said = |server| Said::of(&exchange(server, &asked), case);
        let (mut theirs, mut ours) = (said(theirs), said(proxy.address));
        apart = apart.max(2 + begun.elapsed().as_secs() as u32);
        let heard = (theirs.clone(), ours.clone());
        count += 1;
        for difference in EVERYWHERE.iter().chain(case.differences) {
            if theirs.agrees(&ours, apart) {
                break;
            }
            let before = (theirs.clone(), ours.clone());
            (difference.settle)(&asked, &mut theirs, &mut ours);
            if (&theirs, &ours) != (&before.0, &before.1) {
                *tally.entry(difference.why).or_default() += 1;
            }
        }
        if !theirs.agrees(&ours, apart) {
            let (theirs, ours) = heard;
            disagreements.push(format!(
                "{}: {} {} {:?}\n  CoreDNS {theirs:?}\n  dnsweir {ours:?}",
                case.title, asked.name, asked.qtype, asked.manner
            ));
        }
    }
    (count, disagreements)
}

#[test]
#[ignore = "needs CoreDNS, which `cargo xtask test cluster` builds"]
fn answers_are_those_of_coredns() {
    let (mut count, mut disagreements, mut tally) = (0, Vec::new(), BTreeMap::new());
    for case in &CASES {
        let (asked, found) = compare(case, &mut tally);
        eprintln!("{}: {asked} questions, {} disagreements", case.title, found.len());
        count += asked;
        disagreements.extend(found);
    }
    for (why, times) in &tally {
        eprintln!("{times} times: {why}");
    }
    eprintln!("{count} questions to {} Corefiles", CASES.len());
    let first: Vec<&String> = disagreements.iter().take(40).collect();
    assert!(
        disagreements.is_empty(),
        "{} disagreements: {first:#?}",
        disagreements.len()
    );
    // A listed difference that does not occur any more must be removed.
    for difference in differences() {
        assert!(
            tally.contains_key(difference.why),
            "never seen: {}",
            difference.why
        );
    }
}

#[test]
fn the_document_lists_every_difference() {
    let path = crate::harness::guests::root().join("docs/reference/differences.md");
    let document = std::fs::read_to_string(path).expect("docs/reference/differences.md");
    let document: Vec<&str> = document.split_whitespace().collect();
    let document = document.join(" ");
    for difference in differences() {
        let why = difference.why;
        assert!(
            document.contains(why),
            "docs/reference/differences.md does not say: {why}"
        );
    }
}
