//! What must hold in every history.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::process::ExitStatusExt as _;

use crate::outcome::{Ended, Outcome};

/// Gauges that count what is held, open or waiting: where nobody asks any more, they are what they were.
const RETURN: [&str; 4] = [
    "dnsweir_waiting_queries",
    "dnsweir_tcp_connections",
    "dnsweir_tcp_bytes",
    "dnsweir_forward_looping",
];

/// Moments at which nobody has asked for a while.
const QUIET: &str = "quiet";

/// What does not hold, in words.
pub fn faults(outcome: &Outcome) -> Vec<String> {
    let mut faults = outcome.violations.clone();
    match &outcome.ended {
        Ended::Silent(stack) => faults.push(format!("a thread made no call for two seconds:\n{stack}")),
        Ended::Late => faults.push("the history took more than an hour".to_owned()),
        Ended::By(status) => match (status.code(), status.signal()) {
            (_, Some(libc::SIGKILL)) if outcome.why == "killed" => {}
            (_, Some(signal)) => faults.push(format!("the process was ended by signal {signal}")),
            (Some(0), _) => {}
            (code, _) if has_started(outcome) => {
                faults.push(format!(
                    "the process ended with status {code:?}: {}",
                    last(&outcome.log)
                ));
            }
            // A start that fails says why.
            (_, _) if !outcome.log.trim().is_empty() => {}
            (code, _) => faults.push(format!(
                "the process ended with status {code:?} and did not say why"
            )),
        },
    }
    // Not those of filters, which the proxy tells of.
    let is_ours = |line: &&str| line.contains("panicked at") && !line.contains(" filter: panicked at");
    let panics = outcome.log.lines().filter(is_ours);
    faults.extend(panics.map(|line| format!("a panic: {line}")));
    if outcome.why.is_empty() && matches!(outcome.ended, Ended::By(_)) {
        faults.push("the box wrote no report".to_owned());
    }
    faults.extend(returns(outcome));
    faults
}

/// Whether the program came so far as to answer.
pub fn has_started(outcome: &Outcome) -> bool {
    outcome.log.contains("answering queries")
}

fn last(log: &str) -> &str {
    log.lines().last().unwrap_or_default()
}

/// Gauges that differ between the first quiet moment and a later one.
fn returns(outcome: &Outcome) -> Vec<String> {
    let quiet: Vec<_> = outcome
        .gauges
        .iter()
        .filter(|(moment, _)| moment.starts_with(QUIET))
        .collect();
    let Some(((_, first), later)) = quiet.split_first().map(|(first, later)| (*first, later)) else {
        return Vec::new();
    };
    let counted = |(series, _): &(&String, &String)| RETURN.iter().any(|name| series.starts_with(name));
    let mut faults = Vec::new();
    for (moment, gauges) in later {
        for (series, value) in gauges.iter().filter(counted) {
            match first.get(series) {
                Some(before) if before == value => {}
                None if value == "0" => {}
                before => faults.push(format!("{series} is {value} at {moment}, and was {before:?}")),
            }
        }
    }
    faults
}

/// What was held at a moment, with the names of what is measured then.
pub fn held(outcome: &Outcome, moment: &str) -> BTreeSet<String> {
    let mut held = outcome.held.get(moment).cloned().unwrap_or_default();
    let series = outcome.gauges.get(moment).into_iter().flat_map(BTreeMap::keys);
    // How many entries a cache has is no matter of the configuration.
    held.extend(series.map(|series| format!("metric {series}")));
    held
}

/// What one has that the other has not, both ways.
pub fn difference(is: &BTreeSet<String>, should: &BTreeSet<String>) -> String {
    let more = is.difference(should).map(|what| format!("+ {what}"));
    let less = should.difference(is).map(|what| format!("- {what}"));
    more.chain(less).collect::<Vec<_>>().join("; ")
}
