//! When a failing filter is left alone.
//!
//! A failed call costs its query, and the worker the time until it failed. Two rules bound that. A filter
//! that fails three times with no success in between is broken. One that works for most queries but wastes
//! more than a tenth of the worker's time on the others is too dear: an attacker who knows a query that makes
//! it loop must not be able to stop the worker with it. Either way it is suspended on that worker, for a
//! second at first and four times as long each time, up to a minute. A minute without suspension makes it a
//! second again.
//!
//! A pause leaves the filter where one failure more suspends it: a circuit breaker that is half open. Where that
//! is so, [one record goes in alone](Health::on_last_chance), so that a query decides and not the batch it came in.
//!
//! So the worst batch, whatever is in it and however large it is, costs about three time limits, and after a
//! pause one: of the first twenty seconds a filter that does nothing but loop takes five limits, and later one a
//! minute.

use std::time::{Duration, Instant};

/// Failures in a row.
const STREAK: u32 = 3;

/// Which part of the time may be wasted: one in so many.
const SHARE: u32 = 10;

/// Half time limits that may be wasted at once: two whole ones may, the third is one too many.
const BURST: u32 = 5;

const FIRST_PAUSE: Duration = Duration::from_secs(1);

/// How many times as long as the last one a pause is.
const GROWTH: u32 = 4;

const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// How long after a pause a filter must do without the next one to start over.
const PROBATION: Duration = Duration::from_secs(60);

/// How one instance is doing.
#[derive(Debug)]
pub(super) struct Health {
    /// Failures since the last success.
    streak: u32,
    /// Time wasted and not yet paid off.
    debt: Duration,
    /// Time that may be wasted at once.
    allowance: Duration,
    /// When `debt` was worked out.
    reckoned: Option<Instant>,
    /// The end of the pause under way.
    until: Option<Instant>,
    /// Length and end of the last pause.
    last: Option<(Duration, Instant)>,
}

impl Health {
    /// `limit` is the time limit of a call, `start` what a new instance costs.
    pub(super) fn new(limit: Duration, start: Duration) -> Health {
        Health {
            streak: 0,
            debt: Duration::ZERO,
            allowance: limit * BURST / 2 + start,
            reckoned: None,
            until: None,
            last: None,
        }
    }

    /// Whether a pause is under way or over but not [ended](Health::resumes).
    pub(super) fn suspended(&self) -> bool {
        self.until.is_some()
    }

    /// Whether one failure more suspends the filter, and so must not be that of a batch: most queries in it may
    /// be good ones.
    #[inline]
    pub(super) fn on_last_chance(&self) -> bool {
        self.streak == STREAK - 1
    }

    /// Ends the pause if it is over at `now`. The filter comes back one failure short of the next.
    pub(super) fn resumes(&mut self, now: Instant) -> bool {
        if self.until.is_some_and(|until| now < until) {
            return false;
        }
        self.until = None;
        self.streak = STREAK - 1;
        true
    }

    /// A call went well.
    #[inline]
    pub(super) fn succeeded(&mut self) {
        self.streak = 0;
    }

    /// A call failed at `now` after it had wasted `cost`. Says for how long that suspends the filter.
    pub(super) fn failed(&mut self, now: Instant, cost: Duration) -> Option<Duration> {
        let paid = self
            .reckoned
            .map_or(Duration::ZERO, |then| now.saturating_duration_since(then) / SHARE);
        self.debt = self.debt.saturating_sub(paid).saturating_add(cost);
        self.reckoned = Some(now);
        self.streak += 1;
        if self.streak < STREAK && self.debt < self.allowance {
            return None;
        }
        let pause = match self.last {
            Some((pause, end)) if now.saturating_duration_since(end) < PROBATION => {
                (pause * GROWTH).min(LONGEST_PAUSE)
            }
            _ => FIRST_PAUSE,
        };
        let end = now + pause;
        self.until = Some(end);
        self.last = Some((pause, end));
        Some(pause)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_millis(5);
    const TRAP: Duration = Duration::from_micros(50);

    fn health() -> (Health, Instant) {
        (Health::new(LIMIT, Duration::ZERO), Instant::now())
    }

    #[test]
    fn three_failures_in_a_row_suspend() {
        let (mut health, now) = health();
        assert_eq!(health.failed(now, TRAP), None);
        assert_eq!(health.failed(now, TRAP), None);
        health.succeeded();
        assert_eq!(health.failed(now, TRAP), None);
        assert_eq!(health.failed(now, TRAP), None);
        assert_eq!(health.failed(now, TRAP), Some(FIRST_PAUSE));
        assert!(health.suspended());
        assert!(!health.resumes(now + FIRST_PAUSE - TRAP));
        assert!(health.resumes(now + FIRST_PAUSE));
        assert!(!health.suspended());
    }

    #[test]
    fn pauses_grow_up_to_a_minute_and_start_over_after_one() {
        let (mut health, mut now) = health();
        health.failed(now, TRAP);
        health.failed(now, TRAP);
        let mut pauses = Vec::new();
        for _ in 0..6 {
            assert!(health.on_last_chance());
            let pause = health.failed(now, TRAP).unwrap();
            pauses.push(pause.as_secs());
            now += pause;
            assert!(health.resumes(now));
        }
        assert_eq!(pauses, [1, 4, 16, 60, 60, 60]);
        health.succeeded();
        now += PROBATION;
        for _ in 1..STREAK {
            assert_eq!(health.failed(now, TRAP), None);
        }
        assert_eq!(health.failed(now, TRAP), Some(FIRST_PAUSE));
    }

    #[test]
    fn one_success_after_a_pause_is_a_full_return() {
        let (mut health, now) = health();
        for _ in 0..STREAK {
            health.failed(now, TRAP);
        }
        assert!(!health.on_last_chance(), "it has none");
        let now = now + FIRST_PAUSE;
        assert!(health.resumes(now));
        assert!(health.on_last_chance());
        health.succeeded();
        assert!(!health.on_last_chance());
        for _ in 1..STREAK {
            assert_eq!(health.failed(now, TRAP), None);
        }
        assert_eq!(health.failed(now, TRAP), Some(FIRST_PAUSE * GROWTH));
    }

    #[test]
    fn what_always_loops_takes_three_limits_and_then_one_a_pause() {
        let (mut health, start) = health();
        let (mut now, mut tries) = (start, Vec::new());
        while now < start + Duration::from_secs(300) {
            tries.push((now - start).as_secs());
            now += LIMIT;
            if let Some(pause) = health.failed(now, LIMIT) {
                now += pause;
                assert!(health.resumes(now));
            }
        }
        assert_eq!(tries, [0, 0, 0, 1, 5, 21, 81, 141, 201, 261]);
    }

    #[test]
    fn successes_in_between_do_not_excuse_wasted_time() {
        let (mut health, now) = health();
        for late in 0..2 {
            assert_eq!(health.failed(now + LIMIT * late, LIMIT), None);
            health.succeeded();
        }
        assert_eq!(health.failed(now + LIMIT * 2, LIMIT), Some(FIRST_PAUSE));
    }

    #[test]
    fn a_tenth_of_the_time_may_be_wasted_for_ever() {
        let (mut health, mut now) = health();
        for _ in 0..1000 {
            assert_eq!(health.failed(now, LIMIT), None);
            health.succeeded();
            now += LIMIT * SHARE;
        }
    }
}
