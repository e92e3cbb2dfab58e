//! Counts the instructions of a cached answer, and of the most expensive messages, with callgrind: the same
//! on every machine, however busy.
//!
//! Only the proxy's own part counts, from the bytes of a query to those of its reply, including the filters'
//! code, but not the kernel.

use std::process::{Command, Stdio};

use tempfile::TempDir;

use crate::harness::guests::root;
use crate::harness::tools::{command, output};
use crate::harness::{needs, proxy::program, tools::RELEASE};

/// Instructions per hit, in batches of 32. Whoever makes a hit cheaper must lower this figure; whoever makes
/// it a tenth more expensive fails here, and must justify it in the commit.
const BARE: f64 = 1669.0;

/// The same with filters whose verdicts are remembered.
const REMEMBERED: f64 = 4768.0;

/// Instructions for one miss, in batches of 16: all that the process does, the upstream included.
const BARE_MISS: f64 = 24_300.0;

/// The same through three filters. Two of them are called, since each name is new.
const FILTERED_MISS: f64 = 34_500.0;

/// What a query may cost at most that is as dear as one can be made, from its octets to its way through the zones: so
/// many instructions, and so many for each octet. A longer one than is read costs the former.
const QUERY: (f64, f64) = (8_000.0, 8.0);

/// The limit for an upstream's answer, from its bytes to the cache entry and a truncated reply: a base and
/// per byte.
const ANSWER: (f64, f64) = (20_000.0, 120.0);

/// The limit for an answer of the proxy's own, from the query's bytes to the reply's, however much data is
/// behind it: a base, and per byte of the reply.
const OWN: (f64, f64) = (20_000.0, 100.0);

/// The limit for a filter's edit of such an answer, in addition: per byte of what is edited.
const EDIT: f64 = 60.0;

/// The limits for reading inputs other than messages, whose most expensive forms an hour of fuzzing found:
/// instructions per byte.
const READERS: [(&str, f64); 4] = [
    ("module", 200.0),
    ("slice", 1_000.0),
    ("config", 40_000.0),
    // Per byte that it may take in memory, since `$GENERATE` creates records. The fuzzer's zones may take 1
    // MiB.
    ("zone", 100.0),
];

/// The maximum size of a query in bytes. The other messages measured are the longest that fit without EDNS.
const READ: f64 = 4096.0;

/// What the most expensive messages are full of.
const FILLINGS: [&str; 5] = ["pointers", "compressed", "labels", "records", "options"];

/// A folder with the compiled filters for these arguments: compiling one under callgrind takes minutes.
fn compiled(words: &[&str]) -> TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    let mut bench = Command::new(program().with_file_name("dnsweir-bench"));
    output(bench.args(words).arg("--compiled").arg(folder.path()));
    folder
}

/// The instructions that callgrind counts in a function of `dnsweir-bench`.
fn instructions(function: &str, arguments: &[&str]) -> f64 {
    counted(&[format!("--toggle-collect={function}")], arguments)
}

/// The instructions of all of `dnsweir-bench`, or of what callgrind is told to collect.
fn counted(what: &[String], arguments: &[&str]) -> f64 {
    let mut valgrind = command("valgrind");
    valgrind.args(["--tool=callgrind", "--callgrind-out-file=/dev/null"]);
    valgrind.args(what);
    valgrind.arg(program().with_file_name("dnsweir-bench"));
    valgrind.args(arguments);
    valgrind.stdin(Stdio::null());
    let run = valgrind.output().expect("valgrind");
    let said = String::from_utf8_lossy(&run.stderr);
    assert!(run.status.success(), "{said}");
    let collected = said.lines().find_map(|line| line.split_once("Collected :"));
    let collected = collected.and_then(|(_, count)| count.trim().parse().ok());
    collected.unwrap_or_else(|| panic!("callgrind counted nothing:\n{said}"))
}

/// The cost of a message grows at most linearly with its size, whatever it contains. A test per size, so that
/// they run in parallel.
#[test]
fn no_short_message_costs_more_than_its_octets() {
    costs_no_more_than_its_octets(512.0);
}

#[test]
fn no_query_that_is_read_costs_more_than_its_octets() {
    costs_no_more_than_its_octets(READ);
}

#[test]
fn no_long_message_costs_more_than_its_octets() {
    costs_no_more_than_its_octets(65_535.0);
}

fn costs_no_more_than_its_octets(octets: f64) {
    if !needs(&["valgrind", RELEASE]) {
        return;
    }
    let (mut query, mut answer) = (0.0_f64, 0.0_f64);
    for filling in FILLINGS {
        let cost = |what: &str, function: &str, count: u32| {
            let (octets, times) = (octets.to_string(), count.to_string());
            let arguments = ["worst", what, filling, "--octets", &octets, "--count", &times];
            instructions(function, &arguments) / f64::from(count)
        };
        // So often that one-time work, such as finding a counter, hardly counts.
        query = query.max(cost("--query", "*worst::admit*", 64));
        answer = answer.max(cost("--answer", "*worst::read*", 2));
    }
    eprintln!("{octets} octets: at most {query} instructions as a query, {answer} as an answer");
    let read = if octets > READ { 0.0 } else { octets };
    assert!(
        (1.0..QUERY.0 + QUERY.1 * read).contains(&query),
        "{query} for a query of {octets} octets"
    );
    assert!(
        (1.0..ANSWER.0 + ANSWER.1 * octets).contains(&answer),
        "{answer} for an answer of {octets} octets"
    );
}

