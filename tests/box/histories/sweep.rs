//! Fails each call of a start, a reload and a stop that can fail, in turn.

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use harness::failing;

use crate::checks::{difference, faults, has_started, held};
use crate::outcome::Outcome;
use crate::plans;

/// What a history without faults holds, before and after the reload.
pub struct Reference {
    before: BTreeSet<String>,
    after: BTreeSet<String>,
    pub outcome: Outcome,
}

impl Reference {
    /// Plays a history without faults.
    ///
    /// # Errors
    /// If an invariant does not hold in it.
    pub fn play() -> Result<Reference, String> {
        let outcome = plans::changes(&[]).play()?;
        let faults = faults(&outcome);
        if !faults.is_empty() {
            return Err(format!("without a fault: {}", faults.join("\n")));
        }
        let (before, after) = (held(&outcome, "before"), held(&outcome, "after"));
        match before == after {
            true => Err("the reload changed nothing".to_owned()),
            false => Ok(Reference {
                before,
                after,
                outcome,
            }),
        }
    }

    /// Expands `PHASE KIND ERRNO` to one fault for each such call in the reference.
    pub fn each(&self, words: &str) -> Vec<String> {
        let met = self.outcome.met.iter();
        let mut of = met.filter_map(|(phase, kind, count)| {
            let errno = words.strip_prefix(&format!("{phase} {kind} "))?;
            Some((1..=*count).map(move |which| format!("fault {phase} {kind} {which} {errno}")))
        });
        of.next().into_iter().flatten().collect()
    }

    /// Plays the plan of changes with faults. Returns what does not hold.
    ///
    /// # Errors
    /// If it cannot be played.
    pub fn play_with(&self, faults: &[String]) -> Result<(Outcome, Vec<String>), String> {
        let folder = tempfile::tempdir().map_err(|error| format!("cannot make a folder: {error}"))?;
        let outcome = plans::changes(faults).play_in(folder.path())?;
        if outcome.why != "killed" {
            let wrong = self.compare(&outcome);
            return Ok((outcome, wrong));
        }
        let next = plans::start_again().play_in(folder.path())?;
        let wrong = self.compare_next(&next);
        Ok((outcome, wrong))
    }

    /// Returns what does not hold in a process started on what another left: it must behave as after a clean
    /// start.
    fn compare_next(&self, outcome: &Outcome) -> Vec<String> {
        let mut wrong = faults(outcome);
        let held = held(outcome, "after");
        // Socket files of the killed process stay: of another configuration, or not yet moved to their place.
        let other = |what: &String| what.starts_with("file control/");
        let is_one = |set: &BTreeSet<String>| {
            held.iter()
                .filter(|what| !other(what))
                .eq(set.iter().filter(|what| !other(what)))
        };
        if !is_one(&self.before) && !is_one(&self.after) {
            let (first, second) = (difference(&held, &self.before), difference(&held, &self.after));
            let nearer = if first.len() < second.len() { first } else { second };
            wrong.push(format!("started on what was left: {nearer}"));
        }
        wrong
    }

    /// Returns what does not hold after a failed call: a reload is complete or has no effect, and says which;
    /// the next one is complete.
    pub fn compare(&self, outcome: &Outcome) -> Vec<String> {
        let mut wrong = faults(outcome);
        if !has_started(outcome) || outcome.why == "killed" {
            return wrong;
        }
        let at_start = outcome.failed.iter().any(|failed| failed.starts_with("start "));
        // A file that could not be removed may stay.
        let stays = |what: &String| {
            let mut removed = outcome.failed.iter().filter(|failed| failed.contains(" remove "));
            let file = what.strip_prefix("file ").and_then(|what| what.split(' ').next());
            file.is_some_and(|file| removed.any(|failed| failed.ends_with(file)))
        };
        let without = |mut held: BTreeSet<String>| {
            held.retain(|what| !stays(what));
            held
        };
        let [before, after, again] =
            ["before", "after", "again"].map(|moment| without(held(outcome, moment)));
        let (first, second) = (without(self.before.clone()), without(self.after.clone()));
        let refused = outcome
            .log
            .contains("not reloaded; the previous configuration stays in use");
        // A start that lacks something goes on without it, and says so; the next reload may bring it.
        if before != first && !at_start {
            wrong.push(format!("before: {}", difference(&before, &first)));
        }
        if refused && after != before {
            wrong.push(format!(
                "it said that nothing was reloaded, and: {}",
                difference(&after, &before)
            ));
        }
        if !refused && after != second && !at_start {
            wrong.push(format!("reloaded: {}", difference(&after, &second)));
        }
        if again != second && !at_start {
            wrong.push(format!("reloaded again: {}", difference(&again, &second)));
        }
        wrong
    }
}

/// What happens to each call in turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    Fails,
    /// The process is killed there, and another one starts on what it left.
    Kills,
}

/// Fails each call in turn, or kills the process there, and reports each result until `tell` stops it.
/// Returns how many calls were tried.
///
/// # Errors
/// If no history can be played.
pub fn sweep(
    fate: Fate,
    phases: &[&str],
    mut tell: impl FnMut(&str, &Outcome, &[String]) -> ControlFlow<()>,
) -> Result<usize, String> {
    let reference = Reference::play()?;
    let mut points = 0;
    // A kill at a short read or write would repeat the kill at the call itself.
    let is_double = |kind: &String| fate == Fate::Kills && kind == "short";
    let met = phases.iter().flat_map(|phase| {
        let met = reference.outcome.met.iter();
        met.filter(move |(of, kind, _)| of == phase && !is_double(kind))
    });
    for (phase, kind, count) in met {
        let errno = match fate {
            // A short read or write is no failure: any number will do.
            Fate::Fails => failing::errno(kind).unwrap_or(libc::EINTR),
            Fate::Kills => 0,
        };
        for which in 1..=*count {
            points += 1;
            let fault = format!("fault {phase} {kind} {which} {errno}");
            let (outcome, wrong) = reference.play_with(std::slice::from_ref(&fault))?;
            if tell(&fault, &outcome, &wrong).is_break() {
                return Ok(points);
            }
        }
    }
    Ok(points)
}
