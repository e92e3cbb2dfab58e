//! Waits for any of several sockets to be readable.

use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

/// Maximum sockets that one call of [`Epoll::wait`] returns.
pub const EVENTS: usize = 256;

/// When a socket is reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trigger {
    /// For as long as there is something to read.
    Level,
    /// Once, each time something new arrives.
    Edge,
}

/// A set of sockets, each with a number. Closing a socket removes it.
pub struct Epoll {
    epoll: OwnedFd,
    events: [libc::epoll_event; EVENTS],
}

impl Epoll {
    /// An empty set.
    pub fn new() -> io::Result<Epoll> {
        // SAFETY: takes no pointer; a descriptor that is not negative is new, and ours alone.
        let epoll = unsafe {
            match libc::epoll_create1(libc::EPOLL_CLOEXEC) {
                ..0 => return Err(io::Error::last_os_error()),
                epoll => OwnedFd::from_raw_fd(epoll),
            }
        };
        let events = [libc::epoll_event { events: 0, u64: 0 }; EVENTS];
        Ok(Epoll { epoll, events })
    }

    /// Adds a socket, which [`Epoll::wait`] reports by `number`.
    pub fn add(&self, socket: &impl AsFd, number: u64, trigger: Trigger) -> io::Result<()> {
        let edge = match trigger {
            Trigger::Level => 0,
            Trigger::Edge => libc::EPOLLET,
        };
        let mut event = libc::epoll_event {
            events: (libc::EPOLLIN | edge) as u32,
            u64: number,
        };
        // SAFETY: both descriptors are open, and the event is a local that is only read.
        let added = unsafe {
            let (epoll, socket) = (self.epoll.as_raw_fd(), socket.as_fd().as_raw_fd());
            libc::epoll_ctl(epoll, libc::EPOLL_CTL_ADD, socket, &raw mut event)
        };
        match added {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Waits until at least one is readable. Returns their numbers: none if a signal came first.
    pub fn wait(&mut self) -> io::Result<impl Iterator<Item = u64> + use<'_>> {
        // SAFETY: there is room for as many events as the call is told.
        let ready = unsafe {
            let events = self.events.as_mut_ptr();
            libc::epoll_wait(self.epoll.as_raw_fd(), events, EVENTS as libc::c_int, -1)
        };
        let ready = match usize::try_from(ready) {
            Ok(ready) => ready,
            Err(_) => match io::Error::last_os_error() {
                error if error.kind() == io::ErrorKind::Interrupted => 0,
                error => return Err(error),
            },
        };
        Ok(self.events[..ready].iter().map(|event| event.u64))
    }
}
