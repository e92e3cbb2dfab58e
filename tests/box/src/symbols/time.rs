//! Clocks and sleep.

use libc::{c_int, c_long, c_void, clockid_t, time_t, timespec, timeval};

use super::seen;
use crate::kernel::{kernel, pass};
use crate::schedule::{NEVER, Waits, this, wait, world};
use crate::world::{BOOT, EPOCH, World};

const SECOND: u64 = 1_000_000_000;

/// Returns the time of a clock, in nanoseconds.
fn shows(world: &World, thread: usize, clock: clockid_t) -> u64 {
    match clock {
        libc::CLOCK_REALTIME | libc::CLOCK_REALTIME_COARSE | libc::CLOCK_TAI => {
            (EPOCH + world.net.clock()).saturating_add_signed(world.stepped)
        }
        libc::CLOCK_THREAD_CPUTIME_ID => world.threads[thread].charged,
        libc::CLOCK_PROCESS_CPUTIME_ID => world.threads.iter().map(|thread| thread.charged).sum(),
        libc::CLOCK_BOOTTIME | libc::CLOCK_BOOTTIME_ALARM => BOOT + world.net.clock(),
        _ => BOOT + world.net.now,
    }
}

/// Returns when a clock reaches a time, in nanoseconds since the start.
pub fn when(world: &World, clock: clockid_t, time: timespec) -> u64 {
    let shown = nanoseconds(time);
    match clock {
        libc::CLOCK_REALTIME => shown
            .saturating_add_signed(-world.stepped)
            .saturating_sub(EPOCH + world.net.slept),
        libc::CLOCK_BOOTTIME => shown.saturating_sub(BOOT + world.net.slept),
        _ => shown.saturating_sub(BOOT),
    }
}

/// Converts a duration to nanoseconds.
pub fn nanoseconds(time: timespec) -> u64 {
    (time.tv_sec.max(0) as u64)
        .saturating_mul(SECOND)
        .saturating_add(time.tv_nsec as u64)
}

/// # Safety
/// As clock_gettime(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clock_gettime(clock: clockid_t, time: *mut timespec) -> c_int {
    seen();
    let (Some(thread), Some(world)) = (this(), world()) else {
        return pass!(libc::SYS_clock_gettime, clock, time) as c_int;
    };
    let shown = shows(world, thread, clock);
    let shown = timespec {
        tv_sec: (shown / SECOND) as time_t,
        tv_nsec: (shown % SECOND) as c_long,
    };
    // SAFETY: upheld by the caller.
    unsafe { time.write(shown) };
    0
}

/// # Safety
/// As gettimeofday(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gettimeofday(time: *mut timeval, _zone: *mut c_void) -> c_int {
    let mut now = timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the first is ours, the second upheld by the caller.
    unsafe {
        clock_gettime(libc::CLOCK_REALTIME, &raw mut now);
        time.write(timeval {
            tv_sec: now.tv_sec,
            tv_usec: now.tv_nsec / 1000,
        });
    }
    0
}

/// # Safety
/// As time(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn time(place: *mut time_t) -> time_t {
    let mut now = timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the first is ours, the second null or upheld by the caller.
    unsafe {
        clock_gettime(libc::CLOCK_REALTIME, &raw mut now);
        if !place.is_null() {
            place.write(now.tv_sec);
        }
    }
    now.tv_sec
}

/// # Safety
/// As clock_nanosleep(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clock_nanosleep(
    clock: clockid_t,
    flags: c_int,
    time: *const timespec,
    rest: *mut timespec,
) -> c_int {
    let Some(world) = world() else {
        return -kernel!(libc::SYS_clock_nanosleep, clock, flags, time, rest) as c_int;
    };
    // SAFETY: upheld by the caller.
    let time = unsafe { *time };
    let deadline = match flags & libc::TIMER_ABSTIME {
        0 => world.net.now.saturating_add(nanoseconds(time)),
        _ => when(world, clock, time),
    };
    wait(Waits::Sleep, deadline.min(NEVER - 1));
    0
}

/// # Safety
/// As nanosleep(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nanosleep(time: *const timespec, rest: *mut timespec) -> c_int {
    // SAFETY: upheld by the caller.
    match unsafe { clock_nanosleep(libc::CLOCK_MONOTONIC, 0, time, rest) } {
        0 => 0,
        errno => crate::kernel::fail(errno) as c_int,
    }
}
