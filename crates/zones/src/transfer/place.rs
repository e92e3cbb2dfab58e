//! Limits the number of concurrent transfers.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

use super::counters::{Counters, Outcome};

/// The most transfers at a time, over all zones: each may be the last to hold an old version of its zone.
pub const AT_ONCE: usize = 8;

/// Transfers under way.
static UNDER_WAY: AtomicUsize = AtomicUsize::new(0);

/// A place among the [`AT_ONCE`] transfers.
pub struct Place(Arc<Counters>);

impl Place {
    /// Takes a place for a transfer counted in `counters`; none if all are taken.
    pub fn enter(counters: &Arc<Counters>) -> Option<Place> {
        if UNDER_WAY.fetch_add(1, Relaxed) >= AT_ONCE {
            UNDER_WAY.fetch_sub(1, Relaxed);
            return None;
        }
        counters.under_way.fetch_add(1, Relaxed);
        Some(Place(Arc::clone(counters)))
    }

    /// Counts the transfer's outcome.
    pub fn count(&self, outcome: Outcome) {
        self.0.count(outcome);
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.under_way.fetch_sub(1, Relaxed);
        UNDER_WAY.fetch_sub(1, Relaxed);
    }
}
