//! The dnstap file, and its predecessor.
//!
//! Old frames are discarded only in favour of new ones: a file replaces another only once it holds frames,
//! and a partial write is undone.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::io::Errno;

use super::frames::{self, Control};

/// The file being written.
pub(super) struct Written {
    file: File,
    /// Bytes of whole frames in it.
    octets: u64,
}

impl Written {
    /// Creates a file with these frames. An existing file at `path` is renamed, since a stream has only one
    /// start. The file is readable by its owner only, because it shows what clients ask.
    ///
    /// # Errors
    /// If it cannot be written; then nothing has changed.
    pub fn begin(path: &Path, frames: &[u8]) -> io::Result<Written> {
        let is_there = match fs::symlink_metadata(path) {
            Ok(there) if !there.is_file() => {
                return Err(io::Error::other("it is there, and is not a plain file"));
            }
            Ok(_) => true,
            Err(error) if error.kind() == io::ErrorKind::NotFound => false,
            Err(error) => return Err(error),
        };
        let beside = with_end(path, ".new");
        // Left by a process that was killed.
        let _ = fs::remove_file(&beside);
        let file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&beside)?;
        let mut begun = Written { file, octets: 0 };
        let placed = (|| {
            begun.append(&frames::control(Control::Start))?;
            begun.append(frames)?;
            match is_there {
                true => replace(&beside, path),
                false => fs::rename(&beside, path),
            }
        })();
        if let Err(error) = placed {
            let _ = fs::remove_file(&beside);
            return Err(error);
        }
        Ok(begun)
    }

    /// Whether `more` bytes would exceed `most`.
    pub(crate) fn is_full_with(&self, more: usize, most: u64) -> bool {
        self.octets + more as u64 > most
    }

    /// Writes whole frames.
    ///
    /// # Errors
    /// If they cannot be written; then the file holds none of them.
    pub fn append(&mut self, frames: &[u8]) -> io::Result<()> {
        if let Err(error) = self.file.write_all(frames) {
            self.file.set_len(self.octets)?;
            self.file.seek(SeekFrom::Start(self.octets))?;
            return Err(error);
        }
        self.octets += frames.len() as u64;
        Ok(())
    }

    /// Writes the frame that ends the stream.
    pub fn end(mut self) {
        // If there is no room for it, readers see the end of the file.
        let _ = self.append(&frames::control(Control::Stop));
    }
}

/// Puts a new file in place of the one at `path`, which replaces the one kept as `….1`.
///
/// # Errors
/// If a rename fails; then all are back in their places.
fn replace(new: &Path, path: &Path) -> io::Result<()> {
    let kept = with_end(path, ".1");
    match renameat_with(CWD, new, CWD, path, RenameFlags::EXCHANGE) {
        Ok(()) => {}
        Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => return replace_in_steps(new, path, &kept),
        Err(error) => return Err(error.into()),
    }
    // Now `new` is the name of the former file.
    fs::rename(new, &kept).inspect_err(|_| {
        let _ = renameat_with(CWD, new, CWD, path, RenameFlags::EXCHANGE);
    })
}

/// Does the same on a filesystem that cannot exchange files. For a moment, there is none at `path`.
///
/// # Errors
/// If a rename fails; then the one at `path` is back in its place.
fn replace_in_steps(new: &Path, path: &Path, kept: &Path) -> io::Result<()> {
    fs::rename(path, kept)?;
    fs::rename(new, path).inspect_err(|_| {
        let _ = fs::rename(kept, path);
    })
}

