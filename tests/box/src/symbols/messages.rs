//! Sending and receiving on sockets: one message, or many with one call.

use std::net::{IpAddr, SocketAddr};

use libc::{c_int, c_uint, c_void, iovec, mmsghdr, msghdr, size_t, sockaddr, socklen_t, ssize_t, timespec};

use super::descriptors::result;
use super::sockets::{read_address, write_address};
use super::{Tried, fails_outside, seen, until};
use crate::faults::Kind;
use crate::kernel::{kernel, pass};
use crate::net::{Errno, Number};
use crate::schedule::{NEVER, world};
use crate::world::{Thing, World};

/// Concatenates the bytes of some vectors.
///
/// # Safety
/// The vectors and the bytes they point to must be valid.
pub unsafe fn gather(vectors: *const iovec, count: usize) -> Vec<u8> {
    if count == 0 {
        return Vec::new();
    }
    // SAFETY: upheld by the caller.
    let vectors = unsafe { std::slice::from_raw_parts(vectors, count) };
    let mut octets = Vec::new();
    for vector in vectors.iter().filter(|vector| vector.iov_len > 0) {
        // SAFETY: upheld by the caller.
        octets
            .extend_from_slice(unsafe { std::slice::from_raw_parts(vector.iov_base.cast(), vector.iov_len) });
    }
    octets
}

/// Copies bytes to where some vectors point. Returns how many fitted.
///
/// # Safety
/// The vectors and the room they point to must be valid.
pub unsafe fn scatter(vectors: *const iovec, count: usize, mut octets: &[u8]) -> usize {
    if count == 0 {
        return 0;
    }
    let all = octets.len();
    // SAFETY: upheld by the caller.
    for vector in unsafe { std::slice::from_raw_parts(vectors, count) } {
        let (now, rest) = octets.split_at(vector.iov_len.min(octets.len()));
        // SAFETY: upheld by the caller; the source was allocated by this library.
        unsafe { std::ptr::copy_nonoverlapping(now.as_ptr(), vector.iov_base.cast(), now.len()) };
        octets = rest;
    }
    all - octets.len()
}

/// A received message.
pub struct Received {
    /// Bytes copied.
    pub length: usize,
    /// Length before truncation.
    whole: usize,
    from: Option<SocketAddr>,
    /// The destination, if the socket asked for it.
    to: Option<SocketAddr>,
}

/// Returns when a call on a socket gives up.
fn deadline(world: &mut World, number: Number, flags: c_int) -> u64 {
    let now = world.net.now;
    match world.net.socket(number) {
        Some(socket) if !socket.nonblocking && flags & libc::MSG_DONTWAIT == 0 => {
            socket.patience.map_or(NEVER, |patience| now + patience)
        }
        _ => 0,
    }
}

fn tried<T>(result: Result<T, Errno>) -> Tried<T> {
    match result {
        Ok(value) => Tried::Done(value),
        Err(libc::EAGAIN) => Tried::Waits,
        Err(errno) => Tried::Failed(errno),
    }
}

/// Receives from a socket into some vectors.
///
/// # Safety
/// The vectors and the room they point to must be valid.
pub unsafe fn receive(
    number: Number,
    vectors: *const iovec,
    count: usize,
    flags: c_int,
) -> Result<Received, Errno> {
    seen();
    let world = world().ok_or(libc::EIO)?;
    let deadline = deadline(world, number, flags);
    let peek = flags & libc::MSG_PEEK != 0;
    let socket = world.net.socket(number).ok_or(libc::EBADF)?;
    let tells = socket.tells_destination;
    if socket.is_stream() {
        let mut room = 0;
        for index in 0..count {
            // SAFETY: upheld by the caller.
            room += unsafe { (*vectors.add(index)).iov_len };
        }
        let octets = until(deadline, |world| tried(world.net.read(number, room, peek)))?;
        // SAFETY: upheld by the caller.
        let length = unsafe { scatter(vectors, count, &octets) };
        return Ok(Received {
            length,
            whole: length,
            from: None,
            to: None,
        });
    }
    let datagram = until(deadline, |world| tried(world.net.receive(number, peek)))?;
    // SAFETY: upheld by the caller.
    let length = unsafe { scatter(vectors, count, &datagram.octets) };
    let to = tells.then_some(datagram.to);
    Ok(Received {
        length,
        whole: datagram.octets.len(),
        from: Some(datagram.from),
        to,
    })
}

/// Sends through a socket.
pub fn send(
    number: Number,
    to: Option<SocketAddr>,
    from: Option<IpAddr>,
    octets: Vec<u8>,
    flags: c_int,
) -> Result<usize, Errno> {
    seen();
    let world = world().ok_or(libc::EIO)?;
    let deadline = deadline(world, number, flags);
    if world.net.socket(number).is_some_and(|socket| socket.is_stream()) {
        return until(deadline, |world| tried(world.net.write(number, &octets)));
    }
    world.net.send(number, to, from, octets)
}

fn socket(descriptor: c_int) -> Option<Number> {
    match world()?.thing(descriptor)? {
        Thing::Socket(number) => Some(number),
        _ => None,
    }
}

