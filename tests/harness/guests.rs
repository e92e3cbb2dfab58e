//! The filters of `tests/filters` and the examples, compiled when the first test asks for one.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// Folders of `tests/filters`.
const HOSTILE: [&str; 6] = ["trap", "spin", "bomb", "garbage", "chain", "asker"];

/// Folders of `examples` that hold one in Rust.
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

/// What makes a module small and fast, as the SDK's documentation has it.
const PROFILE: [(&str, &str); 5] = [
    ("CARGO_PROFILE_RELEASE_LTO", "fat"),
    ("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "1"),
    ("CARGO_PROFILE_RELEASE_PANIC", "abort"),
    ("CARGO_PROFILE_RELEASE_DEBUG", "none"),
    ("CARGO_PROFILE_RELEASE_STRIP", "debuginfo"),
];

/// The path of a hostile filter's module, as cargo leaves it: a plain WebAssembly module.
pub fn guest(name: &str) -> PathBuf {
    module(&format!("hostile_{name}"))
}

/// The path of the filter's module that does what the name it is asked for says.
pub fn verdicts() -> PathBuf {
    module("verdicts")
}

/// The path of an example's module.
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

/// Builds the modules of some packages, and returns the folder that they are in. In a target folder of their own: the one of
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
    // What cargo tells the test about itself is not meant for the cargo that the test calls.
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
