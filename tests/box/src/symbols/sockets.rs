//! Sockets of IPv4 and IPv6. Other families are left to the kernel.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

use libc::{c_int, c_void, sockaddr, sockaddr_in, sockaddr_in6, socklen_t};

use super::{Tried, fails, fails_outside, seen, until};
use crate::faults::Kind;
use crate::kernel::{fail, pass};
use crate::net::{Errno, Number};
use crate::schedule::{NEVER, world};
use crate::world::Thing;

/// Reads a C address; `None` if there is none, or of another family.
///
/// # Safety
/// It must be null or have this many bytes.
pub unsafe fn read_address(address: *const sockaddr, length: socklen_t) -> Option<SocketAddr> {
    if address.is_null() || (length as usize) < size_of::<sockaddr_in>() {
        return None;
    }
    // SAFETY: upheld by the caller, and the length covers the family's structure.
    unsafe {
        match i32::from((*address).sa_family) {
            libc::AF_INET => {
                let v4 = address.cast::<sockaddr_in>().read_unaligned();
                let ip = Ipv4Addr::from(u32::from_be(v4.sin_addr.s_addr));
                Some(SocketAddrV4::new(ip, u16::from_be(v4.sin_port)).into())
            }
            libc::AF_INET6 if length as usize >= size_of::<sockaddr_in6>() => {
                let v6 = address.cast::<sockaddr_in6>().read_unaligned();
                Some(
                    SocketAddrV6::new(
                        v6.sin6_addr.s6_addr.into(),
                        u16::from_be(v6.sin6_port),
                        0,
                        v6.sin6_scope_id,
                    )
                    .into(),
                )
            }
            _ => None,
        }
    }
}

/// Writes a C address to where the program asked for it, if it did.
///
/// # Safety
/// `address` must be null or have room for as many bytes as `length` says.
pub unsafe fn write_address(from: SocketAddr, address: *mut sockaddr, length: *mut socklen_t) {
    if address.is_null() || length.is_null() {
        return;
    }
    // SAFETY: upheld by the caller; the structures consist of integers, for which zero is valid.
    unsafe {
        let mut v4: sockaddr_in = std::mem::zeroed();
        let mut v6: sockaddr_in6 = std::mem::zeroed();
        let (octets, size): (*const u8, usize) = match from {
            SocketAddr::V4(from) => {
                v4.sin_family = libc::AF_INET as u16;
                v4.sin_port = from.port().to_be();
                v4.sin_addr.s_addr = u32::from(*from.ip()).to_be();
                ((&raw const v4).cast(), size_of::<sockaddr_in>())
            }
            SocketAddr::V6(from) => {
                v6.sin6_family = libc::AF_INET6 as u16;
                v6.sin6_port = from.port().to_be();
                v6.sin6_addr.s6_addr = Ipv6Addr::octets(from.ip());
                ((&raw const v6).cast(), size_of::<sockaddr_in6>())
            }
        };
        let room = (*length as usize).min(size);
        std::ptr::copy_nonoverlapping(octets, address.cast(), room);
        length.write(size as socklen_t);
    }
}

fn number(descriptor: c_int) -> Option<Number> {
    match world()?.thing(descriptor)? {
        Thing::Socket(number) => Some(number),
        _ => None,
    }
}

fn done(result: Result<(), Errno>) -> c_int {
    if let Some(world) = world() {
        world.spread();
    }
    match result {
        Ok(()) => 0,
        Err(errno) => fail(errno) as c_int,
    }
}

/// Formats an address for the report.
fn named(address: Option<SocketAddr>) -> String {
    address.map_or_else(|| "of another family".to_owned(), |address| address.to_string())
}

/// # Safety
/// As socket(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int {
    if fails(Kind::Socket, &domain.to_string()) {
        return -1;
    }
    let descriptor = pass!(libc::SYS_socket, domain, kind, protocol) as c_int;
    let plain = kind & !(libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC);
    let ours = matches!(domain, libc::AF_INET | libc::AF_INET6)
        && matches!(plain, libc::SOCK_STREAM | libc::SOCK_DGRAM);
    if let Some(world) = world().filter(|_| ours && descriptor >= 0) {
        let number = world
            .net
            .open(domain == libc::AF_INET6, plain == libc::SOCK_STREAM, None);
        if let Some(socket) = world.net.socket(number) {
            socket.nonblocking = kind & libc::SOCK_NONBLOCK != 0;
        }
        world.name(descriptor, Thing::Socket(number));
    }
    descriptor
}

