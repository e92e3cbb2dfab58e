//! Planted faults, each a patch in `planted/`: how soon each is found in a program that has it.
//! `cargo xtask simulate --planted` builds these programs.

use std::fs;
use std::ops::ControlFlow;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::sweep::{self, Fate};
use crate::{checks, plans};

/// Minutes of changing weather in each history: short, so that many are played.
const MINUTES: u64 = 2;

/// Milliseconds between the queries of a client.
const EVERY: u64 = 20;

/// Searches for a patch's fault in the program for at most `minutes`, and prints how it was found.
///
/// # Errors
/// If it was not found.
pub fn find(patch: &Path, minutes: u64) -> Result<(), String> {
    let text = fs::read_to_string(patch).map_err(|error| format!("{}: {error}", patch.display()))?;
    let said = |word: &str| {
        let head = text.lines().take_while(|line| !line.starts_with("--- "));
        let mut values = head.filter_map(|line| line.strip_prefix(word)?.strip_prefix(": "));
        values.next().map(str::to_owned)
    };
    let longest = Duration::from_secs(60 * minutes);
    match said("look").as_deref() {
        None => by_histories(longest, said("build").as_deref() == Some("fuel")),
        Some("changes") => by_sweep(Fate::Fails, longest),
        Some("kills") => by_sweep(Fate::Kills, longest),
        Some(other) => Err(format!("{}: look: {other}?", patch.display())),
    }
}

fn by_histories(longest: Duration, fuel: bool) -> Result<(), String> {
    let begin = Instant::now();
    for seed in 1.. {
        let outcome = plans::long(seed, MINUTES, EVERY, fuel).play()?;
        if let Some(wrong) = checks::faults(&outcome).first() {
            found(&format!("seed {seed}"), begin, wrong);
            return Ok(());
        }
        if begin.elapsed() > longest {
            return Err(format!("not found in {seed} seeds, {:.0?}", begin.elapsed()));
        }
    }
    Ok(())
}

fn by_sweep(fate: Fate, longest: Duration) -> Result<(), String> {
    let begin = Instant::now();
    let (mut tried, mut done) = (0, false);
    let swept = sweep::sweep(fate, &["reload", "start", "stop"], |fault, _, wrong| {
        tried += 1;
        if let Some(wrong) = wrong.first() {
            found(&format!("call {tried}, `{fault}`"), begin, wrong);
            done = true;
        }
        match done || begin.elapsed() > longest {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    });
    match swept {
        _ if done => Ok(()),
        Ok(_) => Err(format!("not found at {tried} calls, {:.0?}", begin.elapsed())),
        // Invariants are violated even where no call fails.
        Err(wrong) => {
            found("no call", begin, &wrong);
            Ok(())
        }
    }
}

fn found(how: &str, begin: Instant, wrong: &str) {
    let first = wrong.lines().next().unwrap_or_default();
    let seconds = begin.elapsed().as_secs_f64();
    println!("{how} | {seconds:.0} s | {first}");
}
