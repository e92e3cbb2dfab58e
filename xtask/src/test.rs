//! Every test of the workspace, or some, and an account of those that did not run.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::{fs, io};

use crate::build::Build;
use crate::commands::{Failure, built, call, cargo, root, strict, told_what_is_built};
use crate::programs::{self, Program};
use crate::setup;

/// The file that names the tests which skipped themselves.
const SKIPPED: &str = "DNSWEIR_SKIPPED_TESTS";

/// What runs the tests on a Kubernetes node.
const CLUSTER: &str = "tests/cluster/run.sh";

/// What is to be tested.
struct Selection {
    /// The program that the tests start. The tests themselves are always a quick build.
    build: Build,
    /// Without what needs networks of its own, a browser, or seconds that nothing can shorten.
    quick: bool,
    /// Those on a Kubernetes node: alone, as by `test cluster`, or behind the others.
    cluster: bool,
    /// The others.
    workspace: bool,
    /// For `cargo test`: which, and how.
    words: Vec<String>,
}

impl Selection {
    fn of(mut words: Vec<String>) -> Selection {
        let build = Build::chosen(&mut words);
        let all = words.len();
        words.retain(|word| word != "--quick");
        let quick = words.len() < all;
        let workspace = words != ["cluster"];
        if let Some(first) = words.first_mut() {
            name_room(first);
        }
        Selection {
            build,
            quick,
            cluster: !workspace || (words.is_empty() && !quick && strict()),
            workspace,
            words,
        }
    }

    /// Whether somebody may take this for everything.
    fn looks_whole(&self) -> bool {
        self.words.is_empty() && !self.quick
    }
}

/// A room's tests are those of its module, not all that have its name somewhere in theirs.
fn name_room(word: &mut String) {
    let is_module = |folder: &Path| {
        let path = folder.join(&*word);
        path.is_dir() || path.with_extension("rs").is_file()
    };
    let crates = fs::read_dir(root().join("crates"))
        .into_iter()
        .flatten()
        .flatten();
    let mut folders: Vec<PathBuf> = crates.map(|entry| entry.path().join("src")).collect();
    folders.extend(["host/src", "tests"].map(|folder| root().join(folder)));
    if !word.contains(['/', '.', '-', ':']) && folders.iter().any(|folder| is_module(folder)) {
        word.push_str("::");
    }
}

/// The tests of one crate, which lie beside its code; further words are for them.
fn test_crate(name: &str, words: &[String]) -> Result<(), Failure> {
    let folder = format!("crates/{name}/");
    let mut programs = programs::compiled()?;
    programs.retain(|program| program.name.starts_with(&folder));
    for mut program in programs {
        call(program.command.args(words))?;
    }
    Ok(())
}

/// Builds what is needed, runs the tests, and names the ones that skipped themselves for lack of a tool. Those on a
/// Kubernetes node build Kubernetes first, which takes minutes: they are run when asked for, and by CI.
pub fn test(words: Vec<String>) -> Result<(), Failure> {
    if let Some((name, rest)) = words.split_first()
        && !name.starts_with('-')
        && name != "cluster"
        && root().join("crates").join(name).is_dir()
    {
        setup::wasm_target()?;
        return test_crate(name, rest);
    }
    let selection = Selection::of(words);
    // Another run that calls this one makes the account.
    let accounted = std::env::var_os(SKIPPED);
    let skipped = accounted
        .as_ref()
        .map_or_else(|| built("skipped-tests"), PathBuf::from);
    if accounted.is_none() {
        forget(&skipped)?;
    }
    build(&selection)?;
    let mut tests = match selection.words.is_empty() {
        true => all()?,
        false => vec![chosen(&selection.words)],
    };
    if !selection.workspace {
        tests.clear();
    }
    if selection.looks_whole() && strict() {
        // In front of the last, which is taken from behind at once.
        tests.insert(tests.len().saturating_sub(1), new_histories());
    }
    for program in &mut tests {
        told(&mut program.command, &selection, &skipped);
    }
    let mut tested = programs::run(tests);
    if selection.cluster {
        // Alone: what rules two nodes keeps the processors busy by itself, and losses are counted.
        let mut command = told_what_is_built(Command::new(root().join(CLUSTER)));
        told(&mut command, &selection, &skipped);
        let name = "tests/cluster".to_owned();
        let on_nodes = programs::run(vec![Program { name, command }]);
        tested = match (tested, on_nodes) {
            (Err(one), Err(other)) => Err(format!("{one}\n{other}")),
            (one, other) => one.and(other),
        };
    }
    if accounted.is_some() {
        return tested;
    }
    let skips = report(&skipped)?;
    tested?;
    if selection.looks_whole() && !selection.cluster {
        println!(
            "left out: the tests on a Kubernetes node. `cargo xtask test cluster` runs them, as root; the first \
             time it builds Kubernetes, for about eight minutes"
        );
    }
    if skips > 0 && strict() {
        return Err(format!("{skips} tests were skipped, and CI=true allows none"));
    }
    Ok(())
}

