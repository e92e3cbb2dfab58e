//! UDP sockets that are waited for.

use std::io;
use std::net::UdpSocket;
use std::ops::Deref;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// A socket that its thread's event loop watches for reading only. tokio's own type is also watched for
/// writing, so that each datagram sent wakes the thread once more.
#[derive(Debug)]
pub struct ReceivingSocket(AsyncFd<UdpSocket>);

impl ReceivingSocket {
    /// Registers a non-blocking socket with the calling thread's runtime.
    ///
    /// # Errors
    /// Those of `epoll_ctl`, such as a lack of memory.
    pub fn register(socket: UdpSocket) -> io::Result<ReceivingSocket> {
        // SAFETY: a UdpSocket owns its descriptor and keeps it until it is dropped, which the AsyncFd does
        // with it. Only shared references to it are given out.
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
