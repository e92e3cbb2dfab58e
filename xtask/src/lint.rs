//! Every check of the source that is not a test of behaviour.

use std::process::Command;

use crate::build::Build;
use crate::check;
use crate::commands::{Failure, answers, call, cargo, strict};

/// Runs them all, and stops at the first that fails.
pub fn lint() -> Result<(), Failure> {
    deny()?;
    check::check_all(&["--all-targets"])?;
    // The layout's own rules: which part may name which.
    call(Build::Quick.cargo("test").args(["--quiet", "--test", "tidy"]))
}

/// Licences and origins of the dependencies: `deny.toml`. Compiling cargo-deny takes minutes, so it is
/// asked for, not installed; CI installs it.
fn deny() -> Result<(), Failure> {
    if !answers(Command::new("cargo-deny").arg("--version")) {
        let skipped = "skipped: licences and origins of dependencies (cargo install cargo-deny --locked)";
        if strict() {
            return Err(format!("{skipped}, and CI=true allows nothing to be skipped"));
        }
        println!("{skipped}");
        return Ok(());
    }
    call(cargo(["deny", "check", "bans", "licenses", "sources"]))
}

/// Known faults of the dependencies. What it says depends on the day, so that no change has to pass it; the project looks each day.
pub fn advisories() -> Result<(), Failure> {
    if !answers(Command::new("cargo-deny").arg("--version")) {
        return Err("there is no cargo-deny: cargo install cargo-deny --locked".to_owned());
    }
    call(cargo(["deny", "check", "advisories"]))
}
