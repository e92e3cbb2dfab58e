//! UDP sockets that are waited for.

use std::io;
use std::net::UdpSocket;
use std::ops::Deref;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// A socket that its thread's event loop watches for what comes in, and for nothing else. The runtime's own type is also watched
/// for room to write, so that each datagram that has left wakes the thread once more.
#[derive(Debug)]
pub struct ReceivingSocket(AsyncFd<UdpSocket>);

impl ReceivingSocket {
    /// Registers a socket, which does not block, with the calling thread's runtime.
    ///
    /// # Errors
    /// Those of `epoll_ctl`, such as that there is no memory for it.
    pub fn register(socket: UdpSocket) -> io::Result<ReceivingSocket> {
        // SAFETY: a UdpSocket owns its descriptor and names the same one until it is dropped, which the AsyncFd does with it;
        // nobody gets it from here but by shared reference.
        let socket = unsafe { AsyncFd::register_with_interest(socket, Interest::READABLE) }?;
        Ok(ReceivingSocket(socket))
    }
}

impl Deref for ReceivingSocket {
    type Target = AsyncFd<UdpSocket>;

    #[inline]
    fn deref(&self) -> &AsyncFd<UdpSocket> {
        &self.0
    }
}
