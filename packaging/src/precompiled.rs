//! The built-in filters as machine code, so that a container or a service compiles nothing at its start.

use std::path::Path;
use std::process::Command;

use crate::{Failure, output};

/// Exec format error: a program for another processor, and nothing on this machine that runs it.
const ENOEXEC: i32 = 8;

/// Where `program` finds it when it is `usr/bin/dnsweir` below `root`. A program that cannot run here is packed without: it compiles
/// at its start, as any program does that is only copied.
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
