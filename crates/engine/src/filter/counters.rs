//! What filters did, as numbers.

use crate::attempts::Attempts;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::RwLock;

use super::own_counters::OwnCounters;

/// One filter's counters, over all workers and, if the caller carries them over, all generations. Everything
/// is monotonic but `suspended`.
#[derive(Debug, Default)]
pub struct FilterCounters {
    /// Calls of the query phase.
    pub queries: PhaseCounters,
    /// Calls of the response phase.
    pub responses: PhaseCounters,
    /// Calls of the event phase.
    pub events: PhaseCounters,
    /// Calls that go on with a query.
    pub query_answers: PhaseCounters,
    /// Calls that go on with a response.
    pub response_answers: PhaseCounters,
    /// Lookups by what became of them ([`LOOKUPS`]).
    pub lookups: [AtomicU64; 4],
    /// Queries by what was said of them.
    pub verdicts: VerdictCounters,
    /// Queries that a remembered verdict answered without a call.
    pub remembered: AtomicU64,
    /// Responses whose message its verdicts changed, remembered ones among them.
    pub edits: AtomicU64,
    /// Time spent on that, in nanoseconds: the proxy's work, on what the filter said.
    pub edit_nanoseconds: AtomicU64,
    /// Queries, responses and events that it was not called for, by reason.
    pub uncalled: UncalledCounters,
    /// Failed calls and failed starts, by reason.
    pub traps: TrapCounters,
    /// Instances started in the place of one that had failed.
    pub restarts: AtomicU64,
    /// Workers on which the filter is suspended at the moment, for those who are new to it at least.
    pub suspended: AtomicU64,
    /// The most linear memory that one instance ever had, in octets.
    pub memory: AtomicU64,
    /// Lines not printed because nobody read standard output fast enough.
    pub lines_dropped: AtomicU64,
    /// Verdicts that had a response held back.
    pub delays: AtomicU64,
    /// Queries left unanswered, by the reason that the filter gave.
    pub drops: DropCounters,
    /// Its refreshes.
    pub refreshes: Attempts,
    /// The filter's own counters.
    pub own: OwnCounters,
    /// Times that it counted what is not counted: see [`OwnCounters::add`].
    pub own_dropped: AtomicU64,
}

impl FilterCounters {
    /// The phases with the names that metrics give them.
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
    /// Entries into WebAssembly.
    pub calls: AtomicU64,
    /// Wall time inside, in nanoseconds.
    pub nanoseconds: AtomicU64,
    /// Queries, responses or events handed over, each one once.
    pub items: AtomicU64,
    /// Those among them that the filter failed on, or was not called for.
    pub failed: AtomicU64,
}

/// Queries by verdict; without one, or with a failure, they count as neither.
#[derive(Debug, Default)]
pub struct VerdictCounters {
    /// Said explicitly, perhaps with an edit of the response.
    pub pass: AtomicU64,
    /// Name, type or class changed.
    pub rewrite: AtomicU64,
    /// Answered by the filter.
    pub answer: AtomicU64,
    /// Sent on to another name.
    pub alias: AtomicU64,
    /// Refused with an rcode.
    pub refuse: AtomicU64,
    /// Left unanswered.
    pub drop: AtomicU64,
    /// Put off until lookups are done.
    pub ask: AtomicU64,
}

impl VerdictCounters {
    /// The kinds with the names that metrics give them, in the order of `Decision::kind`.
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

/// What a filter was not called for, by reason.
#[derive(Debug, Default)]
pub struct UncalledCounters {
    /// The name is blamed for failed calls.
    pub name: AtomicU64,
    /// The client is.
    pub client: AtomicU64,
    /// The filter is suspended.
    pub suspended: AtomicU64,
    /// No instance is ready yet.
    pub starting: AtomicU64,
}

impl UncalledCounters {
    /// The reasons with the names that metrics give them.
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
    /// The guest trapped: a panic, an unreachable instruction, an access out of bounds.
    pub trap: AtomicU64,
    /// It ran into its time limit.
    pub time: AtomicU64,
    /// It ran into its memory limit.
    pub memory: AtomicU64,
    /// It returned something that makes no sense.
    pub garbage: AtomicU64,
}

/// Queries that got no response because the filter said so, by reason.
#[derive(Debug, Default)]
pub struct DropCounters(RwLock<BTreeMap<Box<str>, AtomicU64>>);

/// Reasons that are told apart.
const DROP_REASONS: usize = 64;

/// What all further ones are counted as.
const OTHER_REASONS: &str = "other";

impl DropCounters {
    /// Counts one.
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

    /// Every reason with its count, in order.
    pub fn snapshot(&self) -> Vec<(Box<str>, u64)> {
        let counts = self.0.read();
        let counts = counts.iter();
        counts
            .map(|(reason, count)| (reason.clone(), count.load(Ordering::Relaxed)))
            .collect()
    }
}

/// Adds where there is something to add, and leaves the shared cache line alone otherwise.
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
