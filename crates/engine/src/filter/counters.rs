//! Counters of what filters did.

use crate::attempts::Attempts;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::RwLock;

use super::own_counters::OwnCounters;

/// One filter's counters, over all workers and, if the caller carries them over, all generations. All are
/// monotonic except `suspended`.
#[derive(Debug, Default)]
pub struct FilterCounters {
    /// Calls of the query phase.
    pub queries: PhaseCounters,
    /// Calls of the response phase.
    pub responses: PhaseCounters,
    /// Calls of the event phase.
    pub events: PhaseCounters,
    /// Calls that continue with a query after its lookups.
    pub query_answers: PhaseCounters,
    /// Calls that continue with a response after its lookups.
    pub response_answers: PhaseCounters,
    /// Lookups by result ([`LOOKUPS`]).
    pub lookups: [AtomicU64; 4],
    /// Queries by verdict.
    pub verdicts: VerdictCounters,
    /// Queries decided by a memoized verdict, without a call.
    pub remembered: AtomicU64,
    /// Responses whose message its verdicts changed, including memoized ones.
    pub edits: AtomicU64,
    /// Time spent on that, in nanoseconds: the proxy's work, carrying out the filter's verdicts.
    pub edit_nanoseconds: AtomicU64,
    /// Queries, responses and events for which it was not called, by reason.
    pub uncalled: UncalledCounters,
    /// Failed calls and failed starts, by reason.
    pub traps: TrapCounters,
    /// Instances that replaced a failed one.
    pub restarts: AtomicU64,
    /// Workers on which the filter is suspended now, at least for new names and clients.
    pub suspended: AtomicU64,
    /// Peak linear memory of any instance, in bytes.
    pub memory: AtomicU64,
    /// Lines not printed because standard output was not read fast enough.
    pub lines_dropped: AtomicU64,
    /// Verdicts that delayed a response.
    pub delays: AtomicU64,
    /// Queries dropped, by the filter's reason.
    pub drops: DropCounters,
    /// Results of its refreshes.
    pub refreshes: Attempts,
    /// The filter's own counters.
    pub own: OwnCounters,
    /// Invalid or excess counts of its own, which were ignored: see [`OwnCounters::add`].
    pub own_dropped: AtomicU64,
}

impl FilterCounters {
    /// The phases with their names in metrics.
    pub fn phases(&self) -> [(&'static str, &PhaseCounters); 5] {
        [
            ("query", &self.queries),
            ("response", &self.responses),
            ("query-answers", &self.query_answers),
            ("response-answers", &self.response_answers),
            ("event", &self.events),
        ]
    }
}

/// The labels of [`FilterCounters::lookups`].
pub(super) const LOOKUPS: [&str; 4] = ["answered", "failed", "timed-out", "limited"];

/// Calls of one phase.
#[derive(Debug, Default)]
pub struct PhaseCounters {
    /// Calls into WebAssembly.
    pub calls: AtomicU64,
    /// Wall-clock time inside, in nanoseconds.
    pub nanoseconds: AtomicU64,
    /// Queries, responses or events passed to it, each counted once.
    pub items: AtomicU64,
    /// Those on which it failed or was not called.
    pub failed: AtomicU64,
}

/// Queries by verdict; those without a verdict, or on which the filter failed, are not counted.
#[derive(Debug, Default)]
pub struct VerdictCounters {
    /// Explicitly passed, perhaps with an edit of the response.
    pub pass: AtomicU64,
    /// Name, type or class changed.
    pub rewrite: AtomicU64,
    /// Answered by the filter.
    pub answer: AtomicU64,
    /// Redirected to another name.
    pub alias: AtomicU64,
    /// Refused with an rcode.
    pub refuse: AtomicU64,
    /// Left unanswered.
    pub drop: AtomicU64,
    /// Postponed until lookups are done.
    pub ask: AtomicU64,
}

impl VerdictCounters {
    /// The kinds with their names in metrics, in the order of `Decision::kind`.
    pub fn kinds(&self) -> [(&'static str, &AtomicU64); 7] {
        [
            ("pass", &self.pass),
            ("rewrite", &self.rewrite),
            ("answer", &self.answer),
            ("alias", &self.alias),
            ("refuse", &self.refuse),
            ("drop", &self.drop),
            ("ask", &self.ask),
        ]
    }
}

/// Queries, responses and events for which a filter was not called, by reason.
#[derive(Debug, Default)]
pub struct UncalledCounters {
    /// The name is blamed for failed calls.
    pub name: AtomicU64,
    /// The client is blamed.
    pub client: AtomicU64,
    /// The filter is suspended.
    pub suspended: AtomicU64,
    /// No instance is ready yet.
    pub starting: AtomicU64,
}

impl UncalledCounters {
    /// The reasons with their names in metrics.
    pub fn reasons(&self) -> [(&'static str, &AtomicU64); 4] {
        [
            ("name", &self.name),
            ("client", &self.client),
            ("suspended", &self.suspended),
            ("starting", &self.starting),
        ]
    }
}

/// Failures by reason.
#[derive(Debug, Default)]
pub struct TrapCounters {
    /// The guest trapped: a panic, an unreachable instruction, an out-of-bounds access.
    pub trap: AtomicU64,
    /// It exceeded its time limit.
    pub time: AtomicU64,
    /// It exceeded its memory limit.
    pub memory: AtomicU64,
    /// It returned an invalid result.
    pub garbage: AtomicU64,
}

/// Queries that the filter dropped, by its reason.
#[derive(Debug, Default)]
pub struct DropCounters(RwLock<BTreeMap<Box<str>, AtomicU64>>);

/// Maximum reasons counted separately.
const DROP_REASONS: usize = 64;

/// The reason under which all others are counted.
const OTHER_REASONS: &str = "other";

impl DropCounters {
    /// Counts one dropped query.
    pub fn add(&self, reason: &str) {
        if let Some(count) = self.0.read().get(reason) {
            count.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let mut by_reason = self.0.write();
        let known = by_reason.len() < DROP_REASONS || by_reason.contains_key(reason);
        let reason = if known { reason } else { OTHER_REASONS };
        by_reason
            .entry(reason.into())
            .or_default()
            .fetch_add(1, Ordering::Relaxed);
    }

    /// All reasons with their counts, in order.
    pub fn snapshot(&self) -> Vec<(Box<str>, u64)> {
        let counts = self.0.read();
        let counts = counts.iter();
        counts
            .map(|(reason, count)| (reason.clone(), count.load(Ordering::Relaxed)))
            .collect()
    }
}

/// Adds to a counter; leaves the shared cache line alone if there is nothing to add.
pub(super) fn add(counter: &AtomicU64, by: u64) {
    if by != 0 {
        counter.fetch_add(by, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_to_drop_are_bounded() {
        let drops = DropCounters::default();
        for reason in 0..1000 {
            drops.add(&reason.to_string());
            drops.add("0");
        }
        let snapshot = drops.snapshot();
        assert_eq!(snapshot.len(), DROP_REASONS + 1);
        assert_eq!(
            snapshot.iter().map(|(_, count)| count).sum::<u64>(),
            2000,
            "none is lost"
        );
        assert!(snapshot.contains(&("other".into(), 1000 - DROP_REASONS as u64)));
    }
}
