//! The programs that are packed: the proxy, and those that it runs, which have to be beside it.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use crate::{Failure, read, write};

/// Their names, and those of their crates.
pub const NAMES: [&str; 4] = ["dnsweir", "dnsweir-artifacts", "dnsweir-top", "dnsweir-webhook"];

/// Their files. `program` is the proxy, as cargo built it.
pub fn files(program: &Path) -> [PathBuf; NAMES.len()] {
    NAMES.map(|name| program.with_file_name(name))
}

/// Copies them into a folder.
pub fn install(program: &Path, folder: &Path) -> Result<(), Failure> {
    for file in files(program) {
        let to = folder.join(file.file_name().unwrap_or_default());
        write(&to, read(&file)?)?;
        fs::set_permissions(&to, fs::Permissions::from_mode(0o755))
            .map_err(|error| format!("{}: {error}", to.display()))?;
    }
    Ok(())
}
