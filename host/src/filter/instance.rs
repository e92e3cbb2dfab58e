//! One filter on one worker: its calls, what is remembered of them, and what happens when they fail.
//!
//! A call that traps, runs out of time or memory, or returns nonsense costs the instance. A new one, configured from
//! scratch, [starts beside the worker](super::restart). If the failed batch held several records, they go in one by
//! one, so that only the guilty one fails. [`Health`] decides when to stop trying, and when one failure more would
//! end it, records go in one by one, too.

use std::mem;
use std::slice;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::ask::Answers;
use super::batch::{Batch, Portable};
use super::bindings::dnsweir::filter::types::{AskedQuery, AskedResponse, Event, Query, Response};
use super::check::{self, Garbage};
use super::counters::{PhaseCounters, add};
use super::data::Published;
use super::failure::{Failure, Reason};
use super::health::Health;
use super::interest::Interest;
use super::load::Filter;
use super::load_error::LoadError;
use super::memo::{Key, Memo, Recalled};
use super::restart::Restart;
use super::sandbox::Sandbox;
use super::verdict::{Outcome, QueryOutcome, ResponseOutcome};

/// A filter's instance. Made anywhere, then used by one worker.
pub struct Instance {
    filter: Arc<Filter>,
    memo: Memo,
    /// What the filter's refresh publishes; none: it has no refresh.
    published: Option<Arc<Published>>,
    /// What was published when the first of them was remembered.
    revision: u64,
    /// Verdicts recalled and not yet [settled](Instance::settle).
    recalled: u64,
    supervisor: Supervisor,
}

/// Makes the calls, and replaces what fails.
struct Supervisor {
    filter: Arc<Filter>,
    /// None: lost to a failure, and another one is starting.
    sandbox: Option<Sandbox>,
    restart: Option<Restart>,
    /// How long the next call may wait for an instance that is starting.
    patience: Duration,
    /// How long a call may wait for a start: as long as for a call, if a start is likely to be done by then.
    longest_wait: Duration,
    health: Health,
    /// Where the tests' clock began, and how far they have moved it.
    #[cfg(test)]
    origin: Instant,
    #[cfg(test)]
    skew: Duration,
}

impl Filter {
    /// An instance of its own for one worker.
    ///
    /// # Errors
    ///
    /// When the filter fails or changes its mind about the configuration that it has accepted before.
    pub fn instantiate(self: &Arc<Filter>) -> Result<Instance, LoadError> {
        Ok(Instance::new(Arc::clone(self), self.sandbox()?))
    }
}

