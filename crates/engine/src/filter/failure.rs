//! Why a call into a filter, or its start, did not end well.

use std::fmt::Write as _;

use wasmtime::{FrameInfo, Trap, WasmBacktrace};

use super::text;
use crate::config::spell_size;

/// Octets that one call may carry out of a guest.
pub(super) const HOSTCALL_BYTES: usize = 1 << 20;

/// Octets of a function's name in a message.
const FUNCTION: usize = 120;

/// Octets of it that are written to find out whose it is, and to be cut.
const LOOKED_AT: usize = 2 * FUNCTION;

/// What stands before each function that is told: the innermost is where it happened.
const TOLD: [&str; 3] = [", in ", ", called by ", ", called by "];

/// What wasmtime says of more octets than a call may hand over. It has no type for it.
const TOO_MUCH: &str = "fuel allocated for hostcalls has been exhausted";

/// What the names of functions begin with that are on the stack of every panic.
const PANIC: [&str; 6] = ["core::", "std::", "alloc::", "rust_", "__rust", "abort"];

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
    /// A call that ended by itself, later than it may have: nothing could interrupt it.
    pub(super) fn late() -> Failure {
        Failure {
            reason: Reason::Time,
            message: "it took longer than `limits time=` allows, in what cannot be interrupted".to_owned(),
        }
    }

    /// What ended a call. `refused`: how much memory the guest had asked for beyond its limit, in octets, if it had.
    pub(super) fn of(error: &wasmtime::Error, refused: Option<usize>) -> Failure {
        let late = |trap: &Trap| matches!(trap, Trap::Interrupt | Trap::OutOfFuel);
        let (reason, what) = if error.downcast_ref().is_some_and(late) {
            (
                Reason::Time,
                "it took longer than `limits time=` allows: ".to_owned(),
            )
        } else if let Some(octets) = refused {
            // Guests answer a refused allocation with a trap of their own.
            let needed = octets.div_ceil(1 << 20);
            let what = format!("it needs at least {needed}MiB, which is more than `limits memory=` allows: ");
            (Reason::Memory, what)
        } else {
            (Reason::Trap, String::new())
        };
        Failure {
            reason,
            message: text::one_line(&format!("{what}{}", cause(error)), 1024),
        }
    }
}

/// What went wrong, and then in which functions: the innermost three that are the guest's own.
fn cause(error: &wasmtime::Error) -> String {
    let mut words = error.root_cause().to_string();
    if words.contains(TOO_MUCH) {
        let most = spell_size(HOSTCALL_BYTES);
        words = format!("it hands over more than {most} in one call");
    }
    let frames = error
        .downcast_ref::<WasmBacktrace>()
        .map_or(&[][..], WasmBacktrace::frames);
    let is_own = |frame: &&FrameInfo| {
        let name = function(frame);
        !PANIC
            .iter()
            .any(|start| name.trim_start_matches('<').starts_with(start))
    };
    let mut own = frames.iter().filter(is_own).take(TOLD.len()).peekable();
    let told: Vec<&FrameInfo> = match own.peek() {
        Some(_) => own.collect(),
        None => frames.iter().take(TOLD.len()).collect(),
    };
    for (frame, joint) in told.into_iter().zip(TOLD) {
        // Infallible for String.
        let _ = write!(words, "{joint}{}", text::one_line(&function(frame), FUNCTION));
    }
    words
}

/// The name of a function as its author wrote it, as much of it as is looked at.
fn function(frame: &FrameInfo) -> String {
    match frame.func_name() {
        Some(name) => demangled(name),
        None => format!("function {}", frame.func_index()),
    }
}

/// A name of 46 octets may stand for a megabyte: it is written until there is enough of it.
fn demangled(name: &str) -> String {
    let mut begun = Beginning(String::new());
    // The only error is that there is enough.
    let _ = write!(begun, "{:#}", rustc_demangle::demangle(name));
    begun.0
}

/// Text of at most [`LOOKED_AT`] octets.
struct Beginning(String);

impl std::fmt::Write for Beginning {
    fn write_str(&mut self, piece: &str) -> std::fmt::Result {
        let room = LOOKED_AT.saturating_sub(self.0.len());
        self.0.push_str(&piece[..piece.floor_char_boundary(room)]);
        match piece.len() < room {
            true => Ok(()),
            false => Err(std::fmt::Error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each back-reference doubles what the ones before it stand for.
    #[test]
    fn a_name_is_written_until_there_is_enough_of_it() {
        let long = "_RINvC1a1bINtB2_1cINtB2_1cINtB2_1cuuEIB5_uuEEEE";
        for name in [long, &"x".repeat(1 << 20), &"é".repeat(1 << 20)] {
            let shown = demangled(name);
            assert!((1..=LOOKED_AT).contains(&shown.len()), "{} octets", shown.len());
        }
        assert_eq!(
            demangled("_ZN4core9panicking5panic17h0123456789abcdefE"),
            "core::panicking::panic"
        );
    }
}
