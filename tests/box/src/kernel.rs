//! Direct system calls, which bypass the symbols that this library replaces.

use std::arch::asm;

/// Makes a system call with up to six arguments.
///
/// # Safety
/// The call must be sound with these arguments: pointers must be valid for what the kernel reads and writes
/// through them.
#[cfg(target_arch = "x86_64")]
pub unsafe fn call(number: i64, words: [i64; 6]) -> i64 {
    let result: i64;
    // SAFETY: the kernel takes the number in rax and the arguments in these registers, returns in rax, and
    // also clobbers rcx and r11. What it does with memory is up to the caller.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") number => result,
            in("rdi") words[0],
            in("rsi") words[1],
            in("rdx") words[2],
            in("r10") words[3],
            in("r8") words[4],
            in("r9") words[5],
            lateout("rcx") _,
            lateout("r11") _,
        );
    }
    result
}

/// Makes a system call, on the other architecture that dnsweir supports.
///
/// # Safety
/// As above.
#[cfg(target_arch = "aarch64")]
pub unsafe fn call(number: i64, words: [i64; 6]) -> i64 {
    let result: i64;
    // SAFETY: the kernel takes the number in x8 and the arguments in these registers, and returns in x0. What
    // it does with memory is up to the caller.
    unsafe {
        asm!(
            "svc 0",
            in("x8") number,
            inlateout("x0") words[0] => result,
            in("x1") words[1],
            in("x2") words[2],
            in("x3") words[3],
            in("x4") words[4],
            in("x5") words[5],
        );
    }
    result
}

/// Converts a result to the C library's convention: -1, with the error in `errno`.
pub fn returned(result: i64) -> i64 {
    if (-4095..0).contains(&result) {
        return fail(-result as i32);
    }
    result
}

/// Sets `errno`, and returns the -1 of a failed symbol.
pub fn fail(errno: i32) -> i64 {
    // SAFETY: the C library's location of this thread's `errno`.
    unsafe { *libc::__errno_location() = errno };
    -1
}

/// Makes a system call with the given arguments.
macro_rules! kernel {
    ($number:expr $(, $word:expr)* $(,)?) => {{
        let given: &[i64] = &[$($word as i64),*];
        let mut words = [0_i64; 6];
        words[..given.len()].copy_from_slice(given);
        // SAFETY: the arguments come from the caller of a C library symbol, which has the same contract, or
        // point to values of this library that outlive the call.
        unsafe { $crate::kernel::call($number as i64, words) }
    }};
}
pub(crate) use kernel;

/// Forwards a symbol's arguments to the kernel, and returns as the C library would.
macro_rules! pass {
    ($($word:expr),+ $(,)?) => { $crate::kernel::returned($crate::kernel::kernel!($($word),+)) };
}
pub(crate) use pass;

/// Sleeps in real time, for work outside the box such as a child that compiles.
pub fn rest(microseconds: i64) {
    let time = libc::timespec {
        tv_sec: 0,
        tv_nsec: microseconds * 1000,
    };
    kernel!(libc::SYS_nanosleep, &raw const time, 0);
}

/// Returns the real time in milliseconds.
pub fn real_milliseconds() -> i64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    kernel!(libc::SYS_clock_gettime, libc::CLOCK_MONOTONIC, &raw mut time);
    time.tv_sec * 1000 + time.tv_nsec / 1_000_000
}
