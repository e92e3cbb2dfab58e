//! The dnstap file, and its predecessor.
//!
//! Old frames are discarded only in favour of new ones: a file replaces another only once it holds frames,
//! and a partial write is undone.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

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
    let (kept, before) = (with_end(path, ".1"), with_end(path, ".old"));
    let moves: [(&Path, &Path); 3] = [(&kept, &before), (path, &kept), (new, path)];
    for (done, (from, to)) in moves.iter().enumerate() {
        match fs::rename(from, to) {
            Ok(()) => {}
            // Nothing has been kept yet.
            Err(error) if done == 0 && error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => {
                for (from, to) in moves[..done].iter().rev() {
                    let _ = fs::rename(to, from);
                }
                return Err(error);
            }
        }
    }
    let _ = fs::remove_file(&before);
    Ok(())
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
