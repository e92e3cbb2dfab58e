//! Memory: allocating and copying costs time, by the page, which adds to the time of an answer.

use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};

use libc::{c_void, size_t};

/// The unit of bytes charged: smaller amounts are covered by the calls around them.
const PAGE: usize = 4096;

/// The cost of a page in nanoseconds: getting one from the kernel and filling it.
const PRICE: u64 = 1000;

/// The cost not charged yet. Not in the world, because the box itself may allocate while it holds the world.
static OWED: AtomicU64 = AtomicU64::new(0);

unsafe extern "C" {
    // The C library's own functions, under names that nothing replaces.
    fn __libc_malloc(size: size_t) -> *mut c_void;
    fn __libc_calloc(count: size_t, size: size_t) -> *mut c_void;
    fn __libc_realloc(place: *mut c_void, size: size_t) -> *mut c_void;
    fn __memcpy_chk(to: *mut c_void, from: *const c_void, length: size_t, room: size_t) -> *mut c_void;
    fn __memmove_chk(to: *mut c_void, from: *const c_void, length: size_t, room: size_t) -> *mut c_void;
}

#[inline]
fn owe(octets: usize) {
    if octets >= PAGE {
        OWED.fetch_add((octets / PAGE) as u64 * PRICE, Ordering::Relaxed);
    }
}

/// Takes the cost since the last call, in nanoseconds.
pub fn owed() -> u64 {
    OWED.swap(0, Ordering::Relaxed)
}

/// Returns a size large enough for any copy, hidden from the compiler, which would otherwise call the symbols
/// below.
#[inline]
fn any_room() -> size_t {
    black_box(size_t::MAX / 2)
}

/// # Safety
/// As malloc(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn malloc(size: size_t) -> *mut c_void {
    owe(size);
    // SAFETY: upheld by the caller.
    unsafe { __libc_malloc(size) }
}

/// # Safety
/// As calloc(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn calloc(count: size_t, size: size_t) -> *mut c_void {
    owe(count.saturating_mul(size));
    // SAFETY: upheld by the caller.
    unsafe { __libc_calloc(count, size) }
}

/// # Safety
/// As realloc(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn realloc(place: *mut c_void, size: size_t) -> *mut c_void {
    owe(size);
    // SAFETY: upheld by the caller.
    unsafe { __libc_realloc(place, size) }
}

/// # Safety
/// As memcpy(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn memcpy(to: *mut c_void, from: *const c_void, length: size_t) -> *mut c_void {
    owe(length);
    // SAFETY: upheld by the caller.
    unsafe { __memcpy_chk(to, from, length, any_room()) }
}

/// # Safety
/// As memmove(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn memmove(to: *mut c_void, from: *const c_void, length: size_t) -> *mut c_void {
    owe(length);
    // SAFETY: upheld by the caller.
    unsafe { __memmove_chk(to, from, length, any_room()) }
}
