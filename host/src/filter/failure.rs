//! Why a call into a filter, or its start, did not end well.

use std::fmt::Write as _;

use wasmtime::{FrameInfo, Trap, WasmBacktrace};

use super::text;

/// Octets of a function's name in a message.
const FUNCTION: usize = 120;

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
    /// What ended a call. `refused`: how much memory the guest had asked for beyond its limit, in octets, if it had.
    pub(super) fn of(error: &wasmtime::Error, refused: Option<usize>) -> Failure {
        let (reason, what) = if error.downcast_ref::<Trap>() == Some(&Trap::Interrupt) {
            (
                Reason::Time,
                "it took longer than `limits time=` allows: ".to_owned(),
            )
        } else if let Some(octets) = refused {
            // Guests answer a refused allocation with a trap of their own.
            let needed = octets.div_ceil(1 << 20);
            let what = format!("it wants at least {needed}MiB, which is more than `limits memory=` allows: ");
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
    let frames = error
        .downcast_ref::<WasmBacktrace>()
        .map_or(&[][..], WasmBacktrace::frames);
    let names: Vec<String> = frames.iter().map(function).collect();
    let own = |name: &&String| {
        !PANIC
            .iter()
            .any(|start| name.trim_start_matches('<').starts_with(start))
    };
    let mut own: Vec<&String> = names.iter().filter(own).collect();
    if own.is_empty() {
        own = names.iter().collect();
    }
    for (name, joint) in own.into_iter().zip([", in ", ", called by ", ", called by "]) {
        // Infallible for String.
        let _ = write!(words, "{joint}{}", text::one_line(name, FUNCTION));
    }
    words
}

/// The name of a function as its author wrote it.
fn function(frame: &FrameInfo) -> String {
    match frame.func_name() {
        Some(name) => format!("{:#}", rustc_demangle::demangle(name)),
        None => format!("function {}", frame.func_index()),
    }
}
