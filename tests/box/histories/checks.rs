//! The invariants of every history.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::process::ExitStatusExt as _;

use crate::outcome::{Ended, Outcome};

/// Gauges of what is held, open or waiting: they return to their first value when no client asks any more.
const RETURN: [&str; 4] = [
    "dnsweir_waiting_queries",
    "dnsweir_tcp_connections",
    "dnsweir_tcp_bytes",
    "dnsweir_forward_looping",
];

/// Prefix of the moments at which no client has asked for a while.
const QUIET: &str = "quiet";

/// Describes what does not hold.
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
    // Filters may panic; the proxy logs that.
    let is_ours = |line: &&str| line.contains("panicked at") && !line.contains(" filter: panicked at");
    let panics = outcome.log.lines().filter(is_ours);
    faults.extend(panics.map(|line| format!("a panic: {line}")));
    if outcome.why.is_empty() && matches!(outcome.ended, Ended::By(_)) {
        faults.push("the box wrote no report".to_owned());
    }
    faults.extend(returns(outcome));
    faults
}

/// Whether the program got as far as answering queries.
pub fn has_started(outcome: &Outcome) -> bool {
    outcome.log.contains("answering queries")
}

fn last(log: &str) -> &str {
    log.lines().last().unwrap_or_default()
}

/// Returns gauges that differ between the first quiet moment and a later one.
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

/// Returns what was held at a moment, with the names of the metrics then.
pub fn held(outcome: &Outcome, moment: &str) -> BTreeSet<String> {
    let mut held = outcome.held.get(moment).cloned().unwrap_or_default();
    let series = outcome.gauges.get(moment).into_iter().flat_map(BTreeMap::keys);
    // Names only: the number of cache entries does not depend on the configuration.
    held.extend(series.map(|series| format!("metric {series}")));
    held
}

/// Describes the difference between two sets, in both directions.
pub fn difference(is: &BTreeSet<String>, should: &BTreeSet<String>) -> String {
    let more = is.difference(should).map(|what| format!("+ {what}"));
    let less = should.difference(is).map(|what| format!("- {what}"));
    more.chain(less).collect::<Vec<_>>().join("; ")
}
