//! Keeps what fails while a filter is on probation: the first question of each name that is blamed.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio::sync::Notify;

use super::counters::FilterCounters;
use super::question::Question;

/// Names that must have failed calls.
const NAMES: usize = 8;

/// Clients that must have failed calls.
const CLIENTS: usize = 4;

/// Maximum questions kept: more than needed, since all may come from few clients.
const QUESTIONS: usize = 64;

/// Maximum bytes of all questions.
const QUESTION_OCTETS: usize = 256 << 10;

/// How long a filter is on probation, and the alarm.
pub(super) struct Probation {
    counters: Arc<FilterCounters>,
    /// Value of the counters, which outlive a filter, at its end.
    until: u64,
    /// Notified when there is enough to test another filter with.
    alarm: Arc<Notify>,
}

/// What failed while a filter was on probation.
#[derive(Default)]
pub(super) struct Evidence {
    /// None: probation is over.
    probation: Option<Probation>,
    /// Name, client and question; each name once.
    questions: Vec<(u64, u64, Question)>,
    octets: usize,
    /// Why the last one failed.
    why: String,
}

impl Probation {
    /// Begins probation, which ends after the filter was called for `queries` more queries and responses.
    pub(super) fn begin(counters: Arc<FilterCounters>, queries: u64, alarm: Arc<Notify>) -> Probation {
        Probation {
            until: called_for(&counters).saturating_add(queries),
            counters,
            alarm,
        }
    }

    fn is_over(&self) -> bool {
        // The count includes the one that failed just now.
        called_for(&self.counters) > self.until
    }
}

/// The number of queries and responses that the filter was called for.
fn called_for(counters: &FilterCounters) -> u64 {
    use Ordering::Relaxed;
    let items = counters.queries.items.load(Relaxed) + counters.responses.items.load(Relaxed);
    let uncalled = counters.uncalled.reasons().map(|(_, count)| count.load(Relaxed));
    items.saturating_sub(uncalled.iter().sum())
}

impl Evidence {
    /// Maximum bytes kept.
    pub(super) const OCTETS: usize = QUESTION_OCTETS + QUESTIONS * size_of::<(u64, u64, Question)>();

    /// Evidence for a filter on probation.
    pub(super) fn of(probation: Probation) -> Evidence {
        Evidence {
            probation: Some(probation),
            ..Evidence::default()
        }
    }

    /// Keeps a failed question of a name and client, if the filter is on probation.
    pub(super) fn add(&mut self, (name, client): (u64, u64), why: &str, asked: impl FnOnce() -> Question) {
        let Some(probation) = &self.probation else { return };
        if probation.is_over() {
            *self = Evidence::default();
            return;
        }
        let is_known = self.questions.iter().any(|(known, ..)| *known == name);
        if is_known || self.questions.len() == QUESTIONS {
            return;
        }
        let question = asked();
        if self.octets + question.octets() > QUESTION_OCTETS {
            return;
        }
        self.octets += question.octets();
        self.questions.push((name, client, question));
        why.clone_into(&mut self.why);
        if self.is_enough() {
            probation.alarm.notify_one();
        }
    }

    fn is_enough(&self) -> bool {
        let mut clients: Vec<u64> = self.questions.iter().map(|(_, client, _)| *client).collect();
        clients.sort_unstable();
        clients.dedup();
        self.questions.len() >= NAMES && clients.len() >= CLIENTS
    }

    /// Takes all of it, if it is enough. Probation is over then.
    pub(super) fn take(&mut self) -> Option<(String, Vec<Question>)> {
        if !self.is_enough() {
            return None;
        }
        let all = std::mem::take(self);
        let questions = all.questions.into_iter().map(|(_, _, question)| question);
        Some((all.why, questions.collect()))
    }
}
