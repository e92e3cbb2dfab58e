//! Runs CoreDNS's own tests with dnsweir in place of CoreDNS, and compares each outcome with the table in
//! docs/reference/coredns-suite.md.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::build::Build;
use crate::commands::{Failure, call, release_folder, root};

/// The version of CoreDNS whose tests are run, as a Go module.
const COREDNS: &str = "github.com/coredns/coredns@v1.15.0";

/// The document with the table of expected outcomes.
const TABLE: &str = "docs/reference/coredns-suite.md";

/// Test files that only look inside CoreDNS's process.
const INSIDE: [&str; 1] = ["json_log_test.go"];

/// The outcome of a test.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Pass,
    /// The test skips itself.
    Skipped,
    /// The test fails because `dnsweir import` refuses the Corefile.
    Refused,
    Fail,
}

/// A test's row in the table: the expected outcome, and the reason.
#[derive(Debug, Default, Clone)]
struct Row {
    word: String,
    why: String,
}

/// Runs all tests, or those whose names contain one of the words, and compares the outcomes with the table.
/// `--write` updates the table, and keeps its reasons.
pub fn suite(mut words: Vec<String>) -> Result<(), Failure> {
    let write = words.iter().any(|word| word == "--write");
    words.retain(|word| word != "--write");
    let build = Build::chosen(&mut words);
    build.programs(&["dnsweir"])?;
    let folder = release_folder().with_file_name("coredns-suite");
    let tests = compiled(&folder)?;
    let document = root().join(TABLE);
    let text = fs::read_to_string(&document).map_err(|error| format!("{TABLE}: {error}"))?;
    let (before, mut rows, after) = read(&text)?;
    let all = names(&tests)?;
    let chosen = |name: &&String| words.is_empty() || words.iter().any(|word| name.contains(word));
    let mut wrong = Vec::new();
    for name in all.iter().filter(chosen) {
        let (outcome, output) = run(&tests, name, &build.folder().join("dnsweir"), &folder)?;
        println!("{name}: {outcome:?}");
        fs::write(folder.join(format!("{name}.log")), output)
            .map_err(|error| format!("{name}.log: {error}"))?;
        let row = rows.entry(name.clone()).or_default();
        if !row.matches(outcome) {
            wrong.push(format!("{name}: {outcome:?}, but the table has {:?}", row.word));
            row.word = outcome.word().to_owned();
        } else if row.why.is_empty() && outcome != Outcome::Pass {
            wrong.push(format!("{name}: {outcome:?}, but the table gives no reason"));
        }
    }
    rows.retain(|name, _| all.contains(name));
    if write {
        let table: String = rows
            .iter()
            .map(|(name, Row { word, why })| format!("| `{name}` | {word} | {why} |\n"))
            .collect();
        fs::write(&document, [before, &table, after].concat())
            .map_err(|error| format!("{TABLE}: {error}"))?;
    }
    match wrong.is_empty() {
        true => Ok(()),
        false => Err(format!(
            "{TABLE} does not match the outcomes; --write updates outcomes, and reasons are written by hand:\n{}\nThe output of each test is in {}",
            wrong.join("\n"),
            folder.display()
        )),
    }
}

impl Outcome {
    fn word(self) -> &'static str {
        match self {
            Outcome::Pass => "pass",
            Outcome::Skipped => "skipped",
            Outcome::Refused => "refused",
            Outcome::Fail => "fail",
        }
    }
}

impl Row {
    /// Returns whether this outcome is expected. A test may fail if the table says that it differs, is
    /// not applicable, or is open.
    fn matches(&self, outcome: Outcome) -> bool {
        match outcome {
            Outcome::Fail => ["differs", "not applicable", "open"].contains(&self.word.as_str()),
            outcome => self.word == outcome.word(),
        }
    }
}

