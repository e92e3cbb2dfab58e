//! What is known of the network of a running proxy.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::{Mutex, RwLock};

use super::error::{Error, Kind};
use super::outcome::Outcome;
use super::plan::Plan;
use super::self_test::{Record, Verdict};

/// What is known of the node's network: counts for `/metrics`, and what the heartbeats are for.
#[derive(Debug, Default)]
pub struct Counters {
    errors: [AtomicU64; Kind::ALL.len()],
    /// Things that were found missing or changed, and put right.
    pub repairs: AtomicU64,
    failing: AtomicBool,
    /// Packets that the rules which bring us queries have matched.
    brought: Mutex<Brought>,
    /// Packets that went past us because nothing was heard of us.
    pub unheard_packets: AtomicU64,
    /// What was found to stand in the way when it was last looked for.
    pub obstacles: AtomicU64,
    /// Another process of our kind that has stayed for longer than a takeover lasts, and what to do about it.
    pub beside: RwLock<Option<String>>,
    /// Whether another process of our kind answers in the place of this one.
    pub aside: AtomicBool,
    /// The listeners whose rules are listening for heartbeats. Whoever serves them sends some.
    pub heartbeats: RwLock<Vec<SocketAddr>>,
    /// Whether that heartbeats are not possible has been said.
    deaf: AtomicBool,
    /// What the self-test found.
    pub self_test: Arc<Record>,
}

/// How many packets the rules which bring us queries have matched. They count from zero when they are written anew.
#[derive(Debug, Default)]
struct Brought {
    last: u64,
    all: u64,
    /// Without the self-test's, as it was shown.
    shown: u64,
}

impl Counters {
    /// How many errors of a kind there were.
    pub fn errors(&self, kind: Kind) -> u64 {
        self.errors[kind as usize].load(Ordering::Relaxed)
    }

    /// Packets that the rules which bring us queries have matched, when they were last looked at, without the self-test's.
    pub fn rule_packets(&self) -> u64 {
        self.brought.lock().shown
    }

    /// Whether something that is wanted could not be done when it was last tried.
    pub fn failing(&self) -> bool {
        self.failing.load(Ordering::Relaxed)
    }

    pub(super) fn tried(&self, errors: &[Error]) {
        self.failing.store(!errors.is_empty(), Ordering::Relaxed);
    }

    /// The rules of a plan have been looked after.
    pub(super) fn guarded(&self, plan: &Plan, outcome: &Outcome) {
        if let Some(packets) = outcome.packets {
            let mut brought = self.brought.lock();
            brought.all += packets.checked_sub(brought.last).unwrap_or(packets);
            brought.last = packets;
            // One of the self-test's may have been answered since the rules were looked at.
            let others = brought
                .all
                .saturating_sub(self.self_test.count(Verdict::Answered));
            brought.shown = brought.shown.max(others);
        }
        if let Some(packets) = outcome.unheard {
            self.unheard_packets.store(packets, Ordering::Relaxed);
        }
        let mut heartbeats = plan.heartbeats();
        if let Some(why) = &outcome.shortfall {
            if !self.deaf.swap(true, Ordering::Relaxed) {
                tracing::warn!(
                    why,
                    "node: no heartbeats: if this process hangs, pods get no answers until it is ended"
                );
            }
            heartbeats.clear();
        } else {
            self.deaf.store(false, Ordering::Relaxed);
        }
        *self.heartbeats.write() = heartbeats;
    }

    pub(super) fn count(&self, error: &Error) {
        self.errors[error.kind as usize].fetch_add(1, Ordering::Relaxed);
    }
}
