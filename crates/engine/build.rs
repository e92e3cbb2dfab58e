//! Builds the filters embedded in the proxy. They are ordinary guest crates, compiled by a second cargo with
//! its own target folder, because the cargo that waits for this script holds the lock on the usual one.

use std::path::{Path, PathBuf};
use std::process::{Command, exit};
use std::{env, fs};

/// The folders in `filters/` that `src/filter/builtin.rs` embeds.
const FILTERS: [&str; 11] = [
    "acl",
    "dns64",
    "hosts",
    "log",
    "minimal",
    "nodecache",
    "rebinding",
    "rewrite",
    "rotation",
    "template",
    "whoami",
];

const TARGET: &str = "wasm32-unknown-unknown";

/// Variables that cargo set for the host's crates and that would break guest builds: flags for another
/// machine, a linter as compiler wrapper, another target or target folder.
const NOT_FOR_GUESTS: [&str; 8] = [
    "CARGO_ENCODED_RUSTFLAGS",
    "RUSTFLAGS",
    "RUSTC_WORKSPACE_WRAPPER",
    "CARGO_BUILD_TARGET",
    "CARGO_BUILD_RUSTFLAGS",
    "CARGO_BUILD_TARGET_DIR",
    "CARGO_TARGET_DIR",
    "CARGO_UNSTABLE_BUILD_STD",
];

/// Small and fast; a panic is a trap anyway. Stripping keeps the sections that name a module's interface.
const PROFILE: [(&str, &str); 6] = [
    ("CARGO_PROFILE_RELEASE_OPT_LEVEL", "3"),
    ("CARGO_PROFILE_RELEASE_LTO", "fat"),
    ("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "1"),
    ("CARGO_PROFILE_RELEASE_PANIC", "abort"),
    ("CARGO_PROFILE_RELEASE_DEBUG", "none"),
    ("CARGO_PROFILE_RELEASE_STRIP", "symbols"),
];

fn main() {
    let workspace = Path::new(&variable("CARGO_MANIFEST_DIR")).join("../..");
    let out = PathBuf::from(variable("OUT_DIR"));
    // One folder for all builds of this crate (quick, release, clippy), since the filters are the same in
    // each. It lies beside cargo's folder of build scripts, which contains `out`.
    let target = out.ancestors().nth(3).unwrap_or(&out).join("filters");
    for input in ["filters", "guest-sdk", "wit", "Cargo.lock", "Cargo.toml"] {
        println!("cargo::rerun-if-changed={}", workspace.join(input).display());
    }
    let mut cargo = Command::new(variable("CARGO"));
    cargo
        .current_dir(&workspace)
        .args(["build", "--release", "--lib", "--target", TARGET]);
    cargo.arg("--target-dir").arg(&target);
    for filter in FILTERS {
        cargo.arg("--package").arg(format!("dnsweir-filter-{filter}"));
    }
    for name in NOT_FOR_GUESTS {
        cargo.env_remove(name);
    }
    cargo.envs(PROFILE);
    match cargo.status() {
        Ok(status) if status.success() => {}
        Ok(_) if !has_target() => fail(&format!(
            "the compiler has no {TARGET}, which the built-in filters are compiled for; \
             run `cargo xtask setup` or `rustup target add {TARGET}`"
        )),
        Ok(_) => fail("the built-in filters do not compile; cargo's messages are above"),
        Err(error) => fail(&format!("cannot run cargo for the built-in filters: {error}")),
    }
    for filter in FILTERS {
        let name = format!("dnsweir_filter_{filter}.wasm");
        let module = target.join(TARGET).join("release").join(&name);
        // Another checkout may share the target folder, so embed a copy of this one's output.
        let embedded = out.join(&name);
        if let Err(error) = fs::copy(&module, &embedded) {
            fail(&format!("cannot copy {}: {error}", module.display()));
        }
        println!(
            "cargo::rustc-env=DNSWEIR_FILTER_{}={}",
            filter.to_uppercase(),
            embedded.display()
        );
    }
}

/// Whether the compiler's sysroot holds the target's standard library. Checked only after a failed build, so
/// that compilers that keep it elsewhere are not refused.
fn has_target() -> bool {
    let printed = Command::new(variable("RUSTC"))
        .args(["--print", "target-libdir", "--target", TARGET])
        .output();
    printed.is_ok_and(|printed| Path::new(String::from_utf8_lossy(&printed.stdout).trim()).is_dir())
}

fn variable(name: &str) -> String {
    env::var(name).unwrap_or_else(|error| fail(&format!("cargo did not set {name}: {error}")))
}

fn fail(message: &str) -> ! {
    println!("cargo::error={message}");
    exit(1)
}
