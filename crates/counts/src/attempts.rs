//! When to try again, and what to tell of failures.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// How long after a first failure it is tried again; twice as long after each further one.
const FIRST: Duration = Duration::from_secs(10);

/// How attempts to do the same thing again and again come out.
#[derive(Debug, Default)]
pub struct Attempts {
    /// Those that had something new.
    pub new: AtomicU64,
    /// Those that found everything as it was.
    pub unchanged: AtomicU64,
    /// Those that failed.
    pub failed: AtomicU64,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Failures since the last success.
    in_a_row: u32,
    problem: Option<String>,
    success: Option<Instant>,
}

impl Attempts {
    /// Counts one that succeeded. The failures before it have an end now, of which the log is told.
    pub fn succeeded(&self, what: &str, is_new: bool) {
        let counter = if is_new { &self.new } else { &self.unchanged };
        counter.fetch_add(1, Ordering::Relaxed);
        let mut state = self.state.lock();
        if state.problem.is_some() {
            tracing::info!("{what} succeeds again");
        }
        *state = State {
            success: Some(Instant::now()),
            ..State::default()
        };
    }

    /// Counts one that failed. The log is told if it was another problem before, or none.
    pub fn failed(&self, what: &str, problem: String) {
        self.failed.fetch_add(1, Ordering::Relaxed);
        let mut state = self.state.lock();
        state.in_a_row = state.in_a_row.saturating_add(1);
        if state.problem.as_ref() != Some(&problem) {
            tracing::warn!("{what} failed, and what was there before stays: {problem}");
            state.problem = Some(problem);
        }
    }

    /// Why the last one failed, if it did.
    pub fn problem(&self) -> Option<String> {
        self.state.lock().problem.clone()
    }

    /// How long ago one succeeded, if any did.
    pub fn age(&self) -> Option<Duration> {
        self.state.lock().success.map(|success| success.elapsed())
    }

    /// How long to wait for the next one: `every` after a success, and after a failure less, more with each.
    pub fn pause(&self, every: Duration) -> Duration {
        match self.state.lock().in_a_row {
            0 => every,
            failures => FIRST.saturating_mul(1 << (failures - 1).min(16)).min(every),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_are_tried_again_soon_and_then_less_often() {
        let (attempts, hour) = (Attempts::default(), Duration::from_secs(3600));
        assert_eq!(attempts.pause(hour), hour);
        let mut pauses = Vec::new();
        for _ in 0..12 {
            attempts.failed("fetching", "away".into());
            pauses.push(attempts.pause(hour).as_secs());
        }
        assert_eq!(pauses[..4], [10, 20, 40, 80]);
        assert_eq!(pauses[11], 3600);
        assert_eq!(attempts.problem().as_deref(), Some("away"));
        assert_eq!(attempts.age(), None);
        attempts.succeeded("fetching", true);
        assert_eq!(attempts.pause(hour), hour);
        assert_eq!(attempts.problem(), None);
        assert!(attempts.age().is_some());
        assert_eq!(attempts.failed.load(Ordering::Relaxed), 12);
        assert_eq!(attempts.new.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn who_is_asked_often_is_not_asked_less_often() {
        let attempts = Attempts::default();
        attempts.failed("fetching", "away".into());
        let second = Duration::from_secs(1);
        assert_eq!(attempts.pause(second), second);
    }
}
