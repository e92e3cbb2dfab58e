//! Why a call into a filter, or its start, failed.

use std::fmt::Write as _;

use wasmtime::{FrameInfo, Trap, WasmBacktrace};

use super::text;
use crate::config::spell_size;

/// Maximum bytes that one call may pass out of a guest.
pub(super) const HOSTCALL_BYTES: usize = 1 << 20;

/// Maximum bytes of a function's name in a message.
const FUNCTION: usize = 120;

/// Bytes of the name that are demangled, to tell whose function it is and to be cut.
const LOOKED_AT: usize = 2 * FUNCTION;

/// The text before each function that is reported, from the innermost outwards.
const TOLD: [&str; 3] = [", in ", ", called by ", ", called by "];

/// wasmtime's message when a call passes out more than that. It has no error type for it.
const TOO_MUCH: &str = "fuel allocated for hostcalls has been exhausted";

/// Name prefixes of functions that are on the stack of every panic.
const PANIC: [&str; 6] = ["core::", "std::", "alloc::", "rust_", "__rust", "abort"];

/// The kind of failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// The guest trapped.
    Trap,
    /// It exceeded its time limit.
    Time,
    /// It exceeded its memory limit.
    Memory,
    /// It returned an invalid result.
    Garbage,
}

/// A failed call or start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// For the counters.
    pub reason: Reason,
    /// For the log.
    pub message: String,
}

impl Failure {
    /// A call that returned, but too late, because nothing could interrupt it.
    pub(super) fn late() -> Failure {
        Failure {
            reason: Reason::Time,
            message: "it took longer than `limits time=` allows, in what cannot be interrupted".to_owned(),
        }
    }

    /// The failure of a call that ended with `error`. `refused`: the bytes of memory in all that the guest
    /// was refused, if it was.
    pub(super) fn of(error: &wasmtime::Error, refused: Option<usize>) -> Failure {
        let late = |trap: &Trap| matches!(trap, Trap::Interrupt | Trap::OutOfFuel);
        let (reason, what) = if error.downcast_ref().is_some_and(late) {
            (
                Reason::Time,
                "it took longer than `limits time=` allows: ".to_owned(),
            )
        } else if let Some(octets) = refused {
            // Guests answer a refused allocation with a trap.
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

/// The cause, followed by functions: the innermost three that are the guest's own.
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

/// The demangled name of a function, or the beginning of it.
fn function(frame: &FrameInfo) -> String {
    match frame.func_name() {
        Some(name) => demangled(name),
        None => format!("function {}", frame.func_index()),
    }
}

/// Demangles a name. A name of 46 bytes may stand for a megabyte, so this stops after `LOOKED_AT` bytes.
fn demangled(name: &str) -> String {
    let mut begun = Beginning(String::new());
    // The only error is that the limit is reached.
    let _ = write!(begun, "{:#}", rustc_demangle::demangle(name));
    begun.0
}

/// Text of at most [`LOOKED_AT`] bytes.
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

    /// Each back-reference doubles what those before it stand for.
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
