//! How many UDP sockets to upstreams the process may have open, over all workers and generations: descriptors are the
//! process's.

use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

static MAXIMUM: AtomicUsize = AtomicUsize::new(usize::MAX);
static OPEN: AtomicUsize = AtomicUsize::new(0);

/// Has at most so many sockets opened from now on. When all are in use, queries share those that are open for longer
/// than they would otherwise.
pub fn bound_sockets(maximum: usize) {
    MAXIMUM.store(maximum, Relaxed);
}

/// One socket's descriptor, given back when dropped.
pub(super) struct Descriptor(());

impl Descriptor {
    /// None: all are in use.
    pub fn take() -> Option<Descriptor> {
        let taken = Descriptor(());
        (OPEN.fetch_add(1, Relaxed) < MAXIMUM.load(Relaxed)).then_some(taken)
    }

    /// Whether [`Descriptor::take`] would get one now.
    pub fn is_left() -> bool {
        OPEN.load(Relaxed) < MAXIMUM.load(Relaxed)
    }
}

impl Drop for Descriptor {
    fn drop(&mut self) {
        OPEN.fetch_sub(1, Relaxed);
    }
}
