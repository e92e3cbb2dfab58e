//! Counters that the runner reads while the program runs: whether it still makes calls, and which thread is
//! running.

use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use crate::kernel::kernel;

/// Words in the page: calls made, the running thread, whether the box waits for a child.
const WORDS: usize = 3;

static PAGE: AtomicPtr<AtomicU64> = AtomicPtr::new(ptr::null_mut());

/// Creates and maps the page, in a file beside the report.
pub fn begin(report: &str) {
    let path = format!("{report}.pulse\0");
    let flags = libc::O_CREAT | libc::O_RDWR | libc::O_CLOEXEC;
    let file = kernel!(libc::SYS_openat, libc::AT_FDCWD, path.as_ptr(), flags, 0o600);
    let size = WORDS * size_of::<AtomicU64>();
    kernel!(libc::SYS_ftruncate, file, size);
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let page = kernel!(libc::SYS_mmap, 0, size, protection, libc::MAP_SHARED, file, 0);
    kernel!(libc::SYS_close, file);
    if page > 0 {
        PAGE.store(page as *mut AtomicU64, Ordering::Release);
    }
}

fn word(index: usize) -> Option<&'static AtomicU64> {
    let page = PAGE.load(Ordering::Acquire);
    // SAFETY: this many words are mapped there for good.
    (index < WORDS && !page.is_null()).then(|| unsafe { &*page.add(index) })
}

/// Counts a call.
pub fn beat() {
    if let Some(calls) = word(0) {
        calls.fetch_add(1, Ordering::Relaxed);
    }
}

/// Records that this thread is running now.
pub fn runs() {
    if let Some(thread) = word(1) {
        thread.store(kernel!(libc::SYS_gettid) as u64, Ordering::Relaxed);
    }
}

/// Records whether the box itself is waiting, for something outside the program.
pub fn outside(waits: bool) {
    if let Some(word) = word(2) {
        word.store(u64::from(waits), Ordering::Relaxed);
    }
}
