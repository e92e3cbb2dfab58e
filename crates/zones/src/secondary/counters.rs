//! What became of what was asked of primaries, and of what they told.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use crate::figures::Figures;

/// What became of a look at the primaries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The zone is as it was.
    Unchanged,
    /// All of it came.
    Axfr,
    /// What has changed came.
    Ixfr,
    /// None of the primaries had a zone to give.
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
    /// Changes that could not be applied, so that all of the zone was asked for.
    pub fallbacks: AtomicU64,
    /// NOTIFY messages of primaries.
    pub heard: AtomicU64,
    /// Those of others, or with another signature.
    pub refused: AtomicU64,
}

impl Counters {
    /// Counts an outcome.
    pub fn count(&self, outcome: Outcome) {
        self.outcomes[outcome as usize].fetch_add(1, Relaxed);
    }

    /// Adds them to what `/metrics` shows.
    pub fn show(&self, origin: &str, figures: &mut Figures) {
        let help = "Refreshes of the zone from its primaries, by result";
        let looks = figures.counter("secondary_refreshes", help);
        for (outcome, name) in Outcome::ALL {
            let count = self.outcomes[outcome as usize].load(Relaxed);
            looks.add(&[("origin", origin), ("result", name)], count);
        }
        let help = "Incremental transfers that could not be applied, so that the whole zone was transferred";
        figures
            .counter("secondary_ixfr_fallbacks", help)
            .add(&[("origin", origin)], self.fallbacks.load(Relaxed));
        let help = "NOTIFY messages received, by result";
        let notifies = figures.counter("secondary_notifies", help);
        for (name, count) in [("heard", &self.heard), ("refused", &self.refused)] {
            notifies.add(&[("origin", origin), ("result", name)], count.load(Relaxed));
        }
    }
}
