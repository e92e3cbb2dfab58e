//! The first queries of a filter: if it fails on them, whoever has loaded it is told, and may go back to what was there
//! before.
//!
//! A filter fails its probation when a worker suspends it before so many queries and responses have come to it. What
//! makes it suspended is [`Health`](super::health::Health)'s business; nothing is counted here that is not counted
//! anyway, and no call costs more.

use std::sync::{Arc, OnceLock};

use tokio::sync::Notify;

use super::counters::FilterCounters;

/// How one filter's first queries go.
pub(super) struct Probation {
    counters: Arc<FilterCounters>,
    /// What the counters, which outlive a filter, come to when it ends.
    until: u64,
    /// The last thing that went wrong before it failed.
    failed: OnceLock<String>,
    /// Told when it fails.
    alarm: Arc<Notify>,
}

impl Probation {
    /// Begins, and ends when `queries` more have come.
    pub(super) fn begin(counters: Arc<FilterCounters>, queries: u64, alarm: Arc<Notify>) -> Probation {
        Probation {
            until: seen(&counters).saturating_add(queries),
            counters,
            failed: OnceLock::new(),
            alarm,
        }
    }

    /// Notes that the filter was suspended, because of this at last.
    pub(super) fn suspended(&self, why: &str) {
        // What has come includes the queries on which it failed.
        if seen(&self.counters) <= self.until && self.failed.set(why.to_owned()).is_ok() {
            self.alarm.notify_one();
        }
    }

    /// Why it failed, if it did.
    pub(super) fn failure(&self) -> Option<&str> {
        self.failed.get().map(String::as_str)
    }
}

/// Queries and responses that came to the filter.
fn seen(counters: &FilterCounters) -> u64 {
    use std::sync::atomic::Ordering::Relaxed;
    counters.queries.items.load(Relaxed) + counters.responses.items.load(Relaxed)
}

#[cfg(test)]
mod tests {
    use super::super::counters::add;
    use super::*;

    #[test]
    fn only_the_first_queries_count() {
        let counters = Arc::new(FilterCounters::default());
        // Of the filter that was there before.
        add(&counters.queries.items, 1000);
        let begin = || Probation::begin(Arc::clone(&counters), 100, Arc::default());
        let (early, late, none) = (
            begin(),
            begin(),
            Probation::begin(Arc::clone(&counters), 0, Arc::default()),
        );
        add(&counters.queries.items, 60);
        add(&counters.responses.items, 40);
        early.suspended("it trapped");
        early.suspended("again");
        assert_eq!(early.failure(), Some("it trapped"));
        none.suspended("it trapped");
        assert_eq!(none.failure(), None);
        add(&counters.responses.items, 1);
        late.suspended("it trapped");
        assert_eq!(late.failure(), None);
    }
}
