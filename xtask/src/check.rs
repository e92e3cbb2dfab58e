//! Whether a change compiles, is formatted, and reads as the lints want it: what one asks every few minutes.

use std::process::Command;

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
    call(Build::Quick.linted("build").args(targets))
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
