//! Every call of a start, a reload and a stop that can fail, failed in turn.

use std::collections::BTreeSet;

use crate::checks::{difference, faults, has_started, held};
use crate::outcome::Outcome;
use crate::plans;

/// How each kind of call fails.
const ERRNOS: [(&str, &[i32]); 13] = [
    ("socket", &[libc::EMFILE]),
    ("bind", &[libc::EADDRINUSE]),
    ("listen", &[libc::EADDRINUSE]),
    ("accept", &[libc::EMFILE]),
    ("connect", &[libc::ENETUNREACH]),
    ("option", &[libc::ENOPROTOOPT]),
    ("open", &[libc::EMFILE]),
    ("read", &[libc::EIO]),
    ("write", &[libc::ENOSPC]),
    ("change", &[libc::ENOSPC]),
    ("remove", &[libc::EIO]),
    ("register", &[libc::ENOSPC]),
    ("thread", &[libc::EAGAIN]),
];

/// What a history without faults holds: before the reload, and after it.
pub struct Reference {
    before: BTreeSet<String>,
    after: BTreeSet<String>,
    pub outcome: Outcome,
}

impl Reference {
    /// Plays one.
    ///
    /// # Errors
    /// If something does not hold in it.
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

    /// What does not hold where a call failed: a reload is whole or nothing, and says which; the next one is whole.
    pub fn compare(&self, outcome: &Outcome) -> Vec<String> {
        let mut wrong = faults(outcome);
        if !has_started(outcome) || outcome.why == "killed" {
            return wrong;
        }
        let at_start = outcome.failed.iter().any(|failed| failed.starts_with("start "));
        // What cannot be removed stays.
        let stays = |what: &String| {
            let mut removed = outcome.failed.iter().filter(|failed| failed.contains(" remove "));
            what.strip_prefix("file ")
                .is_some_and(|file| removed.any(|failed| failed.contains(file.trim_end_matches(" 1"))))
        };
        let [before, after, again] = ["before", "after", "again"].map(|moment| {
            let mut held = held(outcome, moment);
            held.retain(|what| !stays(what));
            held
        });
        let refused = outcome.log.contains("not reloaded, going on as before");
        // A start that lacks something goes on without, and says so; its next reload may bring it.
        if before != self.before && !at_start {
            wrong.push(format!("before: {}", difference(&before, &self.before)));
        }
        if refused && after != before {
            wrong.push(format!(
                "it said that nothing was reloaded, and: {}",
                difference(&after, &before)
            ));
        }
        if !refused && after != self.after && !at_start {
            wrong.push(format!("reloaded: {}", difference(&after, &self.after)));
        }
        if again != self.after && !at_start {
            wrong.push(format!("reloaded again: {}", difference(&again, &self.after)));
        }
        wrong
    }
}

/// Fails each call in turn: how many there were, and what does not hold.
///
/// # Errors
/// If no history can be played.
pub fn sweep(phases: &[&str], mut tell: impl FnMut(&str, &Outcome, &[String])) -> Result<usize, String> {
    let reference = Reference::play()?;
    let mut points = 0;
    for (phase, kind, count) in &reference.outcome.met {
        if !phases.contains(&phase.as_str()) {
            continue;
        }
        let errnos = ERRNOS
            .iter()
            .find(|(name, _)| name == kind)
            .map_or(&[libc::EIO][..], |(_, errnos)| errnos);
        for which in 1..=*count {
            for errno in errnos {
                points += 1;
                let fault = format!("fault {phase} {kind} {which} {errno}");
                let outcome = plans::changes(std::slice::from_ref(&fault)).play()?;
                let wrong = reference.compare(&outcome);
                tell(&fault, &outcome, &wrong);
            }
        }
    }
    Ok(points)
}
