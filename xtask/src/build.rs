//! The two ways to compile the project's own crates: the quick build and the release build.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::commands::{Failure, call, cargo, release_folder, succeeds};
use crate::setup;

/// Cargo's settings of the quick build.
const QUICK: &str = "xtask/quick.toml";

/// The compiler of our own crates in a quick build: rustc with clippy's lints. `check`, `test` and `run`
/// share what it compiles, and the dependencies are those of the release build. `cargo clippy` would check
/// them separately.
const CLIPPY: &str = "clippy-driver";

/// The crate with the fuzz targets. It is a member of the workspace, so that it shares the dependencies of
/// the release build. Only `cargo xtask fuzz` builds it.
pub const FUZZ: &str = "dnsweir-fuzz";

/// The programs that are shipped, in one folder. `packaging` packs the same.
pub const SHIPPED: [&str; 4] = ["dnsweir", "dnsweir-artifacts", "dnsweir-top", "dnsweir-webhook"];

/// The crate that generates the SDK's bindings. Only `cargo xtask bindings` builds it.
pub const BINDINGS: &str = "dnsweir-bindings";

/// One of the two builds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Build {
    /// Our own crates are unoptimized and incremental, with overflow checks: seconds after a changed line.
    Quick,
    /// What is shipped and measured.
    Release,
}

impl Build {
    /// Returns the release build if `--release` is among the words, and removes it from them.
    pub fn chosen(words: &mut Vec<String>) -> Build {
        let all = words.len();
        words.retain(|word| word != "--release");
        if words.len() < all {
            Build::Release
        } else {
            Build::Quick
        }
    }

    /// Returns the name that the tests know the build by.
    pub fn name(self) -> &'static str {
        match self {
            Build::Quick => "quick",
            Build::Release => "release",
        }
    }

    /// Returns a call of a cargo subcommand for the whole workspace. Cargo chooses the features of shared
    /// dependencies by the packages that are built together: for a selection of packages, it would compile
    /// hundreds of crates again.
    pub fn cargo(self, subcommand: &str) -> Command {
        match self {
            Build::Quick => self.cargo_into(subcommand, &quick_folder()),
            Build::Release => self.bare(subcommand),
        }
    }

    /// Like [`Self::cargo`], but writes the programs into `folder`. Intermediate files are shared with the
    /// release build.
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
            if succeeds(Command::new(CLIPPY).arg("--version")) {
                command.args(["--config", &format!("build.rustc-workspace-wrapper={CLIPPY:?}")]);
            }
            // Without the commit, since a new one must not cause a recompilation.
            command.env(
                "DNSWEIR_BUILT",
                concat!(env!("CARGO_PKG_VERSION"), "\nquick build, unoptimized"),
            );
        }
        command
    }

    /// Returns the folder of the build's programs.
    pub fn folder(self) -> PathBuf {
        match self {
            Build::Quick => quick_folder().join("release"),
            Build::Release => release_folder(),
        }
    }

    /// Compiles the named programs of the workspace, or all if none is named.
    pub fn programs(self, names: &[&str]) -> Result<(), Failure> {
        setup::wasm_target()?;
        let mut command = self.cargo("build");
        match names.is_empty() {
            true => command.arg("--bins"),
            false => command.args(names.iter().flat_map(|name| ["--bin", *name])),
        };
        call(command)
    }
}

/// Returns cargo's target folder, which `CARGO_TARGET_DIR` or a configuration file may have moved.
pub fn target() -> PathBuf {
    let release = release_folder();
    release
        .parent()
        .map_or_else(|| PathBuf::from("target"), PathBuf::from)
}

fn quick_folder() -> PathBuf {
    target().join("quick")
}
