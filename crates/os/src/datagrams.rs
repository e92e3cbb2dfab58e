//! Batches of datagrams, with recvmmsg and sendmmsg: [`Datagrams`] has preallocated slots, each for a
//! datagram and its reply; [`Outgoing`] sends unrelated datagrams together.
//!
//! One system call receives up to [`BATCH`] datagrams, and one more sends as many replies: one call per
//! datagram would cost more than the rest of a cached answer. No crate offers both calls together with the
//! destination address, so this calls libc.

use std::io;
use std::mem;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::os::fd::{AsRawFd, RawFd};
use std::ptr;

use socket2::Socket;

use crate::dns::QUERY_MAXIMUM;

/// The most datagrams per call.
pub const BATCH: usize = 64;

/// Minimum bytes kept of a datagram: one more than a query may have, so that a longer one is noticed.
const RECEIVE: usize = QUERY_MAXIMUM + 1;

/// Room for one IPV6_PKTINFO message, the larger of the two.
const CONTROL: usize = 64;

/// Bytes that `count` slots of [`Datagrams`] use with replies of at most `limit` bytes.
pub fn memory(count: usize, limit: usize) -> usize {
    let headers = 2 * size_of::<libc::mmsghdr>() + size_of::<libc::iovec>();
    count * (slot(limit) + headers + size_of::<libc::sockaddr_storage>() + CONTROL)
}

/// The most bytes that [`Outgoing`] uses with datagrams of at most `limit` bytes.
pub fn outgoing_memory(limit: usize) -> usize {
    let headers = size_of::<libc::mmsghdr>() + size_of::<libc::iovec>() + CONTROL;
    // A vector that grows has up to twice the capacity it needs.
    2 * BATCH * (limit + headers + size_of::<Leaving>())
}

/// Bytes of a slot, for a query and its reply.
fn slot(limit: usize) -> usize {
    // A multiple of 64, but not of 4096: slots at such distances would compete for the same cache lines.
    limit.max(RECEIVE).next_multiple_of(64) | 64
}

/// Where a datagram came from, and which of our addresses it was sent to.
#[derive(Clone, Copy)]
pub struct Route {
    /// The client, as the kernel wrote it.
    address: libc::sockaddr_storage,
    length: libc::socklen_t,
    /// Our address, if the socket is bound to the wildcard: the reply must come from it.
    local: Option<Local>,
}

impl Route {
    /// The client; `None` if its address family is unknown.
    pub fn peer(&self) -> Option<SocketAddr> {
        read_address(&self.address)
    }
}

/// A destination address, and the link it arrived on.
#[derive(Clone, Copy)]
struct Local {
    address: IpAddr,
    interface: u32,
}

/// Asks the kernel for each datagram's destination if `address`, which the socket will bind, is the wildcard.
pub fn want_destination(socket: &Socket, address: SocketAddr) -> io::Result<()> {
    if !address.ip().is_unspecified() {
        return Ok(());
    }
    let (level, name) = match address {
        SocketAddr::V4(_) => (libc::IPPROTO_IP, libc::IP_PKTINFO),
        SocketAddr::V6(_) => (libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO),
    };
    let on: libc::c_int = 1;
    // SAFETY: the descriptor is open for as long as `socket` is borrowed, and the value is a c_int whose
    // size is passed with it.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            name,
            ptr::from_ref(&on).cast(),
            mem::size_of::<libc::c_int>() as libc::socklen_t,
        )
    };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

#[repr(C, align(8))]
#[derive(Clone, Copy)]
struct Control([u8; CONTROL]);

/// A batch of datagrams, each in its own slot, and the replies. A reply reuses the slot of its query, whose
/// memory is cached and whose address is its destination.
///
/// The kernel reads and writes this storage through pointers, in C's layout.
pub struct Datagrams {
    /// One for each slot.
    headers: Box<[libc::mmsghdr]>,
    vectors: Box<[libc::iovec]>,
    addresses: Box<[libc::sockaddr_storage]>,
    controls: Box<[Control]>,
    octets: Box<[u8]>,
    /// Bytes per slot.
    size: usize,
    /// Slots with received datagrams.
    received: usize,
    /// The headers of slots with a reply, in the order of the replies.
    replies: Vec<libc::mmsghdr>,
    wildcard: bool,
}

