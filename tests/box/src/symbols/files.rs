//! Files: the kernel's, but calls on them can fail.

use libc::{c_char, c_int, mode_t, ssize_t};

use super::fails;
use crate::faults::Kind;
use crate::kernel::pass;
use crate::schedule::world;

/// # Safety
/// A string that ends with zero.
unsafe fn text<'a>(path: *const c_char) -> std::borrow::Cow<'a, str> {
    // SAFETY: upheld by the caller.
    unsafe { std::ffi::CStr::from_ptr(path) }.to_string_lossy()
}

/// # Safety
/// As open(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn open64(path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
    // SAFETY: upheld by the caller.
    if fails(Kind::Open, &unsafe { text(path) }) {
        return -1;
    }
    pass!(libc::SYS_openat, libc::AT_FDCWD, path, flags, mode) as c_int
}

/// # Safety
/// As open(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn open(path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
    // SAFETY: upheld by the caller.
    unsafe { open64(path, flags, mode) }
}

/// # Safety
/// As mkdir(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mkdir(path: *const c_char, mode: mode_t) -> c_int {
    // SAFETY: upheld by the caller.
    if fails(Kind::Change, &unsafe { text(path) }) {
        return -1;
    }
    pass!(libc::SYS_mkdirat, libc::AT_FDCWD, path, mode) as c_int
}

/// # Safety
/// As rename(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rename(old: *const c_char, new: *const c_char) -> c_int {
    // SAFETY: upheld by the caller.
    if fails(Kind::Change, &unsafe { text(new) }) {
        return -1;
    }
    pass!(libc::SYS_renameat2, libc::AT_FDCWD, old, libc::AT_FDCWD, new, 0) as c_int
}

/// # Safety
/// As unlink(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unlink(path: *const c_char) -> c_int {
    // SAFETY: upheld by the caller.
    if fails(Kind::Remove, &unsafe { text(path) }) {
        return -1;
    }
    pass!(libc::SYS_unlinkat, libc::AT_FDCWD, path, 0) as c_int
}

/// # Safety
/// As chmod(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn chmod(path: *const c_char, mode: mode_t) -> c_int {
    // SAFETY: upheld by the caller.
    if fails(Kind::Change, &unsafe { text(path) }) {
        return -1;
    }
    pass!(libc::SYS_fchmodat, libc::AT_FDCWD, path, mode) as c_int
}

/// # Safety
/// As fsync(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fsync(descriptor: c_int) -> c_int {
    if fails(Kind::Write, "") {
        return -1;
    }
    pass!(libc::SYS_fsync, descriptor) as c_int
}

/// # Safety
/// As readlink(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn readlink(path: *const c_char, place: *mut c_char, room: usize) -> ssize_t {
    // SAFETY: upheld by the caller.
    if fails(Kind::Read, &unsafe { text(path) }) {
        return -1;
    }
    pass!(libc::SYS_readlinkat, libc::AT_FDCWD, path, place, room) as ssize_t
}

/// # Safety
/// As inotify_add_watch(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn inotify_add_watch(descriptor: c_int, path: *const c_char, mask: u32) -> c_int {
    // SAFETY: upheld by the caller.
    let name = unsafe { text(path) };
    if fails(Kind::Register, &name) {
        return -1;
    }
    // For folders above the program's own, where others are active, only their removal is reported.
    let mask = match world().is_none() || is_below_ours(&name) {
        true => mask,
        false => libc::IN_DELETE_SELF | libc::IN_MOVE_SELF,
    };
    pass!(libc::SYS_inotify_add_watch, descriptor, path, mask) as c_int
}

fn is_below_ours(path: &str) -> bool {
    let own = std::env::current_dir().and_then(std::fs::canonicalize);
    let path = std::fs::canonicalize(path);
    own.is_ok_and(|own| path.is_ok_and(|path| path.starts_with(own)))
}

/// # Safety
/// As inotify_init1(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn inotify_init1(flags: c_int) -> c_int {
    if fails(Kind::Open, "inotify") {
        return -1;
    }
    pass!(libc::SYS_inotify_init1, flags) as c_int
}
