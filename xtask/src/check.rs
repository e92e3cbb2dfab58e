//! Whether a change compiles, is formatted, and reads as the lints want it: what one asks every few minutes.

use std::io::{BufRead as _, BufReader, IsTerminal as _};
use std::process::{Command, Stdio};

use crate::build::Build;
use crate::commands::{Failure, call, cargo, root};
use crate::setup;

/// Looks at libraries and programs, and at tests if one of them was touched: a crate's tests are compiled with all of the
/// crate, a second time.
pub fn check() -> Result<(), Failure> {
    let targets: &[&str] = match changed()?.lines().any(is_test) {
        true => &["--all-targets"],
        false => &["--lib", "--bins"],
    };
    check_all(targets)
}

/// Format first, since it takes no time. Cargo compiles crates that changed and those that use them.
pub fn check_all(targets: &[&str]) -> Result<(), Failure> {
    call(cargo(["fmt", "--all", "--check"]))?;
    setup::wasm_target()?;
    without_warnings(Build::Quick.cargo("build").args(targets))
}

/// Fails where cargo warns of our own crates. It repeats what it said of those that it need not compile again. That a
/// warning is an error (`-D warnings`) is no word to the compiler: then `test` and `run` would compile all of it again, or
/// would refuse what is half written.
fn without_warnings(command: &mut Command) -> Result<(), Failure> {
    if std::io::stderr().is_terminal() {
        command.env("CARGO_TERM_COLOR", "always");
    }
    let child = command.stderr(Stdio::piped()).spawn();
    let mut child = child.map_err(|error| format!("cannot run cargo: {error}"))?;
    let mut warned = false;
    if let Some(stderr) = child.stderr.take() {
        for line in BufReader::new(stderr).lines().map_while(Result::ok) {
            eprintln!("{line}");
            warned |= line.contains("warning") && line.contains(" generated ");
        }
    }
    match child.wait() {
        Ok(status) if status.success() && warned => Err("no warnings, please".to_owned()),
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("it does not compile: {status}")),
        Err(error) => Err(format!("cargo: {error}")),
    }
}

/// Files that differ from the last commit, as git lists them.
fn changed() -> Result<String, Failure> {
    let mut git = Command::new("git");
    git.args(["status", "--porcelain", "--untracked-files=all"])
        .current_dir(root());
    let output = git
        .output()
        .map_err(|error| format!("cannot ask git what changed: {error}"))?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn is_test(line: &str) -> bool {
    ["tests", "benches"].iter().any(|word| line.contains(word))
}
