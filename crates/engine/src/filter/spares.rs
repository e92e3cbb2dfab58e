//! Instances that are kept ready for workers that lose theirs.
//!
//! There are [`READY`] for all workers together, for as long as any of them has an instance. They are made
//! [aside](super::restart).

use std::time::{Duration, Instant};

#[cfg(test)]
use parking_lot::Condvar;
use parking_lot::Mutex;

use super::cancel::Cancel;
use super::sandbox::Sandbox;

/// Instances that are kept ready: a batch with one query in it that fails takes two, its own and that of the query alone.
pub(super) const READY: usize = 2;

/// How long after a start that failed there is another one; four times as long after each further one, up to a minute.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const GROWTH: u32 = 4;
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// The instances that are ready.
#[derive(Default)]
pub(super) struct Spares {
    pub(super) state: Mutex<State>,
    /// One was made, or could not be.
    #[cfg(test)]
    pub(super) made: Condvar,
}

#[derive(Default)]
pub(super) struct State {
    pub(super) ready: Vec<Sandbox>,
    /// Workers that have an instance, or should.
    pub(super) users: usize,
    /// Ends the starts under way.
    pub(super) starting: Option<Cancel>,
    /// How long to wait after the next start that fails, and the end of the wait under way.
    pause: Option<Duration>,
    pub(super) not_before: Option<Instant>,
}

impl Spares {
    /// With one that is there already.
    pub(super) fn of(sandbox: Sandbox) -> Spares {
        let spares = Spares::default();
        spares.state.lock().ready.push(sandbox);
        spares
    }
}

impl State {
    /// Adds one that was started. The starts under way end when there are enough.
    pub(super) fn add(&mut self, sandbox: Sandbox) {
        self.ready.push(sandbox);
        (self.pause, self.not_before) = (None, None);
        if self.ready.len() >= READY {
            self.starting = None;
        }
    }

    /// Ends the starts under way, and has the next one wait.
    pub(super) fn end_with_failure(&mut self) {
        let longer = |pause: Duration| (pause * GROWTH).min(LONGEST_PAUSE);
        let pause = self.pause.map_or(FIRST_PAUSE, longer);
        (self.pause, self.not_before) = (Some(pause), Some(Instant::now() + pause));
        self.starting = None;
    }
}