/// # Safety
/// As bind(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bind(descriptor: c_int, address: *const sockaddr, length: socklen_t) -> c_int {
    // SAFETY: upheld by the caller.
    let to = unsafe { read_address(address, length) };
    if fails(Kind::Bind, &named(to)) {
        return -1;
    }
    match (number(descriptor), to, world()) {
        (Some(number), Some(to), Some(world)) => done(world.net.bind(number, to)),
        _ => pass!(libc::SYS_bind, descriptor, address, length) as c_int,
    }
}

/// # Safety
/// As listen(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn listen(descriptor: c_int, backlog: c_int) -> c_int {
    if fails(Kind::Listen, "") {
        return -1;
    }
    match (number(descriptor), world()) {
        (Some(number), Some(world)) => done(world.net.listen(number, backlog.max(0) as usize)),
        _ => pass!(libc::SYS_listen, descriptor, backlog) as c_int,
    }
}

/// # Safety
/// As accept4(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn accept4(
    descriptor: c_int,
    address: *mut sockaddr,
    length: *mut socklen_t,
    flags: c_int,
) -> c_int {
    let (Some(number), Some(world)) = (number(descriptor), world()) else {
        if fails_outside(Kind::Accept, "") {
            return -1;
        }
        return pass!(libc::SYS_accept4, descriptor, address, length, flags) as c_int;
    };
    seen();
    let deadline = match world.net.socket(number) {
        Some(socket) if !socket.nonblocking => NEVER,
        _ => 0,
    };
    if world.net.ready(number) & libc::EPOLLIN as u32 != 0 && fails(Kind::Accept, "") {
        return -1;
    }
    let accepted = until(deadline, |world| match world.net.accept(number) {
        Ok(accepted) => Tried::Done(accepted),
        Err(libc::EAGAIN) => Tried::Waits,
        Err(errno) => Tried::Failed(errno),
    });
    let (accepted, world) = match (accepted, crate::schedule::world()) {
        (Ok(accepted), Some(world)) => (accepted, world),
        (Err(errno), _) => return fail(errno) as c_int,
        (Ok(_), None) => return fail(libc::EIO) as c_int,
    };
    let Some(socket) = world.net.socket(accepted) else {
        return fail(libc::ECONNABORTED) as c_int;
    };
    socket.nonblocking = flags & libc::SOCK_NONBLOCK != 0;
    let domain = if socket.six { libc::AF_INET6 } else { libc::AF_INET };
    if let Some(peer) = socket.peer {
        // SAFETY: upheld by the caller.
        unsafe { write_address(peer, address, length) };
    }
    let placeholder = pass!(libc::SYS_socket, domain, libc::SOCK_STREAM | flags, 0) as c_int;
    match placeholder {
        ..0 => {
            world.net.close(accepted);
        }
        _ => world.name(placeholder, Thing::Socket(accepted)),
    }
    placeholder
}

/// # Safety
/// As connect(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn connect(descriptor: c_int, address: *const sockaddr, length: socklen_t) -> c_int {
    let (Some(number), Some(world)) = (number(descriptor), world()) else {
        // SAFETY: upheld by the caller.
        let to = unsafe { read_address(address, length) };
        if fails_outside(Kind::Connect, &named(to)) {
            return -1;
        }
        return pass!(libc::SYS_connect, descriptor, address, length) as c_int;
    };
    seen();
    // SAFETY: upheld by the caller.
    let peer = unsafe { read_address(address, length) };
    if fails(Kind::Connect, "") {
        return -1;
    }
    let Some(socket) = world.net.socket(number) else {
        return fail(libc::EBADF) as c_int;
    };
    if !socket.is_stream() {
        return done(world.net.point(number, peer));
    }
    let waits = !socket.nonblocking;
    let Some(peer) = peer else {
        return fail(libc::EAFNOSUPPORT) as c_int;
    };
    match world.net.connect(number, peer) {
        Err(libc::EINPROGRESS) if waits => {
            let connected = until(NEVER, |world| match world.net.socket(number) {
                Some(socket) if socket.error != 0 => Tried::Failed(std::mem::take(&mut socket.error)),
                Some(socket) if matches!(socket.kind, crate::net::Kind::Stream(_)) => Tried::Done(()),
                _ => Tried::Waits,
            });
            done(connected)
        }
        result => done(result),
    }
}

