//! Stores a filter as it is built today, for the tests of later releases: `docs/interface.md`.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::commands::{Failure, call, cargo, root};
use crate::setup;

/// The folder of the stored filters.
const KEPT: &str = "tests/released";

/// The profile for small modules. With the flags in [`keep`], they have no paths of this machine.
const PROFILE: [(&str, &str); 6] = [
    ("CARGO_PROFILE_RELEASE_OPT_LEVEL", "s"),
    ("CARGO_PROFILE_RELEASE_LTO", "fat"),
    ("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "1"),
    ("CARGO_PROFILE_RELEASE_PANIC", "abort"),
    ("CARGO_PROFILE_RELEASE_DEBUG", "none"),
    ("CARGO_PROFILE_RELEASE_STRIP", "symbols"),
];

/// Builds `tests/filters/released`, and stores it by the interface's version, with its digest.
pub fn keep() -> Result<(), Failure> {
    setup::wasm_target()?;
    let version = interface_version()?;
    let target = root().join("target/released");
    let home = std::env::var("CARGO_HOME").or_else(|_| std::env::var("HOME").map(|home| home + "/.cargo"));
    let remap = |from: &Path, to: &str| format!("--remap-path-prefix={}={to}", from.display());
    let mut flags = vec![remap(&root(), "dnsweir")];
    flags.extend(home.map(|home| remap(Path::new(&home), "cargo")));
    let mut build = cargo([
        "build",
        "--release",
        "--package",
        "released-filter",
        "--target",
        setup::TARGET,
        "--target-dir",
    ]);
    build.arg(&target).envs(PROFILE).env("RUSTFLAGS", flags.join(" "));
    build.env_remove("CARGO_ENCODED_RUSTFLAGS");
    call(build)?;

    let kept = root().join(KEPT);
    let name = format!("{version}.wasm");
    let built = target.join(setup::TARGET).join("release/released_filter.wasm");
    let module = fs::read(&built).map_err(|error| format!("{}: {error}", built.display()))?;
    fs::write(kept.join(&name), module).map_err(|error| format!("{KEPT}/{name}: {error}"))?;
    let mut all: Vec<String> = fs::read_dir(&kept)
        .map_err(|error| format!("{}: {error}", kept.display()))?
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter(|name| name.ends_with(".wasm"))
        .collect();
    all.sort();
    let sums = Command::new("sha256sum").args(&all).current_dir(&kept).output();
    let sums = sums.map_err(|error| format!("cannot run sha256sum: {error}"))?;
    fs::write(kept.join("SHA256SUMS"), sums.stdout).map_err(|error| format!("{KEPT}/SHA256SUMS: {error}"))?;
    println!("stored {KEPT}/{name}");
    Ok(())
}

/// Checks that a filter for the current version of the interface is stored, and that all stored filters match
/// their digests. Tests of later releases need them.
///
/// # Errors
/// If one is missing or has changed.
pub fn check_kept() -> Result<(), Failure> {
    let kept = root().join(KEPT);
    let version = interface_version()?;
    let sums =
        fs::read_to_string(kept.join("SHA256SUMS")).map_err(|error| format!("{KEPT}/SHA256SUMS: {error}"))?;
    if !sums
        .lines()
        .any(|line| line.ends_with(&format!("  {version}.wasm")))
    {
        return Err(format!(
            "{KEPT} has no filter for version {version} of the interface: run `cargo xtask keep-filter`"
        ));
    }
    let mut check = Command::new("sha256sum");
    check.args(["--check", "--quiet", "--strict", "SHA256SUMS"]);
    call(check.current_dir(kept))
}

/// Returns the interface's version from `wit/`.
fn interface_version() -> Result<String, Failure> {
    let file = root().join("wit/filter.wit");
    let text = fs::read_to_string(&file).map_err(|error| format!("{}: {error}", file.display()))?;
    let version = text
        .lines()
        .find_map(|line| line.strip_prefix("package dnsweir:filter@")?.strip_suffix(';'));
    version.map(str::to_owned).ok_or_else(|| {
        format!(
            "{}: there is no line `package dnsweir:filter@VERSION;`",
            file.display()
        )
    })
}
