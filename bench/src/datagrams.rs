//! Batches of datagrams, received with one system call and sent with another.
//!
//! The floor, the upstream and the load generator all use them, so that none is cheaper than another by
//! accident. Linux and IPv4 only.

use std::io;
use std::mem::{size_of, zeroed};
use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::os::fd::{AsRawFd, RawFd};
use std::ptr::{self, NonNull};

/// The most datagrams in a batch.
pub const BATCH: usize = 64;

/// The largest datagram in bytes: what resolvers offer over UDP since the flag day of 2020.
pub const DATAGRAM: usize = 1232;

/// Room for one `IP_PKTINFO`, aligned as a control message header must be.
#[repr(C, align(8))]
struct Control([u8; 64]);

struct Storage {
    buffers: [[u8; DATAGRAM]; BATCH],
    addresses: [libc::sockaddr_in; BATCH],
    controls: [Control; BATCH],
    parts: [libc::iovec; BATCH],
    headers: [libc::mmsghdr; BATCH],
}

/// Buffers for [`BATCH`] datagrams with their addresses.
pub struct Datagrams {
    /// From `Box::into_raw`. Its headers point into it, so it is only accessed through this pointer.
    storage: NonNull<Storage>,
}

impl Datagrams {
    /// Creates empty buffers.
    pub fn new() -> Datagrams {
        // SAFETY: every field of `Storage` is plain C data, for which all bits zero is valid.
        let storage: Box<Storage> = Box::new(unsafe { zeroed() });
        let storage = NonNull::from(Box::leak(storage));
        let raw = storage.as_ptr();
        for index in 0..BATCH {
            // SAFETY: `raw` is valid and nothing else refers to it; `index` is within all arrays. The
            // pointers stored stay valid: the storage never moves and lives as long as `self`.
            unsafe {
                (*raw).parts[index] = libc::iovec {
                    iov_base: (&raw mut (*raw).buffers[index]).cast(),
                    iov_len: DATAGRAM,
                };
                let header = &mut (*raw).headers[index].msg_hdr;
                header.msg_iov = &raw mut (*raw).parts[index];
                header.msg_iovlen = 1;
                header.msg_name = (&raw mut (*raw).addresses[index]).cast();
                header.msg_namelen = size_of::<libc::sockaddr_in>() as libc::socklen_t;
            }
        }
        Datagrams { storage }
    }

    /// Receives up to [`BATCH`] pending datagrams, and returns how many. Without `MSG_DONTWAIT` in `flags` it
    /// waits for the first.
    pub fn receive(&mut self, socket: RawFd, flags: libc::c_int) -> io::Result<usize> {
        // SAFETY: the headers point into the storage, which is ours alone, and a null timeout is allowed.
        let received = unsafe {
            let headers = (&raw mut (*self.storage.as_ptr()).headers).cast();
            libc::recvmmsg(socket, headers, BATCH as u32, flags, ptr::null_mut())
        };
        match usize::try_from(received) {
            Ok(received) => Ok(received),
            Err(_) => nothing(io::Error::last_os_error()),
        }
    }

    /// Returns the datagram at `index`, as received.
    pub fn received(&self, index: usize) -> &[u8] {
        assert!(index < BATCH);
        // SAFETY: `index` is within the arrays; the kernel wrote the length, which is at most the buffer's.
        unsafe {
            let storage = self.storage.as_ptr();
            let length = (*storage).headers[index].msg_len as usize;
            let buffer = &(&(*storage).buffers)[index];
            &buffer[..length.min(DATAGRAM)]
        }
    }

    /// Where the datagram at `index` came from.
    pub fn address(&self, index: usize) -> SocketAddrV4 {
        assert!(index < BATCH);
        // SAFETY: within the array, whose addresses are plain data that the kernel has written or nobody.
        let address = unsafe { (*self.storage.as_ptr()).addresses[index] };
        let ip = Ipv4Addr::from(u32::from_be(address.sin_addr.s_addr));
        SocketAddrV4::new(ip, u16::from_be(address.sin_port))
    }

