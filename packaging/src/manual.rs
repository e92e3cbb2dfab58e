//! Manual pages and shell completions, which the program generates.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::{Failure, output, write};

/// Shells to write completions for.
pub const SHELLS: [&str; 3] = ["bash", "zsh", "fish"];

/// Writes the completions for a shell to a file; `program` must run on this machine.
pub fn completions(program: &Path, shell: &str, to: &Path) -> Result<(), Failure> {
    write(to, output(Command::new(program).args(["completions", shell]))?)
}

/// Writes all manual pages into a folder, and returns their paths.
pub fn pages(program: &Path, folder: &Path) -> Result<Vec<PathBuf>, Failure> {
    let wrong = |error| format!("{}: {error}", folder.display());
    fs::create_dir_all(folder).map_err(wrong)?;
    output(Command::new(program).arg("man").arg(folder))?;
    let entries = fs::read_dir(folder).map_err(wrong)?;
    Ok(entries.flatten().map(|entry| entry.path()).collect())
}
