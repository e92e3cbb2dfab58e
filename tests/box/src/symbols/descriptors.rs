//! What all descriptors share: duplication, flags, reading, writing and closing.

use libc::{c_int, c_long, c_ulong, c_void, iovec, size_t, ssize_t};

use super::messages::{gather, receive, scatter, send};
use super::{Tried, fails, seen, shortened, until};
use crate::faults::Kind;
use crate::kernel::{fail, kernel, pass};
use crate::schedule::{NEVER, world};
use crate::world::Thing;

fn thing(descriptor: c_int) -> Option<Thing> {
    world()?.thing(descriptor)
}

/// # Safety
/// As close(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn close(descriptor: c_int) -> c_int {
    if let Some(world) = world() {
        world.close(descriptor);
    }
    pass!(libc::SYS_close, descriptor) as c_int
}

/// # Safety
/// As dup(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dup(descriptor: c_int) -> c_int {
    if fails(Kind::Open, "dup") {
        return -1;
    }
    copied(descriptor, pass!(libc::SYS_dup, descriptor) as c_int)
}

/// # Safety
/// As dup2(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dup2(descriptor: c_int, copy: c_int) -> c_int {
    if descriptor == copy {
        return copy;
    }
    if let Some(world) = world() {
        world.close(copy);
    }
    copied(descriptor, pass!(libc::SYS_dup3, descriptor, copy, 0) as c_int)
}

fn copied(descriptor: c_int, copy: c_int) -> c_int {
    if let Some(world) = world().filter(|_| copy >= 0) {
        world.duplicate(descriptor, copy);
    }
    copy
}

/// # Safety
/// As fcntl(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fcntl(descriptor: c_int, command: c_int, argument: c_long) -> c_int {
    let copies = matches!(command, libc::F_DUPFD | libc::F_DUPFD_CLOEXEC);
    if copies && fails(Kind::Open, "dup") {
        return -1;
    }
    let result = pass!(libc::SYS_fcntl, descriptor, command, argument) as c_int;
    if copies {
        return copied(descriptor, result);
    }
    if command == libc::F_SETFL && result == 0 {
        set_waiting(descriptor, argument as c_int & libc::O_NONBLOCK != 0);
    }
    result
}

/// # Safety
/// As fcntl(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fcntl64(descriptor: c_int, command: c_int, argument: c_long) -> c_int {
    // SAFETY: upheld by the caller.
    unsafe { fcntl(descriptor, command, argument) }
}

/// # Safety
/// As ioctl(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ioctl(descriptor: c_int, request: c_ulong, argument: *mut c_int) -> c_int {
    let result = pass!(libc::SYS_ioctl, descriptor, request, argument) as c_int;
    if request == libc::FIONBIO && result == 0 {
        // SAFETY: upheld by the caller, for this request.
        set_waiting(descriptor, unsafe { *argument } != 0);
    }
    result
}

fn set_waiting(descriptor: c_int, nonblocking: bool) {
    if let (Some(Thing::Socket(number)), Some(world)) = (thing(descriptor), world())
        && let Some(socket) = world.net.socket(number)
    {
        socket.nonblocking = nonblocking;
    }
}

/// Reads a counter.
fn count(counter: u32, place: &mut [u8]) -> Result<usize, i32> {
    // The program's counters never block.
    let value = world()
        .and_then(|world| world.polls.take(counter))
        .ok_or(libc::EAGAIN)?;
    place
        .get_mut(..8)
        .ok_or(libc::EINVAL)?
        .copy_from_slice(&value.to_ne_bytes());
    Ok(8)
}

fn add(counter: u32, octets: &[u8]) -> Result<usize, i32> {
    let value = octets.first_chunk::<8>().ok_or(libc::EINVAL)?;
    let added = world().is_some_and(|world| world.polls.add(counter, u64::from_ne_bytes(*value)));
    seen();
    if added { Ok(8) } else { Err(libc::EAGAIN) }
}

/// Returns half of the first vector, if a file is to be read or written in pieces.
///
/// # Safety
/// `vectors` must point to `count` vectors.
unsafe fn some(descriptor: c_int, vectors: *const iovec, count: c_int) -> Option<iovec> {
    if count < 1 || !is_file(descriptor) {
        return None;
    }
    // SAFETY: upheld by the caller, and there is at least one.
    let first = unsafe { *vectors };
    (first.iov_len > 1 && shortened()).then(|| iovec {
        iov_len: first.iov_len.div_ceil(2),
        ..first
    })
}

