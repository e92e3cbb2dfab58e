//! Cancelling work on another thread whose outcome is no longer wanted.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Tells work under way on another thread that its outcome is not wanted any more. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct Cancel(Arc<AtomicBool>);

impl Cancel {
    /// The work ends as soon as it looks: within a tenth of a second.
    pub(crate) fn cancel(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether the work is to end.
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
    /// What it cancels.
    pub(super) fn cancel(&self) -> &Cancel {
        &self.cancel
    }

    /// Cancels nothing any more.
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
