//! Compiled filters kept on disk, so that a start need not compile what was compiled before.
//!
//! Compiled code is machine code: loading a forged file means running it. It is therefore read only from a folder that
//! no other user can write to or replace, and never from where modules come from. This is checked once, from the root
//! downwards, and from then on the folder is held by its descriptor, since a path may lead elsewhere the next time. A
//! file's name is a digest of the module, the compiler's version and its settings, and it contains a digest of its
//! content, so that a half-written one is found.

use std::fs::{self, DirBuilder, File};
use std::hash::{Hash, Hasher};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Component, Path};
use std::sync::Arc;

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, Stat, fstat, openat, renameat, unlinkat};
use sha2::{Digest, Sha256};
use wasmtime::component::Component as Compiled;

use super::compile;
use super::plain;

/// Octets of the digest that a file begins with.
const DIGEST: usize = 32;

/// That others may write, in a file's mode.
const OTHERS_WRITE: u32 = 0o022;

/// That in this folder nobody may move or remove what belongs to others.
const STICKY: u32 = 0o1000;

/// A folder of compiled filters.
#[derive(Debug, Clone)]
pub struct CompiledCache {
    folder: Arc<OwnedFd>,
}

impl CompiledCache {
    /// Uses `folder`, and makes it if it is not there.
    ///
    /// # Errors
    ///
    /// If it cannot be made, or somebody else could write to it, or put another one in its place.
    pub fn open(folder: &Path) -> io::Result<CompiledCache> {
        DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        // Without symbolic links from here on: what is looked at below is what is opened.
        let path = fs::canonicalize(folder)?;
        let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mut folder = openat(CWD, "/", flags, Mode::empty())?;
        let mut way = Path::new("/").to_owned();
        for part in path.components() {
            let Component::Normal(name) = part else { continue };
            let above = fstat(&folder)?;
            if !is_trusted(&above) || may_be_written(&above) && above.st_mode & STICKY == 0 {
                return Err(refused(format!(
                    "others can replace it, since other users can write to {}",
                    way.display()
                )));
            }
            folder = openat(&folder, name, flags, Mode::empty())?;
            way.push(name);
        }
        let metadata = fstat(&folder)?;
        if metadata.st_uid != own_user() || may_be_written(&metadata) {
            let problem =
                "it holds machine code, so it must belong to this user and be writable by nobody else";
            return Err(refused(problem.into()));
        }
        Ok(CompiledCache {
            folder: Arc::new(folder),
        })
    }

    /// The component that `module` was compiled to before, if it was.
    pub(super) fn load(&self, engine: &wasmtime::Engine, module: &[u8]) -> Option<Compiled> {
        let file = self.read(&name(engine, module)).ok()?;
        let (digest, code) = file.split_at_checked(DIGEST)?;
        if *digest != *Sha256::digest(code) {
            return None;
        }
        // SAFETY: this process, or another one of this user and this version, wrote the file: nobody else can
        // write to it, to the folder that we hold, or put another one in its place, the name holds version and
        // settings of the compiler, and the digest says that all of it is there. It was read into memory that nobody
        // else can change.
        unsafe { compile::open(engine, code) }.ok()
    }

    /// What is in a file of ours.
    fn read(&self, name: &str) -> io::Result<Vec<u8>> {
        // What is no file does not block us either.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let file = openat(&self.folder, name, flags, Mode::empty())?;
        let metadata = fstat(&file)?;
        let is_file = FileType::from_raw_mode(metadata.st_mode).is_file();
        if !is_file || metadata.st_uid != own_user() || may_be_written(&metadata) {
            return Err(refused(format!("other users can write to {name}")));
        }
        let mut octets = Vec::new();
        File::from(file).read_to_end(&mut octets)?;
        Ok(octets)
    }

    /// Keeps `code`, which `module` was compiled to.
    ///
    /// # Errors
    ///
    /// When the disk says so. Nothing is lost: the next start compiles again.
    pub(super) fn store(&self, engine: &wasmtime::Engine, module: &[u8], code: &[u8]) -> io::Result<()> {
        let name = name(engine, module);
        // Two processes may be at it at once: each writes a file of its own, and the last to rename wins.
        let unfinished = format!("{name}.{}-{:?}", std::process::id(), std::thread::current().id());
        // Of a process that was killed, and had our ID: in a container everybody is number 1.
        let _ = unlinkat(&self.folder, &unfinished, AtFlags::empty());
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = openat(&self.folder, &unfinished, flags, Mode::RUSR | Mode::WUSR)?;
        let mut file = File::from(file);
        let written = file
            .write_all(&Sha256::digest(code))
            .and_then(|()| file.write_all(code));
        drop(file);
        let folder = self.folder.as_fd();
        let kept = written.and_then(|()| Ok(renameat(folder, &unfinished, folder, &name)?));
        if kept.is_err() {
            let _ = unlinkat(folder, &unfinished, AtFlags::empty());
        }
        kept
    }
}

