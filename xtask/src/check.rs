//! The check for every few minutes: whether a change compiles, is formatted, and passes the lints.

use std::io::{BufRead as _, BufReader, IsTerminal as _};
use std::process::{Command, Stdio};

use crate::build::Build;
use crate::commands::{Failure, call, cargo, root};
use crate::setup;

/// Checks libraries and programs. It checks tests only if one of them was changed, since cargo compiles a
/// whole crate a second time for its tests.
pub fn check() -> Result<(), Failure> {
    let targets: &[&str] = match changed()?.lines().any(is_test) {
        true => &["--all-targets"],
        false => &["--lib", "--bins"],
    };
    check_all(targets)
}

/// Checks the format first, which takes no time, and then the targets. Cargo compiles only changed crates and
/// those that use them.
pub fn check_all(targets: &[&str]) -> Result<(), Failure> {
    call(cargo(["fmt", "--all", "--check"]))?;
    setup::wasm_target()?;
    without_warnings(Build::Quick.cargo("build").args(targets))
}

/// Runs cargo, and fails if it warns about our own crates. Cargo repeats the warnings of crates that it need
/// not compile again. The compiler does not get `-D warnings`: `test` and `run` would compile everything
/// again without it, or refuse unfinished code with it.
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
        Ok(status) if status.success() && warned => {
            Err("the compiler printed warnings, see above: fix them".to_owned())
        }
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("compilation failed ({status}): fix the errors above")),
        Err(error) => Err(format!("cannot wait for cargo: {error}")),
    }
}

/// Returns git's list of the files that differ from the last commit.
fn changed() -> Result<String, Failure> {
    let mut git = Command::new("git");
    git.args(["status", "--porcelain", "--untracked-files=all"])
        .current_dir(root());
    let output = git
        .output()
        .map_err(|error| format!("cannot run git to list changed files: {error}"))?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn is_test(line: &str) -> bool {
    ["tests", "benches"].iter().any(|word| line.contains(word))
}
