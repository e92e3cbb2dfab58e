//! Cancels work on another thread whose result is no longer needed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A flag that cancels work on another thread. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct Cancel(Arc<AtomicBool>);

impl Cancel {
    /// Cancels the work, which checks the flag at least every tenth of a second.
    pub(crate) fn cancel(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether the work is cancelled.
    pub fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Cancels when it is dropped, unless it is [disarmed](CancelOnDrop::disarm).
#[derive(Debug, Default)]
pub(super) struct CancelOnDrop {
    cancel: Cancel,
    disarmed: bool,
}

impl CancelOnDrop {
    /// The flag that it sets.
    pub(super) fn cancel(&self) -> &Cancel {
        &self.cancel
    }

    /// Keeps it from cancelling.
    pub(super) fn disarm(mut self) {
        self.disarmed = true;
    }
}

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        if !self.disarmed {
            self.cancel.cancel();
        }
    }
}
