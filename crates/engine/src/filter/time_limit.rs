//! The time limit of a call.
//!
//! The limit counts running time. The epoch, which interrupts calls, follows wall-clock time. The two are the same unless
//! the machine is overloaded, and then a good filter must not fail because the worker's thread had to wait for a
//! processor. Only the kernel knows how long a thread has run, and asking it takes longer than most calls.
//!
//! So the thread's clock is not read until the epoch calls back for the first time, which it does only in a call that
//! the [clock](super::ticker) has found to last. The time until then counts for half of the limit at most. From then on
//! the call may run for the rest, by the thread's clock, and the epoch calls back with every tick until that is used
//! up, or until [several limits](PATIENCE) have passed, since the worker has other queries to serve.

use std::time::{Duration, Instant};

/// Limits that may pass after a call was seen to last.
pub(super) const PATIENCE: u32 = 4;

/// How long calls may take, and how far the one under way has gone.
pub(super) struct TimeLimit {
    limit: Duration,
    begun: Instant,
    overtime: Option<Overtime>,
}

/// A call under way that was seen to last.
struct Overtime {
    since: Instant,
    /// The thread's clock, then.
    clock: Duration,
    /// What it had left to run, then.
    rest: Duration,
}

impl TimeLimit {
    /// For calls that may take as long as `limit`.
    pub(super) fn new(limit: Duration) -> TimeLimit {
        TimeLimit {
            limit,
            begun: Instant::now(),
            overtime: None,
        }
    }

    /// The limit.
    #[cfg(feature = "box-fuel")]
    pub(super) fn whole(&self) -> Duration {
        self.limit
    }

    /// To be called when a call begins.
    #[inline]
    pub(super) fn begin(&mut self) {
        self.begun = Instant::now();
        self.overtime = None;
    }

    /// Whether a call has had too much that ran for so long since it was first seen, however it ended.
    pub(super) fn is_beyond(&self, ran: Duration) -> bool {
        ran >= self.limit
    }

    /// To be called by the call under way with every tick. Whether its time is up.
    #[cold]
    pub(super) fn is_up(&mut self) -> bool {
        self.is_up_at(Instant::now(), thread_clock())
    }

    /// The same, for an instant at which the thread's clock stands at `clock`.
    fn is_up_at(&mut self, now: Instant, clock: Duration) -> bool {
        let (limit, begun) = (self.limit, self.begun);
        let overtime = self.overtime.get_or_insert_with(|| Overtime {
            since: now,
            clock,
            rest: rest(limit, now.saturating_duration_since(begun)),
        });
        let passed = now.saturating_duration_since(overtime.since);
        let ran = clock.saturating_sub(overtime.clock);
        is_up(limit, overtime.rest, passed, ran)
    }
}

/// How long a call may run that is seen for the first time when so much has `passed`.
fn rest(limit: Duration, passed: Duration) -> Duration {
    limit - passed.min(limit / 2)
}

/// Whether the time is up of a call that had `rest` left to run and has run for `ran` in the time that has `passed`.
fn is_up(limit: Duration, rest: Duration, passed: Duration, ran: Duration) -> bool {
    ran >= rest || passed >= limit.saturating_mul(PATIENCE)
}

/// How long this thread has run.
pub(super) fn thread_clock() -> Duration {
    // Every thread has this clock.
    read_clock(libc::CLOCK_THREAD_CPUTIME_ID).unwrap_or_default()
}

/// The clock of this thread, for others to read.
#[inline]
pub(super) fn clock_of_thread() -> libc::clockid_t {
    let mut clock = libc::CLOCK_THREAD_CPUTIME_ID;
    // SAFETY: writes one clock's ID, which is ours, of a thread that is there: this one.
    unsafe { libc::pthread_getcpuclockid(libc::pthread_self(), &raw mut clock) };
    clock
}

/// What a clock says; none: its thread has ended.
pub(super) fn read_clock(clock: libc::clockid_t) -> Option<Duration> {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: writes one `timespec`, which is ours. A clock that is not there is an error.
    let read = unsafe { libc::clock_gettime(clock, &raw mut time) } == 0;
    read.then(|| Duration::new(time.tv_sec as u64, time.tv_nsec as u32))
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(milliseconds: u64) -> Duration {
        Duration::from_millis(milliseconds)
    }

    #[test]
    fn what_passed_unseen_counts_for_half_of_the_limit_at_most() {
        for (passed, expected) in [(ms(0), ms(10)), (ms(3), ms(7)), (ms(5), ms(5)), (ms(90), ms(5))] {
            assert_eq!(rest(ms(10), passed), expected, "{passed:?} passed");
        }
        assert_eq!(rest(Duration::ZERO, ms(1)), Duration::ZERO);
    }

    #[test]
    fn a_call_that_runs_gets_its_limit_and_no_more() {
        let mut limit = TimeLimit::new(ms(6));
        // Whoever ran before has moved the thread's clock.
        for clock in [ms(0), ms(90)] {
            limit.begin();
            // Nobody looks until the call has lasted for 4 ms. The thread runs a third of the time from then on.
            let seen = limit.begun + ms(4);
            let mut up_at = |passed: u64, ran: u64| limit.is_up_at(seen + ms(passed), clock + ms(ran));
            assert!(!up_at(0, 0));
            assert!(!up_at(8, 2), "half of the limit is what it is sure to run");
            assert!(up_at(9, 3));
            assert!(up_at(10, 4), "for good");
        }
    }

    #[test]
    fn a_call_that_never_ends_is_ended() {
        let mut limit = TimeLimit::new(ms(5));
        limit.begin();
        // By the clocks as they are, whoever else has the processor.
        while !limit.is_up() {}
    }

    #[test]
    fn what_a_call_waits_is_not_held_against_it() {
        for (passed, ran, expected) in [
            (ms(0), ms(0), false),
            (ms(3), ms(3), false),
            (ms(5), ms(5), true),
            (ms(6), ms(2), false),
            (ms(39), ms(1), false),
            (ms(39), ms(5), true),
            // Nobody waits for ever.
            (ms(40), ms(1), true),
        ] {
            let up = is_up(ms(10), ms(5), passed, ran);
            assert_eq!(up, expected, "{passed:?} passed, ran {ran:?}");
        }
    }
}
