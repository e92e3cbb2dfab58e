//! Events in folders, from the kernel (inotify(7)). Only the caller waits for them, without a thread; the
//! kernel queues the rest, up to its own limit.

use std::collections::BTreeMap;
use std::ffi::{CString, OsStr};
use std::io;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Events after which a file may be a different one or have other contents. Not reads.
const WATCHED: u32 = libc::IN_ATTRIB
    | libc::IN_CLOSE_WRITE
    | libc::IN_CREATE
    | libc::IN_DELETE
    | libc::IN_DELETE_SELF
    | libc::IN_MODIFY
    | libc::IN_MOVED_FROM
    | libc::IN_MOVED_TO
    | libc::IN_MOVE_SELF;

/// Bytes per read: one event with the longest name, or several.
const READ: usize = 4096;

/// Bytes before the name of each event: watch, mask, cookie and name length, four bytes each.
const HEADER: usize = 16;

/// The watched folders.
pub struct Inotify {
    /// Registered with the waiter's runtime at the first wait.
    registered: Option<AsyncFd<RawFd>>,
    descriptor: OwnedFd,
    folders: BTreeMap<i32, PathBuf>,
}

/// What happened.
#[derive(Debug, PartialEq, Eq)]
pub enum Event {
    /// Contents were written, and more may follow.
    Written(PathBuf),
    /// A writer closed it, whether or not it wrote anything.
    Closed(PathBuf),
    /// It was created, removed or replaced, or its metadata changed.
    Whole(PathBuf),
    /// The kernel no longer watches this folder, because it was removed.
    Unwatched(PathBuf),
    /// The kernel's queue overflowed.
    Unknown,
}

impl Inotify {
    /// Watches nothing yet.
    ///
    /// # Errors
    /// If the user has reached the limit of inotify instances.
    pub fn new() -> io::Result<Inotify> {
        // SAFETY: a call without pointers.
        let descriptor = unsafe { libc::inotify_init1(libc::IN_NONBLOCK | libc::IN_CLOEXEC) };
        done(descriptor)?;
        Ok(Inotify {
            registered: None,
            // SAFETY: the descriptor is new, and nothing else owns it.
            descriptor: unsafe { OwnedFd::from_raw_fd(descriptor) },
            folders: BTreeMap::new(),
        })
    }

    /// Adds a folder. If it is watched already, its events have this path from now on.
    ///
    /// # Errors
    /// If it does not exist, or the user has reached the limit of watches.
    pub fn watch(&mut self, folder: &Path) -> io::Result<()> {
        let path = CString::new(folder.as_os_str().as_bytes())?;
        // SAFETY: the path is a C string that outlives the call.
        let watch = unsafe { libc::inotify_add_watch(self.descriptor.as_raw_fd(), path.as_ptr(), WATCHED) };
        done(watch)?;
        self.folders.insert(watch, folder.to_owned());
        Ok(())
    }

    /// How many folders are watched.
    pub fn watched(&self) -> usize {
        self.folders.len()
    }

    /// Stops watching a folder.
    pub(crate) fn unwatch(&mut self, folder: &Path) {
        self.folders.retain(|watch, watched| {
            let stays = watched != folder;
            if !stays {
                // SAFETY: a call without pointers. Fails, harmlessly, if the watch went with its folder.
                unsafe { libc::inotify_rm_watch(self.descriptor.as_raw_fd(), *watch) };
            }
            stays
        });
    }

    /// Waits for events. Cancel-safe: nothing is lost. Must always be called on the same runtime.
    ///
    /// # Errors
    /// If the descriptor cannot be waited for.
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
            // SAFETY: the buffer has READ bytes.
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
            // `None` if we asked for that ourselves.
            return self.folders.remove(&watch).map(Event::Unwatched);
        }
        // The name is padded with zeros.
        let name = name.split(|octet| *octet == 0).next().unwrap_or_default();
        let folder = self.folders.get(&watch)?;
        let path = match name.is_empty() {
            true => folder.clone(),
            false => folder.join(OsStr::from_bytes(name)),
        };
        Some(match mask & (libc::IN_MODIFY | libc::IN_CLOSE_WRITE) {
            0 => Event::Whole(path),
            libc::IN_CLOSE_WRITE => Event::Closed(path),
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
