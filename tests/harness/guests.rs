//! The filters of `tests/filters` and the examples, compiled when the first test needs one.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// Folders of `tests/filters`.
const HOSTILE: [&str; 6] = ["trap", "spin", "bomb", "garbage", "chain", "asker"];

/// Folders of `examples` with a filter in Rust.
pub const EXAMPLES: [&str; 17] = [
    "big-block-list",
    "block-list",
    "canary",
    "cname-uncloak",
    "country",
    "dns-lists",
    "egress-names",
    "fetched-block-list",
    "maintenance",
    "namespace-answers",
    "policy-zones",
    "rate-limit",
    "search-path",
    "services",
    "split-horizon",
    "tenants",
    "traffic",
];

/// Settings for small and fast modules, as the SDK's documentation recommends.
const PROFILE: [(&str, &str); 5] = [
    ("CARGO_PROFILE_RELEASE_LTO", "fat"),
    ("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "1"),
    ("CARGO_PROFILE_RELEASE_PANIC", "abort"),
    ("CARGO_PROFILE_RELEASE_DEBUG", "none"),
    ("CARGO_PROFILE_RELEASE_STRIP", "debuginfo"),
];

/// Returns the path of a hostile filter's module: a plain WebAssembly module, as cargo builds it.
pub fn guest(name: &str) -> PathBuf {
    module(&format!("hostile_{name}"))
}

/// Returns the path of the module of the filter that acts as the queried name says.
pub fn verdicts() -> PathBuf {
    module("verdicts")
}

/// Returns the path of an example's module.
pub fn example(name: &str) -> PathBuf {
    module(&format!("example_{}", name.replace('-', "_")))
}

fn module(name: &str) -> PathBuf {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    let module = FOLDER.get_or_init(build).join(format!("{name}.wasm"));
    assert!(module.is_file(), "{} was not built", module.display());
    module
}

/// Builds all of them.
fn build() -> PathBuf {
    let hostile = HOSTILE.map(|name| format!("hostile-{name}"));
    let examples = EXAMPLES.map(|name| format!("example-{name}"));
    let own = ["verdicts", "verbs"].map(str::to_owned);
    build_some(&[&hostile[..], &examples, &own].concat())
}

/// Builds the modules of some packages, and returns their folder. In a separate target folder: the one of
/// this test may be locked by the cargo that runs it.
pub fn build_some(packages: &[String]) -> PathBuf {
    let target = super::proxy::target("hostile");
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command
        .args([
            "build",
            "--release",
            "--target",
            "wasm32-unknown-unknown",
            "--target-dir",
        ])
        .arg(&target);
    for package in packages {
        command.args(["--package", package]);
    }
    command.envs(PROFILE);
    // Settings that cargo passes to the test are not meant for the cargo that the test runs.
    command
        .env_remove("CARGO_TARGET_DIR")
        .env_remove("RUSTFLAGS")
        .env_remove("CARGO_ENCODED_RUSTFLAGS");
    let output = command.current_dir(root()).output().expect("cargo");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    target.join("wasm32-unknown-unknown/release")
}

/// The workspace's root.
pub fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).to_owned()
}
