//! How the objects of one kind are doing.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU64, AtomicUsize};
use std::time::Instant;

use parking_lot::Mutex;

/// What happened to the objects of one kind that are followed.
pub struct Followed {
    /// What they are called.
    kind: &'static str,
    /// How many are known.
    pub objects: AtomicUsize,
    /// How often all were listed.
    pub lists: AtomicU64,
    /// What was heard since, bookmarks included.
    pub events: AtomicU64,
    /// How often the API server could not be listed or watched.
    pub failures: AtomicU64,
    /// Objects that could not be taken as they are.
    pub refused: AtomicU64,
    health: Mutex<Health>,
}

#[derive(Default)]
struct Health {
    /// When it was heard of last.
    heard: Option<Instant>,
    problem: Option<String>,
}

impl Followed {
    /// Nothing is known yet of objects that are called like this.
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

    /// Counts a list that has come.
    pub fn listed(&self) {
        self.lists.fetch_add(1, Relaxed);
        self.health.lock().heard = Some(Instant::now());
    }

    /// Notes that the API server is heard of.
    pub fn heard(&self) {
        let mut health = self.health.lock();
        health.heard = Some(Instant::now());
        if health.problem.take().is_some() {
            tracing::info!("kubernetes: {} are watched again", self.kind);
        }
    }

    /// Notes that it has not. The log is told if it did before, or why is another.
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

    /// Counts an object that cannot be taken, and says which and why.
    pub fn refuse(&self, problem: &str) {
        let refused = self.refused.fetch_add(1, Relaxed) + 1;
        // There may be many, and the log has room for some.
        if refused <= 10 || refused.is_power_of_two() {
            tracing::warn!(refused, "kubernetes: {}: {problem}", self.kind);
        }
    }

    /// When the API server was heard of last; none: never.
    pub(crate) fn heard_at(&self) -> Option<Instant> {
        self.health.lock().heard
    }

    /// What keeps the API server from being followed.
    pub fn problem(&self) -> Option<String> {
        let health = self.health.lock();
        let problem = health.problem.as_ref()?;
        Some(format!("{}: {problem}", self.kind))
    }
}
