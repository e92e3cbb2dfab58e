//! Counts the outcomes of transfers.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU64, AtomicUsize};

use crate::metrics::Metrics;

/// The outcome of a transfer request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The whole zone was sent.
    Sent,
    /// The client has the current zone, or must retry over TCP.
    SoaOnly,
    /// The client is not allowed to have it.
    Refused,
    /// The limit of concurrent transfers was reached.
    Full,
    /// The client left or was too slow, or a record fits into no message.
    Broken,
}

impl Outcome {
    /// All outcomes, with their names in metrics.
    const ALL: [(Outcome, &str); 5] = [
        (Outcome::Sent, "sent"),
        (Outcome::SoaOnly, "soa-only"),
        (Outcome::Refused, "refused"),
        (Outcome::Full, "full"),
        (Outcome::Broken, "broken"),
    ];
}

/// Counters of one source's transfers.
#[derive(Debug, Default)]
pub struct Counters {
    outcomes: [AtomicU64; Outcome::ALL.len()],
    /// Transfers under way.
    pub under_way: AtomicUsize,
    /// NOTIFY messages that were answered.
    pub notified: AtomicU64,
    /// NOTIFY messages without an answer after all tries.
    pub unheard: AtomicU64,
}

impl Counters {
    /// Counts an outcome.
    pub fn count(&self, outcome: Outcome) {
        self.outcomes[outcome as usize].fetch_add(1, Relaxed);
    }

    /// Adds them to the metrics.
    pub fn show(&self, origin: &str, metrics: &mut Metrics) {
        let help = "Requests for a zone transfer, by result";
        let transfers = metrics.counter("transfers_out", help);
        for (outcome, name) in Outcome::ALL {
            let count = self.outcomes[outcome as usize].load(Relaxed);
            transfers.add(&[("origin", origin), ("result", name)], count);
        }
        let help = "Zone transfers in progress";
        metrics
            .gauge("transfers_out_active", help)
            .add(&[("origin", origin)], self.under_way.load(Relaxed) as u64);
        let help = "Changes announced to a secondary, by result";
        let notifies = metrics.counter("transfer_notifies", help);
        for (name, count) in [("answered", &self.notified), ("unanswered", &self.unheard)] {
            notifies.add(&[("origin", origin), ("result", name)], count.load(Relaxed));
        }
    }
}