/// Returns the text before the table's rows, the rows, and the text after them.
fn read(text: &str) -> Result<(&str, BTreeMap<String, Row>, &str), Failure> {
    const HEAD: &str = "|---|---|---|\n";
    let start = text.find(HEAD).ok_or(format!("{TABLE}: the table is missing"))? + HEAD.len();
    let length = text[start..]
        .find("\n\n")
        .map_or(text.len() - start, |end| end + 1);
    let (before, rest) = text.split_at(start);
    let (table, after) = rest.split_at(length);
    let row = |line: &str| {
        let cells: Vec<&str> = line.trim_matches('|').split(" | ").map(str::trim).collect();
        let [name, word, why] = cells[..] else { return None };
        let (word, why) = (word.to_owned(), why.to_owned());
        Some((name.trim_matches('`').to_owned(), Row { word, why }))
    };
    Ok((before, table.lines().filter_map(row).collect(), after))
}

/// Compiles CoreDNS's tests with our `server.go` into a program. Returns the folder that it runs in.
fn compiled(folder: &Path) -> Result<PathBuf, Failure> {
    let source = folder.join("source");
    if !source.exists() {
        let whole = folder.join("part");
        let _ = fs::remove_dir_all(&whole);
        fs::create_dir_all(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        let fetch = format!(
            "from=$(cd / && go mod download -json {COREDNS} | sed -n 's/.*\"Dir\": \"\\(.*\\)\",/\\1/p') && cp -r \"$from\" {whole:?} && chmod -R u+w {whole:?}"
        );
        call(Command::new("sh").args(["-c", &fetch]))?;
        adapt(&whole.join("test")).map_err(|error| format!("{}: {error}", whole.display()))?;
        fs::rename(&whole, &source).map_err(|error| format!("{}: {error}", source.display()))?;
    }
    let tests = source.join("test");
    fs::copy(
        root().join("tests/coredns/suite/server.go"),
        tests.join("server.go"),
    )
    .map_err(|error| format!("server.go: {error}"))?;
    call(
        Command::new("go")
            .args(["test", "-c", "-o", "suite.test", "."])
            .env("CGO_ENABLED", "0")
            .current_dir(&tests),
    )?;
    Ok(tests)
}

/// Removes the tests of [`INSIDE`], and makes the others use our instances instead of CoreDNS's.
fn adapt(tests: &Path) -> std::io::Result<()> {
    for name in INSIDE {
        fs::remove_file(tests.join(name))?;
    }
    for entry in fs::read_dir(tests)?.flatten() {
        let path = entry.path();
        if path.extension().is_none_or(|extension| extension != "go") {
            continue;
        }
        let mut text = fs::read_to_string(&path)?.replace("*caddy.Instance", "*Instance");
        if !text.contains("caddy.") {
            text = text.replace("\t\"github.com/coredns/caddy\"\n", "");
        }
        fs::write(&path, text)?;
    }
    Ok(())
}

/// Returns the names of all tests.
fn names(tests: &Path) -> Result<BTreeSet<String>, Failure> {
    let list = Command::new(tests.join("suite.test"))
        .args(["-test.list", "^Test"])
        .current_dir(tests)
        .output();
    let list = list.map_err(|error| format!("suite.test: {error}"))?;
    let names = String::from_utf8_lossy(&list.stdout);
    Ok(names
        .lines()
        .filter(|line| line.starts_with("Test"))
        .map(str::to_owned)
        .collect())
}

/// Runs a test in its own process. Returns its outcome and output.
fn run(tests: &Path, name: &str, program: &Path, folder: &Path) -> Result<(Outcome, String), Failure> {
    let mut command = Command::new(tests.join("suite.test"));
    command.args(["-test.v", "-test.timeout", "120s", "-test.run"]);
    command
        .arg(format!("^{name}$"))
        .current_dir(tests)
        .env("DNSWEIR", program);
    let done = command.env("COMPILED_CACHE", folder.join("compiled")).output();
    let done = done.map_err(|error| format!("suite.test: {error}"))?;
    let output = String::from_utf8_lossy(&[done.stdout, done.stderr].concat()).into_owned();
    let outcome = match done.status.success() {
        true if output.contains(&format!("--- SKIP: {name} ")) => Outcome::Skipped,
        true => Outcome::Pass,
        false if output.contains("dnsweir-refused") => Outcome::Refused,
        false => Outcome::Fail,
    };
    Ok((outcome, output))
}
