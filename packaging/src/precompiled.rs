//! Precompiles the built-in filters, so that a container or service compiles nothing at start.

use std::path::Path;
use std::process::Command;

use crate::{Failure, output};

/// Exec format error: the program is for another processor, and this machine cannot emulate it.
const ENOEXEC: i32 = 8;

/// Writes the code to where `program` finds it when it is `usr/bin/dnsweir` below `root`. Skipped for a
/// program that cannot run here: it then compiles at start, like any copied program.
pub fn install(program: &Path, root: &Path) -> Result<(), Failure> {
    let runs = Command::new(program).arg("--version").output();
    if runs.is_err_and(|error| error.raw_os_error() == Some(ENOEXEC)) {
        eprintln!(
            "packaging: without compiled filters: {} is for another processor",
            program.display()
        );
        return Ok(());
    }
    let folder = root.join("usr/lib/dnsweir/compiled");
    output(Command::new(program).arg("precompile-builtins").arg(folder)).map(|_| ())
}
