//! Counters and state of a running proxy's network.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::{Mutex, RwLock};

use super::error::{Error, Kind};
use super::outcome::Outcome;
use super::plan::Plan;
use super::self_test::{Record, Verdict};

/// State of the node's network: counts for `/metrics`, and which listeners need heartbeats.
#[derive(Debug, Default)]
pub struct Counters {
    errors: [AtomicU64; Kind::ALL.len()],
    /// Things that were found missing or changed, and repaired.
    pub repairs: AtomicU64,
    failing: AtomicBool,
    /// Packets matched by the rules that bring us queries.
    brought: Mutex<Brought>,
    /// Packets that bypassed us for lack of heartbeats.
    pub unheard_packets: AtomicU64,
    /// How many obstacles the last check found.
    pub obstacles: AtomicU64,
    /// Another process of our kind that stays for longer than a takeover lasts, and what to do about it.
    pub beside: RwLock<Option<String>>,
    /// Whether another process of our kind answers in place of this one.
    pub aside: AtomicBool,
    /// The listeners whose rules need heartbeats; the watchdog sends those.
    pub heartbeats: RwLock<Vec<SocketAddr>>,
    /// Whether the lack of heartbeats has been logged.
    deaf: AtomicBool,
    /// Self-test results.
    pub self_test: Arc<Record>,
}

/// Packets matched by the rules that bring us queries. Kernel counters restart when rules are rewritten.
#[derive(Debug, Default)]
struct Brought {
    last: u64,
    all: u64,
    /// The exported count, without the self-test's packets.
    shown: u64,
}

impl Counters {
    /// The number of errors of a kind.
    pub fn errors(&self, kind: Kind) -> u64 {
        self.errors[kind as usize].load(Ordering::Relaxed)
    }

    /// Packets that the rules that bring us queries had matched at the last check, without the self-test's.
    pub fn rule_packets(&self) -> u64 {
        self.brought.lock().shown
    }

    /// Returns whether anything failed at the last attempt.
    pub fn failing(&self) -> bool {
        self.failing.load(Ordering::Relaxed)
    }

    pub(super) fn tried(&self, errors: &[Error]) {
        self.failing.store(!errors.is_empty(), Ordering::Relaxed);
    }

    /// Takes in the outcome of a check of a plan's rules.
    pub(super) fn guarded(&self, plan: &Plan, outcome: &Outcome) {
        if let Some(packets) = outcome.packets {
            let mut brought = self.brought.lock();
            brought.all += packets.checked_sub(brought.last).unwrap_or(packets);
            brought.last = packets;
            // A self-test packet may have been answered after the rules were read.
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
