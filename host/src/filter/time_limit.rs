//! When a call has had its time.
//!
//! A limit is about the time that a filter runs. The epoch, which ends calls, goes by the time that passes: the
//! same, unless the machine has more to do than processors. There a good filter must not fail because the
//! worker's thread had to wait. Only the kernel knows how long a thread has run, and asking takes longer than
//! most calls.
//!
//! So nobody asks until half of the limit has passed, where the epoch calls back for the first time. From then on
//! the call has the other half to run, by the thread's own clock, and the epoch calls back until it is used up; or
//! until [a few limits](PATIENCE) have passed, for the worker has others to serve.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::ticker::{Awake, TICK, Ticker};

/// Limits that may pass after the first half of one.
const PATIENCE: u32 = 4;

/// How long the calls of an instance may take, and how far the one under way has gone.
pub(super) struct TimeLimit {
    limit: Duration,
    overtime: Option<Overtime>,
}

/// A call under way that has passed the first half of its limit.
struct Overtime {
    since: Instant,
    /// The thread's clock, then.
    clock: Duration,
    /// Keeps the epoch going.
    _awake: Awake,
}

impl TimeLimit {
    /// For calls that may take as long as `limit`.
    pub(super) fn new(limit: Duration) -> TimeLimit {
        TimeLimit {
            limit,
            overtime: None,
        }
    }

    /// The ticks after which a call calls back for the first time.
    pub(super) fn ticks(&self) -> u64 {
        Ticker::ticks(self.first())
    }

    /// What may pass before anybody looks at the thread's clock: half of the limit, in whole ticks, since
    /// parts of one are not given.
    fn first(&self) -> Duration {
        let ticks = self.limit.as_nanos() / TICK.as_nanos() / 2;
        TICK.saturating_mul(u32::try_from(ticks).unwrap_or(u32::MAX))
    }

    /// To be called by the call under way when the epoch gets to its deadline. For how many ticks it may go on;
    /// none if its time is up.
    #[cold]
    pub(super) fn reached(&mut self, ticker: &Arc<Ticker>) -> Option<u64> {
        let (now, clock) = (Instant::now(), thread_clock());
        let limit = self.limit;
        let rest = limit.saturating_sub(self.first());
        let overtime = self.overtime.get_or_insert_with(|| Overtime {
            since: now,
            clock,
            _awake: Ticker::keep_awake(ticker),
        });
        let passed = now.saturating_duration_since(overtime.since);
        let ran = clock.saturating_sub(overtime.clock);
        let left = left(limit, rest, passed, ran)?;
        // Rounded down: what the ticks fall short of is found to be left at the next of them.
        Some(u64::try_from(left.as_nanos() / TICK.as_nanos()).map_or(1, |ticks| ticks.max(1)))
    }

    /// To be called when a call is over.
    #[inline]
    pub(super) fn over(&mut self) {
        self.overtime = None;
    }
}

/// How much longer a call may run that may run for `rest` and has run for `ran` in the time that has `passed`.
fn left(limit: Duration, rest: Duration, passed: Duration, ran: Duration) -> Option<Duration> {
    let left = rest.checked_sub(ran).filter(|left| !left.is_zero())?;
    (passed < limit.saturating_mul(PATIENCE)).then_some(left)
}

/// How long this thread has run.
pub(super) fn thread_clock() -> Duration {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: writes one `timespec`, which is ours. It cannot fail: every thread has this clock.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(milliseconds: u64) -> Duration {
        Duration::from_millis(milliseconds)
    }

    #[test]
    fn what_a_call_waits_is_not_held_against_it() {
        for (passed, ran, expected) in [
            (ms(0), ms(0), Some(ms(5))),
            (ms(3), ms(3), Some(ms(2))),
            (ms(5), ms(5), None),
            (ms(6), ms(2), Some(ms(3))),
            (ms(39), ms(1), Some(ms(4))),
            (ms(39), ms(5), None),
            // Nobody waits for ever.
            (ms(40), ms(1), None),
        ] {
            let left = left(ms(10), ms(5), passed, ran);
            assert_eq!(left, expected, "{passed:?} passed, ran {ran:?}");
        }
    }

    #[test]
    fn a_call_that_runs_gets_its_limit_and_no_more() {
        let ticker = Arc::new(Ticker::start(|| ()).unwrap());
        let mut limit = TimeLimit::new(ms(5));
        assert_eq!(limit.ticks(), 3, "two milliseconds at least");
        let begin = thread_clock();
        assert_eq!(limit.reached(&ticker), Some(3));
        while limit.reached(&ticker).is_some() {}
        assert!(thread_clock() - begin >= ms(3));
        assert_eq!(limit.reached(&ticker), None, "for good");
        limit.over();
        assert_eq!(limit.reached(&ticker), Some(3), "the next call begins anew");
    }
}
