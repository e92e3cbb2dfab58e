//! Compiled filters kept on disk, so that a start need not compile what was compiled before.
//!
//! Compiled code is machine code: loading a forged file is running it. It is therefore read only from a
//! folder that belongs to this user and that nobody else can write, and never from where modules come from.
//! A file is known by the digest of the module, the compiler's version and settings, and carries a digest of
//! its own against a half-written one.

use std::fs::{self, DirBuilder, OpenOptions};
use std::hash::{Hash, Hasher};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};
use wasmtime::component::Component;

use super::executor::MAIN_MODULE;
use super::plain;

/// Octets of the digest that a file begins with.
const DIGEST: usize = 32;

/// A folder of compiled filters.
#[derive(Debug, Clone)]
pub struct CompiledCache {
    folder: PathBuf,
}

impl CompiledCache {
    /// Uses `folder`, and makes it if it is not there.
    ///
    /// # Errors
    ///
    /// If it cannot be made, or somebody else could write to it.
    pub fn open(folder: &Path) -> io::Result<CompiledCache> {
        DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        let metadata = fs::metadata(folder)?;
        // SAFETY: geteuid only reads the process's credentials and cannot fail.
        let own = unsafe { libc::geteuid() };
        if metadata.uid() != own || metadata.mode() & 0o022 != 0 {
            let error =
                "it holds machine code, so it must belong to this user and be writable by nobody else";
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, error));
        }
        Ok(CompiledCache {
            folder: folder.to_path_buf(),
        })
    }

    /// The component that `module` was compiled to before, if it was.
    pub(super) fn load(&self, engine: &wasmtime::Engine, module: &[u8]) -> Option<Component> {
        let file = fs::read(self.path(engine, module)).ok()?;
        let (digest, code) = file.split_at_checked(DIGEST)?;
        if *digest != *Sha256::digest(code) {
            return None;
        }
        // SAFETY: this process, or another one of this user and this version, wrote the file: nobody else can
        // write to the folder, the name holds version and settings of the compiler, and the digest says that
        // all of it is there. It was read into memory that nobody else can change.
        unsafe { Component::deserialize(engine, code) }.ok()
    }

    /// Keeps what `module` was compiled to.
    ///
    /// # Errors
    ///
    /// When the disk says so. Nothing is lost: the next start compiles again.
    pub(super) fn store(
        &self,
        engine: &wasmtime::Engine,
        module: &[u8],
        component: &Component,
    ) -> wasmtime::Result<()> {
        let code = component.serialize()?;
        let path = self.path(engine, module);
        // Two processes may be at it at once: each writes a file of its own, and the last to rename wins.
        let unfinished = path.with_extension(format!(
            "{}-{:?}",
            std::process::id(),
            std::thread::current().id()
        ));
        let mut file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&unfinished)?;
        file.write_all(&Sha256::digest(&code))?;
        file.write_all(&code)?;
        drop(file);
        Ok(fs::rename(&unfinished, &path)?)
    }

    fn path(&self, engine: &wasmtime::Engine, module: &[u8]) -> PathBuf {
        let mut key = KeyDigest(Sha256::new());
        key.write(module);
        // Wasmtime's version, the compiler's settings and the processor's features.
        engine.precompile_compatibility_hash().hash(&mut key);
        key.write(env!("CARGO_PKG_VERSION").as_bytes());
        // Compiled code that was not made to export this lacks the quick way in.
        key.write(MAIN_MODULE.as_bytes());
        // What was put into a plain module with it.
        plain::ingredients().for_each(|ingredient| key.write(ingredient));
        let digest = key.0.finalize();
        let name: String = digest.iter().map(|octet| format!("{octet:02x}")).collect();
        self.folder.join(name).with_extension("cwasm")
    }
}

/// Collects what a `Hash` has to say for a digest that does not collide.
struct KeyDigest(Sha256);

impl Hasher for KeyDigest {
    fn write(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    fn finish(&self) -> u64 {
        // Nobody asks: `path` takes the digest.
        0
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_folder_of_others_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let made = folder.path().join("own");
        CompiledCache::open(&made).unwrap();
        assert_eq!(fs::metadata(&made).unwrap().mode() & 0o777, 0o700);
        for mode in [0o720, 0o702, 0o777] {
            fs::set_permissions(&made, fs::Permissions::from_mode(mode)).unwrap();
            let refused = CompiledCache::open(&made).unwrap_err();
            assert_eq!(refused.kind(), io::ErrorKind::PermissionDenied, "{mode:o}");
        }
    }
}
