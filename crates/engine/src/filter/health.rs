//! Limits what failed calls may cost a worker to a tenth of its time, whatever is [blamed](super::blame) for
//! them.
//!
//! A filter's debt is the time taken by its failed calls and by the starts of new instances. Elapsed time
//! pays off a tenth of itself. When another failure would take the debt beyond what may be wasted at once,
//! the filter is suspended on that worker: first for names and clients that are new to it, and, when the debt
//! is half as large again, also for those known to succeed. A suspension lasts at least a second; if nothing
//! has succeeded since the last one, it lasts four times as long as that, up to a minute. A filter that only
//! fails is thus retried now and then.
//!
//! So the worst batch costs six time limits, whatever its contents and size, or nine if all of it comes from
//! known clients and names.

use std::time::{Duration, Instant};

use super::blame::SHARE;

/// Failures at full price that may be charged at once to names and clients new to the filter. One client may
/// cost four of them before it is blamed: a batch, and three of its queries alone.
const STRANGERS: u32 = 6;

/// The same for known names and clients.
const KNOWN: u32 = 9;

const FIRST_PAUSE: Duration = Duration::from_secs(1);

/// Each pause is this many times as long as the last.
const GROWTH: u32 = 4;

const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// The state of a filter on one worker.
#[derive(Debug)]
pub(super) struct Health {
    /// Maximum cost of a failure.
    price: Duration,
    /// Time wasted and not yet paid off.
    debt: Duration,
    /// When `debt` was last updated. None: no debt and no recent pause.
    reckoned: Option<Instant>,
    /// The current pause, or the last one.
    pause: Option<Pause>,
    /// Set when a pause begins, cleared when it is found to be over.
    suspended: bool,
}

#[derive(Debug)]
struct Pause {
    length: Duration,
    end: Instant,
    /// Whether a call has succeeded since it began.
    hopeful: bool,
}

impl Health {
    /// `limit` is the time limit of a call, `start` the cost of a new instance.
    pub(super) fn new(limit: Duration, start: Duration) -> Health {
        Health {
            price: limit + start,
            debt: Duration::ZERO,
            reckoned: None,
            pause: None,
            suspended: false,
        }
    }

    /// Whether a pause has begun and was not yet found to be over.
    pub(super) fn suspended(&self) -> bool {
        self.suspended
    }

    /// Whether there was debt or a recent pause at the last update.
    #[inline]
    pub(super) fn owes(&self) -> bool {
        self.reckoned.is_some()
    }

    /// Whether a call may be made at `now` for a name and client that are `known` or not.
    pub(super) fn admits(&mut self, now: Instant, known: bool) -> bool {
        self.pay(now);
        let pauses = self.pause.as_ref().is_some_and(|pause| now < pause.end);
        let most = if known { KNOWN } else { STRANGERS };
        (known || !pauses) && self.debt + self.price <= self.price * most
    }

    /// Ends the suspension if it is over at `now`. Returns whether it did.
    pub(super) fn resumes(&mut self, now: Instant) -> bool {
        let resumes = self.suspended && self.admits(now, false);
        self.suspended &= !resumes;
        resumes
    }

    /// Records that a call succeeded.
    pub(super) fn succeeded(&mut self) {
        if let Some(pause) = &mut self.pause {
            pause.hopeful = true;
        }
    }

    /// Records a call that failed at `now` after wasting `cost`. Without `room` the failure cannot be charged
    /// to a name or client, and a pause begins. Returns its length if that suspends the filter.
    pub(super) fn failed(&mut self, now: Instant, cost: Duration, room: bool) -> Option<Duration> {
        self.pay(now);
        self.debt += cost.min(self.price);
        self.reckoned = Some(now);
        if room && self.admits(now, false) || self.pause.as_ref().is_some_and(|pause| now < pause.end) {
            return None;
        }
        let length = match &self.pause {
            Some(pause) if !pause.hopeful => (pause.length * GROWTH).min(LONGEST_PAUSE),
            _ => FIRST_PAUSE,
        };
        self.pause = Some(Pause {
            length,
            end: now + length,
            hopeful: false,
        });
        let is_new = !self.suspended;
        self.suspended = true;
        is_new.then_some(length)
    }

