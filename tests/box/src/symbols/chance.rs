//! Randomness, and system calls that programs make by number.

use libc::{c_int, c_long, c_uint, c_void, size_t, ssize_t, timespec};

use super::time::{nanoseconds, when};
use super::{fails, seen};
use crate::faults::Kind;
use crate::kernel::{fail, pass};
use crate::schedule::{NEVER, Waits, this, wait, world};

/// # Safety
/// As getrandom(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn getrandom(place: *mut c_void, length: size_t, flags: c_uint) -> ssize_t {
    let Some(world) = world() else {
        return pass!(libc::SYS_getrandom, place, length, flags) as ssize_t;
    };
    // SAFETY: the caller guarantees that this many bytes may be written there.
    let bytes = unsafe { std::slice::from_raw_parts_mut(place.cast::<u8>(), length) };
    world.secrets.fill(bytes);
    length as ssize_t
}

/// # Safety
/// As syscall(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syscall(
    number: c_long,
    a: c_long,
    b: c_long,
    c: c_long,
    d: c_long,
    e: c_long,
    f: c_long,
) -> c_long {
    if world().is_some() {
        match number {
            libc::SYS_getrandom => {
                // SAFETY: upheld by the caller.
                return unsafe { getrandom(a as *mut c_void, b as size_t, c as c_uint) } as c_long;
            }
            libc::SYS_futex => {
                let (address, time) = (a as *const u32, d as *const timespec);
                // SAFETY: upheld by the caller.
                if let Some(result) = unsafe { futex(address, b as c_int, c as u32, time) } {
                    return result;
                }
            }
            // The box lives in the process, and writes its report outside what a ruleset would allow.
            libc::SYS_landlock_create_ruleset => return crate::kernel::fail(libc::ENOSYS),
            _ => seen(),
        }
    }
    pass!(number, a, b, c, d, e, f)
}

/// Waits or wakes at an address; `None` for other futex operations.
///
/// # Safety
/// As futex(2).
unsafe fn futex(address: *const u32, operation: c_int, value: u32, time: *const timespec) -> Option<c_long> {
    let world = world()?;
    let place = address as usize;
    let command = operation & !(libc::FUTEX_PRIVATE_FLAG | libc::FUTEX_CLOCK_REALTIME);
    match command {
        libc::FUTEX_WAKE | libc::FUTEX_WAKE_BITSET => {
            let count = world.wake(place, value as usize);
            if count > 0 && world.chance.below(2) == 0 {
                wait(Waits::No, NEVER);
            }
            return Some(count as c_long);
        }
        libc::FUTEX_WAIT | libc::FUTEX_WAIT_BITSET => {}
        _ => return None,
    }
    // SAFETY: the caller guarantees a valid address, which threads access as an atomic.
    if unsafe { (*address.cast::<std::sync::atomic::AtomicU32>()).load(std::sync::atomic::Ordering::SeqCst) }
        != value
    {
        seen();
        return Some(fail(libc::EAGAIN));
    }
    let deadline = match time.is_null() {
        true => NEVER,
        false => {
            // SAFETY: upheld by the caller.
            let time = unsafe { *time };
            let clock = match operation & libc::FUTEX_CLOCK_REALTIME {
                0 => libc::CLOCK_MONOTONIC,
                _ => libc::CLOCK_REALTIME,
            };
            match command {
                libc::FUTEX_WAIT => world.net.now.saturating_add(nanoseconds(time)),
                _ => when(world, clock, time),
            }
        }
    };
    wait(
        Waits::Futex {
            address: place,
            woken: false,
        },
        deadline,
    );
    let (index, world) = (this()?, crate::schedule::world()?);
    match std::mem::replace(&mut world.threads[index].waits, Waits::No) {
        Waits::Futex { woken: true, .. } => Some(0),
        _ => Some(fail(libc::ETIMEDOUT)),
    }
}

/// # Safety
/// As memfd_create(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn memfd_create(name: *const libc::c_char, flags: c_uint) -> c_int {
    if fails(Kind::Open, "memfd") {
        return -1;
    }
    pass!(libc::SYS_memfd_create, name, flags) as c_int
}
