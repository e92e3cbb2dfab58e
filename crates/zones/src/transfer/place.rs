//! How many transfers are under way.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

use super::counters::{Counters, Outcome};

/// Transfers that are under way at a time, over all zones: each may be the last that holds a zone as it was.
pub const AT_ONCE: usize = 8;

/// How many are.
static UNDER_WAY: AtomicUsize = AtomicUsize::new(0);

/// A place among the transfers that are under way.
pub struct Place(Arc<Counters>);

impl Place {
    /// One for a transfer that these count; none: as many as may be are under way.
    pub fn enter(counters: &Arc<Counters>) -> Option<Place> {
        if UNDER_WAY.fetch_add(1, Relaxed) >= AT_ONCE {
            UNDER_WAY.fetch_sub(1, Relaxed);
            return None;
        }
        counters.under_way.fetch_add(1, Relaxed);
        Some(Place(Arc::clone(counters)))
    }

    /// Counts what became of it.
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
