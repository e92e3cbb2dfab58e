//! A folder on disk that belongs to this user alone, for what the process keeps over restarts.
//!
//! Whoever can write to it could have us run or answer something else. So that nobody else can write to it or replace
//! it is checked once, from the root downwards, and from then on the folder is held by its descriptor, since a path may
//! lead elsewhere the next time. Files come into place whole, by a rename.

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

/// That others may write, in a file's mode.
const OTHERS_WRITE: u32 = 0o022;

/// That in this folder nobody may move or remove what belongs to others.
const STICKY: u32 = 0o1000;

const FOLDER: OFlags = OFlags::DIRECTORY.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// A folder that nobody else can write to or replace. Clones share it.
#[derive(Debug, Clone)]
pub struct PrivateFolder(Arc<OwnedFd>);

/// A file in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Its name.
    pub name: String,
    /// Octets in it.
    pub octets: u64,
    /// When it was last written, or used.
    pub written: SystemTime,
}

/// By which it can be told from others, and named to the kernel.
impl AsFd for PrivateFolder {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl PrivateFolder {
    /// Uses `folder`, and makes it if it is not there.
    ///
    /// # Errors
    ///
    /// If it cannot be made, or somebody else could write to it, or put another one in its place.
    pub fn open(folder: &Path) -> io::Result<PrivateFolder> {
        DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        PrivateFolder::held(reached(folder)?)
    }

    /// A folder that was installed with the program, to read from: root's or this user's.
    ///
    /// # Errors
    ///
    /// If it is not there, or somebody else could write to it, or put another one in its place.
    pub fn installed(folder: &Path) -> io::Result<PrivateFolder> {
        let held = reached(folder)?;
        let metadata = fstat(&held)?;
        if !is_trusted(&metadata) || may_be_written(&metadata) {
            return Err(refused(format!("other users can write to {}", folder.display())));
        }
        Ok(PrivateFolder(Arc::new(held)))
    }

    /// The folder `name` in it, which is made if it is not there.
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

    /// A file of ours or of root's, to be read.
    ///
    /// # Errors
    ///
    /// When it is not there, or others can write to it.
    pub fn file(&self, name: &str) -> io::Result<File> {
        // What is no file does not block us either.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let file = openat(&self.0, name, flags, Mode::empty())?;
        let metadata = fstat(&file)?;
        let is_file = FileType::from_raw_mode(metadata.st_mode).is_file();
        if !is_file || !is_trusted(&metadata) || may_be_written(&metadata) {
            return Err(refused(format!("other users can write to {name}")));
        }
        Ok(File::from(file))
    }

    /// What is in a file of ours.
    ///
    /// # Errors
    ///
    /// When it is not there, or others can write to it.
    pub fn read(&self, name: &str) -> io::Result<Vec<u8>> {
        let mut octets = Vec::new();
        self.file(name)?.read_to_end(&mut octets)?;
        Ok(octets)
    }

    /// Keeps `parts`, one after the other, as the file `name`.
    ///
    /// # Errors
    ///
    /// When the disk says so; what was there before is there still.
    pub fn store(&self, name: &str, parts: &[&[u8]]) -> io::Result<()> {
        let mut unfinished = self.begin(name)?;
        parts
            .iter()
            .try_for_each(|part| unfinished.file.write_all(part))?;
        unfinished.keep()
    }

    /// A file that will be called `name` once it is whole.
    ///
    /// # Errors
    ///
    /// When the disk says so.
    pub fn begin(&self, name: &str) -> io::Result<Unfinished> {
        // Two processes may be at it at once: each writes a file of its own, and the last to rename wins.
        let at = format!("{name}.{}-{:?}", std::process::id(), std::thread::current().id());
        // Of a process that was killed, and had our ID: in a container everybody is number 1.
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

    /// The files in it, in no order.
    ///
    /// # Errors
    ///
    /// When the disk says so.
    pub fn entries(&self) -> io::Result<Vec<Entry>> {
        let mut entries = Vec::new();
        for entry in Dir::read_from(&self.0)? {
            let entry = entry?;
            let Ok(name) = entry.file_name().to_str() else {
                continue;
            };
            // One that is gone by now is none.
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

    /// Removes files, those that were not used for longest first, until one of so many `octets` can be called `name`
    /// and all have `limit` octets at most. Those that `stays` says so of stay. False: there is no such room.
    ///
    /// # Errors
    ///
    /// When the disk says so.
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

    /// Notes that a file is used: it counts as written now.
    ///
    /// # Errors
    ///
    /// When the disk says so, or it is not there.
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
    /// When the disk says so.
    pub fn remove(&self, name: &str) -> io::Result<()> {
        Ok(unlinkat(&self.0, name, AtFlags::empty())?)
    }
}

/// Opens a folder from the root downwards, and refuses a way on which somebody else could put another one in its place.
fn reached(folder: &Path) -> io::Result<OwnedFd> {
    // Without symbolic links from here on: what is looked at below is what is opened.
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

/// A file that is being written. It goes away unless it is kept.
#[derive(Debug)]
pub struct Unfinished {
    folder: PrivateFolder,
    /// To write to.
    pub file: File,
    at: String,
    name: String,
}

impl Unfinished {
    /// Puts it in its place, and what was there before is gone.
    ///
    /// # Errors
    ///
    /// When the disk says so; what was there before is there still.
    pub fn keep(self) -> io::Result<()> {
        let folder = self.folder.0.as_fd();
        Ok(renameat(folder, &self.at, folder, &self.name)?)
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        // There is none if it was kept.
        let _ = unlinkat(&self.folder.0, &self.at, AtFlags::empty());
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

    /// Who may rename a folder on the way may put his own in its place.
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
        // As in /tmp, where everybody moves what is his own only.
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
        // The folder in it is no file of its own.
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
        // One takes its own place.
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
