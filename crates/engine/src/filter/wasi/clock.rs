//! What time it is for a guest.

use std::time::Instant;

/// How much later it is at each reading of a clock that counts, in nanoseconds.
pub(super) const STEP: u64 = 1000;

/// What time it is for a guest.
pub(super) enum Clock {
    /// The time at the last reading, in nanoseconds.
    Counting(u64),
    /// The machine's, and when the guest's monotonic clock began.
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

    /// One reading more.
    pub(super) fn count(reading: &mut u64) -> u64 {
        *reading = reading.saturating_add(STEP);
        *reading
    }
}
