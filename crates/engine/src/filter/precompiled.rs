//! Built-in filters as machine code installed with the program, so that a new container compiles nothing
//! before it answers.
//!
//! The code is trusted like the program: its folder is beside it, and is read only if [nobody but root and
//! this user can write to it](PrivateFolder::installed). The code runs on every processor of [`LEVEL`]; on
//! others, and for all other modules, filters are compiled when they are loaded.

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

/// Bytes of the digest at the start of a file.
const DIGEST: usize = 32;

/// Path from the program's folder to the code's.
const FOLDER: &str = "../lib/dnsweir/compiled";

/// Required processor features: x86-64-v2, which the compiler needs for SIMD, or ARMv8.
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
    /// The folder that belongs to this program; none if nothing is installed there, as when only the program
    /// was copied.
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

    /// The compiled component of `module`, if it is installed for this processor and these settings.
    pub(super) fn load(&self, engine: &wasmtime::Engine, module: &[u8]) -> Option<Compiled> {
        let file = self.0.read(&name(module)).ok()?;
        let (digest, code) = file.split_at_checked(DIGEST)?;
        // Ignore a truncated file.
        if *digest != *Sha256::digest(code) {
            return None;
        }
        // SAFETY: whoever installed the program wrote the file, and nobody else can, as was checked for the
        // folder when it was opened and for the file; the digest shows that it is complete. It was read into
        // memory that nobody else can change. wasmtime refuses code of another version, of other settings, or
        // for features that this processor lacks.
        unsafe { compile::open(engine, code) }.ok()
    }
}

/// Compiles every built-in filter for [`LEVEL`] into `folder`, which packages install with the program. The
/// same program writes the same files on every machine.
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

/// The file name for a module.
fn name(module: &[u8]) -> String {
    let mut digest = Sha256::new();
    digest.update(module);
    digest.update(env!("CARGO_PKG_VERSION"));
    // What a plain module is combined with.
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
        // With other settings, this engine cannot run the code.
        let metered = settings::compiler(true).unwrap();
        assert!(installed.load(&metered, BUILTINS[0].1).is_none());
        let whole = fs::read(&files[0]).unwrap();
        fs::write(&files[0], &whole[..whole.len() - 1]).unwrap();
        assert!(installed.load(&engine, BUILTINS[0].1).is_none());
    }
}
