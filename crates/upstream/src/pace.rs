//! The speed of an upstream, and its budget of hedges: attempts started while an earlier one is unanswered.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU32, AtomicU64};
use std::time::Duration;

/// The price of a hedge, in replies.
const COST: u32 = 10;
/// Hedges allowed before any reply.
const FREE: u32 = 32;

/// How many more hedges an upstream may be sent.
///
/// A hedge that gets a reply is free: the query it repeats was lost, or another upstream is in trouble. One
/// without a reply must be earned by ten replies. So a lossy path is made up for at once, while an overloaded
/// upstream gets at most a tenth more queries, and none once it is silent.
#[derive(Debug)]
pub(super) struct HedgeBudget(AtomicU32);

impl Default for HedgeBudget {
    fn default() -> Self {
        Self(AtomicU32::new(FREE * COST))
    }
}

impl HedgeBudget {
    /// Spends one hedge. Returns false if none is left.
    pub fn take(&self) -> bool {
        let take = |budget: u32| budget.checked_sub(COST);
        self.0.fetch_update(Relaxed, Relaxed, take).is_ok()
    }

    /// Records a reply to an attempt, which may have been a hedge.
    pub(crate) fn earn(&self, hedge: bool) {
        let replies = if hedge { COST } else { 1 };
        // A lost update does no harm.
        let budget = self.0.load(Relaxed);
        if budget < FREE * COST {
            self.0.store((budget + replies).min(FREE * COST), Relaxed);
        }
    }
}

/// Smoothed round-trip time and its variation, as TCP keeps them (RFC 6298 section 2). Unlike a multiple of
/// the mean, this grows for an upstream that answers from its cache at once and takes its time over the rest.
#[derive(Debug, Default)]
pub(super) struct RoundTrip {
    /// Both in microseconds, the mean in the upper half; 0: never measured. A lost update does no harm.
    packed: AtomicU64,
}

impl RoundTrip {
    /// Adds a measurement.
    pub fn sample(&self, round_trip: Duration) {
        let sample = u64::try_from(round_trip.as_micros())
            .unwrap_or(u64::MAX)
            .clamp(1, u64::from(u32::MAX));
        let (mean, variation) = match self.packed.load(Relaxed) {
            0 => (sample, sample / 2),
            packed => {
                let (mean, variation) = (packed >> 32, packed & 0xffff_ffff);
                (
                    (mean * 7 + sample) / 8,
                    (variation * 3 + mean.abs_diff(sample)) / 4,
                )
            }
        };
        self.packed.store(mean.max(1) << 32 | variation, Relaxed);
    }

    /// How long a reply usually takes at most; none if never measured.
    pub fn timeout(&self) -> Option<Duration> {
        let packed = self.packed.load(Relaxed);
        (packed != 0).then(|| Duration::from_micros((packed >> 32) + 4 * (packed & 0xffff_ffff)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hedges_that_bring_nothing_are_a_tenth_of_the_replies() {
        let hedge_budget = HedgeBudget::default();
        assert!((0..FREE).all(|_| hedge_budget.take()));
        assert!(!hedge_budget.take());
        let mut sent = 0;
        for _ in 0..1000 {
            hedge_budget.earn(false);
            sent += u32::from(hedge_budget.take());
        }
        assert_eq!(sent, 100);
    }

    #[test]
    fn hedges_that_bring_the_answer_are_free() {
        let hedge_budget = HedgeBudget::default();
        for _ in 0..1000 {
            assert!(hedge_budget.take());
            hedge_budget.earn(true);
        }
    }
}
