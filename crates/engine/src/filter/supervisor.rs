//! Calls one filter on one worker, within its limits, and replaces its instance after a failure.
//!
//! A call that traps, runs out of time or memory, or returns garbage costs the instance. A replacement,
//! configured from scratch, [is ready](super::spares). If the failed batch held several records, each is
//! retried alone, so that only the guilty one fails and is [blamed](super::blame). While any name or client
//! is blamed, all records go in one by one, and theirs are not passed to the filter. [`Health`] decides when
//! to stop trying.

use std::slice;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::batch::{Batch, Portable as _};
use super::bindings::dnsweir::filter::types::Event;
use super::blame::{Asker, Standing};
use super::check::Garbage;
use super::counters::{PhaseCounters, add};
use super::failure::{Failure, Reason};
use super::health::Health;
use super::host_state::Context;
use super::load::Filter;
use super::question::{Question, Record, Subject};
use super::sandbox::Sandbox;
use super::verdict::Outcome;

/// Makes the calls and replaces failed instances.
pub(super) struct Supervisor {
    filter: Arc<Filter>,
    /// None: lost to a failure, and no spare was ready to replace it.
    sandbox: Option<Sandbox>,
    health: Health,
    /// Start of the tests' clock, and how far tests have moved it.
    #[cfg(test)]
    origin: Instant,
    #[cfg(test)]
    skew: Duration,
}

impl Supervisor {
    /// A supervisor for a worker that has this instance.
    pub(super) fn new(filter: Arc<Filter>, sandbox: Sandbox) -> Supervisor {
        filter.enlist();
        Supervisor {
            health: Health::new(filter.context.limits.time, filter.start),
            filter,
            sandbox: Some(sandbox),
            #[cfg(test)]
            origin: Instant::now(),
            #[cfg(test)]
            skew: Duration::ZERO,
        }
    }

    /// Advances the clock that measures pauses.
    #[cfg(test)]
    pub(super) fn let_pass(&mut self, time: Duration) {
        self.skew += time;
    }

    /// Delivers events. Events on which the filter fails are counted and dropped, since no query depends on
    /// them. A failed batch is not retried: what the call did about its first events cannot be undone.
    pub(super) fn tell(&mut self, counters: &PhaseCounters, batch: &Batch<Event>) {
        add(&counters.items, batch.len() as u64);
        let mut failed = 0;
        if self.is_wary() || batch.len() == 1 {
            for index in 0..batch.len() {
                let event = Event::isolate(batch, index);
                let told = self.alone(counters, &event, |sandbox| {
                    sandbox.events(slice::from_ref(&event.record), event.bytes)
                });
                failed += u64::from(!told);
            }
        } else if !self.together(counters, |sandbox| sandbox.events(batch.records(), batch.bytes())) {
            failed = batch.len() as u64;
        }
        add(&counters.failed, failed);
    }

    /// Makes a call with the whole batch and, if that fails or is not allowed, with each record alone. `out`
    /// holds one [`Outcome::Passed`] per record.
    pub(super) fn run<R: Record, V: Clone>(
        &mut self,
        counters: &PhaseCounters,
        batch: &Batch<R>,
        out: &mut [Outcome<V>],
        call: impl Fn(&mut Sandbox, &[R], &[u8], &mut [Outcome<V>]) -> Result<(), Failure>,
    ) {
        add(&counters.items, batch.len() as u64);
        let several = batch.len() > 1;
        if several
            && !self.is_wary()
            && self.together(counters, |sandbox| {
                call(sandbox, batch.records(), batch.bytes(), out)
            })
        {
            return;
        }
        let mut failed = 0;
        for (index, outcome) in out.iter_mut().enumerate() {
            // Discard whatever a failed call returned.
            *outcome = Outcome::Passed;
            let one = R::isolate(batch, index);
            let alone = self.alone(counters, &one, |sandbox| {
                let (records, out) = (slice::from_ref(&one.record), slice::from_mut(outcome));
                call(sandbox, records, one.bytes, out)
            });
            if !alone {
                *outcome = Outcome::Failed;
                failed += 1;
            }
        }
        add(&counters.failed, failed);
    }

    /// Continues with one record after its lookups, in a call of its own.
    pub(super) fn go_on<V>(
        &mut self,
        counters: &PhaseCounters,
        answers: &impl Subject,
        call: impl FnOnce(&mut Sandbox, &mut [Outcome<V>]) -> Result<(), Failure>,
    ) -> Outcome<V> {
        add(&counters.items, 1);
        let mut out = [Outcome::Passed];
        let done = self.alone(counters, answers, |sandbox| call(sandbox, &mut out));
        let [outcome] = out;
        match done {
            true => outcome,
            false => {
                add(&counters.failed, 1);
                Outcome::Failed
            }
        }
    }

    /// Whether any name or client may be blamed, or the filter is in debt.
    #[inline]
    fn is_wary(&self) -> bool {
        self.filter.blame.is_open() || self.health.owes()
    }

    /// Makes a call about several records, while nothing is blamed. Returns whether it succeeded.
    fn together(
        &mut self,
        counters: &PhaseCounters,
        call: impl FnOnce(&mut Sandbox) -> Result<(), Failure>,
    ) -> bool {
        match self.attempt(counters, call) {
            Some(Ok(())) => true,
            Some(Err(failed)) => {
                self.filter.blame.failed_for_somebody(failed.at);
                self.fail(&failed, true);
                false
            }
            None => false,
        }
    }