impl Datagrams {
    /// Creates `count` empty slots for datagrams of at most `limit` bytes. `wildcard` says whether the socket
    /// is bound to the wildcard address.
    pub fn new(count: usize, wildcard: bool, limit: usize) -> Datagrams {
        let size = slot(limit);
        // SAFETY: all of these are C structures of integers and pointers, for which zero is valid.
        let (header, vector, address) =
            unsafe { (mem::zeroed::<libc::mmsghdr>(), mem::zeroed(), mem::zeroed()) };
        let mut datagrams = Datagrams {
            headers: vec![header; count].into(),
            vectors: vec![vector; count].into(),
            addresses: vec![address; count].into(),
            controls: vec![Control([0; CONTROL]); count].into(),
            octets: vec![0; count * size].into(),
            size,
            received: 0,
            replies: Vec::with_capacity(count),
            wildcard,
        };
        let Datagrams {
            headers,
            vectors,
            addresses,
            octets,
            ..
        } = &mut datagrams;
        for (slot, chunk) in octets.chunks_exact_mut(size).enumerate() {
            vectors[slot].iov_base = chunk.as_mut_ptr().cast();
            let header = &mut headers[slot].msg_hdr;
            header.msg_iov = &raw mut vectors[slot];
            header.msg_iovlen = 1;
            header.msg_name = (&raw mut addresses[slot]).cast();
        }
        datagrams.make_room(count);
        datagrams
    }

    /// Resets the lengths that the kernel may write in the first `count` slots. Receiving and replying change
    /// them; unused slots keep theirs.
    fn make_room(&mut self, count: usize) {
        for slot in 0..count {
            self.vectors[slot].iov_len = self.size;
            let header = &mut self.headers[slot].msg_hdr;
            header.msg_namelen = mem::size_of::<libc::sockaddr_storage>() as libc::socklen_t;
            if self.wildcard {
                header.msg_control = self.controls[slot].0.as_mut_ptr().cast();
                header.msg_controllen = CONTROL as _;
            }
        }
    }

    /// Receives what the socket holds without waiting, at most one datagram per slot. Overwrites the slots'
    /// previous contents.
    pub fn receive(&mut self, socket: RawFd) -> io::Result<usize> {
        let used = mem::take(&mut self.received);
        self.make_room(used);
        self.replies.clear();
        // SAFETY: each header points to one vector, one address and one control buffer of this value, and
        // each vector to one slot. Their boxes neither move nor shrink while it lives, and the lengths match.
        let count = unsafe {
            libc::recvmmsg(
                socket,
                self.headers.as_mut_ptr(),
                self.headers.len() as libc::c_uint,
                libc::MSG_DONTWAIT as _,
                ptr::null_mut(),
            )
        };
        if count < 0 {
            return Err(io::Error::last_os_error());
        }
        self.received = count as usize;
        Ok(self.received)
    }

    /// A datagram, truncated to the slot, and its sender; `None` if the address family is unknown.
    pub fn get(&self, slot: usize) -> Option<(&[u8], SocketAddr)> {
        let header = &self.headers[slot];
        let peer = read_address(&self.addresses[slot])?;
        let length = (header.msg_len as usize).min(self.size);
        Some((&self.octets[slot * self.size..][..length], peer))
    }

    /// The route for a reply that is sent after the slots are reused.
    pub fn route(&self, slot: usize) -> Route {
        let header = &self.headers[slot].msg_hdr;
        Route {
            address: self.addresses[slot],
            length: header.msg_namelen,
            local: self.wildcard.then(|| read_local(header)).flatten(),
        }
    }

    /// The slot of a datagram, where its reply is written.
    #[inline]
    pub fn buffer(&mut self, slot: usize) -> &mut [u8] {
        &mut self.octets[slot * self.size..][..self.size]
    }

    /// Marks the first `length` bytes of a slot as the reply to its datagram. At most once per datagram.
    #[inline]
    pub fn reply(&mut self, slot: usize, length: usize) {
        self.vectors[slot].iov_len = length.min(self.size);
        let mut header = self.headers[slot];
        if self.wildcard {
            let local = read_local(&header.msg_hdr);
            write_local(local, &mut header.msg_hdr, &mut self.controls[slot]);
        }
        self.replies.push(header);
    }

    /// Sends all replies. Skips those that cannot be sent: their clients retry.
    pub fn send(&mut self, socket: RawFd) {
        let mut rest = self.replies.as_mut_slice();
        while !rest.is_empty() {
            // SAFETY: as for `receive`; each header is a copy of a slot's, whose vector has the length of the
            // reply written there.
            let done = match unsafe { send_some(socket, rest) } {
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => 0,
                Err(_) => 1,
            };
            rest = &mut rest[done..];
        }
        self.replies.clear();
    }
}

