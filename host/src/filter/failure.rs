//! Why a call into a filter, or its start, did not end well.

use wasmtime::Trap;

use super::text;

/// What kind of failure it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// The guest trapped.
    Trap,
    /// It ran into its time limit.
    Time,
    /// It ran into its memory limit.
    Memory,
    /// It returned something that makes no sense.
    Garbage,
}

/// A failed call or start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// For the counters.
    pub reason: Reason,
    /// For the log, in words.
    pub message: String,
}

impl Failure {
    /// What ended a call. `out_of_memory`: whether the guest had asked for more than its limit.
    pub(super) fn of(error: &wasmtime::Error, out_of_memory: bool) -> Failure {
        let (reason, what) = if error.downcast_ref::<Trap>() == Some(&Trap::Interrupt) {
            (Reason::Time, "it took longer than `limits time=` allows: ")
        } else if out_of_memory {
            // Guests answer a refused allocation with a trap of their own.
            (Reason::Memory, "it wants more than `limits memory=` allows: ")
        } else {
            (Reason::Trap, "")
        };
        Failure {
            reason,
            message: text::one_line(&format!("{what}{error:#}"), 1024),
        }
    }
}
