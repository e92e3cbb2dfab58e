//! What fails while a filter is on probation: the first question of each name that comes to be blamed.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio::sync::Notify;

use super::counters::FilterCounters;
use super::question::Question;

/// Names for which calls must have failed.
const NAMES: usize = 8;

/// Clients for which they must have.
const CLIENTS: usize = 4;

/// Questions that are kept: more than are needed, since all may come from few clients.
const QUESTIONS: usize = 64;

/// Octets of all of them.
const QUESTION_OCTETS: usize = 256 << 10;

/// How long a filter is on probation, and who is told.
pub(super) struct Probation {
    counters: Arc<FilterCounters>,
    /// What the counters, which outlive a filter, come to when it ends.
    until: u64,
    /// Told when there is enough to ask another filter about.
    alarm: Arc<Notify>,
}

/// What failed while a filter is on probation.
#[derive(Default)]
pub(super) struct Evidence {
    /// None: it is over.
    probation: Option<Probation>,
    /// Each of another name, and of a client.
    questions: Vec<(u64, u64, Question)>,
    octets: usize,
    /// Why the last of them failed.
    why: String,
}

impl Probation {
    /// Begins, and ends when the filter was called for `queries` more.
    pub(super) fn begin(counters: Arc<FilterCounters>, queries: u64, alarm: Arc<Notify>) -> Probation {
        Probation {
            until: called_for(&counters).saturating_add(queries),
            counters,
            alarm,
        }
    }

    fn is_over(&self) -> bool {
        // What it was called for includes what it failed on.
        called_for(&self.counters) > self.until
    }
}

/// Queries and responses that the filter was called for.
fn called_for(counters: &FilterCounters) -> u64 {
    use Ordering::Relaxed;
    let items = counters.queries.items.load(Relaxed) + counters.responses.items.load(Relaxed);
    let uncalled = counters.uncalled.reasons().map(|(_, count)| count.load(Relaxed));
    items.saturating_sub(uncalled.iter().sum())
}

impl Evidence {
    /// Octets that are kept at most.
    pub(super) const OCTETS: usize = QUESTION_OCTETS + QUESTIONS * size_of::<(u64, u64, Question)>();

    /// Of a filter on probation.
    pub(super) fn of(probation: Probation) -> Evidence {
        Evidence {
            probation: Some(probation),
            ..Evidence::default()
        }
    }

    /// Keeps what failed for a name and a client, if the filter is on probation.
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

    /// All of it, if it is enough. The probation is over then.
    pub(super) fn take(&mut self) -> Option<(String, Vec<Question>)> {
        if !self.is_enough() {
            return None;
        }
        let all = std::mem::take(self);
        let questions = all.questions.into_iter().map(|(_, _, question)| question);
        Some((all.why, questions.collect()))
    }
}
