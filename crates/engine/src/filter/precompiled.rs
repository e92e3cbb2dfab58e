//! Built-in filters as machine code that was installed with the program, so that a new container compiles nothing before it answers.
//!
//! It is trusted as the program is: the folder is beside it, and read only if [nobody but root and this user can
//! write to it](PrivateFolder::installed). The code is for every processor of [`LEVEL`]; on others, and for every other
//! module, filters are compiled when they are loaded.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};
use wasmtime::component::Component as Compiled;

use super::builtin::BUILTINS;
use super::compile;
use super::compiled::file_of;
use super::plain;
use super::settings;
use crate::private_folder::PrivateFolder;

/// Bytes of the digest that a file begins with.
const DIGEST: usize = 32;

/// From the folder of the program to the folder of the code.
const FOLDER: &str = "../lib/dnsweir/compiled";

/// What the processor must have: x86-64-v2, which is what the compiler needs for SIMD, or ARMv8.
const LEVEL: (&str, &[&str]) = if cfg!(target_arch = "x86_64") {
    (
        "x86_64-unknown-linux",
        &["has_sse3", "has_ssse3", "has_sse41", "has_sse42", "has_popcnt"],
    )
} else {
    ("aarch64-unknown-linux", &[])
};

/// A folder of installed code.
#[derive(Debug, Clone)]
pub struct Precompiled(PrivateFolder);

impl Precompiled {
    /// The folder that belongs to this program; none if nothing is installed there, as for a program that was only copied.
    pub fn of_program() -> Option<Precompiled> {
        let folder = std::env::current_exe().ok()?.parent()?.join(FOLDER);
        match PrivateFolder::installed(&folder) {
            Ok(folder) => Some(Precompiled(folder)),
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                tracing::warn!(folder = %folder.display(), %error, "installed code of filters is not used: they are compiled");
                None
            }
            Err(_) => None,
        }
    }

    /// The component that `module` was compiled to, if it is installed and for this processor and these settings.
    pub(super) fn load(&self, engine: &wasmtime::Engine, module: &[u8]) -> Option<Compiled> {
        let file = self.0.read(&name(module)).ok()?;
        let (digest, code) = file.split_at_checked(DIGEST)?;
        // One that is only half there is none.
        if *digest != *Sha256::digest(code) {
            return None;
        }
        // SAFETY: whoever installed the program wrote it, and nobody else can, as was checked when the folder was opened and for
        // the file; all of it is there. It was read into memory that nobody else can change. wasmtime refuses code of another
        // version, of other settings, and for features that this processor lacks.
        unsafe { compile::open(engine, code) }.ok()
    }
}

/// Compiles every built-in filter for [`LEVEL`] into `folder`, which packages install as the program's. The same program writes the
/// same files on every machine.
///
/// # Errors
///
/// What did not compile, or which file cannot be written.
pub fn precompile_builtins(folder: &Path) -> Result<Vec<PathBuf>, String> {
    let engine = settings::compiler_for(LEVEL.0, LEVEL.1).map_err(|error| error.to_string())?;
    fs::create_dir_all(folder).map_err(|error| format!("cannot make {}: {error}", folder.display()))?;
    let one = |&(builtin, module): &(&str, &[u8])| {
        let code =
            compile::compile_here(&engine, module).map_err(|error| format!("builtin:{builtin}: {error}"))?;
        let file = folder.join(name(module));
        let content = [Sha256::digest(&code).as_slice(), &code].concat();
        fs::write(&file, content).map_err(|error| format!("cannot write {}: {error}", file.display()))?;
        Ok(file)
    };
    BUILTINS.iter().map(one).collect()
}

/// What the file of a module is called.
fn name(module: &[u8]) -> String {
    let mut digest = Sha256::new();
    digest.update(module);
    digest.update(env!("CARGO_PKG_VERSION"));
    // What was put into a plain module with it.
    plain::ingredients().for_each(|ingredient| digest.update(ingredient));
    file_of(&digest.finalize())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn installed_code_is_taken_whole_or_not_at_all() {
        let folder = tempfile::tempdir().unwrap();
        let files = precompile_builtins(folder.path()).unwrap();
        assert_eq!(files.len(), BUILTINS.len());
        let installed = Precompiled(PrivateFolder::installed(folder.path()).unwrap());
        let engine = settings::compiler(false).unwrap();
        for (name, module) in BUILTINS {
            assert!(installed.load(&engine, module).is_some(), "{name}");
        }
        assert!(installed.load(&engine, b"another module").is_none());
        // Other settings: the code is not what this engine runs.
        let metered = settings::compiler(true).unwrap();
        assert!(installed.load(&metered, BUILTINS[0].1).is_none());
        let whole = fs::read(&files[0]).unwrap();
        fs::write(&files[0], &whole[..whole.len() - 1]).unwrap();
        assert!(installed.load(&engine, BUILTINS[0].1).is_none());
    }
}
