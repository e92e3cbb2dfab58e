//! The state of following one kind of object.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU64, AtomicUsize};
use std::time::Instant;

use parking_lot::Mutex;

/// Counters and health of following one kind of object.
pub struct Followed {
    /// The kind's name.
    kind: &'static str,
    /// How many are known.
    pub objects: AtomicUsize,
    /// How often all were listed.
    pub lists: AtomicU64,
    /// Changes and bookmarks received.
    pub events: AtomicU64,
    /// How often a list or a watch failed.
    pub failures: AtomicU64,
    /// Objects that were ignored or cut.
    pub refused: AtomicU64,
    health: Mutex<Health>,
}

#[derive(Default)]
struct Health {
    /// When the API server last sent something.
    heard: Option<Instant>,
    problem: Option<String>,
}

impl Followed {
    /// Starts without any known objects.
    pub fn new(kind: &'static str) -> Followed {
        Followed {
            kind,
            objects: AtomicUsize::new(0),
            lists: AtomicU64::new(0),
            events: AtomicU64::new(0),
            failures: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            health: Mutex::default(),
        }
    }

    /// Counts a completed list.
    pub fn listed(&self) {
        self.lists.fetch_add(1, Relaxed);
        self.health.lock().heard = Some(Instant::now());
    }

    /// Records a message from the API server.
    pub fn heard(&self) {
        let mut health = self.health.lock();
        health.heard = Some(Instant::now());
        if health.problem.take().is_some() {
            tracing::info!("kubernetes: {} are watched again", self.kind);
        }
    }

    /// Records a failure, and logs it if it is the first or its reason is new.
    pub fn failed(&self, problem: String) {
        self.failures.fetch_add(1, Relaxed);
        let mut health = self.health.lock();
        if health.problem.as_ref() != Some(&problem) {
            tracing::warn!(
                "kubernetes: {} cannot be watched, and their last known state is kept: {problem}",
                self.kind
            );
            health.problem = Some(problem);
        }
    }

    /// Counts an object that is not taken as it is, and logs why.
    pub fn refuse(&self, problem: &str) {
        let refused = self.refused.fetch_add(1, Relaxed) + 1;
        // Limits the log: the first ten, then at powers of two.
        if refused <= 10 || refused.is_power_of_two() {
            tracing::warn!(refused, "kubernetes: {}: {problem}", self.kind);
        }
    }

    /// When the API server last sent something; `None` if never.
    pub(crate) fn heard_at(&self) -> Option<Instant> {
        self.health.lock().heard
    }

    /// Why the API server cannot be followed, if so.
    pub fn problem(&self) -> Option<String> {
        let health = self.health.lock();
        let problem = health.problem.as_ref()?;
        Some(format!("{}: {problem}", self.kind))
    }
}
