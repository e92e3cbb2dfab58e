//! Finds workers that hang, and turns their sockets off.
//!
//! A worker beats ten times a second from within its own loop. One that has been silent for [`HANG`]
//! serves nobody, but its sockets would go on taking queries: another thread turns them off, so that the
//! other workers get them, or, in fall-through mode, the cluster's DNS. With its next beat the worker
//! learns of it, and binds new ones.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::listen::Switch;

/// How long a worker may be silent.
pub const HANG: Duration = Duration::from_secs(1);

/// How often workers beat, and how often they are looked at.
pub const BEAT: Duration = Duration::from_millis(100);

/// A worker's sign of life.
pub struct Pulse {
    since: Instant,
    /// Milliseconds after `since` of the last beat.
    beaten: AtomicU64,
    off: AtomicBool,
    switches: Mutex<Vec<Weak<Switch>>>,
}

impl Pulse {
    /// Of a worker that starts now.
    pub fn new() -> Pulse {
        Pulse {
            since: Instant::now(),
            beaten: AtomicU64::new(0),
            off: AtomicBool::new(false),
            switches: Mutex::default(),
        }
    }

    /// The worker lives. Whether its sockets were turned off meanwhile.
    pub fn beat(&self) -> bool {
        self.beaten
            .store(self.since.elapsed().as_millis() as u64, Ordering::Relaxed);
        self.hangs()
    }

    /// What is to be turned off when it hangs, from now on; all of it is on.
    pub fn guard<'a>(&self, switches: impl Iterator<Item = &'a Arc<Switch>>) {
        let mut guarded = self.switches.lock();
        *guarded = switches.map(Arc::downgrade).collect();
        self.off.store(false, Ordering::Relaxed);
    }

    /// Whether it hangs, as far as anyone has noticed.
    pub fn hangs(&self) -> bool {
        self.off.load(Ordering::Relaxed)
    }

    fn silent(&self) -> Duration {
        self.since
            .elapsed()
            .saturating_sub(Duration::from_millis(self.beaten.load(Ordering::Relaxed)))
    }

    /// Turns its sockets off if it hangs and they are on.
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

/// Looks after workers for as long as it lives.
pub struct Watchdog {
    ended: Arc<AtomicBool>,
}

impl Watchdog {
    /// Starts to look. `hanging` says how many hang now, `hangs` counts how often one did.
    pub fn start(
        pulses: Vec<Arc<Pulse>>,
        hanging: Arc<AtomicUsize>,
        hangs: Arc<AtomicU64>,
    ) -> std::io::Result<Watchdog> {
        let ended = Arc::new(AtomicBool::new(false));
        let watchdog = Watchdog {
            ended: Arc::clone(&ended),
        };
        thread::Builder::new().name("watchdog".into()).spawn(move || {
            let mut looked = Instant::now();
            let mut trusted = looked;
            while !ended.load(Ordering::Relaxed) {
                thread::sleep(BEAT);
                let now = Instant::now();
                // Whoever stopped us (SIGSTOP, a machine that was paused) stopped the workers, too: they
                // get their time again.
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
                // Told last: everything is done by then.
                for worker in hung {
                    tracing::error!(worker, "hangs: its listeners are off until it is back");
                }
            }
        })?;
        Ok(watchdog)
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
    }
}
