//! A zone that is followed, as all workers see it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use arc_swap::ArcSwapOption;
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};

use super::counters::Counters;
use crate::dns::name::Name;
use crate::zonefile::Zone;

/// A zone that is followed.
pub struct State {
    /// Its name.
    pub origin: Name,
    /// What queries are answered from; none: nothing came yet, or it has expired.
    pub zone: ArcSwapOption<Zone>,
    /// What became of what was asked.
    pub counters: Counters,
    /// Wakes who follows it: there may be something new.
    pub wake: Notify,
    known: Mutex<Known>,
    /// Whether a zone has ever come.
    came: watch::Sender<bool>,
}

/// What is known of how it goes.
#[derive(Debug, Default)]
struct Known {
    /// When a primary last said that the zone is right as it is.
    checked: Option<Instant>,
    /// Why the last look failed.
    problem: Option<String>,
    failures: u32,
}

impl State {
    /// Nothing has come yet.
    pub fn new(origin: &Name) -> Arc<State> {
        Arc::new(State {
            origin: origin.clone(),
            zone: ArcSwapOption::empty(),
            counters: Counters::default(),
            wake: Notify::new(),
            known: Mutex::default(),
            came: watch::Sender::new(false),
        })
    }

    /// What another one knows is known here, unless it takes more than so many octets: a reload that changes how a zone is
    /// asked for goes on with the zone.
    pub fn after(former: &State, memory: usize) -> Arc<State> {
        let state = State::new(&former.origin);
        if let Some(zone) = former.zone.load_full().filter(|zone| zone.octets <= memory) {
            state.known.lock().checked = former.known.lock().checked;
            state.publish(zone);
        }
        state
    }

    /// Has queries answered from another zone.
    pub fn publish(&self, zone: Arc<Zone>) {
        self.zone.store(Some(zone));
        self.came.send_replace(true);
    }

    /// Waits until a zone has come.
    pub async fn came(&self) {
        // The sender is here.
        let _ = self.came.subscribe().wait_for(|came| *came).await;
    }

    /// Whether one has.
    pub(crate) fn has_come(&self) -> bool {
        *self.came.borrow()
    }

    /// Notes that the zone is right as it is.
    pub fn checked(&self) {
        *self.known.lock() = Known {
            checked: Some(Instant::now()),
            ..Known::default()
        };
    }

    /// Notes that no primary could say so; how often in a row now. The log is told if it was another problem before.
    pub fn failed(&self, problem: String) -> u32 {
        let mut known = self.known.lock();
        if known.problem.as_ref() != Some(&problem) {
            tracing::warn!("secondary {}: {problem}", self.origin);
        }
        known.problem = Some(problem);
        known.failures = known.failures.saturating_add(1);
        known.failures
    }

    /// How long ago a primary said that the zone is right; none: never.
    pub fn age(&self) -> Option<Duration> {
        self.known.lock().checked.map(|checked| checked.elapsed())
    }

    /// Why the last look failed, if it did.
    pub fn problem(&self) -> Option<String> {
        self.known.lock().problem.clone()
    }
}
