//! Plays histories of the proxy in the box, and checks the invariants of each: tests/box/README.md.
//!
//! Without `simulate`, as under `cargo test`, it runs the kept histories: former failures, each a small file.
//! `cargo xtask simulate` makes it search for new ones.

#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a program speaks to the person who called it"
)]

mod checks;
mod history;
mod kept;
mod outcome;
mod plans;
mod planted;
mod search;
mod sweep;

use std::process::ExitCode;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let result = match words.split_first() {
        Some((first, rest)) if first == "simulate" => search::simulate(rest),
        _ => kept::test(&words),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("{failure}");
            ExitCode::FAILURE
        }
    }
}
