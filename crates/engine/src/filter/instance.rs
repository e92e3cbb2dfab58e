//! One filter on one worker: passes batches to it, and memoizes its verdicts. Its [`Supervisor`] makes the
//! calls.

use std::mem;
use std::sync::Arc;
#[cfg(test)]
use std::time::Duration;

use dnsweir_os::clock::UnixTime;

use super::ask::Answers;
use super::batch::Batch;
use super::bindings::dnsweir::filter::types::{AskedQuery, AskedResponse, Event, Query, Response};
use super::check;
use super::counters::add;
use super::data::Published;
use super::interest::Interest;
use super::load::Filter;
use super::load_error::LoadError;
use super::memo::{Key, Memo, Recalled};
use super::sandbox::Sandbox;
use super::supervisor::Supervisor;
use super::verdict::{Outcome, QueryOutcome, ResponseOutcome};

/// A filter's instance. Made on any thread, then used by one worker.
pub struct Instance {
    filter: Arc<Filter>,
    memo: Memo,
    /// The data that the filter's refresh publishes; none: it has no refresh.
    published: Option<Arc<Published>>,
    /// The revision of published data that the memo depends on.
    revision: u64,
    /// Verdicts recalled and not yet [settled](Instance::settle).
    recalled: u64,
    supervisor: Supervisor,
}

impl Filter {
    /// Makes an instance for one worker.
    ///
    /// # Errors
    ///
    /// When the filter fails, or now rejects the configuration that it accepted before.
    pub fn instantiate(self: &Arc<Filter>) -> Result<Instance, LoadError> {
        Ok(Instance::new(Arc::clone(self), self.sandbox()?))
    }
}

impl Instance {
    fn new(filter: Arc<Filter>, sandbox: Sandbox) -> Instance {
        let supervisor = Supervisor::new(Arc::clone(&filter), sandbox);
        let published = filter
            .exports
            .refreshes()
            .then(|| Arc::clone(&filter.context.published));
        Instance {
            filter,
            memo: Memo::default(),
            published,
            revision: 0,
            recalled: 0,
            supervisor,
        }
    }

    /// The filter that this is an instance of.
    pub fn filter(&self) -> &Arc<Filter> {
        &self.filter
    }

    /// What the filter requests.
    #[inline]
    pub fn interest(&self) -> &Interest {
        self.filter.interest()
    }

    /// The memoized verdict on this question.
    #[inline]
    pub fn recall(&mut self, key: &Key<'_>, now: UnixTime) -> Option<Recalled<'_>> {
        if self.revision != self.published_revision() {
            // The memo depends on data that is no longer published.
            return None;
        }
        let recalled = self.memo.recall(key, now)?;
        self.recalled += 1;
        Some(recalled)
    }

    /// The revision of the published data; constant without a refresh.
    #[inline]
    fn published_revision(&self) -> u64 {
        self.published
            .as_ref()
            .map_or(0, |published| published.revision())
    }

    /// Clears the memo if other data was published. Called before a call, whose verdicts depend on the data
    /// published now or later.
    fn forget_outdated(&mut self) {
        let revision = self.published_revision();
        if self.revision != revision {
            (self.revision, self.memo) = (revision, Memo::default());
        }
    }

    /// Adds the recalled verdicts to the counters that all workers share: once per batch, not once per query.
    pub fn settle(&mut self) {
        add(
            &self.filter.context.counters.remembered,
            mem::take(&mut self.recalled),
        );
    }

    /// The query phase: one outcome per query, in order. Memoizes verdicts that allow it.
    pub fn queries(&mut self, now: UnixTime, batch: &Batch<Query>, out: &mut Vec<QueryOutcome>) {
        out.clear();
        if batch.is_empty() {
            return;
        }
        out.resize(batch.len(), Outcome::Passed);
        self.forget_outdated();
        let asks = self.filter.interest().asks;
        let counters = &self.filter.context.counters;
        let sources = &self.filter.interest().sources;
        self.supervisor
            .run(&counters.queries, batch, out, |sandbox, records, bytes, out| {
                let verdicts = sandbox.queries(now, records, bytes)?;
                Ok(check::verdicts(verdicts, asks, sources, out)?)
            });
        let mut kinds = [0; 7];
        for (index, outcome) in out.iter().enumerate() {
            let Outcome::Decided(verdict) = outcome else {
                continue;
            };
            kinds[verdict.decision.kind()] += 1;
            let query = &batch.records()[index];
            let key = Key {
                hash: batch.hash(index),
                name: batch.name(index),
                qtype: query.qtype,
                qclass: query.qclass,
                zone: query.zone,
            };
            self.memo.remember(&key, now, verdict);
        }
        for ((_, counter), by) in counters.verdicts.kinds().into_iter().zip(kinds) {
            add(counter, by);
        }
    }

    /// Continues with a query after its lookups. A verdict that may be memoized replaces the memoized `ask`;
    /// without a `key`, it is for this query alone.
    pub fn query_answers(
        &mut self,
        now: UnixTime,
        key: Option<&Key<'_>>,
        answers: &Answers<AskedQuery>,
    ) -> QueryOutcome {
        self.forget_outdated();
        let counters = &self.filter.context.counters;
        let sources = &self.filter.interest().sources;
        let outcome = self
            .supervisor
            .go_on(&counters.query_answers, answers, |sandbox, out| {
                let verdicts = sandbox.query_answers(now, answers)?;
                Ok(check::verdicts(verdicts, true, sources, out)?)
            });
        if let Outcome::Decided(verdict) = &outcome {
            add(counters.verdicts.kinds()[verdict.decision.kind()].1, 1);
            if let Some(key) = key {
                self.memo.remember(key, now, verdict);
            }
        }
        outcome
    }

    /// Continues with a response after its lookups.
    pub fn response_answers(&mut self, now: UnixTime, answers: &Answers<AskedResponse>) -> ResponseOutcome {
        let counters = &self.filter.context.counters;
        self.supervisor
            .go_on(&counters.response_answers, answers, |sandbox, out| {
                let verdicts = sandbox.response_answers(now, answers)?;
                Ok(check::response_verdicts(verdicts, true, out)?)
            })
    }

    /// Advances the clock that measures pauses.
    #[cfg(test)]
    pub(super) fn let_pass(&mut self, time: Duration) {
        self.supervisor.let_pass(time);
    }

    /// The response phase: one outcome per response, in order.
    pub fn responses(&mut self, now: UnixTime, batch: &Batch<Response>, out: &mut Vec<ResponseOutcome>) {
        out.clear();
        if batch.is_empty() {
            return;
        }
        out.resize(batch.len(), Outcome::Passed);
        let asks = self.filter.interest().asks;
        let counters = &self.filter.context.counters;
        self.supervisor
            .run(&counters.responses, batch, out, |sandbox, records, bytes, out| {
                let verdicts = sandbox.responses(now, records, bytes)?;
                Ok(check::response_verdicts(verdicts, asks, out)?)
            });
    }

    /// The event phase. Events on which the filter fails are counted and dropped, since no query depends on
    /// them.
    pub fn events(&mut self, batch: &Batch<Event>) {
        if !batch.is_empty() {
            let counters = &self.filter.context.counters.events;
            self.supervisor.tell(counters, batch);
        }
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        self.settle();
    }
}
