//! When to retry, and which failures to log.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// The pause after a first failure; it doubles with each further one.
const FIRST: Duration = Duration::from_secs(10);

/// The outcomes of an operation that is repeated again and again.
#[derive(Debug, Default)]
pub struct Attempts {
    /// Attempts that found something new.
    pub new: AtomicU64,
    /// Attempts that found nothing changed.
    pub unchanged: AtomicU64,
    /// Attempts that failed.
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
    /// Counts a success. Logs it if it ends a series of failures.
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

    /// Counts a failure. Logs it only if the problem differs from the last one.
    pub fn failed(&self, what: &str, problem: String) {
        self.failed.fetch_add(1, Ordering::Relaxed);
        let mut state = self.state.lock();
        state.in_a_row = state.in_a_row.saturating_add(1);
        if state.problem.as_ref() != Some(&problem) {
            tracing::warn!("{what} failed, and what was there before stays: {problem}");
            state.problem = Some(problem);
        }
    }

    /// Why the last attempt failed, if it did.
    pub fn problem(&self) -> Option<String> {
        self.state.lock().problem.clone()
    }

    /// Time since the last success, if there was one.
    pub fn age(&self) -> Option<Duration> {
        self.state.lock().success.map(|success| success.elapsed())
    }

    /// Time to wait before the next attempt: `every` after a success; after failures a backoff of at most
    /// `every`.
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
