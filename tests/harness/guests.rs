//! The hostile filters of `tests/filters`, compiled when the first test asks for one.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// The path of a hostile filter's module, as cargo leaves it: a plain WebAssembly module.
pub fn guest(name: &str) -> PathBuf {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    let module = FOLDER.get_or_init(build).join(format!("hostile_{name}.wasm"));
    assert!(module.is_file(), "{} was not built", module.display());
    module
}

/// Builds all of them. In a target folder of their own: the one of this test may be locked by the
/// cargo that runs it.
fn build() -> PathBuf {
    let this = std::env::current_exe().expect("this test's path");
    let target = this.ancestors().nth(3).expect("a target folder").join("hostile");
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
    for name in ["trap", "spin", "bomb", "garbage", "chain"] {
        command.args(["--package", &format!("hostile-{name}")]);
    }
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