/// The programs of all tests, with what takes longest at both ends: a program is taken from either.
fn all() -> Result<Vec<Program>, Failure> {
    let mut tests = programs::compiled()?;
    let mut command = Build::Quick.cargo("test");
    command.arg("--doc");
    tests.push(Program {
        name: "examples in the documentation of crates".to_owned(),
        command,
    });
    let place = |program: &Program| match program.name.as_str() {
        "tests/main" => 0,
        "tests/node" => 2,
        _ => 1,
    };
    tests.sort_by_key(place);
    Ok(tests)
}

/// Histories of the box that nobody has seen before, which CI plays as well.
fn new_histories() -> Program {
    let command = cargo(["xtask", "simulate", "--release", "--minutes", HISTORIES]);
    Program {
        name: "new histories".to_owned(),
        command,
    }
}

/// The tests that some words are about, as cargo takes them.
fn chosen(words: &[String]) -> Program {
    let mut command = Build::Quick.cargo("test");
    command
        .arg("--no-fail-fast")
        .args(words)
        .env("RUST_MIN_STACK", programs::STACK);
    Program {
        name: words.join(" "),
        command,
    }
}

/// The programs that tests start from outside.
fn build(selection: &Selection) -> Result<(), Failure> {
    setup::wasm_target()?;
    let mut tests = Build::Quick.cargo("build");
    match selection.build {
        Build::Quick => call(tests.args(["--bins", "--tests"])),
        Build::Release => {
            call(tests.arg("--tests"))?;
            if selection.cluster {
                prepare_cluster()?;
            }
            Build::Release.programs(None)
        }
    }
}

/// Begins to build Kubernetes, if that is still to be done, with what processors have nothing better to do. The tests on it
/// wait until that is done, or do it themselves; should the programs not compile, what is built is there the next time.
fn prepare_cluster() -> Result<(), Failure> {
    let mut command = Command::new("nice");
    command.args(["-n", "19"]).arg(root().join(CLUSTER));
    let child = command.arg("prepare").stdin(Stdio::null()).spawn();
    child
        .map(|_| ())
        .map_err(|error| format!("cannot run {CLUSTER}: {error}"))
}

/// What the tests have to know: which program, and where to say that one was skipped.
fn told(command: &mut Command, selection: &Selection, skipped: &Path) {
    command
        .env("DNSWEIR_PROGRAMS", selection.build.folder())
        .env("DNSWEIR_BUILD", selection.build.name())
        .env(SKIPPED, skipped);
    if selection.quick {
        command.env("DNSWEIR_QUICK", "1");
    }
    if std::env::var_os("RUST_TEST_THREADS").is_none() {
        command.env("RUST_TEST_THREADS", (THREADS * cores()).to_string());
    }
}

/// Minutes of new histories.
const HISTORIES: &str = "2";

/// How many tests share a core: most of them wait for a server most of the time.
const THREADS: usize = 3;

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

fn forget(skipped: &Path) -> Result<(), Failure> {
    match fs::remove_file(skipped) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(format!("{}: {error}", skipped.display()))
        }
        _ => Ok(()),
    }
}

/// Prints what the tests left in the file, a line each, and counts it. What `--quick` leaves out was meant to be.
fn report(skipped: &Path) -> Result<usize, Failure> {
    let text = match fs::read_to_string(skipped) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
        Err(error) => return Err(format!("{}: {error}", skipped.display())),
    };
    let (left_out, mut lines): (Vec<&str>, Vec<&str>) =
        text.lines().partition(|line| line.starts_with("left out: "));
    lines.sort_unstable();
    match lines.len() {
        0 => println!("no test was skipped"),
        1 => println!("1 test was skipped:"),
        count => println!("{count} tests were skipped:"),
    }
    for line in &lines {
        println!("  {line}");
    }
    if !left_out.is_empty() {
        println!("{} tests were left out by --quick", left_out.len());
    }
    Ok(lines.len())
}
