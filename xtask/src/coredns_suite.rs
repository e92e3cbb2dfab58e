//! CoreDNS's own tests, with dnsweir in the place of CoreDNS, and the table of docs/reference/coredns-suite.md that says of each what comes of it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::build::Build;
use crate::commands::{Failure, call, release_folder, root};

/// The CoreDNS whose tests they are, as the Go module proxy has it.
const COREDNS: &str = "github.com/coredns/coredns@v1.15.0";

/// The table.
const TABLE: &str = "docs/reference/coredns-suite.md";

/// Files that are only about what goes on inside of CoreDNS's process.
const INSIDE: [&str; 1] = ["json_log_test.go"];

/// What a test comes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Pass,
    /// It skips itself.
    Skipped,
    /// It fails since `dnsweir import` says no.
    Refused,
    Fail,
}

/// What the table says of a test.
#[derive(Debug, Default, Clone)]
struct Row {
    word: String,
    why: String,
}

/// Runs the tests, or those with one of the words in their names, and compares what comes of them with the table. With `--write`, the
/// table is written, with the reasons that it has.
pub fn suite(mut words: Vec<String>) -> Result<(), Failure> {
    let write = words.iter().any(|word| word == "--write");
    words.retain(|word| word != "--write");
    let build = Build::chosen(&mut words);
    build.programs(Some("dnsweir"))?;
    let folder = release_folder().with_file_name("coredns-suite");
    let tests = compiled(&folder)?;
    let document = root().join(TABLE);
    let text = fs::read_to_string(&document).map_err(|error| format!("{TABLE}: {error}"))?;
    let (before, mut rows, after) = read(&text)?;
    let all = names(&tests)?;
    let chosen = |name: &&String| words.is_empty() || words.iter().any(|word| name.contains(word));
    let mut wrong = Vec::new();
    for name in all.iter().filter(chosen) {
        let (outcome, said) = run(&tests, name, &build.folder().join("dnsweir"), &folder)?;
        println!("{name}: {outcome:?}");
        fs::write(folder.join(format!("{name}.log")), said)
            .map_err(|error| format!("{name}.log: {error}"))?;
        let row = rows.entry(name.clone()).or_default();
        if !row.says(outcome) {
            wrong.push(format!("{name}: {outcome:?}, and the table says {:?}", row.word));
            row.word = outcome.word().to_owned();
        } else if row.why.is_empty() && outcome != Outcome::Pass {
            wrong.push(format!("{name}: {outcome:?}, and the table does not say why"));
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
            "{}\nWhat was said is in {}",
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
    /// Whether this is what came of it. A test that fails has to differ by choice, not to be about what dnsweir has, or to be open.
    fn says(&self, outcome: Outcome) -> bool {
        match outcome {
            Outcome::Fail => ["differs", "not applicable", "open"].contains(&self.word.as_str()),
            outcome => self.word == outcome.word(),
        }
    }
}

/// The text before the table's rows, the rows, and the text behind them.
fn read(text: &str) -> Result<(&str, BTreeMap<String, Row>, &str), Failure> {
    const HEAD: &str = "|---|---|---|\n";
    let start = text.find(HEAD).ok_or(format!("{TABLE} has no table"))? + HEAD.len();
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

/// CoreDNS's source with our `server.go`, compiled into a program with its tests. Returns the folder that it runs in.
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

/// Has tests name our instances where they name CoreDNS's.
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

/// The names of all tests.
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

/// What comes of a test, in a process of its own, and what is said meanwhile.
fn run(tests: &Path, name: &str, program: &Path, folder: &Path) -> Result<(Outcome, String), Failure> {
    let mut command = Command::new(tests.join("suite.test"));
    command.args(["-test.v", "-test.timeout", "120s", "-test.run"]);
    command
        .arg(format!("^{name}$"))
        .current_dir(tests)
        .env("DNSWEIR", program);
    let done = command.env("COMPILED_CACHE", folder.join("compiled")).output();
    let done = done.map_err(|error| format!("suite.test: {error}"))?;
    let said = String::from_utf8_lossy(&[done.stdout, done.stderr].concat()).into_owned();
    let outcome = match done.status.success() {
        true if said.contains(&format!("--- SKIP: {name} ")) => Outcome::Skipped,
        true => Outcome::Pass,
        false if said.contains("dnsweir-refused") => Outcome::Refused,
        false => Outcome::Fail,
    };
    Ok((outcome, said))
}
