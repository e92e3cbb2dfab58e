//! Adds the compiler's targets, which a build needs.

use std::path::Path;
use std::process::Command;

use crate::commands::{Failure, call, succeeds};

/// The target of the filters. Not a WASI target: a filter imports only the filter interface.
pub const TARGET: &str = "wasm32-unknown-unknown";

/// Adds the WebAssembly target if it is missing.
pub fn wasm_target() -> Result<(), Failure> {
    target(TARGET, "the filters are compiled for")
}

/// Adds a target if it is missing, and prints that. `what` is its use, such as "the filters are compiled
/// for".
pub fn target(target: &str, what: &str) -> Result<(), Failure> {
    if installed(target) {
        return Ok(());
    }
    if !succeeds(Command::new("rustup").arg("--version")) {
        return Err(format!(
            "{what} {target}, but this Rust lacks the target, and rustup, which could add it, is missing. Install Rust \
             from https://rustup.rs, or your distribution's standard library for the target (for filters on Debian: \
             libstd-rust-dev-wasm32)."
        ));
    }
    println!("adding the Rust target {target}, which {what} (rustup target add {target})");
    call(Command::new("rustup").args(["target", "add", target]))
}

/// Returns whether the compiler has a standard library for the target.
fn installed(target: &str) -> bool {
    let output = Command::new("rustc")
        .args(["--print", "target-libdir", "--target", target])
        .output();
    output.is_ok_and(|output| {
        output.status.success() && Path::new(String::from_utf8_lossy(&output.stdout).trim()).is_dir()
    })
}