/// Neither does the cost of the proxy's own answers: it depends on the client's size limit, not on the data
/// behind it.
#[test]
fn no_own_answer_costs_more_than_its_octets() {
    if !needs(&["valgrind", RELEASE]) {
        return;
    }
    for octets in [512, 65_535] {
        for (own, edited) in [("set", 0.0), ("hosts", 0.0), ("edited", 64_000.0)] {
            let limit = octets.to_string();
            let words = ["worst", "--own", own, "--octets", &limit, "--count", "2"];
            let compiled = compiled(&words);
            let folder = compiled.path().to_str().expect("letters");
            let arguments = [&words[..], &["--compiled", folder]].concat();
            let each = instructions("*own_answers::answer*", &arguments) / 2.0;
            eprintln!("{own}: {each} instructions for {octets} octets");
            let most = OWN.0 + OWN.1 * f64::from(octets) + EDIT * edited;
            assert!(
                (1.0..most).contains(&each),
                "{own}: {each} instructions for {octets} octets"
            );
        }
    }
}

/// Neither does the cost of files and API server objects: the most expensive fuzzing inputs are in the
/// corpus.
#[test]
fn nothing_that_is_read_costs_more_than_its_octets() {
    if !needs(&["valgrind", RELEASE]) {
        return;
    }
    for (reader, most) in READERS {
        let file = root().join("fuzz/corpus").join(reader).join("dearest");
        let file = file.to_str().expect("letters");
        // Without one-time work; a configuration is read on a separate thread.
        let [one, three] = ["1", "3"].map(|count| {
            counted(
                &[],
                &["worst", "--read", reader, "--file", file, "--count", count],
            )
        });
        let each = (three - one) / 2.0;
        let octets = if reader == "zone" {
            1 << 20
        } else {
            std::fs::metadata(file).expect("a file").len()
        };
        eprintln!("{reader}: {each} instructions for {octets} octets");
        assert!(
            (1.0..most * octets as f64).contains(&each),
            "{reader}: {each} for {octets}"
        );
    }
}

#[test]
fn a_bare_hit_does_not_grow_by_a_tenth() {
    does_not_grow_by_a_tenth("bare", BARE);
}

#[test]
fn a_hit_with_remembered_verdicts_does_not_grow_by_a_tenth() {
    does_not_grow_by_a_tenth("remembered", REMEMBERED);
}

/// The runtime and the C library are included.
#[test]
fn a_bare_miss_does_not_grow_by_a_tenth() {
    a_miss_does_not_grow_by_a_tenth("bare", BARE_MISS);
}

#[test]
fn a_miss_through_filters_does_not_grow_by_a_tenth() {
    a_miss_does_not_grow_by_a_tenth("remembered", FILTERED_MISS);
}

fn a_miss_does_not_grow_by_a_tenth(filters: &str, before: f64) {
    if !needs(&["valgrind", RELEASE]) {
        return;
    }
    let (few, many) = (1_600, 6_400);
    let compiled = compiled(&["miss", "--filters", filters, "--count", "16"]);
    let folder = compiled.path().to_str().expect("letters");
    let misses = |count: u64| {
        let count = count.to_string();
        let what = [
            "miss",
            "--filters",
            filters,
            "--count",
            &count,
            "--compiled",
            folder,
        ];
        counted(&[], &what)
    };
    // Valgrind's processor may lack what this one has: then the first run there compiles the filters again.
    misses(16);
    let each = (misses(many) - misses(few)) / (many - few) as f64;
    stays_within_a_tenth(&format!("{filters} miss"), each, before);
}

fn does_not_grow_by_a_tenth(filters: &str, before: f64) {
    if !needs(&["valgrind", RELEASE]) {
        return;
    }
    eprintln!("{}", output(command("valgrind").arg("--version")).trim());
    // The instructions apart from the queries are the same in both.
    let (few, many) = (3_200, 35_200);
    let compiled = compiled(&["hit", "--filters", filters, "--count", "32"]);
    let folder = compiled.path().to_str().expect("letters");
    let hits = |count: u64| {
        let count = count.to_string();
        let arguments = [
            "hit",
            "--filters",
            filters,
            "--count",
            &count,
            "--compiled",
            folder,
        ];
        instructions("*HitPath*answer*", &arguments)
    };
    let each = (hits(many) - hits(few)) / (many - few) as f64;
    stays_within_a_tenth(&format!("{filters} hit"), each, before);
}

fn stays_within_a_tenth(what: &str, each: f64, before: f64) {
    eprintln!("{what}: {each:.1} instructions, {before} before");
    assert!(
        each < before * 1.1,
        "a {what} takes {each:.1} instructions; it took {before}"
    );
    assert!(
        each > before * 0.9,
        "a {what} takes only {each:.1} instructions: write that down here instead of {before}"
    );
}