    /// Sends the datagram at `index` to `to`, from the address that the socket is bound to.
    pub fn address_to(&mut self, index: usize, to: SocketAddrV4) {
        assert!(index < BATCH);
        // SAFETY: within the array; `self` is borrowed uniquely.
        unsafe { (*self.storage.as_ptr()).addresses[index] = socket_address(to) };
    }

    /// Edits the datagram at `index` in place: `edit` gets the whole buffer and the length received, and
    /// returns the length to send.
    pub fn edit(&mut self, index: usize, edit: impl FnOnce(&mut [u8; DATAGRAM], usize) -> usize) {
        assert!(index < BATCH);
        // SAFETY: `index` is within the arrays and `self` is borrowed uniquely.
        unsafe {
            let storage = self.storage.as_ptr();
            let received = (*storage).headers[index].msg_len as usize;
            let length = edit(&mut (&mut (*storage).buffers)[index], received.min(DATAGRAM));
            (*storage).parts[index].iov_len = length.min(DATAGRAM);
        }
    }

    /// Removes the addresses, for a connected socket.
    pub fn without_address(mut self) -> Datagrams {
        for index in 0..BATCH {
            let header = self.header(index);
            header.msg_name = ptr::null_mut();
            header.msg_namelen = 0;
        }
        self
    }

    /// Routes the datagram at `index` to `to`, from the local address `from`.
    pub fn route(&mut self, index: usize, from: Ipv4Addr, to: SocketAddrV4) {
        assert!(index < BATCH);
        // SAFETY: `index` is within the arrays, `self` is borrowed uniquely, and a control buffer has room
        // for one `in_pktinfo` (asserted below) and is aligned for its header.
        unsafe {
            let storage = self.storage.as_ptr();
            (*storage).addresses[index] = socket_address(to);
            let header = &mut (*storage).headers[index].msg_hdr;
            let space = libc::CMSG_SPACE(size_of::<libc::in_pktinfo>() as u32) as usize;
            assert!(space <= size_of::<Control>());
            header.msg_control = (&raw mut (*storage).controls[index]).cast();
            header.msg_controllen = space;
            let message = libc::CMSG_FIRSTHDR(header);
            (*message).cmsg_level = libc::IPPROTO_IP;
            (*message).cmsg_type = libc::IP_PKTINFO;
            (*message).cmsg_len = libc::CMSG_LEN(size_of::<libc::in_pktinfo>() as u32) as usize;
            let information = libc::in_pktinfo {
                ipi_ifindex: 0,
                ipi_spec_dst: libc::in_addr {
                    s_addr: u32::from(from).to_be(),
                },
                ipi_addr: libc::in_addr { s_addr: 0 },
            };
            libc::CMSG_DATA(message)
                .cast::<libc::in_pktinfo>()
                .write_unaligned(information);
        }
    }

    /// Sends the first `count` datagrams; those that the kernel refuses are dropped, as in a network. Returns
    /// how many were sent. Afterwards the batch is ready to receive again.
    pub fn send(&mut self, socket: RawFd, count: usize) -> io::Result<usize> {
        let count = count.min(BATCH);
        let mut from = 0;
        let mut sent = 0;
        while from < count {
            // SAFETY: `from` is below `count`, so the headers named are within the array.
            let result = unsafe {
                let headers: *mut libc::mmsghdr = (&raw mut (*self.storage.as_ptr()).headers).cast();
                libc::sendmmsg(socket, headers.add(from), (count - from) as u32, 0)
            };
            match usize::try_from(result) {
                Ok(accepted) => {
                    sent += accepted;
                    from += accepted;
                }
                Err(_) => match io::Error::last_os_error() {
                    error if error.kind() == io::ErrorKind::Interrupted => {}
                    // One that cannot be sent: a full buffer, or a pending ICMP error.
                    error if passing(&error) => from += 1,
                    error => return Err(error),
                },
            }
        }
        for index in 0..count {
            // SAFETY: within the array; `self` is borrowed uniquely.
            unsafe { (*self.storage.as_ptr()).parts[index].iov_len = DATAGRAM };
        }
        Ok(sent)
    }

