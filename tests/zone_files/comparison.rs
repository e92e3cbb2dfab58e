//! Compares with nsd on the same files: every name and many nonexistent ones, with every type, with and
//! without DO.

use std::collections::BTreeSet;
use std::fs;
use std::net::SocketAddr;
use std::process::Command;

use harness::client::Stream;
use harness::tools::{command, needs, output};
use harness::{Message, Proxy, Record, flags, servers};

/// The types to ask for: those in the zones, and some in none.
const TYPES: [u16; 33] = [
    1, 2, 5, 6, 12, 13, 15, 16, 17, 18, 28, 33, 35, 36, 37, 39, 43, 44, 46, 47, 48, 50, 51, 52, 53, 59, 61,
    63, 64, 65, 99, 257, 65280,
];

/// The number of concurrent queries.
const AT_ONCE: usize = 100;

#[test]
fn zones_are_served_as_nsd_serves_them() {
    if !needs(&["nsd"]) {
        return;
    }
    for (origin, text) in [
        ("hard.example.", include_str!("hard.zone")),
        ("apex.example.", include_str!("apex.zone")),
        ("wide.example.", include_str!("wide.zone")),
    ] {
        compare(origin, text, text);
    }
}

#[test]
fn signed_zones_are_served_as_nsd_serves_them() {
    if !needs(&["nsd", "dnssec-signzone", "dnssec-keygen"]) {
        return;
    }
    // NSEC, NSEC3 with salt and iterations, and NSEC3 with opt-out.
    let chains: [&[&str]; 3] = [&[], &["-3", "abcd", "-H", "1"], &["-3", "-", "-A"]];
    for chain in chains {
        for (origin, text) in [
            ("hard.example.", include_str!("hard.zone")),
            ("wide.example.", include_str!("wide.zone")),
        ] {
            let signed = signed(origin, text, chain);
            compare(origin, &signed, &signed);
        }
    }
}

/// The zone, signed by BIND's signer.
fn signed(origin: &str, text: &str, chain: &[&str]) -> String {
    let folder = tempfile::tempdir().unwrap();
    let run = |command: &mut Command| output(command.current_dir(folder.path()));
    fs::write(folder.path().join("zone"), text).unwrap();
    let zone = origin.trim_end_matches('.');
    run(command("dnssec-keygen").args(["-q", "-f", "KSK", "-a", "ECDSAP256SHA256", zone]));
    run(command("dnssec-keygen").args(["-q", "-a", "ECDSAP256SHA256", zone]));
    let signer = [
        "-S",
        "-P",
        "-o",
        zone,
        "-s",
        "20200101000000",
        "-e",
        "20400101000000",
        "-f",
        "signed",
    ];
    run(command("dnssec-signzone").args(signer).args(chain).arg("zone"));
    fs::read_to_string(folder.path().join("signed")).unwrap()
}

