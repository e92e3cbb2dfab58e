//! A folder that only this user can write to, for data that outlives the process.
//!
//! Anyone who could write to it could make us run or answer something else. So that no other user can write
//! to it or replace it is checked once, from the root downwards; from then on the folder is used by its
//! descriptor, since its path may lead elsewhere later. Files are moved into place complete, by a rename.

use std::fs::{self, DirBuilder, File};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Component, Path};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use rustix::fs::{
    AtFlags, CWD, Dir, FileType, Mode, OFlags, Stat, Timespec, Timestamps, UTIME_NOW, fstat, mkdirat, openat,
    renameat, statat, unlinkat, utimensat,
};

/// Mode bits: group or others may write.
const OTHERS_WRITE: u32 = 0o022;

/// Mode bit: users may only move or remove their own files in this folder.
const STICKY: u32 = 0o1000;

const FOLDER: OFlags = OFlags::DIRECTORY.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// A folder that no other user can write to or replace. Clones share it.
#[derive(Debug, Clone)]
pub struct PrivateFolder(Arc<OwnedFd>);

/// A file in the folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Its name.
    pub name: String,
    /// Its size in bytes.
    pub octets: u64,
    /// When it was last written or used.
    pub written: SystemTime,
}

/// The descriptor identifies the folder, and can be passed to the kernel.
impl AsFd for PrivateFolder {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl PrivateFolder {
    /// Opens `folder`, and creates it if it does not exist.
    ///
    /// # Errors
    ///
    /// If it cannot be created, or another user could write to it or replace it.
    pub fn open(folder: &Path) -> io::Result<PrivateFolder> {
        DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        PrivateFolder::held(reached(folder)?)
    }

    /// Opens a folder installed with the program, to read from. It must belong to root or this user.
    ///
    /// # Errors
    ///
    /// If it does not exist, or another user could write to it or replace it.
    pub fn installed(folder: &Path) -> io::Result<PrivateFolder> {
        let held = reached(folder)?;
        let metadata = fstat(&held)?;
        if !is_trusted(&metadata) || may_be_written(&metadata) {
            return Err(refused(format!("other users can write to {}", folder.display())));
        }
        Ok(PrivateFolder(Arc::new(held)))
    }

