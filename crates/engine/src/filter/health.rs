//! What failed calls may cost a worker: a tenth of its time, whoever is [blamed](super::blame) for them.
//!
//! The debt of a filter is what its failed calls took and what the starts of new instances take. Time pays off a tenth
//! of itself. With so much debt that another failure would be beyond what may be wasted at once, the filter is
//! suspended on that worker: for those who are new to it first, and for those who are known to succeed when there is
//! half as much again. A suspension lasts for a second at least, and four times as long as the one before, up to a minute, if nothing has
//! succeeded since: what does nothing but fail is tried once in a while.
//!
//! So the worst batch costs six time limits, whatever is in it and however large it is, or nine if all of it comes from those
//! who are known.

use std::time::{Duration, Instant};

use super::blame::SHARE;

/// Failures at the full price that may be paid for at once, for those who are new to the filter. One client may cost four
/// of them before it is blamed: a batch, and three of its queries alone.
const STRANGERS: u32 = 6;

/// The same for those who are known.
const KNOWN: u32 = 9;

const FIRST_PAUSE: Duration = Duration::from_secs(1);

/// How many times as long as the last one a pause is.
const GROWTH: u32 = 4;

const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// How a filter is doing on one worker.
#[derive(Debug)]
pub(super) struct Health {
    /// What a failure costs at most.
    price: Duration,
    /// Time wasted and not yet paid off.
    debt: Duration,
    /// When `debt` was worked out.
    reckoned: Option<Instant>,
    /// The pause under way, or the last one.
    pause: Option<Pause>,
    /// Whether a pause has begun that nobody has found to be over.
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
    /// `limit` is the time limit of a call, `start` what a new instance costs.
    pub(super) fn new(limit: Duration, start: Duration) -> Health {
        Health {
            price: limit + start,
            debt: Duration::ZERO,
            reckoned: None,
            pause: None,
            suspended: false,
        }
    }

    /// Whether a pause was begun and not found to be over.
    pub(super) fn suspended(&self) -> bool {
        self.suspended
    }

    /// Whether anything is left to be paid off, as far as anybody has looked.
    #[inline]
    pub(super) fn owes(&self) -> bool {
        self.reckoned.is_some()
    }

    /// Whether a call may be made at `now` for somebody who is `known`.
    pub(super) fn admits(&mut self, now: Instant, known: bool) -> bool {
        self.pay(now);
        let pauses = self.pause.as_ref().is_some_and(|pause| now < pause.end);
        let most = if known { KNOWN } else { STRANGERS };
        (known || !pauses) && self.debt + self.price <= self.price * most
    }

    /// Ends the suspension if it is over at `now`.
    pub(super) fn resumes(&mut self, now: Instant) -> bool {
        let resumes = self.suspended && self.admits(now, false);
        self.suspended &= !resumes;
        resumes
    }

    /// A call went well.
    pub(super) fn succeeded(&mut self) {
        if let Some(pause) = &mut self.pause {
            pause.hopeful = true;
        }
    }

    /// A call failed at `now` after it had wasted `cost`; without `room` there is nobody else to be charged for it. Says
    /// for how long that suspends the filter.
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

    /// Works out the debt anew. Without any, and a minute after the last pause, everything is forgotten.
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
        // A tenth of the time pays for it.
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

    /// Whatever fails how often: over any time, no more than a tenth of it and what may be wasted at once.
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

    /// What a filter costs that traps twenty times a second is no reason to suspend it.
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
