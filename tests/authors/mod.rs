//! What authors of filters do: write one, look at it, try it, watch it.

mod developing;
mod explaining;
pub mod swapping;
mod trying;
mod writing;

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use crate::harness::proxy::{self, program};

/// Runs the program in a folder.
fn dnsweir(folder: &Path, arguments: &[&str]) -> Output {
    Command::new(program())
        .args(arguments)
        .current_dir(folder)
        .stdin(Stdio::null())
        .output()
        .expect("dnsweir")
}

/// Standard output of a run that succeeds.
#[track_caller]
fn said(folder: &Path, arguments: &[&str]) -> String {
    let output = dnsweir(folder, arguments);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        output.status.success(),
        "{arguments:?}: {}\n{text}{}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    text
}

/// Keeps other tests from calling cargo: in a target folder that is shared a build waits for every other one, and
/// the first one compiles the dependencies. Whoever measures patience against a build holds this.
fn alone_with_cargo() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Calls cargo in the folder of a filter, as its author would. All of them share a target folder, since each
/// has the same dependencies.
fn cargo(folder: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command
        .args(arguments)
        .current_dir(folder)
        .stdin(Stdio::null())
        .env("CARGO_TARGET_DIR", target())
        // What the cargo around this test wants is no business of the filter's.
        .env_remove("RUSTFLAGS")
        .env_remove("CARGO_ENCODED_RUSTFLAGS")
        .env_remove("RUSTC_WORKSPACE_WRAPPER");
    command.output().expect("cargo")
}

fn target() -> PathBuf {
    proxy::target("authors")
}

/// The module of a new filter, as it is written.
pub fn new_filter() -> PathBuf {
    sample().1
}

/// A new filter called `sample`, and the module that cargo built of it. Made once; not to be changed.
fn sample() -> (&'static Path, PathBuf) {
    static SAMPLE: OnceLock<tempfile::TempDir> = OnceLock::new();
    let folder = SAMPLE.get_or_init(|| {
        let folder = tempfile::tempdir().expect("a temporary folder");
        said(folder.path(), &["filter", "new", "sample"]);
        let _alone = alone_with_cargo();
        let built = cargo(&folder.path().join("sample"), &["build"]);
        let told = String::from_utf8_lossy(&built.stderr);
        assert!(built.status.success() && !told.contains("warning"), "{told}");
        folder
    });
    let module = target().join("wasm32-unknown-unknown/debug/sample.wasm");
    assert!(module.is_file(), "no {}", module.display());
    (folder.path(), module)
}
