//! Memory: what is allocated and copied costs time, by the page. What an answer takes so is part of when it comes.

use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};

use libc::{c_void, size_t};

/// Octets that are charged for: fewer are charged with the calls around them.
const PAGE: usize = 4096;

/// What a page costs, in nanoseconds: what it takes to get one from the kernel and fill it.
const PRICE: u64 = 1000;

/// What was not charged yet. No part of the world: whoever allocates may be the box itself, with the world in its hands.
static OWED: AtomicU64 = AtomicU64::new(0);

unsafe extern "C" {
    // The C library's own, by names that nothing stands in for.
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

/// What is owed since it was last asked for, in nanoseconds.
pub fn owed() -> u64 {
    OWED.swap(0, Ordering::Relaxed)
}

/// Room enough for any copy, of which the compiler does not know that it is: it would call the symbols below.
#[inline]
fn any_room() -> size_t {
    black_box(size_t::MAX / 2)
}

/// # Safety
/// As malloc(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn malloc(size: size_t) -> *mut c_void {
    owe(size);
    // SAFETY: the caller's promise.
    unsafe { __libc_malloc(size) }
}

/// # Safety
/// As calloc(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn calloc(count: size_t, size: size_t) -> *mut c_void {
    owe(count.saturating_mul(size));
    // SAFETY: the caller's promise.
    unsafe { __libc_calloc(count, size) }
}

/// # Safety
/// As realloc(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn realloc(place: *mut c_void, size: size_t) -> *mut c_void {
    owe(size);
    // SAFETY: the caller's promise.
    unsafe { __libc_realloc(place, size) }
}

/// # Safety
/// As memcpy(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn memcpy(to: *mut c_void, from: *const c_void, length: size_t) -> *mut c_void {
    owe(length);
    // SAFETY: the caller's promise.
    unsafe { __memcpy_chk(to, from, length, any_room()) }
}

/// # Safety
/// As memmove(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn memmove(to: *mut c_void, from: *const c_void, length: size_t) -> *mut c_void {
    owe(length);
    // SAFETY: the caller's promise.
    unsafe { __memmove_chk(to, from, length, any_room()) }
}
