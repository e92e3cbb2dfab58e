//! Tasks of filter authors: write a filter, inspect it, try it, watch it.

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

/// The standard output of a successful run.
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

/// Keeps other tests from calling cargo: builds in a shared target folder wait for each other, and the first
/// one compiles the dependencies. A test with a timeout for a build must hold this lock.
fn alone_with_cargo() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Calls cargo in the folder of a filter, as its author would. All share a target folder, since they have the
/// same dependencies.
fn cargo(folder: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command
        .args(arguments)
        .current_dir(folder)
        .stdin(Stdio::null())
        .env("CARGO_TARGET_DIR", target())
        // Settings of the cargo that runs this test must not affect the filter.
        .env_remove("RUSTFLAGS")
        .env_remove("CARGO_ENCODED_RUSTFLAGS")
        .env_remove("RUSTC_WORKSPACE_WRAPPER");
    command.output().expect("cargo")
}

fn target() -> PathBuf {
    proxy::target("authors")
}

/// The module of an unmodified new filter.
pub fn new_filter() -> PathBuf {
    sample().1
}

/// A new filter called `sample`, and its module. Built once; must not be changed.
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
