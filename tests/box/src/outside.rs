//! Makes calls fail in the real world, with real clocks, threads and network, for what the box does not
//! simulate: the network of a node, and two processes side by side.
//!
//! The starter of the program ends each phase with a signal.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use libc::c_int;

use crate::faults::{Fate, Faults, Kind};
use crate::kernel::kernel;
use crate::report;
use crate::scenario::Scenario;
use crate::seed::Random;

/// The phases, advanced by each signal. Nothing fails in the second.
const PHASES: [&str; 3] = ["start", "calm", "stop"];

/// The offset from the first real-time signal of the one that ends a phase.
const NEXT_PHASE: c_int = 7;

static PHASE: AtomicUsize = AtomicUsize::new(0);

struct Outside {
    /// The process whose calls fail. Children share this memory between fork and exec.
    process: i64,
    /// Opened at the start, because the program later gives up writing to most places.
    report: i64,
    faults: Mutex<Faults>,
}

static OUTSIDE: OnceLock<Outside> = OnceLock::new();

extern "C" fn next_phase(_: c_int) {
    PHASE.fetch_add(1, Ordering::Relaxed);
}

/// Starts counting calls.
pub fn begin(scenario: &Scenario) {
    let _ = OUTSIDE.set(Outside {
        process: process(),
        report: report::create(&scenario.report),
        faults: Mutex::new(Faults::new(scenario, Random::new(scenario.seed))),
    });
    // SAFETY: the structure consists of integers and a pointer, for which zero is valid; the handler only
    // adds to an atomic, which is async-signal-safe.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = next_phase as *const () as usize;
        action.sa_flags = libc::SA_RESTART;
        libc::sigaction(
            libc::SIGRTMIN() + NEXT_PHASE,
            &raw const action,
            std::ptr::null_mut(),
        );
    }
}

fn process() -> i64 {
    kernel!(libc::SYS_getpid)
}

fn faults(outside: &Outside) -> MutexGuard<'_, Faults> {
    outside.faults.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Decides the fate of a call.
pub fn meets(kind: Kind, what: &str) -> Fate {
    let Some(outside) = OUTSIDE.get().filter(|outside| outside.process == process()) else {
        return Fate::Passes;
    };
    let phase = PHASES[PHASE.load(Ordering::Relaxed).min(PHASES.len() - 1)];
    let mut faults = faults(outside);
    faults.enter(phase);
    faults.meets(kind, what, 0)
}

/// Writes the calls seen so far, and those that failed.
pub fn write_report() {
    if let Some(outside) = OUTSIDE.get().filter(|outside| outside.process == process()) {
        report::write_to(outside.report, faults(outside).account().as_bytes());
    }
}

/// Writes the report, then kills the process with SIGKILL.
pub fn end_by_force() -> bool {
    write_report();
    kernel!(libc::SYS_kill, process(), libc::SIGKILL);
    true
}