/// # Safety
/// As recvfrom(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn recvfrom(
    descriptor: c_int,
    place: *mut c_void,
    length: size_t,
    flags: c_int,
    address: *mut sockaddr,
    room: *mut socklen_t,
) -> ssize_t {
    let Some(number) = socket(descriptor) else {
        return pass!(
            libc::SYS_recvfrom,
            descriptor,
            place,
            length,
            flags,
            address,
            room
        ) as ssize_t;
    };
    let vector = iovec {
        iov_base: place,
        iov_len: length,
    };
    // SAFETY: upheld by the caller.
    let received = unsafe { receive(number, &raw const vector, 1, flags) };
    result(received.map(|received| {
        if let Some(from) = received.from {
            // SAFETY: upheld by the caller.
            unsafe { write_address(from, address, room) };
        }
        if flags & libc::MSG_TRUNC != 0 {
            received.whole
        } else {
            received.length
        }
    }))
}

/// # Safety
/// As recv(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn recv(
    descriptor: c_int,
    place: *mut c_void,
    length: size_t,
    flags: c_int,
) -> ssize_t {
    // SAFETY: upheld by the caller.
    unsafe {
        recvfrom(
            descriptor,
            place,
            length,
            flags,
            std::ptr::null_mut(),
            std::ptr::null_mut(),
        )
    }
}

/// Whether a descriptor of the kernel is a netlink socket (links, addresses, routes and rules).
fn is_netlink(descriptor: c_int) -> bool {
    let (mut domain, mut length): (c_int, socklen_t) = (0, size_of::<c_int>() as socklen_t);
    let asked = kernel!(
        libc::SYS_getsockopt,
        descriptor,
        libc::SOL_SOCKET,
        libc::SO_DOMAIN,
        &raw mut domain,
        &raw mut length
    );
    asked == 0 && domain == libc::AF_NETLINK
}

/// # Safety
/// As sendto(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sendto(
    descriptor: c_int,
    octets: *const c_void,
    length: size_t,
    flags: c_int,
    address: *const sockaddr,
    size: socklen_t,
) -> ssize_t {
    let Some(number) = socket(descriptor) else {
        if is_netlink(descriptor) && fails_outside(Kind::Netlink, "") {
            return -1;
        }
        return pass!(libc::SYS_sendto, descriptor, octets, length, flags, address, size) as ssize_t;
    };
    let vector = iovec {
        iov_base: octets.cast_mut(),
        iov_len: length,
    };
    // SAFETY: upheld by the caller.
    let (octets, to) = unsafe { (gather(&raw const vector, 1), read_address(address, size)) };
    result(send(number, to, None, octets, flags))
}

/// # Safety
/// As send(2).
#[unsafe(export_name = "send")]
pub unsafe extern "C" fn send_octets(
    descriptor: c_int,
    octets: *const c_void,
    length: size_t,
    flags: c_int,
) -> ssize_t {
    // SAFETY: upheld by the caller.
    unsafe { sendto(descriptor, octets, length, flags, std::ptr::null(), 0) }
}

/// # Safety
/// As recvmsg(2), of a socket of the box.
unsafe fn receive_message(number: Number, header: *mut msghdr, flags: c_int) -> Result<usize, Errno> {
    // SAFETY: upheld by the caller.
    let header = unsafe { &mut *header };
    // SAFETY: upheld by the caller.
    let received = unsafe { receive(number, header.msg_iov, header.msg_iovlen, flags) }?;
    match received.from {
        // SAFETY: upheld by the caller.
        Some(from) => unsafe { write_address(from, header.msg_name.cast(), &raw mut header.msg_namelen) },
        None => header.msg_namelen = 0,
    }
    header.msg_flags = if received.whole > received.length {
        libc::MSG_TRUNC
    } else {
        0
    };
    // SAFETY: upheld by the caller.
    unsafe { write_destination(header, received.to) };
    Ok(received.length)
}

/// Writes the destination of a datagram as a control message, if there is room for one.
///
/// # Safety
/// As recvmsg(2): the header's room for control messages must be valid.
unsafe fn write_destination(header: &mut msghdr, to: Option<SocketAddr>) {
    let Some(to) = to.filter(|_| !header.msg_control.is_null()) else {
        header.msg_controllen = 0;
        return;
    };
    // SAFETY: upheld by the caller; the program provides room for one message of either family (64 bytes).
    unsafe {
        let message = libc::CMSG_FIRSTHDR(header);
        if message.is_null() {
            return;
        }
        let length = match to.ip() {
            IpAddr::V4(ip) => {
                let address = libc::in_addr {
                    s_addr: u32::from(ip).to_be(),
                };
                let info = libc::in_pktinfo {
                    ipi_ifindex: 1,
                    ipi_spec_dst: address,
                    ipi_addr: address,
                };
                ((*message).cmsg_level, (*message).cmsg_type) = (libc::IPPROTO_IP, libc::IP_PKTINFO);
                libc::CMSG_DATA(message)
                    .cast::<libc::in_pktinfo>()
                    .write_unaligned(info);
                size_of::<libc::in_pktinfo>()
            }
            IpAddr::V6(ip) => {
                let info = libc::in6_pktinfo {
                    ipi6_addr: libc::in6_addr { s6_addr: ip.octets() },
                    ipi6_ifindex: 1,
                };
                ((*message).cmsg_level, (*message).cmsg_type) = (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO);
                libc::CMSG_DATA(message)
                    .cast::<libc::in6_pktinfo>()
                    .write_unaligned(info);
                size_of::<libc::in6_pktinfo>()
            }
        };
        (*message).cmsg_len = libc::CMSG_LEN(length as u32) as _;
        header.msg_controllen = libc::CMSG_SPACE(length as u32) as _;
    }
}