/// Whether a descriptor of the kernel is a regular file: pipes and counters are never read in pieces.
fn is_file(descriptor: c_int) -> bool {
    // SAFETY: a C structure of integers, for which zero is valid.
    let mut status: libc::stat = unsafe { std::mem::zeroed() };
    let found = kernel!(libc::SYS_fstat, descriptor, &raw mut status);
    found == 0 && status.st_mode & libc::S_IFMT == libc::S_IFREG
}

/// Converts a result to a symbol's return value.
pub fn result(result: Result<usize, i32>) -> ssize_t {
    match result {
        Ok(length) => length as ssize_t,
        Err(errno) => fail(errno) as ssize_t,
    }
}

/// Whether reads and writes may fail: outside, those of sockets, pipes and counters do not by themselves.
fn may_fail(descriptor: c_int) -> bool {
    // SAFETY: a structure of integers, for which zero is valid.
    let mut status: libc::stat = unsafe { std::mem::zeroed() };
    let asked = kernel!(libc::SYS_fstat, descriptor, &raw mut status);
    world().is_some() || (asked == 0 && status.st_mode & libc::S_IFMT == libc::S_IFREG)
}

/// # Safety
/// As read(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn read(descriptor: c_int, place: *mut c_void, length: size_t) -> ssize_t {
    let vector = iovec {
        iov_base: place,
        iov_len: length,
    };
    // SAFETY: upheld by the caller.
    unsafe { readv(descriptor, &raw const vector, 1) }
}

/// # Safety
/// As readv(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn readv(descriptor: c_int, vectors: *const iovec, count_: c_int) -> ssize_t {
    let Some(what) = thing(descriptor) else {
        if may_fail(descriptor) && fails(Kind::Read, "") {
            return -1;
        }
        // SAFETY: upheld by the caller.
        if let Some(some) = unsafe { some(descriptor, vectors, count_) } {
            return pass!(libc::SYS_read, descriptor, some.iov_base, some.iov_len) as ssize_t;
        }
        return pass!(libc::SYS_readv, descriptor, vectors, count_) as ssize_t;
    };
    match what {
        Thing::Socket(number) => {
            // SAFETY: upheld by the caller.
            let received = unsafe { receive(number, vectors, count_ as usize, 0) };
            result(received.map(|received| received.length))
        }
        Thing::Counter(counter) => {
            let mut value = [0; 8];
            // SAFETY: upheld by the caller.
            let read =
                count(counter, &mut value).map(|_| unsafe { scatter(vectors, count_ as usize, &value) });
            result(read)
        }
        Thing::Poll(_) => fail(libc::EINVAL) as ssize_t,
    }
}

/// # Safety
/// As write(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn write(descriptor: c_int, octets: *const c_void, length: size_t) -> ssize_t {
    let vector = iovec {
        iov_base: octets.cast_mut(),
        iov_len: length,
    };
    // SAFETY: upheld by the caller.
    unsafe { writev(descriptor, &raw const vector, 1) }
}

/// # Safety
/// As writev(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn writev(descriptor: c_int, vectors: *const iovec, count: c_int) -> ssize_t {
    let Some(what) = thing(descriptor) else {
        // SAFETY: upheld by the caller.
        note_reloads(&unsafe { gather(vectors, count as usize) });
        if descriptor > 2 && may_fail(descriptor) && fails(Kind::Write, "") {
            return -1;
        }
        // SAFETY: upheld by the caller.
        if let Some(some) = unsafe { some(descriptor, vectors, count) } {
            return pass!(libc::SYS_write, descriptor, some.iov_base, some.iov_len) as ssize_t;
        }
        return pass!(libc::SYS_writev, descriptor, vectors, count) as ssize_t;
    };
    // SAFETY: upheld by the caller.
    let octets = unsafe { gather(vectors, count as usize) };
    match what {
        Thing::Socket(number) => result(send(number, None, None, octets, 0)),
        Thing::Counter(counter) => result(add(counter, &octets)),
        Thing::Poll(_) => fail(libc::EINVAL) as ssize_t,
    }
}

/// Counts log lines about a reload: `reloaded` or `not reloaded`.
fn note_reloads(octets: &[u8]) {
    let word = b"reloaded";
    if let Some(world) = world()
        && octets.windows(word.len()).any(|some| some == word)
    {
        world.report.reloads += 1;
    }
}

/// # Safety
/// As pause(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pause() -> c_int {
    let _: Result<(), i32> = until(NEVER, |_| Tried::Waits);
    fail(libc::EINTR) as c_int
}