fn refused(problem: String) -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, problem)
}

/// Whether a file belongs to us, or to root, who needs no forged files.
fn is_trusted(metadata: &Stat) -> bool {
    [own_user(), 0].contains(&metadata.st_uid)
}

/// Whether others than its owner may write it. A list of further rights (ACL) shows in the group's.
fn may_be_written(metadata: &Stat) -> bool {
    metadata.st_mode & OTHERS_WRITE != 0
}

fn own_user() -> u32 {
    // SAFETY: geteuid only reads the process's credentials and cannot fail.
    unsafe { libc::geteuid() }
}

/// What the file of a module is called.
fn name(engine: &wasmtime::Engine, module: &[u8]) -> String {
    let mut key = KeyDigest(Sha256::new());
    key.write(module);
    // Wasmtime's version, the compiler's settings and the processor's features.
    engine.precompile_compatibility_hash().hash(&mut key);
    key.write(env!("CARGO_PKG_VERSION").as_bytes());
    // What was put into a plain module with it.
    plain::ingredients().for_each(|ingredient| key.write(ingredient));
    let digest = key.0.finalize();
    let digits: String = digest.iter().map(|octet| format!("{octet:02x}")).collect();
    format!("{digits}.cwasm")
}

/// Collects what a `Hash` has to say for a digest that does not collide.
struct KeyDigest(Sha256);

impl Hasher for KeyDigest {
    fn write(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    fn finish(&self) -> u64 {
        // Nobody asks: `name` takes the digest.
        0
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

    use super::*;

    fn allow(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    fn refusal(folder: &Path) -> String {
        let refused = CompiledCache::open(folder).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::PermissionDenied);
        refused.to_string()
    }

    #[test]
    fn a_folder_of_others_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let made = folder.path().join("own");
        CompiledCache::open(&made).unwrap();
        assert_eq!(fs::metadata(&made).unwrap().mode() & 0o777, 0o700);
        for mode in [0o720, 0o702, 0o777, 0o1777] {
            allow(&made, mode);
            assert!(refusal(&made).contains("machine code"), "{mode:o}");
        }
    }

    /// Who may rename a folder on the way may put his own in its place.
    #[test]
    fn a_folder_that_others_may_replace_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let above = folder.path().join("above");
        let (made, link) = (above.join("between/own"), folder.path().join("link"));
        CompiledCache::open(&made).unwrap();
        symlink(&above, &link).unwrap();
        for mode in [0o720, 0o702, 0o777] {
            allow(&above, mode);
            for path in [made.clone(), link.join("between/own")] {
                assert!(refusal(&path).contains("above"), "{mode:o}");
            }
        }
        // As in /tmp, where everybody moves what is his own only.
        allow(&above, 0o1777);
        CompiledCache::open(&made).unwrap();
    }

    #[test]
    fn a_folder_is_held_and_not_looked_up_again() {
        let folder = tempfile::tempdir().unwrap();
        let (made, moved) = (folder.path().join("own"), folder.path().join("moved"));
        let cache = CompiledCache::open(&made).unwrap();
        fs::write(made.join("code"), "ours").unwrap();
        fs::rename(&made, &moved).unwrap();
        fs::create_dir(&made).unwrap();
        fs::write(made.join("code"), "forged").unwrap();
        assert_eq!(cache.read("code").unwrap(), b"ours");
    }

    #[test]
    fn files_of_others_are_not_loaded() {
        let folder = tempfile::tempdir().unwrap();
        let made = folder.path().join("own");
        let cache = CompiledCache::open(&made).unwrap();
        let file = made.join("code");
        fs::write(&file, "code").unwrap();
        for mode in [0o620, 0o602] {
            allow(&file, mode);
            assert!(cache.read("code").is_err(), "{mode:o}");
        }
        allow(&file, 0o600);
        cache.read("code").unwrap();
        symlink("code", made.join("link")).unwrap();
        assert!(cache.read("link").is_err(), "a symbolic link");
        fs::create_dir(made.join("folder")).unwrap();
        assert!(cache.read("folder").is_err(), "no file");
    }
}
