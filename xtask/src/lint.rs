//! Every check of the source that is not a test of behaviour.

use std::process::Command;

use crate::commands::{Failure, answers, call, cargo, strict};
use crate::setup;

/// Runs them all, cheapest first, and stops at the first that fails.
pub fn lint() -> Result<(), Failure> {
    call(cargo(["fmt", "--all", "--check"]))?;
    // The layout's own rules: which part may name which.
    call(cargo([
        "test",
        "--release",
        "--quiet",
        "--package",
        "dnsweir-tests",
        "--test",
        "tidy",
    ]))?;
    deny()?;
    setup::wasm_target()?;
    call(cargo([
        "clippy",
        "--release",
        "--workspace",
        "--all-targets",
        "--",
        "-D",
        "warnings",
    ]))
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
