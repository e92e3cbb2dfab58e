//! What the kernel tells of folders (inotify(7)): to which names in them something was done. No thread waits for it but the one
//! that asks, and what nobody has asked for yet is the kernel's to keep, up to a bound of its own.

use std::collections::BTreeMap;
use std::ffi::{CString, OsStr};
use std::io;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// After what a file may be another one, or have other contents. Not after it was read.
const WATCHED: u32 = libc::IN_ATTRIB
    | libc::IN_CLOSE_WRITE
    | libc::IN_CREATE
    | libc::IN_DELETE
    | libc::IN_DELETE_SELF
    | libc::IN_MODIFY
    | libc::IN_MOVED_FROM
    | libc::IN_MOVED_TO
    | libc::IN_MOVE_SELF;

/// Octets that are read at a time: one event with the longest name, or many.
const READ: usize = 4096;

/// What stands before the name of each event: which watch, what was done, two events that belong together, and how long the
/// name is. Four octets each.
const HEADER: usize = 16;

/// Folders that are watched.
pub struct Inotify {
    /// Known to the runtime of whoever waits, from the first wait on.
    registered: Option<AsyncFd<RawFd>>,
    descriptor: OwnedFd,
    folders: BTreeMap<i32, PathBuf>,
}

/// What was done.
#[derive(Debug, PartialEq, Eq)]
pub enum Event {
    /// Something was written to what has this name, which may go on.
    Written(PathBuf),
    /// It was closed after that, came, went, or is another one.
    Whole(PathBuf),
    /// More than the kernel keeps.
    Unknown,
}

impl Inotify {
    /// Watches nothing yet.
    ///
    /// # Errors
    /// When the user has as many of these as it may.
    pub fn new() -> io::Result<Inotify> {
        // SAFETY: a call without pointers.
        let descriptor = unsafe { libc::inotify_init1(libc::IN_NONBLOCK | libc::IN_CLOEXEC) };
        done(descriptor)?;
        Ok(Inotify {
            registered: None,
            // SAFETY: just made, and nobody else's.
            descriptor: unsafe { OwnedFd::from_raw_fd(descriptor) },
            folders: BTreeMap::new(),
        })
    }

    /// Watches a folder as well.
    ///
    /// # Errors
    /// When it is not there, or the user watches as many as it may.
    pub fn watch(&mut self, folder: &Path) -> io::Result<()> {
        let path = CString::new(folder.as_os_str().as_bytes())?;
        // SAFETY: the path is a C string that outlives the call.
        let watch = unsafe { libc::inotify_add_watch(self.descriptor.as_raw_fd(), path.as_ptr(), WATCHED) };
        done(watch)?;
        self.folders.insert(watch, folder.to_owned());
        Ok(())
    }

    /// Watches a folder no more.
    pub(crate) fn unwatch(&mut self, folder: &Path) {
        self.folders.retain(|watch, watched| {
            let stays = watched != folder;
            if !stays {
                // SAFETY: a call without pointers. A watch that is gone with its folder is an error, which does not matter.
                unsafe { libc::inotify_rm_watch(self.descriptor.as_raw_fd(), *watch) };
            }
            stays
        });
    }

    /// Waits for what is done. May be dropped and called again: nothing is lost. On a runtime, which has to be the same each
    /// time.
    ///
    /// # Errors
    /// When it cannot be waited for.
    pub async fn read(&mut self) -> io::Result<Vec<Event>> {
        let descriptor = self.descriptor.as_raw_fd();
        let registered = match &mut self.registered {
            Some(registered) => registered,
            none => {
                // SAFETY: the number is that of `descriptor`, which is dropped after this.
                let registered = unsafe { AsyncFd::register_with_interest(descriptor, Interest::READABLE) };
                none.insert(registered?)
            }
        };
        let mut octets = [0; READ];
        let read = registered.async_io(Interest::READABLE, |descriptor| {
            // SAFETY: there is room for so many octets.
            let read = unsafe { libc::read(*descriptor, octets.as_mut_ptr().cast(), READ) };
            usize::try_from(read).map_err(|_| io::Error::last_os_error())
        });
        let length = read.await?;
        Ok(self.events(&octets[..length]))
    }

    fn events(&mut self, mut octets: &[u8]) -> Vec<Event> {
        let mut events = Vec::new();
        while let Some((header, rest)) = octets.split_first_chunk::<HEADER>() {
            let word = |index: usize| {
                let word = header[4 * index..].first_chunk().copied().unwrap_or_default();
                u32::from_ne_bytes(word)
            };
            let (watch, mask) = (word(0).cast_signed(), word(1));
            let (name, rest) = rest.split_at((word(3) as usize).min(rest.len()));
            octets = rest;
            events.extend(self.event(watch, mask, name));
        }
        events
    }

    fn event(&mut self, watch: i32, mask: u32, name: &[u8]) -> Option<Event> {
        if mask & libc::IN_Q_OVERFLOW != 0 {
            return Some(Event::Unknown);
        }
        if mask & libc::IN_IGNORED != 0 {
            self.folders.remove(&watch);
            return None;
        }
        // Padded with zeros.
        let name = name.split(|octet| *octet == 0).next().unwrap_or_default();
        let folder = self.folders.get(&watch)?;
        let path = match name.is_empty() {
            true => folder.clone(),
            false => folder.join(OsStr::from_bytes(name)),
        };
        Some(match mask & libc::IN_MODIFY {
            0 => Event::Whole(path),
            _ => Event::Written(path),
        })
    }
}

fn done(result: i32) -> io::Result<()> {
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}
