//! What filters did, as numbers.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::RwLock;

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
    /// Queries by what was said of them.
    pub verdicts: VerdictCounters,
    /// Queries that a remembered verdict answered without a call.
    pub remembered: AtomicU64,
    /// Failed calls and failed starts, by reason.
    pub traps: TrapCounters,
    /// Instances started in the place of one that had failed.
    pub restarts: AtomicU64,
    /// Workers on which the filter is suspended at the moment.
    pub suspended: AtomicU64,
    /// The most linear memory that one instance ever had, in octets.
    pub memory: AtomicU64,
    /// Lines not printed because nobody read standard output fast enough.
    pub lines_dropped: AtomicU64,
    /// The filter's own counters.
    pub own: OwnCounters,
}

impl FilterCounters {
    /// The phases with the names that metrics give them.
    pub fn phases(&self) -> [(&'static str, &PhaseCounters); 3] {
        [
            ("query", &self.queries),
            ("response", &self.responses),
            ("event", &self.events),
        ]
    }
}

/// Calls of one phase.
#[derive(Debug, Default)]
pub struct PhaseCounters {
    /// Entries into WebAssembly.
    pub calls: AtomicU64,
    /// Wall time inside, in nanoseconds.
    pub nanoseconds: AtomicU64,
    /// Queries, responses or events handed over, each one once.
    pub items: AtomicU64,
    /// Those among them that the filter failed on, or was suspended for.
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

/// FilterCounters that a filter names itself.
#[derive(Debug, Default)]
pub struct OwnCounters {
    by_name: RwLock<BTreeMap<Box<str>, AtomicU64>>,
}

/// Names a filter may use: each becomes a label value that monitoring keeps for good.
const OWN_NAMES: usize = 64;

/// Octets in such a name.
const OWN_NAME_LENGTH: usize = 64;

impl OwnCounters {
    /// Adds to the counter `name`; false if the name is not a metric's name (`[a-zA-Z_][a-zA-Z0-9_]*`) or one
    /// too many.
    pub(super) fn add(&self, name: &str, by: u64) -> bool {
        if let Some(counter) = self.by_name.read().get(name) {
            counter.fetch_add(by, Ordering::Relaxed);
            return true;
        }
        let mut characters = name.bytes();
        let valid = characters
            .next()
            .is_some_and(|first| first.is_ascii_alphabetic() || first == b'_')
            && characters.all(|other| other.is_ascii_alphanumeric() || other == b'_')
            && name.len() <= OWN_NAME_LENGTH;
        if !valid {
            return false;
        }
        let mut by_name = self.by_name.write();
        if by_name.len() >= OWN_NAMES && !by_name.contains_key(name) {
            return false;
        }
        by_name
            .entry(name.into())
            .or_default()
            .fetch_add(by, Ordering::Relaxed);
        true
    }

    /// Every name with its value, in order.
    pub fn snapshot(&self) -> Vec<(Box<str>, u64)> {
        let by_name = self.by_name.read();
        by_name
            .iter()
            .map(|(name, value)| (name.clone(), value.load(Ordering::Relaxed)))
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
    fn own_names_are_checked_and_bounded() {
        let own = OwnCounters::default();
        assert!(own.add("hits_total", 2));
        assert!(own.add("hits_total", 3));
        for bad in ["", "1st", "a-b", "a b", "é", "a\"", &"a".repeat(65)] {
            assert!(!own.add(bad, 1), "{bad:?}");
        }
        for i in 1..OWN_NAMES {
            assert!(own.add(&format!("c{i}"), 1));
        }
        assert!(!own.add("one_too_many", 1));
        assert!(own.add("hits_total", 1), "known names go on counting");
        let snapshot = own.snapshot();
        assert_eq!(snapshot.len(), OWN_NAMES);
        assert!(snapshot.contains(&("hits_total".into(), 6)));
    }
}
