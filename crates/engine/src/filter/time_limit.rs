//! The time limit of a call.
//!
//! The limit counts CPU time. The epoch, which interrupts calls, follows wall-clock time. The two agree
//! unless the machine is overloaded, and then a good filter must not fail because the worker's thread had to
//! wait for a processor. Only the kernel knows a thread's CPU time, and asking it takes longer than most
//! calls.
//!
//! So the thread's clock is not read until the epoch first calls back, which it does only in a call that the
//! [clock](super::ticker) has seen to last. The time until then counts for at most half of the limit. From
//! then on the call may use the rest in CPU time, and the epoch calls back every tick until that is used up,
//! or until [several limits](PATIENCE) have passed, since the worker has other queries to serve.

use std::time::{Duration, Instant};

/// Wall-clock time that may pass after a call was seen to last, in time limits.
pub(super) const PATIENCE: u32 = 4;

/// The time limit of calls, and how far the current one has gone.
pub(super) struct TimeLimit {
    limit: Duration,
    begun: Instant,
    overtime: Option<Overtime>,
}

/// A call that was seen to last.
struct Overtime {
    since: Instant,
    /// The thread's clock at `since`.
    clock: Duration,
    /// CPU time that was left at `since`.
    rest: Duration,
}

impl TimeLimit {
    /// A time limit of `limit` per call.
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

    /// Must be called when a call begins.
    #[inline]
    pub(super) fn begin(&mut self) {
        self.begun = Instant::now();
        self.overtime = None;
    }

    /// Whether a call that ran for `ran` since it was first seen exceeded the limit, however it ended.
    pub(super) fn is_beyond(&self, ran: Duration) -> bool {
        ran >= self.limit
    }

    /// Must be called in every tick of a call. Returns whether its time is up.
    #[cold]
    pub(super) fn is_up(&mut self) -> bool {
        self.is_up_at(Instant::now(), thread_clock())
    }

    /// The same at a given time and thread clock.
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

/// CPU time left to a call that is first seen after `passed`.
fn rest(limit: Duration, passed: Duration) -> Duration {
    limit - passed.min(limit / 2)
}

/// Whether a call's time is up, if it had `rest` left and has run for `ran` while `passed` went by.
fn is_up(limit: Duration, rest: Duration, passed: Duration, ran: Duration) -> bool {
    ran >= rest || passed >= limit.saturating_mul(PATIENCE)
}

/// CPU time of this thread.
pub(super) fn thread_clock() -> Duration {
    // Every thread has this clock.
    read_clock(libc::CLOCK_THREAD_CPUTIME_ID).unwrap_or_default()
}

/// The CPU clock of this thread, readable by other threads.
#[inline]
pub(super) fn clock_of_thread() -> libc::clockid_t {
    let mut clock = libc::CLOCK_THREAD_CPUTIME_ID;
    // SAFETY: writes one clock ID, which is ours; the thread exists, since it is this one.
    unsafe { libc::pthread_getcpuclockid(libc::pthread_self(), &raw mut clock) };
    clock
}

/// Reads a clock; none: its thread has ended.
pub(super) fn read_clock(clock: libc::clockid_t) -> Option<Duration> {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: writes one `timespec`, which is ours. A clock that does not exist yields an error.
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
        // Calls made before have moved the thread's clock.
        for clock in [ms(0), ms(90)] {
            limit.begin();
            // The call is first seen after 4 ms. From then on the thread runs a third of the time.
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
        // With the real clocks, however busy the machine is.
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
            // No call may wait for ever.
            (ms(40), ms(1), true),
        ] {
            let up = is_up(ms(10), ms(5), passed, ran);
            assert_eq!(up, expected, "{passed:?} passed, ran {ran:?}");
        }
    }
}
