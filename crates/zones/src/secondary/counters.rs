//! Counts checks with the primaries, and their NOTIFY messages.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use crate::metrics::Metrics;

/// The outcome of a check with the primaries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The zone has not changed.
    Unchanged,
    /// The whole zone was fetched.
    Axfr,
    /// The changes were fetched.
    Ixfr,
    /// All primaries failed.
    Failed,
}

impl Outcome {
    const ALL: [(Outcome, &str); 4] = [
        (Outcome::Unchanged, "unchanged"),
        (Outcome::Axfr, "axfr"),
        (Outcome::Ixfr, "ixfr"),
        (Outcome::Failed, "failed"),
    ];
}

/// Counters of one zone.
#[derive(Debug, Default)]
pub struct Counters {
    outcomes: [AtomicU64; Outcome::ALL.len()],
    /// Changes that could not be applied, so that the whole zone was requested.
    pub fallbacks: AtomicU64,
    /// NOTIFY messages from primaries.
    pub heard: AtomicU64,
    /// NOTIFY messages from others, or without a valid signature.
    pub refused: AtomicU64,
}

impl Counters {
    /// Counts an outcome.
    pub fn count(&self, outcome: Outcome) {
        self.outcomes[outcome as usize].fetch_add(1, Relaxed);
    }

    /// Adds them to the metrics.
    pub fn show(&self, origin: &str, metrics: &mut Metrics) {
        let help = "Refreshes of the zone from its primaries, by result";
        let looks = metrics.counter("secondary_refreshes", help);
        for (outcome, name) in Outcome::ALL {
            let count = self.outcomes[outcome as usize].load(Relaxed);
            looks.add(&[("origin", origin), ("result", name)], count);
        }
        let help = "Incremental transfers that could not be applied, so that the whole zone was transferred";
        metrics
            .counter("secondary_ixfr_fallbacks", help)
            .add(&[("origin", origin)], self.fallbacks.load(Relaxed));
        let help = "NOTIFY messages received, by result";
        let notifies = metrics.counter("secondary_notifies", help);
        for (name, count) in [("heard", &self.heard), ("refused", &self.refused)] {
            notifies.add(&[("origin", origin), ("result", name)], count.load(Relaxed));
        }
    }
}
