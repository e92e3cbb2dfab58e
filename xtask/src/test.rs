//! Every test of the workspace, and an account of those that did not run.

use std::path::Path;
use std::process::Command;
use std::{fs, io};

use crate::commands::{Failure, built, call, cargo, root, strict, told_what_is_built};
use crate::setup;

/// What runs the tests on a Kubernetes node.
const CLUSTER: &str = "tests/cluster/run.sh";

/// Builds everything, runs all tests, and names the ones that skipped themselves for lack of a tool. Those on a
/// Kubernetes node build Kubernetes first, which takes minutes: they are run when asked for, and by CI.
pub fn test(args: &[String]) -> Result<(), Failure> {
    setup::wasm_target()?;
    // The tests start the binary from outside, so it has to be there first. With the tests' own
    // targets, so that this and the next call agree about every dependency's features.
    call(cargo(["build", "--release", "--workspace", "--bins", "--tests"]))?;

    let skipped = built("skipped-tests");
    forget(&skipped)?;
    let cluster = args == ["cluster"];
    let mut tested = Ok(());
    if !cluster {
        let mut cargo_test = cargo(["test", "--release", "--workspace", "--no-fail-fast"]);
        cargo_test.args(args).env("DNSWEIR_SKIPPED_TESTS", &skipped);
        if std::env::var_os("RUST_TEST_THREADS").is_none() {
            cargo_test.env("RUST_TEST_THREADS", (4 * cores()).to_string());
        }
        tested = call(cargo_test);
    }
    if cluster || (args.is_empty() && strict()) {
        let mut node = told_what_is_built(Command::new(root().join(CLUSTER)));
        tested = tested.and(call(node.env("DNSWEIR_SKIPPED_TESTS", &skipped)));
    }
    let skips = report(&skipped)?;
    tested?;
    if !cluster && args.is_empty() && !strict() {
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

/// How many cores there are. Most tests wait for servers and for seconds to pass, so several share one.
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

/// Prints what the tests left in the file, a line each, and counts it.
fn report(skipped: &Path) -> Result<usize, Failure> {
    let text = match fs::read_to_string(skipped) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
        Err(error) => return Err(format!("{}: {error}", skipped.display())),
    };
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    match lines.len() {
        0 => println!("no test was skipped"),
        1 => println!("1 test was skipped:"),
        count => println!("{count} tests were skipped:"),
    }
    for line in &lines {
        println!("  {line}");
    }
    Ok(lines.len())
}
