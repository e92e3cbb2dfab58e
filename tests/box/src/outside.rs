//! Calls that fail in the world as it is, with its own clock, threads and network: for what the box has not, such as the network of
//! a node, and two processes side by side.
//!
//! Whoever started the program says when a phase ends, by a signal.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use libc::c_int;

use crate::faults::{Fate, Faults, Kind};
use crate::kernel::kernel;
use crate::report;
use crate::scenario::Scenario;
use crate::seed::Random;

/// One follows the other at each signal. In the second, nothing fails.
const PHASES: [&str; 3] = ["start", "calm", "stop"];

/// How far behind the first real-time signal the one is that ends a phase.
const NEXT_PHASE: c_int = 7;

static PHASE: AtomicUsize = AtomicUsize::new(0);

struct Outside {
    /// Whose calls fail. Children have this memory too, between fork and exec.
    process: i64,
    /// Open from the start, since the program gives up writing where it likes.
    report: i64,
    faults: Mutex<Faults>,
}

static OUTSIDE: OnceLock<Outside> = OnceLock::new();

extern "C" fn next_phase(_: c_int) {
    PHASE.fetch_add(1, Ordering::Relaxed);
}

/// Begins to count calls.
pub fn begin(scenario: &Scenario) {
    let _ = OUTSIDE.set(Outside {
        process: process(),
        report: report::create(&scenario.report),
        faults: Mutex::new(Faults::new(scenario, Random::new(scenario.seed))),
    });
    // SAFETY: the structure is of integers and a pointer, for which zero is a value; the handler adds to an atomic, which a
    // handler may.
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

/// What becomes of a call.
pub fn meets(kind: Kind, what: &str) -> Fate {
    let Some(outside) = OUTSIDE.get().filter(|outside| outside.process == process()) else {
        return Fate::Passes;
    };
    let phase = PHASES[PHASE.load(Ordering::Relaxed).min(PHASES.len() - 1)];
    let mut faults = faults(outside);
    faults.enter(phase);
    faults.meets(kind, what, 0)
}

/// What was met so far, and what failed.
pub fn write_report() {
    if let Some(outside) = OUTSIDE.get().filter(|outside| outside.process == process()) {
        report::write_to(outside.report, faults(outside).account().as_bytes());
    }
}

/// SIGKILL, with the report written.
pub fn end_by_force() -> bool {
    write_report();
    kernel!(libc::SYS_kill, process(), libc::SIGKILL);
    true
}