fn with_end(path: &Path, end: &str) -> PathBuf {
    let mut name: OsString = path.as_os_str().to_owned();
    name.push(end);
    name.into()
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};

    use super::*;

    #[test]
    fn a_file_that_cannot_be_written_takes_the_place_of_none() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tap");
        let aside = with_end(&path, ".1");
        Written::begin(&path, b"one").unwrap().end();
        Written::begin(&path, b"two").unwrap().end();
        let before = [&path, &aside].map(|path| fs::read(path).unwrap());
        let has = |octets: &[u8], text: &[u8]| octets.windows(text.len()).any(|part| part == text);
        assert!(has(&before[0], b"two") && has(&before[1], b"one"));
        // As on a full disk.
        fs::create_dir_all(with_end(&path, ".new").join("in the way")).unwrap();
        for _ in 0..3 {
            assert!(Written::begin(&path, b"three").is_err());
        }
        assert_eq!([&path, &aside].map(|path| fs::read(path).unwrap()), before);
    }

    #[test]
    fn a_file_that_cannot_be_renamed_takes_the_place_of_none() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tap");
        let count = || fs::read_dir(folder.path()).unwrap().count();
        let read = |end: &str| fs::read(with_end(&path, end)).ok();
        fs::write(&path, "one").unwrap();
        assert!(replace(&with_end(&path, ".new"), &path).is_err());
        assert_eq!((read(""), read(".1"), count()), (Some(b"one".to_vec()), None, 1));
        for text in ["two", "three"] {
            fs::write(with_end(&path, ".new"), text).unwrap();
            replace(&with_end(&path, ".new"), &path).unwrap();
        }
        let both = (Some(b"three".to_vec()), Some(b"two".to_vec()), 2);
        assert_eq!((read(""), read(".1"), count()), both);
        assert!(replace(&with_end(&path, ".new"), &path).is_err());
        assert_eq!((read(""), read(".1"), count()), both);
    }

    #[test]
    fn other_files_in_the_folder_stay() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tap");
        let read = |end: &str| fs::read_to_string(with_end(&path, end)).ok();
        let is = |text: &str| Some(text.to_owned());
        let write = |end: &str, text: &str| fs::write(with_end(&path, end), text).unwrap();
        write(".old", "another's");
        write("", "one");
        for text in ["two", "three"] {
            write(".new", text);
            replace(&with_end(&path, ".new"), &path).unwrap();
            assert_eq!(read(".old"), is("another's"));
        }
        let kept = with_end(&path, ".1");
        fs::remove_file(&kept).unwrap();
        fs::create_dir(&kept).unwrap();
        assert!(Written::begin(&path, b"four").is_err());
        assert_eq!((read(""), read(".old")), (is("three"), is("another's")));
        assert!(kept.is_dir() && !with_end(&path, ".new").exists());
    }

    #[test]
    fn files_are_replaced_where_they_cannot_be_exchanged() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tap");
        let (new, kept) = (with_end(&path, ".new"), with_end(&path, ".1"));
        let read = |path: &Path| fs::read_to_string(path).unwrap();
        fs::write(&path, "one").unwrap();
        assert!(replace_in_steps(&new, &path, &kept).is_err());
        assert_eq!(read(&path), "one");
        for text in ["two", "three"] {
            fs::write(&new, text).unwrap();
            replace_in_steps(&new, &path, &kept).unwrap();
        }
        assert_eq!((read(&path), read(&kept)), ("three".into(), "two".into()));
        assert!(!new.exists());
    }

    /// A file that cannot grow, as on a full disk, and has some room left.
    #[test]
    fn what_was_written_in_part_is_taken_back() {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let mut file = File::from(memfd_create("full", flags).unwrap());
        file.write_all(&[1; 5000]).unwrap();
        file.set_len(8192).unwrap();
        fcntl_add_seals(&file, SealFlags::GROW).unwrap();
        let mut written = Written { file, octets: 5000 };
        for _ in 0..2 {
            assert!(written.append(&[2; 8192]).is_err());
            let mut there = Vec::new();
            written.file.rewind().unwrap();
            written.file.read_to_end(&mut there).unwrap();
            assert_eq!((there, written.octets), (vec![1; 5000], 5000));
        }
        assert!(written.is_full_with(1, 5000) && !written.is_full_with(1, 5001));
    }
}