    /// Opens the folder `name` in it, and creates it if it does not exist.
    ///
    /// # Errors
    ///
    /// As for the folder itself.
    pub fn folder(&self, name: &str) -> io::Result<PrivateFolder> {
        match mkdirat(&self.0, name, Mode::RWXU) {
            Ok(()) | Err(rustix::io::Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
        PrivateFolder::held(openat(&self.0, name, FOLDER, Mode::empty())?)
    }

    fn held(folder: OwnedFd) -> io::Result<PrivateFolder> {
        let metadata = fstat(&folder)?;
        if metadata.st_uid != own_user() || may_be_written(&metadata) {
            let problem = "it holds machine code and modules, so it must belong to this user, and other users must not be able to write to it";
            return Err(refused(problem.into()));
        }
        Ok(PrivateFolder(Arc::new(folder)))
    }

    /// Opens a file of this user or root for reading.
    ///
    /// # Errors
    ///
    /// If it does not exist, or other users can write to it.
    pub fn file(&self, name: &str) -> io::Result<File> {
        // NONBLOCK: anything but a file must not block us either.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let file = openat(&self.0, name, flags, Mode::empty())?;
        let metadata = fstat(&file)?;
        let is_file = FileType::from_raw_mode(metadata.st_mode).is_file();
        if !is_file || !is_trusted(&metadata) || may_be_written(&metadata) {
            return Err(refused(format!("other users can write to {name}")));
        }
        Ok(File::from(file))
    }

    /// Reads a file.
    ///
    /// # Errors
    ///
    /// If it does not exist, or other users can write to it.
    pub fn read(&self, name: &str) -> io::Result<Vec<u8>> {
        let mut octets = Vec::new();
        self.file(name)?.read_to_end(&mut octets)?;
        Ok(octets)
    }

    /// Stores the concatenated `parts` as the file `name`.
    ///
    /// # Errors
    ///
    /// On an I/O error; the previous file is still there then.
    pub fn store(&self, name: &str, parts: &[&[u8]]) -> io::Result<()> {
        let mut unfinished = self.begin(name)?;
        parts
            .iter()
            .try_for_each(|part| unfinished.file.write_all(part))?;
        unfinished.keep()
    }

    /// Starts a file that is called `name` once it is complete.
    ///
    /// # Errors
    ///
    /// On an I/O error.
    pub fn begin(&self, name: &str) -> io::Result<Unfinished> {
        // Two processes may do this at once: each writes its own file, and the last rename wins.
        let at = format!("{name}.{}-{:?}", std::process::id(), std::thread::current().id());
        // Left by a killed process with our ID: in containers, every process may be number 1.
        let _ = unlinkat(&self.0, &at, AtFlags::empty());
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = openat(&self.0, &at, flags, Mode::RUSR | Mode::WUSR)?;
        Ok(Unfinished {
            folder: self.clone(),
            file: File::from(file),
            at,
            name: name.to_owned(),
        })
    }

    /// The files in it, unordered.
    ///
    /// # Errors
    ///
    /// On an I/O error.
    pub fn entries(&self) -> io::Result<Vec<Entry>> {
        let mut entries = Vec::new();
        for entry in Dir::read_from(&self.0)? {
            let entry = entry?;
            let Ok(name) = entry.file_name().to_str() else {
                continue;
            };
            // It has been removed in the meantime.
            let Ok(metadata) = statat(&self.0, name, AtFlags::SYMLINK_NOFOLLOW) else {
                continue;
            };
            if FileType::from_raw_mode(metadata.st_mode).is_file() {
                entries.push(Entry {
                    name: name.to_owned(),
                    octets: metadata.st_size as u64,
                    written: SystemTime::UNIX_EPOCH
                        + Duration::new(metadata.st_mtime as u64, metadata.st_mtime_nsec as u32),
                });
            }
        }
        Ok(entries)
    }

    /// Removes the least recently used files until one of `octets` bytes can be stored as `name` and the
    /// total is at most `limit`. Keeps the files for which `stays` returns true. Returns whether there is
    /// room.
    ///
    /// # Errors
    ///
    /// On an I/O error.
    pub fn make_room(
        &self,
        name: &str,
        octets: u64,
        limit: u64,
        stays: impl Fn(&str) -> bool,
    ) -> io::Result<bool> {
        let mut others = self.entries()?;
        others.retain(|entry| entry.name != name);
        others.sort_by_key(|entry| entry.written);
        let mut total = octets + others.iter().map(|entry| entry.octets).sum::<u64>();
        for entry in others.iter().filter(|entry| !stays(&entry.name)) {
            if total <= limit {
                break;
            }
            self.remove(&entry.name)?;
            total -= entry.octets;
        }
        Ok(total <= limit)
    }

    /// Marks a file as used: sets its modification time to now.
    ///
    /// # Errors
    ///
    /// On an I/O error, or the file does not exist.
    pub fn touch(&self, name: &str) -> io::Result<()> {
        let now = Timespec {
            tv_sec: 0,
            tv_nsec: UTIME_NOW,
        };
        let times = Timestamps {
            last_access: now,
            last_modification: now,
        };
        Ok(utimensat(&self.0, name, &times, AtFlags::SYMLINK_NOFOLLOW)?)
    }

    /// Removes a file.
    ///
    /// # Errors
    ///
    /// On an I/O error.
    pub fn remove(&self, name: &str) -> io::Result<()> {
        Ok(unlinkat(&self.0, name, AtFlags::empty())?)
    }
}

/// Opens a folder from the root downwards. Refuses a path on which another user could replace a part.
fn reached(folder: &Path) -> io::Result<OwnedFd> {
    // Resolves symbolic links first: what is checked below is what is opened.
    let path = fs::canonicalize(folder)?;
    let mut folder = openat(CWD, "/", FOLDER, Mode::empty())?;
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
        folder = openat(&folder, name, FOLDER, Mode::empty())?;
        way.push(name);
    }
    Ok(folder)
}

/// A file that is being written. Removed on drop unless kept.
#[derive(Debug)]
pub struct Unfinished {
    folder: PrivateFolder,
    /// The open file.
    pub file: File,
    at: String,
    name: String,
}

impl Unfinished {
    /// Moves the file into place, replacing the previous one.
    ///
    /// # Errors
    ///
    /// On an I/O error; the previous file is still there then.
    pub fn keep(self) -> io::Result<()> {
        let folder = self.folder.0.as_fd();
        Ok(renameat(folder, &self.at, folder, &self.name)?)
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        // Fails if it was kept.
        let _ = unlinkat(&self.folder.0, &self.at, AtFlags::empty());
    }
}

fn refused(problem: String) -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, problem)
}

/// Returns whether a file belongs to us, or to root, who needs no forged files.
fn is_trusted(metadata: &Stat) -> bool {
    [own_user(), 0].contains(&metadata.st_uid)
}

/// Returns whether others than the owner may write. ACL entries show in the group's bits.
fn may_be_written(metadata: &Stat) -> bool {
    metadata.st_mode & OTHERS_WRITE != 0
}

