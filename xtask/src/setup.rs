//! What has to be on the machine before anything can be built: the compiler's targets.

use std::path::Path;
use std::process::Command;

use crate::commands::{Failure, answers, call};

/// What the filters are compiled to. Not a WASI target: a filter imports nothing but the filter
/// interface.
pub const TARGET: &str = "wasm32-unknown-unknown";

/// Adds the WebAssembly target if it is missing, and says so.
pub fn wasm_target() -> Result<(), Failure> {
    target(TARGET, "the filters are compiled for")
}

/// Adds a target if it is missing, and says so; `what` says who wants it.
pub fn target(target: &str, what: &str) -> Result<(), Failure> {
    if installed(target) {
        return Ok(());
    }
    if !answers(Command::new("rustup").arg("--version")) {
        return Err(format!(
            "{what} {target}, which this Rust does not have, and there is no rustup to add it with. Install Rust from \
             https://rustup.rs, or your distribution's standard library for this target (Debian: libstd-rust-dev-wasm32)."
        ));
    }
    println!("adding the Rust target {target}, which {what} (rustup target add {target})");
    call(Command::new("rustup").args(["target", "add", target]))
}

/// Whether the compiler finds a standard library for the target.
fn installed(target: &str) -> bool {
    let output = Command::new("rustc")
        .args(["--print", "target-libdir", "--target", target])
        .output();
    output.is_ok_and(|output| {
        output.status.success() && Path::new(String::from_utf8_lossy(&output.stdout).trim()).is_dir()
    })
}
