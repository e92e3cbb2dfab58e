//! Every test of the workspace, or some, and an account of those that did not run.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::{fs, io};

use crate::build::Build;
use crate::commands::{Failure, built, call, root, strict, told_what_is_built};
use crate::setup;

/// The file that names the tests which skipped themselves.
const SKIPPED: &str = "DNSWEIR_SKIPPED_TESTS";

/// What runs the tests on a Kubernetes node.
const CLUSTER: &str = "tests/cluster/run.sh";

/// What a main thread's stack holds. Unoptimized code takes several times as much of it as what ships.
const STACK: &str = "33554432";

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
    let is_module = |folder: &str| {
        let path = root().join(folder).join(&*word);
        path.is_dir() || path.with_extension("rs").is_file()
    };
    if !word.contains(['/', '.', '-', ':']) && ["host/src", "tests"].into_iter().any(is_module) {
        word.push_str("::");
    }
}

/// Builds what is needed, runs the tests, and names the ones that skipped themselves for lack of a tool. Those on a
/// Kubernetes node build Kubernetes first, which takes minutes: they are run when asked for, and by CI.
pub fn test(words: Vec<String>) -> Result<(), Failure> {
    let selection = Selection::of(words);
    // Another run that calls this one makes the account.
    let accounted = std::env::var_os(SKIPPED);
    let skipped = accounted
        .as_ref()
        .map_or_else(|| built("skipped-tests"), PathBuf::from);
    if accounted.is_none() {
        forget(&skipped)?;
    }
    let prepared = build(&selection)?;
    let mut tested = Ok(());
    if selection.workspace {
        let mut command = Build::Quick.cargo("test");
        command.arg("--no-fail-fast").args(&selection.words);
        command.env("RUST_MIN_STACK", STACK);
        if std::env::var_os("RUST_TEST_THREADS").is_none() {
            command.env("RUST_TEST_THREADS", (THREADS * cores()).to_string());
        }
        tested = call(told(&mut command, &selection, &skipped));
    }
    // Whatever the tests said: what goes on building is waited for.
    tested = tested.and(prepared.map_or(Ok(()), is_prepared));
    if selection.cluster {
        let mut node = told_what_is_built(Command::new(root().join(CLUSTER)));
        tested = tested.and(call(told(&mut node, &selection, &skipped)));
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

/// The tests, and the programs that they start from outside. What is returned still builds what the tests on a Kubernetes
/// node need: most other tests wait most of the time.
fn build(selection: &Selection) -> Result<Option<Child>, Failure> {
    setup::wasm_target()?;
    let mut tests = Build::Quick.cargo("build");
    match selection.build {
        Build::Quick => call(tests.args(["--bins", "--tests"])).map(|()| None),
        Build::Release => {
            call(tests.arg("--tests"))?;
            // The proxy is compiled in one piece, by one processor; the others have something to do meanwhile.
            let cluster = selection.cluster.then(prepare_cluster).transpose()?;
            match Build::Release.programs(None) {
                Ok(()) => Ok(cluster),
                failed => failed.and(cluster.map_or(Ok(()), is_prepared)).map(|()| None),
            }
        }
    }
}

/// Begins to build Kubernetes, if that is still to be done, with what processors have nothing better to do.
fn prepare_cluster() -> Result<Child, Failure> {
    let mut command = Command::new("nice");
    command.args(["-n", "19"]).arg(root().join(CLUSTER));
    let child = command.arg("prepare").stdin(Stdio::null()).spawn();
    child.map_err(|error| format!("cannot run {CLUSTER}: {error}"))
}

fn is_prepared(mut cluster: Child) -> Result<(), Failure> {
    match cluster.wait() {
        Ok(status) if status.success() => Ok(()),
        failed => Err(format!("{CLUSTER} prepare failed: {failed:?}")),
    }
}

/// What the tests have to know: which program, and where to say that one was skipped.
fn told<'a>(command: &'a mut Command, selection: &Selection, skipped: &Path) -> &'a mut Command {
    command
        .env("DNSWEIR_PROGRAMS", selection.build.folder())
        .env("DNSWEIR_BUILD", selection.build.name())
        .env(SKIPPED, skipped);
    if selection.quick {
        command.env("DNSWEIR_QUICK", "1");
    }
    command
}

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