fn own_user() -> u32 {
    // SAFETY: geteuid only reads the process's credentials and cannot fail.
    unsafe { libc::geteuid() }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

    use super::*;

    fn allow(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    fn refusal(folder: &Path) -> String {
        let refused = PrivateFolder::open(folder).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::PermissionDenied);
        refused.to_string()
    }

    #[test]
    fn a_folder_of_others_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let made = folder.path().join("own");
        PrivateFolder::open(&made).unwrap();
        assert_eq!(fs::metadata(&made).unwrap().mode() & 0o777, 0o700);
        for mode in [0o720, 0o702, 0o777, 0o1777] {
            allow(&made, mode);
            assert!(refusal(&made).contains("machine code"), "{mode:o}");
        }
    }

    /// A user who may rename a folder on the path could replace it.
    #[test]
    fn a_folder_that_others_may_replace_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let above = folder.path().join("above");
        let (made, link) = (above.join("between/own"), folder.path().join("link"));
        PrivateFolder::open(&made).unwrap();
        symlink(&above, &link).unwrap();
        for mode in [0o720, 0o702, 0o777] {
            allow(&above, mode);
            for path in [made.clone(), link.join("between/own")] {
                assert!(refusal(&path).contains("above"), "{mode:o}");
            }
        }
        // As in /tmp, where users can only move what is theirs.
        allow(&above, 0o1777);
        PrivateFolder::open(&made).unwrap();
    }

    #[test]
    fn a_folder_is_held_and_not_looked_up_again() {
        let folder = tempfile::tempdir().unwrap();
        let (made, moved) = (folder.path().join("own"), folder.path().join("moved"));
        let cache = PrivateFolder::open(&made).unwrap();
        fs::write(made.join("code"), "ours").unwrap();
        fs::rename(&made, &moved).unwrap();
        fs::create_dir(&made).unwrap();
        fs::write(made.join("code"), "forged").unwrap();
        assert_eq!(cache.read("code").unwrap(), b"ours");
    }

    #[test]
    fn files_are_kept_listed_and_removed() {
        let folder = tempfile::tempdir().unwrap();
        let made = PrivateFolder::open(&folder.path().join("own")).unwrap();
        let inner = made.folder("inner").unwrap();
        inner.store("a", &[b"one", b"two"]).unwrap();
        inner.store("a", &[b"three"]).unwrap();
        assert_eq!(inner.read("a").unwrap(), b"three");
        let entries = inner.entries().unwrap();
        assert_eq!(entries.len(), 1, "{entries:?}");
        assert_eq!((entries[0].name.as_str(), entries[0].octets), ("a", 5));
        // The inner folder is not listed as a file.
        assert_eq!(made.entries().unwrap(), []);
        assert_eq!(made.folder("inner").unwrap().read("a").unwrap(), b"three");
        inner.remove("a").unwrap();
        assert!(inner.read("a").is_err());
        allow(&folder.path().join("own/inner"), 0o770);
        assert!(made.folder("inner").is_err(), "a folder that others can write to");
    }

    #[test]
    fn the_longest_unused_make_room() {
        let folder = tempfile::tempdir().unwrap();
        let made = PrivateFolder::open(&folder.path().join("own")).unwrap();
        for (name, day) in [("one", 1), ("two", 2), ("three", 3), ("four", 4)] {
            made.store(name, &[&[0; 100]]).unwrap();
            let file = File::options()
                .write(true)
                .open(folder.path().join("own").join(name));
            let written = SystemTime::UNIX_EPOCH + Duration::from_secs(day * 86_400);
            file.unwrap().set_modified(written).unwrap();
        }
        let names = || {
            let mut names: Vec<_> = made
                .entries()
                .unwrap()
                .into_iter()
                .map(|entry| entry.name)
                .collect();
            names.sort();
            names
        };
        assert!(made.make_room("five", 100, 500, |_| false).unwrap());
        assert_eq!(names().len(), 4);
        made.touch("one").unwrap();
        assert!(made.make_room("five", 100, 400, |_| false).unwrap());
        assert_eq!(names(), ["four", "one", "three"]);
        // The file itself does not count.
        assert!(made.make_room("one", 200, 400, |name| name == "three").unwrap());
        assert_eq!(names(), ["four", "one", "three"]);
        assert!(!made.make_room("five", 350, 400, |name| name == "three").unwrap());
        assert_eq!(names(), ["three"]);
    }

    #[test]
    fn files_of_others_are_not_loaded() {
        let folder = tempfile::tempdir().unwrap();
        let made = folder.path().join("own");
        let cache = PrivateFolder::open(&made).unwrap();
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
