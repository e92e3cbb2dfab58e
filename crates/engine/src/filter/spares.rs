//! Spare instances for workers that lose theirs.
//!
//! All workers share [`READY`] of them, as long as any of them has an instance. They are made [in the
//! background](super::restart).

use std::time::{Duration, Instant};

#[cfg(test)]
use parking_lot::Condvar;
use parking_lot::Mutex;

use super::cancel::Cancel;
use super::sandbox::Sandbox;

/// Number of spares: a failing batch uses two, one for the batch and one for its guilty query alone.
pub(super) const READY: usize = 2;

/// Wait after a failed start. It grows fourfold with each further failure, up to a minute.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const GROWTH: u32 = 4;
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// The spares and their state.
#[derive(Default)]
pub(super) struct Spares {
    pub(super) state: Mutex<State>,
    /// Notified when one was made or failed to start.
    #[cfg(test)]
    pub(super) made: Condvar,
}

#[derive(Default)]
pub(super) struct State {
    pub(super) ready: Vec<Sandbox>,
    /// Workers that have, or should have, an instance.
    pub(super) users: usize,
    /// Cancels the starts under way.
    pub(super) starting: Option<Cancel>,
    /// The last wait, and the end of the current one.
    pause: Option<Duration>,
    pub(super) not_before: Option<Instant>,
}

impl Spares {
    /// Begins with one spare.
    pub(super) fn of(sandbox: Sandbox) -> Spares {
        let spares = Spares::default();
        spares.state.lock().ready.push(sandbox);
        spares
    }
}

impl State {
    /// Adds a spare. Once there are enough, no more are started.
    pub(super) fn add(&mut self, sandbox: Sandbox) {
        self.ready.push(sandbox);
        (self.pause, self.not_before) = (None, None);
        if self.ready.len() >= READY {
            self.starting = None;
        }
    }

    /// Ends the starts under way, and delays the next one.
    pub(super) fn end_with_failure(&mut self) {
        let longer = |pause: Duration| (pause * GROWTH).min(LONGEST_PAUSE);
        let pause = self.pause.map_or(FIRST_PAUSE, longer);
        (self.pause, self.not_before) = (Some(pause), Some(Instant::now() + pause));
        self.starting = None;
    }
}
