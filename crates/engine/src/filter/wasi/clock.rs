//! A guest's clock.

use std::time::Instant;

/// Nanoseconds by which each reading advances a counting clock.
pub(super) const STEP: u64 = 1000;

/// A guest's clock.
pub(super) enum Clock {
    /// The time at the last reading, in nanoseconds.
    Counting(u64),
    /// The machine's clock, and the start of the guest's monotonic clock.
    Real(Instant),
}

impl Clock {
    pub(super) fn new(granted: bool) -> Clock {
        if granted {
            Clock::Real(Instant::now())
        } else {
            Clock::Counting(0)
        }
    }

    /// Advances a counting clock and reads it.
    pub(super) fn count(reading: &mut u64) -> u64 {
        *reading = reading.saturating_add(STEP);
        *reading
    }
}