    /// Updates the debt. Once there is none, and a minute has passed since the last pause, forgets both.
    fn pay(&mut self, now: Instant) {
        let Some(then) = self.reckoned else { return };
        let paid = now.saturating_duration_since(then) / SHARE;
        self.debt = self.debt.saturating_sub(paid);
        let is_near = |pause: &Pause| now < pause.end + LONGEST_PAUSE;
        let forgotten = self.debt.is_zero() && !self.pause.as_ref().is_some_and(is_near);
        if forgotten {
            self.pause = None;
        }
        self.reckoned = Some(now).filter(|_| !forgotten);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_millis(5);
    const START: Duration = Duration::from_millis(1);
    const PRICE: Duration = Duration::from_millis(6);
    const TRAP: Duration = Duration::from_micros(1050);

    fn health() -> (Health, Instant) {
        (Health::new(LIMIT, START), Instant::now())
    }

    #[test]
    fn six_failures_at_once_suspend_it_for_strangers_and_nine_for_all() {
        let (mut health, now) = health();
        for _ in 1..STRANGERS {
            assert_eq!(health.failed(now, PRICE, true), None);
            assert!(health.admits(now, false));
        }
        assert_eq!(health.failed(now, PRICE, true), Some(FIRST_PAUSE));
        assert!(health.suspended() && !health.admits(now, false));
        for _ in STRANGERS..KNOWN {
            assert!(health.admits(now, true));
            assert_eq!(health.failed(now, PRICE, true), None);
        }
        assert!(!health.admits(now, true));
        // A tenth of the elapsed time pays for it.
        assert!(health.admits(now + PRICE * SHARE, true));
        assert!(!health.resumes(now + FIRST_PAUSE - TRAP));
        assert!(health.resumes(now + FIRST_PAUSE));
        assert!(!health.suspended());
    }

    #[test]
    fn where_nobody_can_be_blamed_one_failure_suspends_it_for_strangers() {
        let (mut health, now) = health();
        assert_eq!(health.failed(now, TRAP, false), Some(FIRST_PAUSE));
        assert!(health.admits(now, true) && !health.admits(now, false));
    }

    #[test]
    fn pauses_grow_up_to_a_minute_while_nothing_succeeds() {
        let (mut health, mut now) = health();
        let mut pauses = Vec::new();
        for round in 0..8 {
            let pause = (0..STRANGERS).find_map(|_| health.failed(now, PRICE, true));
            let pause = pause.unwrap();
            pauses.push(pause.as_secs());
            if round == 6 {
                health.succeeded();
            }
            now += pause;
            assert!(health.resumes(now));
        }
        assert_eq!(pauses, [1, 4, 16, 60, 60, 60, 60, 1]);
    }

    /// Whatever fails and however often: over any period, at most a tenth of it plus what may be wasted at
    /// once.
    #[test]
    fn failures_cost_a_tenth_of_the_time() {
        for (every, cost, known) in [
            (Duration::from_millis(200), TRAP, false),
            (Duration::from_millis(10), TRAP, false),
            (Duration::from_millis(1), PRICE, false),
            (Duration::from_millis(1), PRICE, true),
        ] {
            let (mut health, begun) = health();
            let (mut now, mut wasted) = (begun, Duration::ZERO);
            while now < begun + Duration::from_secs(100) {
                if health.admits(now, known) {
                    now += cost;
                    wasted += cost;
                    health.failed(now, cost, true);
                    health.succeeded();
                }
                now += every;
            }
            let most = (now - begun) / SHARE + PRICE * KNOWN;
            assert!(wasted <= most, "{wasted:?} of {most:?}");
        }
    }

    /// A filter that traps twenty times a second costs too little to be suspended.
    #[test]
    fn twenty_traps_a_second_are_within_a_tenth() {
        let (mut health, mut now) = health();
        for _ in 0..1000 {
            assert!(health.admits(now, false));
            assert_eq!(health.failed(now, TRAP, true), None);
            now += Duration::from_millis(50);
        }
        assert!(health.admits(now + Duration::from_secs(1), false));
        assert!(!health.owes());
    }
}
