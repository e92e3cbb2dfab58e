//! The source itself: which file may name which, what files may be called, and how long they and their functions are.
//!
//! The rules are those of ARCHITECTURE.md; this is what keeps them true. Sources are parsed, so that neither a line
//! break nor a re-export hides anything. A list says which functions are too long still; it may only shrink.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a test fails by panicking, and says what it found"
)]

mod arrows;
mod bindings;
mod circles;
mod doors;
mod lengths;
mod names;
mod paths;
mod planted;
mod source;
mod tree;
