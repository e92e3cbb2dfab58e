//! How the project's own crates are compiled: quickly for the day, or as they ship.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::commands::{Failure, answers, call, cargo, release_folder};
use crate::setup;

/// What makes the difference.
const QUICK: &str = "xtask/quick.toml";

/// What compiles our own crates for the day: rustc, with an opinion. So `check`, `test` and `run` share what is compiled, and
/// dependencies, which `cargo clippy` would look through a second time, are those of the release.
const CLIPPY: &str = "clippy-driver";

/// The crate that drives what is fuzzed. It is a member of the workspace, so that dependencies are those of the release and compiled
/// once; nothing but `cargo xtask fuzz` builds it.
pub const FUZZ: &str = "dnsweir-fuzz";

/// The crate that generates the SDK's bindings. Only `cargo xtask bindings` builds it.
pub const BINDINGS: &str = "dnsweir-bindings";

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
        match self {
            Build::Quick => self.cargo_into(subcommand, &quick_folder()),
            Build::Release => self.bare(subcommand),
        }
    }

    /// The same, with what is run in another folder; compiled files lie where the release's do.
    pub fn cargo_into(self, subcommand: &str, folder: &Path) -> Command {
        let mut command = self.bare(subcommand);
        command.args(["--config", &format!("build.build-dir={:?}", target())]);
        command.arg("--target-dir").arg(folder);
        command
    }

    fn bare(self, subcommand: &str) -> Command {
        let mut command = cargo([subcommand, "--release", "--workspace"]);
        command.args(["--exclude", FUZZ, "--exclude", BINDINGS]);
        if self == Build::Quick {
            command.args(["--config", QUICK]);
            if answers(Command::new(CLIPPY).arg("--version")) {
                command.args(["--config", &format!("build.rustc-workspace-wrapper={CLIPPY:?}")]);
            }
            // Not the commit: another one is no reason to compile again.
            command.env(
                "DNSWEIR_BUILT",
                concat!(env!("CARGO_PKG_VERSION"), "\nquick build, unoptimized"),
            );
        }
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
pub fn target() -> PathBuf {
    let release = release_folder();
    release
        .parent()
        .map_or_else(|| PathBuf::from("target"), PathBuf::from)
}

fn quick_folder() -> PathBuf {
    target().join("quick")
}