/// Returns the source address for a datagram, if its control messages set one.
///
/// # Safety
/// As sendmsg(2).
unsafe fn source(header: &msghdr) -> Option<IpAddr> {
    // SAFETY: upheld by the caller; the macros stay within the control messages.
    unsafe {
        let message = libc::CMSG_FIRSTHDR(header);
        if message.is_null() {
            return None;
        }
        let data = libc::CMSG_DATA(message);
        match ((*message).cmsg_level, (*message).cmsg_type) {
            (libc::IPPROTO_IP, libc::IP_PKTINFO) => {
                let info = data.cast::<libc::in_pktinfo>().read_unaligned();
                Some(std::net::Ipv4Addr::from(u32::from_be(info.ipi_spec_dst.s_addr)).into())
            }
            (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO) => {
                let info = data.cast::<libc::in6_pktinfo>().read_unaligned();
                Some(std::net::Ipv6Addr::from(info.ipi6_addr.s6_addr).into())
            }
            _ => None,
        }
    }
}

/// # Safety
/// As sendmsg(2), of a socket of the box.
unsafe fn send_message(number: Number, header: *const msghdr, flags: c_int) -> Result<usize, Errno> {
    // SAFETY: upheld by the caller.
    unsafe {
        let header = &*header;
        let octets = gather(header.msg_iov, header.msg_iovlen);
        let to = read_address(header.msg_name.cast(), header.msg_namelen);
        send(number, to, source(header), octets, flags)
    }
}

/// # Safety
/// As recvmsg(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn recvmsg(descriptor: c_int, header: *mut msghdr, flags: c_int) -> ssize_t {
    match socket(descriptor) {
        // SAFETY: upheld by the caller.
        Some(number) => result(unsafe { receive_message(number, header, flags) }),
        None => pass!(libc::SYS_recvmsg, descriptor, header, flags) as ssize_t,
    }
}

/// # Safety
/// As sendmsg(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sendmsg(descriptor: c_int, header: *const msghdr, flags: c_int) -> ssize_t {
    match socket(descriptor) {
        // SAFETY: upheld by the caller.
        Some(number) => result(unsafe { send_message(number, header, flags) }),
        None if is_netlink(descriptor) && fails_outside(Kind::Netlink, "") => -1,
        None => pass!(libc::SYS_sendmsg, descriptor, header, flags) as ssize_t,
    }
}

/// Processes messages until one fails. Returns how many succeeded, or the error of the first.
///
/// # Safety
/// `headers` must point to `count` headers.
unsafe fn many(
    headers: *mut mmsghdr,
    count: c_uint,
    mut one: impl FnMut(*mut msghdr, bool) -> Result<usize, Errno>,
) -> c_int {
    for index in 0..count as usize {
        // SAFETY: upheld by the caller.
        let header = unsafe { headers.add(index) };
        // SAFETY: as above.
        match one(unsafe { &raw mut (*header).msg_hdr }, index == 0) {
            // SAFETY: as above.
            Ok(length) => unsafe { (*header).msg_len = length as c_uint },
            Err(errno) if index == 0 => return crate::kernel::fail(errno) as c_int,
            Err(_) => return index as c_int,
        }
    }
    count as c_int
}

/// # Safety
/// As recvmmsg(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn recvmmsg(
    descriptor: c_int,
    headers: *mut mmsghdr,
    count: c_uint,
    flags: c_int,
    time: *mut timespec,
) -> c_int {
    let Some(number) = socket(descriptor) else {
        return pass!(libc::SYS_recvmmsg, descriptor, headers, count, flags, time) as c_int;
    };
    let later = |first: bool| if first { flags } else { flags | libc::MSG_DONTWAIT };
    // SAFETY: upheld by the caller.
    unsafe {
        many(headers, count, |header, first| {
            receive_message(number, header, later(first))
        })
    }
}

/// # Safety
/// As sendmmsg(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sendmmsg(
    descriptor: c_int,
    headers: *mut mmsghdr,
    count: c_uint,
    flags: c_int,
) -> c_int {
    let Some(number) = socket(descriptor) else {
        return pass!(libc::SYS_sendmmsg, descriptor, headers, count, flags) as c_int;
    };
    // SAFETY: upheld by the caller.
    unsafe { many(headers, count, |header, _| send_message(number, header, flags)) }
}
