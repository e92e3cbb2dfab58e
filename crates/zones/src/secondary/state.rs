//! A zone being followed, shared by all workers.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use arc_swap::ArcSwapOption;
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::counters::Counters;
use crate::background::Arrival;
use crate::dns::name::Name;
use crate::zonefile::Zone;

/// A zone being followed.
pub struct State {
    /// Its name.
    pub origin: Name,
    /// The zone that queries are answered from; none if it has not arrived yet, or has expired.
    pub zone: ArcSwapOption<Zone>,
    /// Counts the outcomes of checks and messages.
    pub counters: Counters,
    /// Wakes the follower: the zone may have changed.
    pub wake: Notify,
    /// The last primary that sent a NOTIFY since the last check began.
    notifier: Mutex<Option<IpAddr>>,
    known: Mutex<Known>,
    /// Whether the zone has ever arrived.
    pub arrival: Arrival,
}

/// The results of checks.
#[derive(Debug, Default)]
struct Known {
    /// When a primary last confirmed the zone.
    checked: Option<Instant>,
    /// Why the last check failed.
    problem: Option<String>,
    failures: u32,
}

impl State {
    /// The state before the first transfer.
    pub fn new(origin: &Name) -> Arc<State> {
        Arc::new(State {
            origin: origin.clone(),
            zone: ArcSwapOption::empty(),
            counters: Counters::default(),
            wake: Notify::new(),
            notifier: Mutex::default(),
            known: Mutex::default(),
            arrival: Arrival::default(),
        })
    }

    /// Takes over a former state's zone, unless that takes more than `memory` bytes: a reload that changes
    /// how a zone is fetched keeps the zone.
    pub fn after(former: &State, memory: usize) -> Arc<State> {
        let state = State::new(&former.origin);
        if let Some(zone) = former.zone.load_full().filter(|zone| zone.octets <= memory) {
            state.known.lock().checked = former.known.lock().checked;
            state.publish(zone);
        }
        state
    }

    /// Replaces the zone that queries are answered from.
    pub fn publish(&self, zone: Arc<Zone>) {
        self.zone.store(Some(zone));
        self.arrival.come();
    }

    /// Records a NOTIFY from a primary, and wakes the follower.
    pub(super) fn heard(&self, from: IpAddr) {
        *self.notifier.lock() = Some(from);
        self.wake.notify_one();
    }

    /// Takes the primary that sent a NOTIFY, if any did since the last call.
    pub(super) fn notifier(&self) -> Option<IpAddr> {
        self.notifier.lock().take()
    }

    /// Records that a primary confirmed the zone.
    pub fn checked(&self) {
        *self.known.lock() = Known {
            checked: Some(Instant::now()),
            ..Known::default()
        };
    }

    /// Records a failed check, and logs a problem that is new. Returns the number of failures in a row.
    pub fn failed(&self, problem: String) -> u32 {
        let mut known = self.known.lock();
        if known.problem.as_ref() != Some(&problem) {
            tracing::warn!("secondary {}: {problem}", self.origin);
        }
        known.problem = Some(problem);
        known.failures = known.failures.saturating_add(1);
        known.failures
    }

    /// The time since a primary confirmed the zone; none if that never happened.
    pub fn age(&self) -> Option<Duration> {
        self.known.lock().checked.map(|checked| checked.elapsed())
    }

    /// Why the last check failed, if it did.
    pub fn problem(&self) -> Option<String> {
        self.known.lock().problem.clone()
    }
}