/// nsd serves what BIND makes of a zone with `$GENERATE`.
#[test]
fn ranges_are_those_of_bind() {
    if !needs(&["nsd", "named-compilezone"]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let text = include_str!("ranges.zone");
    fs::write(folder.path().join("zone"), text).unwrap();
    let mut compiler = command("named-compilezone");
    compiler.current_dir(folder.path()).args([
        "-q",
        "-k",
        "ignore",
        "-i",
        "none",
        "-o",
        "compiled",
        "ranges.example",
        "zone",
    ]);
    output(&mut compiler);
    let compiled = fs::read_to_string(folder.path().join("compiled")).unwrap();
    compare("ranges.example.", text, &compiled);
}

/// Has both servers serve a zone, and compares their answers.
fn compare(origin: &str, our_text: &str, their_text: &str) {
    let nsd = servers::nsd(origin, their_text);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("zone");
    fs::write(&file, our_text).unwrap();
    let proxy = Proxy::start(&format!("zone {origin:?} {{ file {file:?} }}"));
    let names = names(origin, nsd.address);
    let queries: Vec<Message> = names.iter().flat_map(|name| queries(name)).collect();
    let ours = ask_all(proxy.address, &queries);
    let theirs = ask_all(nsd.address, &queries);
    let mut differences = Vec::new();
    for ((query, ours), theirs) in queries.iter().zip(&ours).zip(&theirs) {
        let (our, their) = (said(ours), said(theirs));
        if our != their && !is_known(query, ours, theirs) {
            differences.push(format!(
                "{query}ours:\n{}\ntheirs:\n{}",
                our.join("\n"),
                their.join("\n")
            ));
        }
    }
    let (count, all) = (differences.len(), queries.len());
    differences.truncate(6);
    println!("{}: {all} questions for {} names", origin, names.len());
    assert!(
        count == 0,
        "{}: {count} of {all} differ:\n{}",
        origin,
        differences.join("\n----\n")
    );
}

/// The names of the zone, from a transfer, and others at every depth: below, beside and above each.
fn names(origin: &str, nsd: SocketAddr) -> BTreeSet<String> {
    let mut stream = Stream::connect(nsd);
    stream.send(&[&Message::query(origin, "AXFR")]);
    let mut owners = BTreeSet::new();
    let mut ends = 0;
    while ends < 2 {
        let message = stream.receive().expect("the rest of the transfer");
        for record in &message.answers {
            owners.insert(record.name.to_lowercase());
            ends += usize::from(record.rtype == 6);
        }
    }
    let mut names = owners.clone();
    for owner in &owners {
        for label in ["x", "*", "a.b.c", "0"] {
            names.insert(format!("{label}.{owner}"));
        }
        // Beside it, and above it.
        let mut rest = owner.as_str();
        while rest != origin {
            let Some((_, above)) = split(rest) else { break };
            names.insert(above.to_owned());
            names.insert(format!("beside.{above}"));
            rest = above;
        }
    }
    names.insert("UPPER.Case.".to_owned() + origin);
    names.insert("Mixed.CASE.".to_owned() + origin);
    names.insert(format!("{}{origin}", "d.".repeat(100)));
    // With the DNAME's target, it is longer than a name may be (RFC 6672 section 2.2).
    names.insert(format!("{}.long.{origin}", "l".repeat(63)));
    names.retain(|name| name.len() < 250);
    names
}

/// Splits a name after its first label, at the first dot that is not escaped.
fn split(name: &str) -> Option<(&str, &str)> {
    let mut escaped = false;
    for (at, letter) in name.char_indices() {
        match letter {
            '.' if !escaped => return Some((&name[..at], &name[at + 1..])),
            '\\' if !escaped => escaped = true,
            _ => escaped = false,
        }
    }
    None
}

fn queries(name: &str) -> Vec<Message> {
    let of = |rtype: &u16| {
        let query = Message::query(name, &format!("TYPE{rtype}")).clear(flags::RD);
        // Answers come in any order (RFC 7766 section 6.2.1.1).
        let id = !query.id;
        let other = Message { id, ..query.clone() };
        [query, other.dnssec_ok()]
    };
    TYPES.iter().flat_map(of).collect()
}

/// Asks over TCP, so that nothing is truncated.
fn ask_all(server: SocketAddr, queries: &[Message]) -> Vec<Message> {
    let mut answers = Vec::with_capacity(queries.len());
    for some in queries.chunks(AT_ONCE) {
        let mut stream = Stream::connect(server);
        stream.send(&some.iter().collect::<Vec<_>>());
        let mut of_some: Vec<Message> = some
            .iter()
            .map(|query| stream.receive().unwrap_or_else(|| panic!("no answer to {query}")))
            .collect();
        for query in some {
            let at = of_some
                .iter()
                .position(|answer| answer.id == query.id && answer.questions == query.questions);
            answers.push(of_some.swap_remove(at.unwrap_or_else(|| panic!("no answer to {query}"))));
        }
    }
    answers
}

/// Whether a difference is listed in docs/reference/differences.md, with its reason.
fn is_known(query: &Message, ours: &Message, theirs: &Message) -> bool {
    let question = &query.questions[0];
    let without = |message: &Message, rtype: Option<u16>| {
        let mut message = message.clone();
        match rtype {
            None => message.additional.clear(),
            // Including their signatures.
            Some(rtype) => message.authority.retain(|record| {
                record.rtype != rtype
                    && !(record.rtype == RRSIG && record.data.starts_with(&rtype.to_be_bytes()))
            }),
        }
        said(&message)
    };
    let is_alias = |record: &Record| [CNAME, DNAME].contains(&record.rtype);
    // Addresses of named hosts, and records of service bindings' targets (RFC 9460 section 4.1).
    ([MX, SRV, SVCB, HTTPS].contains(&question.qtype) && without(ours, None) == said(theirs))
        // An alias is followed whatever type is asked for.
        || (question.qtype == NSEC3 && ours.answers.iter().any(is_alias))
        // The hash in an NSEC3 owner is not a name, and has nothing below it (RFC 5155 section 7.2.8).
        || is_below_hash(&question.name)
        // The target of the DNAME does not exist either.
        || ours.answers.iter().any(|record| record.rtype == DNAME)
            && ours.rcode() == "NXDOMAIN"
            && theirs.authority.iter().all(|record| ours.authority.contains(record))
            && without(ours, Some(NSEC)) == without(theirs, Some(NSEC))
        // A query for a wildcard itself needs no proof that it matches.
        || question.name.starts_with("*.")
            && ours.authority.iter().all(|record| theirs.authority.contains(record))
            && without(ours, Some(NSEC3)) == without(theirs, Some(NSEC3))
}

const CNAME: u16 = 5;
const MX: u16 = 15;
const SRV: u16 = 33;
const DNAME: u16 = 39;
const RRSIG: u16 = 46;
const NSEC: u16 = 47;
const NSEC3: u16 = 50;
const SVCB: u16 = 64;
const HTTPS: u16 = 65;

/// Whether a label other than the first is the hash of an NSEC3 record.
fn is_below_hash(name: &str) -> bool {
    let is_hash = |label: &str| {
        label.len() == 32
            && label
                .bytes()
                .all(|octet| matches!(octet, b'0'..=b'9' | b'a'..=b'v'))
    };
    name.split('.').skip(1).any(is_hash)
}

/// The compared parts of an answer.
fn said(answer: &Message) -> Vec<String> {
    let authoritative = if answer.has(flags::AA) { "AA" } else { "" };
    let mut said = vec![format!("{} {authoritative}", answer.rcode())];
    for (section, records) in [
        ("=", &answer.answers),
        ("^", &answer.authority),
        ("+", &answer.additional),
    ] {
        let lines: BTreeSet<String> = records
            .iter()
            .map(|record| format!("{section} {}", line(record)))
            .collect();
        said.extend(lines);
    }
    said
}

fn line(record: &Record) -> String {
    let mut record = record.clone();
    record.name = record.name.to_lowercase();
    if [2, 5, 6, 12, 15, 33, 39].contains(&record.rtype) {
        record.data = record.data.to_ascii_lowercase();
    }
    record.to_string()
}