/// Sends as many datagrams as the kernel accepts now. Returns how many, or the error of the first.
///
/// # Safety
///
/// What the headers point to must exist and be as long as they say.
unsafe fn send_some(socket: RawFd, headers: &mut [libc::mmsghdr]) -> io::Result<usize> {
    let count = headers.len() as libc::c_uint;
    // SAFETY: there are `count` headers, and the caller guarantees what they point to.
    #[cfg(not(target_env = "musl"))]
    let sent = unsafe { libc::sendmmsg(socket, headers.as_mut_ptr(), count, libc::MSG_DONTWAIT as _) };
    // musl's sendmmsg makes one system call per datagram, because some header fields are wider in the kernel
    // than in POSIX. Here the padding is zero, as it was initially.
    // SAFETY: as above.
    #[cfg(target_env = "musl")]
    let sent = unsafe {
        let flags = libc::MSG_DONTWAIT;
        libc::syscall(libc::SYS_sendmmsg, socket, headers.as_mut_ptr(), count, flags)
    };
    if sent < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(sent as usize)
}

/// Datagrams that are sent together: at most [`BATCH`], each to its route or to the socket's peer.
#[derive(Default)]
pub struct Outgoing {
    leaving: Vec<Leaving>,
    octets: Vec<u8>,
    /// Only filled during [`Outgoing::send`], whose pointers they hold.
    headers: Vec<libc::mmsghdr>,
    vectors: Vec<libc::iovec>,
    controls: Vec<Control>,
}

struct Leaving {
    route: Option<Route>,
    /// One past its last byte.
    end: usize,
}

impl Outgoing {
    /// Returns whether no datagram is queued.
    pub fn is_empty(&self) -> bool {
        self.leaving.is_empty()
    }

    /// Returns whether there is no room for another datagram.
    pub fn is_full(&self) -> bool {
        self.leaving.len() == BATCH
    }

    /// Queues a datagram that `write` appends. The queue must not be [full](Self::is_full).
    pub fn push(&mut self, route: Option<Route>, write: impl FnOnce(&mut Vec<u8>)) {
        write(&mut self.octets);
        let end = self.octets.len();
        self.leaving.push(Leaving { route, end });
    }

    /// Sends all datagrams without waiting, and discards those that fail, each reported to `refused`. If an
    /// earlier datagram's closed port (ICMP) causes an error, the datagram is sent all the same, and `closed`
    /// is called with its index, once.
    pub fn send(
        &mut self,
        socket: RawFd,
        mut refused: impl FnMut(usize, Option<&Route>, io::Error),
        mut closed: impl FnMut(usize),
    ) {
        self.point();
        let (mut done, mut told) = (0, None);
        while done < self.headers.len() {
            let rest = &mut self.headers[done..];
            // SAFETY: each header points to a vector, which points to bytes, and maybe to a route and a
            // control buffer. This value owns all of them, and none moves until the headers are cleared
            // below.
            let error = match unsafe { send_some(socket, rest) } {
                Ok(count) => {
                    done += count;
                    continue;
                }
                Err(error) => error,
            };
            match error.kind() {
                io::ErrorKind::Interrupted => {}
                io::ErrorKind::ConnectionRefused if told != Some(done) => {
                    told = Some(done);
                    closed(done);
                }
                _ => {
                    refused(done, self.leaving[done].route.as_ref(), error);
                    done += 1;
                }
            }
        }
        self.headers.clear();
        self.vectors.clear();
        self.controls.clear();
        self.leaving.clear();
        self.octets.clear();
    }

    /// Builds a header for each datagram.
    fn point(&mut self) {
        let mut start = 0;
        for leaving in &self.leaving {
            let octets = &self.octets[start..leaving.end];
            self.vectors.push(libc::iovec {
                iov_base: octets.as_ptr().cast_mut().cast(),
                iov_len: octets.len(),
            });
            self.controls.push(Control([0; CONTROL]));
            start = leaving.end;
        }
        for (index, leaving) in self.leaving.iter().enumerate() {
            // SAFETY: a C structure of integers and pointers, for which zero is valid.
            let mut header = unsafe { mem::zeroed::<libc::mmsghdr>() };
            header.msg_hdr.msg_iov = &raw mut self.vectors[index];
            header.msg_hdr.msg_iovlen = 1;
            if let Some(route) = &leaving.route {
                header.msg_hdr.msg_name = (&raw const route.address).cast_mut().cast();
                header.msg_hdr.msg_namelen = route.length;
                write_local(route.local, &mut header.msg_hdr, &mut self.controls[index]);
            }
            self.headers.push(header);
        }
    }
}

