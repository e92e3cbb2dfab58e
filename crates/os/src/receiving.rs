//! UDP sockets that are waited for.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::ops::Deref;
use std::os::fd::AsRawFd;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Datagrams that [`ReceivingSocket::connect_anew`] drops at most.
const DRAINED: usize = 64;

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

    /// Connects a socket that was connected before to `to`, from another port: one that the kernel draws, as for a new
    /// socket. Datagrams that came for the former port are dropped; none can come between the two.
    ///
    /// # Errors
    /// Those of connect(2), and when more than [`DRAINED`] datagrams were left. The socket is of no more use then.
    pub fn connect_anew(&self, to: SocketAddr) -> io::Result<()> {
        let unspecified = libc::sockaddr {
            sa_family: libc::AF_UNSPEC as libc::sa_family_t,
            sa_data: [0; 14],
        };
        // connect(2): AF_UNSPEC dissolves the association. With it goes the port that the kernel chose.
        // SAFETY: the descriptor is open, and the address is a local of the size that is told.
        let result = unsafe {
            let size = size_of::<libc::sockaddr>() as libc::socklen_t;
            libc::connect(self.as_raw_fd(), &raw const unspecified, size)
        };
        if result != 0 {
            return Err(io::Error::last_os_error());
        }
        let left = (0..DRAINED).find(|_| match self.get_ref().recv(&mut [0]) {
            // An error of an earlier datagram, which this takes away.
            Err(error) => error.kind() == io::ErrorKind::WouldBlock,
            Ok(_) => false,
        });
        match left {
            Some(_) => self.get_ref().connect(to),
            None => Err(io::ErrorKind::ResourceBusy.into()),
        }
    }
}

impl Deref for ReceivingSocket {
    type Target = AsyncFd<UdpSocket>;

    #[inline]
    fn deref(&self) -> &AsyncFd<UdpSocket> {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use tokio::runtime::LocalRuntime;

    use super::*;

    #[test]
    fn a_socket_that_is_connected_anew_has_another_port_and_nothing_of_the_old_one() {
        let here = || UdpSocket::bind("127.0.0.1:0").expect("a port");
        let (peer, other) = (here(), here());
        let to = |socket: &UdpSocket| socket.local_addr().expect("an address");
        let runtime = LocalRuntime::new().expect("a runtime");
        runtime.block_on(async {
            let socket =
                socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::DGRAM.nonblocking(), None);
            let socket: UdpSocket = socket.expect("a socket").into();
            socket.connect(to(&peer)).expect("connected");
            let socket = ReceivingSocket::register(socket).expect("registered");
            let old = to(socket.get_ref());
            peer.send_to(b"late", old).expect("sent");
            socket.connect_anew(to(&other)).expect("connected anew");
            let new = to(socket.get_ref());
            assert_ne!(new.port(), old.port());
            peer.send_to(b"from somebody else", new).expect("sent");
            other.send_to(b"right", new).expect("sent");
            let mut buffer = [0; 8];
            assert_eq!(socket.get_ref().recv(&mut buffer).ok(), Some(5));
            assert_eq!(&buffer[..5], b"right");
            // It is still watched.
            other.send_to(b"again", new).expect("sent");
            let ready = socket.ready(Interest::READABLE).await;
            assert!(ready.is_ok_and(|ready| ready.ready().is_readable()));
        });
    }
}