    /// Makes a call about one record if it is admitted. Returns whether it succeeded.
    fn alone(
        &mut self,
        counters: &PhaseCounters,
        about: &impl Subject,
        call: impl FnOnce(&mut Sandbox) -> Result<(), Failure>,
    ) -> bool {
        let who = self.is_wary().then(|| self.filter.blame.asker(about));
        if who.is_some_and(|who| !self.admits(who)) {
            return false;
        }
        match self.attempt(counters, call) {
            Some(Ok(())) => {
                if let Some(who) = who {
                    self.filter.blame.succeeded(who);
                    self.health.succeeded();
                }
                true
            }
            Some(Err(failed)) => {
                let who = who.unwrap_or_else(|| self.filter.blame.asker(about));
                self.blame(who, &failed, || about.question());
                false
            }
            None => {
                add(&self.filter.context.counters.uncalled.starting, 1);
                false
            }
        }
    }

    /// Whether a call may be made for this name and client.
    #[cold]
    fn admits(&mut self, who: Asker) -> bool {
        let now = self.clock();
        self.resume(now);
        let standing = self.filter.blame.standing(now, who);
        let uncalled = &self.filter.context.counters.uncalled;
        let counter = match standing {
            Standing::BadName => &uncalled.name,
            Standing::BadClient => &uncalled.client,
            _ if self.health.admits(now, standing == Standing::Known) => return true,
            _ => &uncalled.suspended,
        };
        add(counter, 1);
        false
    }

    /// Makes one call. None: there is no instance.
    fn attempt(
        &mut self,
        counters: &PhaseCounters,
        call: impl FnOnce(&mut Sandbox) -> Result<(), Failure>,
    ) -> Option<Result<(), Failed>> {
        if self.sandbox.is_none() {
            self.take_over();
        }
        let begin = self.clock();
        let sandbox = self.sandbox.as_mut()?;
        let result = call(sandbox);
        let now = self.clock();
        let spent = now.saturating_duration_since(begin);
        counters.calls.fetch_add(1, Ordering::Relaxed);
        counters
            .nanoseconds
            .fetch_add(spent.as_nanos() as u64, Ordering::Relaxed);
        Some(result.map_err(|failure| Failed {
            failure,
            at: now,
            spent,
        }))
    }

    /// Replaces a lost instance with a spare, if one is ready.
    #[cold]
    fn take_over(&mut self) {
        #[cfg(test)]
        self.filter.await_spare();
        self.sandbox = self.filter.spare();
        if self.sandbox.is_some() {
            add(&self.filter.context.counters.restarts, 1);
        }
    }

    /// Blames a name or client for a failed call.
    #[cold]
    fn blame(&mut self, who: Asker, failed: &Failed, asked: impl FnOnce() -> Question) {
        let (cost, why) = (self.cost(failed), &failed.failure.message);
        let room = self.filter.blame.failed(failed.at, who, cost, why, asked);
        self.fail(failed, room);
    }

    /// The cost of a failure: the call plus the start of the next instance. Time beyond the call's limit is
    /// the machine's fault, not the filter's.
    fn cost(&self, failed: &Failed) -> Duration {
        failed.spent.min(self.filter.context.limits.time) + self.filter.start
    }

    /// Drops the instance of a failed call and charges the filter for it. Without `room`, blame can hold no
    /// more entries.
    #[cold]
    fn fail(&mut self, failed: &Failed, room: bool) {
        self.sandbox = None;
        let cost = self.cost(failed);
        let context = &self.filter.context;
        context.note(&failed.failure);
        if let Some(pause) = self.health.failed(failed.at, cost, room) {
            context.counters.suspended.fetch_add(1, Ordering::Relaxed);
            let filter = context.name.as_str();
            tracing::error!(
                target: "filter", filter, ?pause,
                "suspended on this worker for names and clients that are new to it, after failures of too many"
            );
        }
    }

    /// Ends a suspension that is over.
    fn resume(&mut self, now: Instant) {
        if self.health.resumes(now) {
            let context = &self.filter.context;
            context.counters.suspended.fetch_sub(1, Ordering::Relaxed);
            tracing::info!(target: "filter", filter = context.name.as_str(), "resuming after its suspension");
        }
    }

    fn clock(&self) -> Instant {
        // In tests it advances only while this thread runs.
        #[cfg(test)]
        return self.origin + super::time_limit::thread_clock() + self.skew;
        #[cfg(not(test))]
        Instant::now()
    }
}

/// A failed call: when it ended, and how long it took.
struct Failed {
    failure: Failure,
    at: Instant,
    spent: Duration,
}

impl Drop for Supervisor {
    fn drop(&mut self) {
        if self.health.suspended() {
            self.filter
                .context
                .counters
                .suspended
                .fetch_sub(1, Ordering::Relaxed);
        }
        self.filter.discharge();
    }
}

impl Context {
    /// Counts a failed call or start, and logs it.
    pub(super) fn note(&self, failure: &Failure) {
        let traps = &self.counters.traps;
        let (counter, reason) = match failure.reason {
            Reason::Trap => (&traps.trap, "trap"),
            Reason::Time => (&traps.time, "time"),
            Reason::Memory => (&traps.memory, "memory"),
            Reason::Garbage => (&traps.garbage, "garbage"),
        };
        add(counter, 1);
        let filter = self.name.as_str();
        if self.may_log().is_some() {
            tracing::warn!(target: "filter", filter, reason, "a call failed: {}", failure.message);
        }
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
