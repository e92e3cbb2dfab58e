//! How the project's own crates are compiled: quickly for the day, or as they ship.

use std::path::PathBuf;
use std::process::Command;

use crate::commands::{Failure, call, cargo, release_folder};
use crate::setup;

/// What makes the difference.
const QUICK: &str = "xtask/quick.toml";

/// Which of the two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Build {
    /// Our own crates unoptimized and incrementally, with checks for overflow: seconds after a changed line.
    Quick,
    /// What ships, and what is measured.
    Release,
}

impl Build {
    /// The release if `--release` is one of the words, which is taken out of them.
    pub fn chosen(words: &mut Vec<String>) -> Build {
        let all = words.len();
        words.retain(|word| word != "--release");
        if words.len() < all {
            Build::Release
        } else {
            Build::Quick
        }
    }

    /// What the tests call it.
    pub fn name(self) -> &'static str {
        match self {
            Build::Quick => "quick",
            Build::Release => "release",
        }
    }

    /// A cargo subcommand over the whole workspace. Always the whole: cargo chooses the features of shared dependencies by
    /// what is built together, and would compile hundreds of crates again for another choice.
    pub fn cargo(self, subcommand: &str) -> Command {
        let mut command = cargo([subcommand, "--release", "--workspace"]);
        if self == Build::Quick {
            command.args(["--config", QUICK]);
            // Compiled files lie where the release's do; what is run does not.
            command.args(["--config", &format!("build.build-dir={:?}", target())]);
            command.arg("--target-dir").arg(quick_folder());
            // Not the commit: another one is no reason to compile again.
            command.env(
                "DNSWEIR_BUILT",
                concat!(env!("CARGO_PKG_VERSION"), "\nquick build, unoptimized"),
            );
        }
        command
    }

    /// The same, where clippy is the compiler of our own crates, and a warning an error. What it compiles can be run; the
    /// dependencies are those of every other build, which `cargo clippy` would look through a second time.
    pub fn linted(self, subcommand: &str) -> Command {
        let mut command = self.cargo(subcommand);
        command.args(["--config", "build.rustc-workspace-wrapper=\"clippy-driver\""]);
        // How `cargo clippy` passes on what stands behind its `--`.
        command.env("CLIPPY_ARGS", "-D__CLIPPY_HACKERY__warnings__CLIPPY_HACKERY__");
        command
    }

    /// Where its programs are.
    pub fn folder(self) -> PathBuf {
        match self {
            Build::Quick => quick_folder().join("release"),
            Build::Release => release_folder(),
        }
    }

    /// Compiles programs: those of the whole workspace, or one.
    pub fn programs(self, only: Option<&str>) -> Result<(), Failure> {
        setup::wasm_target()?;
        let mut command = self.cargo("build");
        match only {
            Some(name) => command.args(["--bin", name]),
            None => command.arg("--bins"),
        };
        call(command)
    }
}

/// Cargo's target folder, wherever `CARGO_TARGET_DIR` or a configuration file put it.
fn target() -> PathBuf {
    let release = release_folder();
    release
        .parent()
        .map_or_else(|| PathBuf::from("target"), PathBuf::from)
}

fn quick_folder() -> PathBuf {
    target().join("quick")
}