/// Sends one datagram without waiting.
pub fn send_one(socket: RawFd, route: &Route, message: &[u8]) -> io::Result<()> {
    // SAFETY: a C structure of integers and pointers, for which zero is valid.
    let mut header = unsafe { mem::zeroed::<libc::msghdr>() };
    let mut control = Control([0; CONTROL]);
    let mut vector = libc::iovec {
        iov_base: message.as_ptr().cast_mut().cast(),
        iov_len: message.len(),
    };
    header.msg_name = (&raw const route.address).cast_mut().cast();
    header.msg_namelen = route.length;
    header.msg_iov = &raw mut vector;
    header.msg_iovlen = 1;
    write_local(route.local, &mut header, &mut control);
    // SAFETY: the header points to locals and to the borrowed route and message, which outlive the call. The
    // kernel only reads them, and the address has the length that the kernel wrote.
    let result = unsafe { libc::sendmsg(socket, &raw const header, libc::MSG_DONTWAIT) };
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

fn read_address(storage: &libc::sockaddr_storage) -> Option<SocketAddr> {
    match i32::from(storage.ss_family) {
        libc::AF_INET => {
            // SAFETY: with this family, the kernel wrote a sockaddr_in; the storage has room and alignment
            // for it.
            let v4 = unsafe { &*ptr::from_ref(storage).cast::<libc::sockaddr_in>() };
            let address = Ipv4Addr::from(u32::from_be(v4.sin_addr.s_addr));
            Some(SocketAddrV4::new(address, u16::from_be(v4.sin_port)).into())
        }
        libc::AF_INET6 => {
            // SAFETY: as above, a sockaddr_in6.
            let v6 = unsafe { &*ptr::from_ref(storage).cast::<libc::sockaddr_in6>() };
            let address = Ipv6Addr::from(v6.sin6_addr.s6_addr);
            Some(SocketAddrV6::new(address, u16::from_be(v6.sin6_port), 0, v6.sin6_scope_id).into())
        }
        _ => None,
    }
}

/// The destination address of a datagram, from its control messages.
fn read_local(header: &libc::msghdr) -> Option<Local> {
    // SAFETY: the kernel wrote the control buffer and its length; the macros stay within them, and the
    // data is read without assuming its alignment.
    unsafe {
        let mut message = libc::CMSG_FIRSTHDR(header);
        while !message.is_null() {
            let data = libc::CMSG_DATA(message);
            match ((*message).cmsg_level, (*message).cmsg_type) {
                (libc::IPPROTO_IP, libc::IP_PKTINFO) => {
                    let info = ptr::read_unaligned(data.cast::<libc::in_pktinfo>());
                    let address = Ipv4Addr::from(u32::from_be(info.ipi_addr.s_addr)).into();
                    return Some(Local {
                        address,
                        interface: info.ipi_ifindex as u32,
                    });
                }
                (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO) => {
                    let info = ptr::read_unaligned(data.cast::<libc::in6_pktinfo>());
                    let address = Ipv6Addr::from(info.ipi6_addr.s6_addr).into();
                    return Some(Local {
                        address,
                        interface: info.ipi6_ifindex,
                    });
                }
                _ => message = libc::CMSG_NXTHDR(header, message),
            }
        }
    }
    None
}

/// Makes the reply leave from the queried address (RFC 5625 section 6.2, RFC 2181 section 4.1).
fn write_local(local: Option<Local>, header: &mut libc::msghdr, control: &mut Control) {
    let Some(local) = local else {
        (header.msg_control, header.msg_controllen) = (ptr::null_mut(), 0);
        return;
    };
    header.msg_control = control.0.as_mut_ptr().cast();
    header.msg_controllen = CONTROL as _;
    // SAFETY: CONTROL bytes, aligned for cmsghdr, hold one header and the larger of the two structures.
    unsafe {
        let message = libc::CMSG_FIRSTHDR(header);
        let data = libc::CMSG_DATA(message);
        let length = match local.address {
            IpAddr::V4(address) => {
                (*message).cmsg_level = libc::IPPROTO_IP;
                (*message).cmsg_type = libc::IP_PKTINFO;
                let address = libc::in_addr {
                    s_addr: u32::from(address).to_be(),
                };
                // The route decides the link, as it does for a socket bound to the address.
                let info = libc::in_pktinfo {
                    ipi_ifindex: 0,
                    ipi_spec_dst: address,
                    ipi_addr: libc::in_addr { s_addr: 0 },
                };
                ptr::write_unaligned(data.cast(), info);
                mem::size_of::<libc::in_pktinfo>()
            }
            IpAddr::V6(address) => {
                (*message).cmsg_level = libc::IPPROTO_IPV6;
                (*message).cmsg_type = libc::IPV6_PKTINFO;
                // A link-local address is only meaningful with its link.
                let interface = if address.is_unicast_link_local() {
                    local.interface
                } else {
                    0
                };
                let info = libc::in6_pktinfo {
                    ipi6_addr: libc::in6_addr {
                        s6_addr: address.octets(),
                    },
                    ipi6_ifindex: interface as _,
                };
                ptr::write_unaligned(data.cast(), info);
                mem::size_of::<libc::in6_pktinfo>()
            }
        };
        (*message).cmsg_len = libc::CMSG_LEN(length as u32) as _;
        header.msg_controllen = libc::CMSG_SPACE(length as u32) as _;
    }
}

#[cfg(test)]
mod tests;
