//! Runs all tests of the workspace, or some, and lists the skipped ones.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::{fs, io};

use crate::build::Build;
use crate::commands::{Failure, built, call, cargo, root, strict, with_version};
use crate::programs::{self, Program};
use crate::setup;

/// The environment variable with the path of the file that lists skipped tests.
const SKIPPED: &str = "DNSWEIR_SKIPPED_TESTS";

/// The script that runs the tests on Kubernetes nodes.
const CLUSTER: &str = "tests/cluster/run.sh";

/// The tests to run.
struct Selection {
    /// The build of the programs that the tests start. The tests themselves are always a quick build.
    build: Build,
    /// Whether to leave out tests that need network namespaces, a browser, the release build, or slow builds of
    /// other languages.
    quick: bool,
    /// Whether to run the tests on Kubernetes nodes, after the others or, for `test cluster`, alone.
    cluster: bool,
    /// Whether to run the other tests.
    workspace: bool,
    /// Arguments for `cargo test`.
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
            select_module(first);
        }
        Selection {
            build,
            quick,
            cluster: !workspace || (words.is_empty() && !quick && strict()),
            workspace,
            words,
        }
    }

    /// Returns whether neither words nor `--quick` restrict the run.
    fn is_unrestricted(&self) -> bool {
        self.words.is_empty() && !self.quick
    }
}

/// Appends `::` to the name of a module, so that it selects the module's tests, not all whose names contain
/// it.
fn select_module(word: &mut String) {
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

/// Runs the tests beside the code of one crate, with the words as their arguments.
fn test_crate(name: &str, words: &[String]) -> Result<(), Failure> {
    let folder = format!("crates/{name}/");
    let mut programs = programs::compiled()?;
    programs.retain(|program| program.name.starts_with(&folder));
    for mut program in programs {
        call(program.command.args(words))?;
    }
    Ok(())
}

/// Builds the programs, runs the tests, and lists those that were skipped for lack of a tool. Tests on
/// Kubernetes nodes first build Kubernetes, which takes minutes, so they run only on request and in CI.
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
    // If the variable is set, another run has called this one, and will print the list.
    let outer = std::env::var_os(SKIPPED);
    let skipped = outer
        .as_ref()
        .map_or_else(|| built("skipped-tests"), PathBuf::from);
    if outer.is_none() {
        remove_list(&skipped)?;
    }
    build(&selection)?;
    let mut tests = match selection.words.is_empty() {
        true => all()?,
        false => vec![chosen(&selection.words)],
    };
    if !selection.workspace {
        tests.clear();
    }
    if selection.is_unrestricted() && strict() {
        // Before the last one, which starts at once, as programs are taken from both ends.
        tests.insert(tests.len().saturating_sub(1), new_histories());
    }
    for program in &mut tests {
        set_environment(&mut program.command, &selection, &skipped);
    }
    let mut tested = programs::run(tests);
    if selection.cluster {
        // Alone: two Kubernetes nodes keep the processors busy, and these tests count lost queries.
        let mut command = with_version(Command::new(root().join(CLUSTER)));
        set_environment(&mut command, &selection, &skipped);
        let name = "tests/cluster".to_owned();
        let on_nodes = programs::run(vec![Program { name, command }]);
        tested = match (tested, on_nodes) {
            (Err(one), Err(other)) => Err(format!("{one}\n{other}")),
            (one, other) => one.and(other),
        };
    }
    if outer.is_some() {
        return tested;
    }
    let skips = report(&skipped)?;
    tested?;
    if selection.is_unrestricted() && !selection.cluster {
        println!(
            "left out: the tests on a Kubernetes node. Run them as root with `cargo xtask test cluster`; the first \
             time, it builds Kubernetes, which takes about eight minutes"
        );
    }
    if skips > 0 && strict() {
        return Err(format!(
            "{skips} tests were skipped, listed above; with CI=true none may be"
        ));
    }
    Ok(())
}

/// Returns the programs of all tests. The two that take longest are the first and the last, since programs
/// are taken from both ends.
fn all() -> Result<Vec<Program>, Failure> {
    let mut tests = programs::compiled()?;
    let mut command = Build::Quick.cargo("test");
    command.arg("--doc");
    tests.push(Program {
        name: "examples in rustdoc".to_owned(),
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

/// Returns the command that plays new histories of the simulation, which CI runs, too.
fn new_histories() -> Program {
    let command = cargo(["xtask", "simulate", "--release", "--minutes", HISTORIES]);
    Program {
        name: "new histories".to_owned(),
        command,
    }
}

/// Returns the command that runs the tests selected by some words.
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

/// Builds the tests, and the programs that they start.
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
            Build::Release.programs(&[])
        }
    }
}

/// Starts to build Kubernetes in the background at the lowest priority, unless it is already built. The tests
/// on it wait until that has ended, or build it themselves. If our programs do not compile, the next run uses
/// what was built.
fn prepare_cluster() -> Result<(), Failure> {
    let mut command = Command::new("nice");
    command.args(["-n", "19"]).arg(root().join(CLUSTER));
    let child = command.arg("prepare").stdin(Stdio::null()).spawn();
    child
        .map(|_| ())
        .map_err(|error| format!("cannot run {CLUSTER}: {error}"))
}

/// Sets the variables that the tests read: which programs to start, where to list skipped tests, and how many
/// threads to use.
fn set_environment(command: &mut Command, selection: &Selection, skipped: &Path) {
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

/// For how many minutes new histories are played.
const HISTORIES: &str = "2";

/// Threads of tests for each core. Tests spend most of their time waiting for a server.
const THREADS: usize = 3;

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

fn remove_list(skipped: &Path) -> Result<(), Failure> {
    match fs::remove_file(skipped) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(format!("{}: {error}", skipped.display()))
        }
        _ => Ok(()),
    }
}

/// Prints the list of skipped tests, one in each line of the file, and returns their number. Tests that
/// `--quick` leaves out do not count.
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