/// # Safety
/// As shutdown(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shutdown(descriptor: c_int, how: c_int) -> c_int {
    match (number(descriptor), world()) {
        (Some(number), Some(world)) => done(world.net.shut(number, how)),
        _ => pass!(libc::SYS_shutdown, descriptor, how) as c_int,
    }
}

/// # Safety
/// As getsockname(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn getsockname(
    descriptor: c_int,
    address: *mut sockaddr,
    length: *mut socklen_t,
) -> c_int {
    let (Some(number), Some(world)) = (number(descriptor), world()) else {
        return pass!(libc::SYS_getsockname, descriptor, address, length) as c_int;
    };
    let Some(socket) = world.net.socket(number) else {
        return fail(libc::EBADF) as c_int;
    };
    let local = socket
        .local
        .unwrap_or_else(|| SocketAddr::new(crate::net::any(socket.six), 0));
    // SAFETY: upheld by the caller.
    unsafe { write_address(local, address, length) };
    0
}

/// # Safety
/// As getpeername(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn getpeername(
    descriptor: c_int,
    address: *mut sockaddr,
    length: *mut socklen_t,
) -> c_int {
    let (Some(number), Some(world)) = (number(descriptor), world()) else {
        return pass!(libc::SYS_getpeername, descriptor, address, length) as c_int;
    };
    let peer = world.net.socket(number).and_then(|socket| socket.peer);
    let Some(peer) = peer else {
        return fail(libc::ENOTCONN) as c_int;
    };
    // SAFETY: upheld by the caller.
    unsafe { write_address(peer, address, length) };
    0
}

/// # Safety
/// As setsockopt(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn setsockopt(
    descriptor: c_int,
    level: c_int,
    name: c_int,
    value: *const c_void,
    length: socklen_t,
) -> c_int {
    if fails(Kind::Option, &format!("{level},{name}")) {
        return -1;
    }
    let Some(socket) = number(descriptor).and_then(|number| world()?.net.socket(number)) else {
        return pass!(libc::SYS_setsockopt, descriptor, level, name, value, length) as c_int;
    };
    // SAFETY: upheld by the caller, for options of that kind.
    let flag = || unsafe { length >= 4 && value.cast::<c_int>().read_unaligned() != 0 };
    match (level, name) {
        (libc::SOL_SOCKET, libc::SO_REUSEPORT) => socket.shares = flag(),
        (libc::SOL_SOCKET, libc::SO_RCVTIMEO) => {
            // SAFETY: as above.
            let time = unsafe { value.cast::<libc::timeval>().read_unaligned() };
            let nanoseconds = time.tv_sec as u64 * 1_000_000_000 + time.tv_usec as u64 * 1000;
            socket.patience = (nanoseconds > 0).then_some(nanoseconds);
            return 0;
        }
        (libc::SOL_SOCKET, libc::SO_ATTACH_REUSEPORT_CBPF) => {
            // SAFETY: as above: one program, of at least one instruction.
            let first = unsafe { *value.cast::<libc::sock_fprog>().read_unaligned().filter };
            socket.steered = (u32::from(first.code) == libc::BPF_RET | libc::BPF_K).then_some(first.k);
            return 0;
        }
        (libc::IPPROTO_IP, libc::IP_PKTINFO) | (libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO) => {
            socket.tells_destination = flag();
        }
        _ => {}
    }
    pass!(libc::SYS_setsockopt, descriptor, level, name, value, length) as c_int
}

/// # Safety
/// As getsockopt(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn getsockopt(
    descriptor: c_int,
    level: c_int,
    name: c_int,
    value: *mut c_void,
    length: *mut socklen_t,
) -> c_int {
    match number(descriptor).and_then(|number| world()?.net.socket(number)) {
        Some(socket) if (level, name) == (libc::SOL_SOCKET, libc::SO_ERROR) => {
            // SAFETY: upheld by the caller, for this option.
            unsafe {
                value
                    .cast::<c_int>()
                    .write_unaligned(std::mem::take(&mut socket.error))
            };
            0
        }
        _ => pass!(libc::SYS_getsockopt, descriptor, level, name, value, length) as c_int,
    }
}