impl Instance {
    fn new(filter: Arc<Filter>, sandbox: Sandbox) -> Instance {
        let limit = filter.context.limits.time;
        let supervisor = Supervisor {
            health: Health::new(limit, filter.start),
            filter: Arc::clone(&filter),
            sandbox: Some(sandbox),
            restart: None,
            patience: Duration::ZERO,
            longest_wait: longest_wait(limit, filter.start),
            #[cfg(test)]
            origin: Instant::now(),
            #[cfg(test)]
            skew: Duration::ZERO,
        };
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

    /// What the filter wants to see.
    #[inline]
    pub fn interest(&self) -> &Interest {
        self.filter.interest()
    }

    /// What the filter said about this question and asked to be remembered. `now` is in milliseconds and the
    /// same clock as for [`queries`](Instance::queries).
    #[inline]
    pub fn recall(&mut self, key: &Key<'_>, now: u64) -> Option<Recalled<'_>> {
        if self.revision != self.published_revision() {
            // It depended on what is not published any more.
            return None;
        }
        let recalled = self.memo.recall(key, now)?;
        self.recalled += 1;
        Some(recalled)
    }

    /// Which data is published now; always the same where there is no refresh.
    #[inline]
    fn published_revision(&self) -> u64 {
        self.published
            .as_ref()
            .map_or(0, |published| published.revision())
    }

    /// Forgets what depended on data that is not published any more. Before a call: what it says depends on what is published
    /// now, or later.
    fn forget_outdated(&mut self) {
        let revision = self.published_revision();
        if self.revision != revision {
            (self.revision, self.memo) = (revision, Memo::default());
        }
    }

    /// Adds what was recalled to the counters, which all workers write to: once per batch and not once per
    /// query.
    pub fn settle(&mut self) {
        add(
            &self.filter.context.counters.remembered,
            mem::take(&mut self.recalled),
        );
    }

    /// The query phase: one outcome per query, in order. Verdicts that may be remembered are. `now` is Unix
    /// time in milliseconds.
    pub fn queries(&mut self, now: u64, batch: &Batch<Query>, out: &mut Vec<QueryOutcome>) {
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

    /// Goes on with a query that the filter has asked about. What may be remembered takes the place of the `ask`.
    pub fn query_answers(&mut self, now: u64, key: &Key<'_>, answers: &Answers<AskedQuery>) -> QueryOutcome {
        self.forget_outdated();
        let counters = &self.filter.context.counters;
        let sources = &self.filter.interest().sources;
        let outcome = self.supervisor.go_on(&counters.query_answers, |sandbox, out| {
            let verdicts = sandbox.query_answers(now, answers)?;
            Ok(check::verdicts(verdicts, true, sources, out)?)
        });
        if let Outcome::Decided(verdict) = &outcome {
            add(counters.verdicts.kinds()[verdict.decision.kind()].1, 1);
            self.memo.remember(key, now, verdict);
        }
        outcome
    }

    /// Goes on with a response that the filter has asked about.
    pub fn response_answers(&mut self, now: u64, answers: &Answers<AskedResponse>) -> ResponseOutcome {
        let counters = &self.filter.context.counters;
        self.supervisor.go_on(&counters.response_answers, |sandbox, out| {
            let verdicts = sandbox.response_answers(now, answers)?;
            Ok(check::response_verdicts(verdicts, true, out)?)
        })
    }

    /// Moves the clock that pauses are measured with.
    #[cfg(test)]
    pub(super) fn let_pass(&mut self, time: Duration) {
        self.supervisor.skew += time;
    }

    /// The response phase: one outcome per response, in order. `now` is Unix time in milliseconds.
    pub fn responses(&mut self, now: u64, batch: &Batch<Response>, out: &mut Vec<ResponseOutcome>) {
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

    /// The event phase. Events on which the filter fails are counted and dropped, since no query depends on them.
    pub fn events(&mut self, batch: &Batch<Event>) {
        if batch.is_empty() {
            return;
        }
        let counters = &self.filter.context.counters.events;
        add(&counters.items, batch.len() as u64);
        let done = self
            .supervisor
            .attempt(counters, |sandbox| sandbox.events(batch.records(), batch.bytes()));
        if done.is_none() {
            add(&counters.failed, batch.len() as u64);
        }
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        self.settle();
        if self.supervisor.health.suspended() {
            self.filter
                .context
                .counters
                .suspended
                .fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl Supervisor {
    /// Makes a call with the whole batch and, if that fails or must not, with each record alone. `out` holds
    /// one [`Outcome::Passed`] per record.
    fn run<R: Portable, V: Clone>(
        &mut self,
        counters: &PhaseCounters,
        batch: &Batch<R>,
        out: &mut [Outcome<V>],
        call: impl Fn(&mut Sandbox, &[R], &[u8], &mut [Outcome<V>]) -> Result<(), Failure>,
    ) {
        add(&counters.items, batch.len() as u64);
        let several = batch.len() > 1;
        if !(several && self.available() && self.health.on_last_chance()) {
            let whole = self.attempt(counters, |sandbox| {
                call(sandbox, batch.records(), batch.bytes(), out)
            });
            if whole.is_some() {
                return;
            }
        }
        let mut failed = 0;
        for (index, outcome) in out.iter_mut().enumerate() {
            // Whatever a failed call said counts for nothing.
            *outcome = Outcome::Passed;
            let (record, bytes) = R::isolate(batch, index);
            let alone = several.then(|| {
                let (record, out) = (slice::from_ref(&record), slice::from_mut(outcome));
                self.attempt(counters, |sandbox| call(sandbox, record, bytes, out))
            });
            if alone.flatten().is_none() {
                *outcome = Outcome::Failed;
                failed += 1;
            }
        }
        add(&counters.failed, failed);
    }

    /// Makes a call about one record that it was called for before.
    fn go_on<V>(
        &mut self,
        counters: &PhaseCounters,
        call: impl FnOnce(&mut Sandbox, &mut [Outcome<V>]) -> Result<(), Failure>,
    ) -> Outcome<V> {
        add(&counters.items, 1);
        let mut out = [Outcome::Passed];
        match self.attempt(counters, |sandbox| call(sandbox, &mut out)) {
            Some(()) => {
                let [outcome] = out;
                outcome
            }
            None => {
                add(&counters.failed, 1);
                Outcome::Failed
            }
        }
    }

    /// Makes one call, unless the filter is suspended. None: it failed, or was not made.
    fn attempt(
        &mut self,
        counters: &PhaseCounters,
        call: impl FnOnce(&mut Sandbox) -> Result<(), Failure>,
    ) -> Option<()> {
        if !self.available() {
            return None;
        }
        let begin = self.clock();
        if self.sandbox.is_none() {
            self.take_over(begin);
        }
        let sandbox = self.sandbox.as_mut()?;
        let result = call(sandbox);
        let spent = self.clock().saturating_duration_since(begin);
        counters.calls.fetch_add(1, Ordering::Relaxed);
        counters
            .nanoseconds
            .fetch_add(spent.as_nanos() as u64, Ordering::Relaxed);
        match result {
            Ok(()) => {
                self.health.succeeded();
                Some(())
            }
            Err(failure) => {
                self.fail(begin, &failure);
                None
            }
        }
    }

    /// Takes the instance that was started in the place of a lost one, if it is there in time.
    #[cold]
    fn take_over(&mut self, begin: Instant) {
        if self.restart.is_none() {
            self.restart();
        }
        // Only the first call after a failure waits; those that follow while the instance starts do not.
        let patience = mem::take(&mut self.patience);
        let Some(made) = self.restart.as_ref().and_then(|restart| restart.wait(patience)) else {
            return;
        };
        self.restart = None;
        match made {
            Ok(sandbox) => self.sandbox = Some(sandbox),
            Err(failure) => self.fail(begin, &failure),
        }
    }

    /// Has an instance started.
    fn restart(&mut self) {
        let context = &self.filter.context;
        context.counters.restarts.fetch_add(1, Ordering::Relaxed);
        self.patience = self.longest_wait;
        match Restart::begin(&self.filter) {
            Ok(restart) => self.restart = Some(restart),
            // It is tried again with the next call.
            Err(error) => {
                tracing::warn!(target: "filter", filter = context.name, %error, "cannot start a thread for a new instance");
            }
        }
    }

    #[cold]
    fn fail(&mut self, begin: Instant, failure: &Failure) {
        self.sandbox = None;
        let context = &self.filter.context;
        let (counter, reason) = match failure.reason {
            Reason::Trap => (&context.counters.traps.trap, "trap"),
            Reason::Time => (&context.counters.traps.time, "time"),
            Reason::Memory => (&context.counters.traps.memory, "memory"),
            Reason::Garbage => (&context.counters.traps.garbage, "garbage"),
        };
        counter.fetch_add(1, Ordering::Relaxed);
        let filter = context.name.as_str();
        if context.may_log().is_some() {
            tracing::warn!(target: "filter", filter, reason, "a call failed: {}", failure.message);
        }
        // A failure costs the call and the start of the next instance. Time beyond the call's limit is the
        // machine's fault and not the filter's.
        let now = self.clock();
        let cost = now.saturating_duration_since(begin).min(context.limits.time) + self.filter.start;
        if let Some(pause) = self.health.failed(now, cost) {
            context.counters.suspended.fetch_add(1, Ordering::Relaxed);
            tracing::error!(target: "filter", filter, ?pause, "suspended on this worker after repeated failures");
            self.filter
                .probation
                .suspended(&format!("{reason}: {}", failure.message));
        }
        self.restart();
    }

    /// Whether the filter may be called: it is not suspended, or not any more.
    #[inline]
    fn available(&mut self) -> bool {
        !self.health.suspended() || self.resume()
    }

    /// Ends a pause that is over.
    #[cold]
    fn resume(&mut self) -> bool {
        let resumes = self.health.resumes(self.clock());
        if resumes {
            self.filter
                .context
                .counters
                .suspended
                .fetch_sub(1, Ordering::Relaxed);
            tracing::info!(target: "filter", filter = self.filter.name(), "resuming after its suspension");
        }
        resumes
    }

    fn clock(&self) -> Instant {
        // In tests it stands still while others have the processor.
        #[cfg(test)]
        return self.origin + super::time_limit::thread_clock() + self.skew;
        #[cfg(not(test))]
        Instant::now()
    }
}

/// How long a call may wait for an instance that takes so long to start, where a call may take so long.
fn longest_wait(limit: Duration, start: Duration) -> Duration {
    if cfg!(test) {
        // What tests expect does not depend on how busy the machine is.
        Duration::from_secs(600)
    } else if start <= limit {
        limit
    } else {
        Duration::ZERO
    }
}

impl From<Garbage> for Failure {
    fn from(Garbage(message): Garbage) -> Failure {
        Failure {
            reason: Reason::Garbage,
            message: format!("it returned {message}"),
        }
    }
}
