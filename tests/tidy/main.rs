//! Checks of the source itself: which files may use each other, what they may be called, and how long files
//! and functions may be.
//!
//! These tests enforce the rules of ARCHITECTURE.md. They parse the sources, so that neither line breaks nor
//! re-exports hide anything. A list names the functions that are still too long; it may only shrink.

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
