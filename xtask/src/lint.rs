//! All checks of the source that are not tests of behaviour.

use std::process::Command;

use crate::build::Build;
use crate::check;
use crate::commands::{Failure, call, cargo, strict, succeeds};

/// Runs all checks, and stops at the first that fails.
pub fn lint() -> Result<(), Failure> {
    deny()?;
    check::check_all(&["--all-targets"])?;
    // The project's own rules, such as which crate may use which.
    call(Build::Quick.cargo("test").args(["--quiet", "--test", "tidy"]))
}

/// Checks licences and origins of the dependencies against `deny.toml`. Compiling cargo-deny takes minutes,
/// so it is not installed here; CI installs it.
fn deny() -> Result<(), Failure> {
    if !succeeds(Command::new("cargo-deny").arg("--version")) {
        let skipped = "skipped: licences and origins of dependencies (cargo install cargo-deny --locked)";
        if strict() {
            return Err(format!("{skipped}; with CI=true nothing may be skipped"));
        }
        println!("{skipped}");
        return Ok(());
    }
    call(cargo(["deny", "check", "bans", "licenses", "sources"]))
}

/// Checks the dependencies for known vulnerabilities. The result depends on the day, so it is not required
/// for a change; a workflow runs it every day.
pub fn advisories() -> Result<(), Failure> {
    if !succeeds(Command::new("cargo-deny").arg("--version")) {
        return Err("cargo-deny is missing: cargo install cargo-deny --locked".to_owned());
    }
    call(cargo(["deny", "check", "advisories"]))
}