    fn header(&mut self, index: usize) -> &mut libc::msghdr {
        assert!(index < BATCH);
        // SAFETY: within the array; `self` is borrowed uniquely.
        unsafe { &mut (&mut (*self.storage.as_ptr()).headers)[index].msg_hdr }
    }
}

impl Drop for Datagrams {
    fn drop(&mut self) {
        // SAFETY: the pointer came from a box and is not used again.
        drop(unsafe { Box::from_raw(self.storage.as_ptr()) });
    }
}

/// Requests a receive buffer of 4 MiB, so that a process that stalls briefly loses nothing. The kernel may
/// give less.
pub fn enlarge_buffer(socket: &UdpSocket) -> io::Result<()> {
    let octets: libc::c_int = 4 << 20;
    // SAFETY: the value is a C int of ours, and its size is passed.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_RCVBUF,
            (&raw const octets).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Converts an address to its C form.
fn socket_address(address: SocketAddrV4) -> libc::sockaddr_in {
    libc::sockaddr_in {
        sin_family: libc::AF_INET as libc::sa_family_t,
        sin_port: address.port().to_be(),
        sin_addr: libc::in_addr {
            s_addr: u32::from(*address.ip()).to_be(),
        },
        sin_zero: [0; 8],
    }
}

fn nothing(error: io::Error) -> io::Result<usize> {
    if passing(&error) || error.kind() == io::ErrorKind::Interrupted {
        Ok(0)
    } else {
        Err(error)
    }
}

/// Whether the socket is still usable after this error.
fn passing(error: &io::Error) -> bool {
    let passing = [io::ErrorKind::WouldBlock, io::ErrorKind::ConnectionRefused];
    passing.contains(&error.kind()) || error.raw_os_error() == Some(libc::ENOBUFS)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn v4(socket: &UdpSocket) -> SocketAddrV4 {
        match socket.local_addr().unwrap() {
            std::net::SocketAddr::V4(address) => address,
            other => panic!("{other}"),
        }
    }

    #[test]
    fn a_batch_goes_from_the_address_it_names() {
        let server = UdpSocket::bind("127.0.0.1:0").unwrap();
        let client = UdpSocket::bind("0.0.0.0:0").unwrap();
        let mut batch = Datagrams::new();
        for index in 0..3_u8 {
            batch.edit(index.into(), |buffer, _| {
                buffer[0] = index;
                1
            });
            batch.route(index.into(), Ipv4Addr::new(127, 0, 7, index), v4(&server));
        }
        assert_eq!(batch.send(client.as_raw_fd(), 3).unwrap(), 3);
        let mut buffer = [0; 8];
        for index in 0..3_u8 {
            let (length, from) = server.recv_from(&mut buffer).unwrap();
            assert_eq!((length, buffer[0]), (1, index));
            assert_eq!(from.ip(), Ipv4Addr::new(127, 0, 7, index));
        }
    }

    #[test]
    fn what_was_received_is_edited_and_sent_back() {
        let server = UdpSocket::bind("127.0.0.1:0").unwrap();
        let client = UdpSocket::bind("127.0.0.1:0").unwrap();
        client.connect(server.local_addr().unwrap()).unwrap();
        let mut batch = Datagrams::new();
        assert_eq!(batch.receive(server.as_raw_fd(), libc::MSG_DONTWAIT).unwrap(), 0);
        for round in 0..2 {
            client.send(b"question").unwrap();
            assert_eq!(
                batch.receive(server.as_raw_fd(), libc::MSG_WAITFORONE).unwrap(),
                1
            );
            assert_eq!(batch.received(0), b"question");
            batch.edit(0, |buffer, length| {
                buffer[length] = b'0' + round;
                length + 1
            });
            assert_eq!(batch.send(server.as_raw_fd(), 1).unwrap(), 1);
            let mut buffer = [0; 32];
            let length = client.recv(&mut buffer).unwrap();
            assert_eq!(buffer[..length], [&b"question"[..], &[b'0' + round]].concat());
        }
    }
}
