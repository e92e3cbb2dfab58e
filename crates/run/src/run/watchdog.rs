//! Detects workers that hang, and turns their sockets off.
//!
//! A worker beats ten times a second from within its own loop. One that is silent for [`HANG`] answers
//! nothing, but its sockets would go on receiving queries. The watchdog thread turns them off, so that the
//! other workers get the queries, or, in fall-through mode, the cluster's DNS. At its next beat the worker
//! notices, and binds new ones.
//!
//! While all workers with sockets beat, heartbeats leave from these sockets. Where the node's rules listen
//! for them ([`node`](crate::node)), the cluster's DNS answers as soon as they cease, whether one worker
//! hangs or the whole process is stopped.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::listen::Switch;
use crate::node::{Counters, HEARTBEAT_PORT};

/// How long a worker may be silent.
pub(crate) const HANG: Duration = Duration::from_secs(1);

/// How long a worker may be silent before heartbeats cease for all.
const LATE: Duration = Duration::from_millis(200);

/// The interval of beats, and of the watchdog's checks.
pub(crate) const BEAT: Duration = Duration::from_millis(100);

/// A worker's heartbeat.
pub struct Pulse {
    since: Instant,
    /// Milliseconds from `since` to the last beat.
    beaten: AtomicU64,
    off: AtomicBool,
    switches: Mutex<Vec<Weak<Switch>>>,
}

impl Pulse {
    /// Creates the heartbeat of a worker that starts now.
    pub fn new() -> Pulse {
        Pulse {
            since: Instant::now(),
            beaten: AtomicU64::new(0),
            off: AtomicBool::new(false),
            switches: Mutex::default(),
        }
    }

    /// Records a beat; returns whether the worker's sockets were turned off since.
    pub fn beat(&self) -> bool {
        self.beaten
            .store(self.since.elapsed().as_millis() as u64, Ordering::Relaxed);
        self.hangs()
    }

    /// Sets what to turn off when the worker hangs. Returns false if it was found to hang, so that some of it
    /// may be off: then nothing changes.
    #[must_use]
    pub fn guard<'a>(&self, switches: impl Iterator<Item = &'a Arc<Switch>>) -> bool {
        // Held while sockets are turned off.
        let mut guarded = self.switches.lock();
        let is_on = !self.hangs();
        if is_on {
            *guarded = switches.map(Arc::downgrade).collect();
        }
        is_on
    }

    /// Like [`Pulse::guard`], for new sockets, which are on.
    pub(super) fn guard_new<'a>(&self, switches: impl Iterator<Item = &'a Arc<Switch>>) {
        let mut guarded = self.switches.lock();
        *guarded = switches.map(Arc::downgrade).collect();
        self.off.store(false, Ordering::Relaxed);
    }

    /// Returns whether it was found to hang.
    pub(crate) fn hangs(&self) -> bool {
        self.off.load(Ordering::Relaxed)
    }

    fn silent(&self) -> Duration {
        self.since
            .elapsed()
            .saturating_sub(Duration::from_millis(self.beaten.load(Ordering::Relaxed)))
    }

    /// Returns whether it listens, or should.
    fn is_on(&self) -> bool {
        !self.hangs() && !self.switches.lock().is_empty()
    }

    /// Turns its sockets off if it hangs and they are on; returns whether it did.
    fn judge(&self) -> bool {
        let switches = self.switches.lock();
        if switches.is_empty() || self.hangs() || self.silent() < HANG {
            return false;
        }
        self.off.store(true, Ordering::Relaxed);
        for switch in switches.iter().filter_map(Weak::upgrade) {
            switch.off();
        }
        true
    }
}

/// Monitors workers until dropped.
pub struct Watchdog {
    ended: Arc<AtomicBool>,
    pulses: Arc<[Arc<Pulse>]>,
    node: Arc<Counters>,
}

impl Watchdog {
    /// Starts to monitor, and to send the heartbeats that `node` requests. `hanging` is how many workers hang
    /// now, `hangs` counts how often one did.
    pub fn start(
        pulses: Vec<Arc<Pulse>>,
        node: Arc<Counters>,
        hanging: Arc<AtomicUsize>,
        hangs: Arc<AtomicU64>,
    ) -> std::io::Result<Watchdog> {
        let ended = Arc::new(AtomicBool::new(false));
        let pulses: Arc<[_]> = pulses.into();
        let watchdog = Watchdog {
            ended: Arc::clone(&ended),
            pulses: Arc::clone(&pulses),
            node: Arc::clone(&node),
        };
        thread::Builder::new().name("watchdog".into()).spawn(move || {
            let mut looked = Instant::now();
            let mut trusted = looked;
            while !ended.load(Ordering::Relaxed) {
                thread::sleep(BEAT);
                let now = Instant::now();
                // If this thread was stopped (SIGSTOP, a paused machine), so were the workers: give them
                // their time again.
                if now - looked > HANG / 2 {
                    trusted = now + HANG;
                }
                looked = now;
                let judged = pulses.iter().enumerate().filter(|_| now >= trusted);
                let hung: Vec<usize> = judged
                    .filter(|(_, pulse)| pulse.judge())
                    .map(|(worker, _)| worker)
                    .collect();
                hangs.fetch_add(hung.len() as u64, Ordering::Relaxed);
                hanging.store(
                    pulses.iter().filter(|pulse| pulse.hangs()).count(),
                    Ordering::Relaxed,
                );
                send_heartbeats(&pulses, &node);
                // Log last, when everything else is done.
                for worker in hung {
                    tracing::error!(
                        worker,
                        "unresponsive: its listeners are disabled until it is back"
                    );
                }
            }
        })?;
        Ok(watchdog)
    }

    /// Sends the requested heartbeats now, not only at the next check.
    pub fn beat(&self) {
        send_heartbeats(&self.pulses, &self.node);
    }
}

/// Sends a heartbeat from each listener that should, if no worker is silent. The kernel spreads clients over
/// the workers, so one silent worker is reason enough to move all clients elsewhere.
fn send_heartbeats(pulses: &[Arc<Pulse>], node: &Counters) {
    let wanted = node.heartbeats.read();
    if wanted.is_empty() || pulses.iter().any(|pulse| pulse.is_on() && pulse.silent() > LATE) {
        return;
    }
    let Some(pulse) = pulses.iter().find(|pulse| pulse.is_on()) else {
        return;
    };
    for switch in pulse.switches.lock().iter().filter_map(Weak::upgrade) {
        if wanted.contains(&switch.address()) {
            switch.beat(HEARTBEAT_PORT);
        }
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Even if it is turned off just before others are to be guarded, too: they would be off for ever.
    #[test]
    fn what_was_turned_off_counts_as_off_until_it_is_replaced() {
        let pulse = Pulse::new();
        assert!(pulse.guard(std::iter::empty()));
        pulse.off.store(true, Ordering::Relaxed);
        assert!(!pulse.guard(std::iter::empty()) && pulse.beat());
        pulse.guard_new(std::iter::empty());
        assert!(!pulse.beat() && pulse.guard(std::iter::empty()));
    }
}
