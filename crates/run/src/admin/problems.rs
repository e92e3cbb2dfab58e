//! The current problems for an operator: what is affected, when it was found, and what to do. The most
//! serious comes first.
//!
//! The thresholds are those of the alerts in `deploy/monitoring`, but over one minute instead of five or
//! more. Problems are computed from counters and states on request, and every [`EVERY`] to find them
//! soon.

use std::cell::LazyCell;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::Serialize;
use tokio::time::sleep;

use super::readiness::not_ready;
use crate::ceiling::resident;
use crate::config::Module;
use crate::dns::name::Name;
use crate::exposition;
use crate::history::{Growth, Tally};
use crate::serve::generation::{Generation, Loaded, Stage};
use crate::state::State;

/// How often it checks on its own.
const EVERY: Duration = Duration::from_secs(10);

/// Fractions of the events of a minute from which on something is a problem.
const LOST: f64 = 0.02;
const FAILED: f64 = 0.05;
const UNKNOWN: f64 = 0.5;

/// The fraction of the memory ceiling from which on it counts as full.
const FULL: f64 = 0.95;

/// The fewest events for a fraction to be significant.
const FEW: f64 = 3.0;
const MANY: f64 = 100.0;

/// The most problems that are listed.
const MOST: usize = 100;

/// Seconds that a filter may take for a query.
const SLOW: f64 = 0.0005;

/// One problem.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct Problem {
    /// The subject: a zone, an upstream, a filter.
    about: String,
    what: String,
    /// What to do, if `what` does not say it already.
    #[serde(skip_serializing_if = "str::is_empty")]
    advice: &'static str,
    /// When it was found, as Unix time in milliseconds: up to [`EVERY`] after it began.
    since: u64,
    #[serde(skip)]
    kind: Kind,
}

/// The kinds of problems, most serious first: what affects all clients, what affects some, and what may come
/// to that.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Hang,
    NotReady,
    Failed,
    Loop,
    Out,
    Denied,
    Obstacles,
    Suspended,
    Rejects,
    Lost,
    Traps,
    Slow,
    Memory,
    Reload,
    Reverted,
    Pull,
    Refresh,
    Unknown,
    Note,
    More,
}

/// The problems found.
#[derive(Default)]
struct Found(Vec<Problem>);

impl Found {
    fn add(&mut self, kind: Kind, about: impl Into<String>, what: impl Into<String>, advice: &'static str) {
        self.0.push(Problem::new(kind, about.into(), what.into(), advice));
    }
}

impl Problem {
    fn new(kind: Kind, about: String, what: String, advice: &'static str) -> Problem {
        Problem {
            about,
            what,
            advice,
            since: 0,
            kind,
        }
    }
}

/// Checks periodically, to find problems soon after they begin.
pub(crate) async fn follow(state: Arc<State>) {
    loop {
        problems(&state);
        sleep(EVERY).await;
    }
}

/// Returns the current problems.
pub(super) fn problems(state: &State) -> Vec<Problem> {
    let growth = state.history.grown(Tally::of(&exposition::collect(state)));
    let mut found = Found::default();
    of_process(state, &mut found);
    let generation = Arc::clone(&state.generation.read());
    of_upstreams(&generation, &growth, &mut found);
    of_zones(&growth, &mut found);
    of_filters(state, &generation, &growth, &mut found);
    for note in state.notes() {
        found.add(Kind::Note, "", note, "");
    }
    let mut problems = found.0;
    problems.sort_by_key(|problem| problem.kind);
    let more = problems.len().saturating_sub(MOST);
    problems.truncate(MOST);
    if more > 0 {
        let what = format!("{more} more problems");
        problems.push(Problem::new(Kind::More, String::new(), what, ""));
    }
    let names: Vec<String> = problems.iter().map(name).collect();
    for (problem, since) in problems.iter_mut().zip(state.history.since(&names)) {
        problem.since = milliseconds(since);
    }
    problems
}

/// Returns the identity of a problem between checks. Numbers in its text change; a note has only its text.
fn name(problem: &Problem) -> String {
    let what = if problem.about.is_empty() {
        &*problem.what
    } else {
        ""
    };
    format!("{:?} {} {what}", problem.kind, problem.about)
}

fn milliseconds(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

fn of_process(state: &State, found: &mut Found) {
    if let Some(why) = state.ailment() {
        let advice = "the node has too little processor time left, or this is a bug";
        found.add(Kind::Hang, "process", why, advice);
    }
    for reason in not_ready(state) {
        found.add(Kind::NotReady, "", format!("not ready: {reason}"), "");
    }
    let obstacles = state.node.obstacles.load(Ordering::Relaxed);
    if obstacles > 0 {
        let what = format!("{obstacles} problems keep its network from being set up as configured");
        let advice = "the log and `dnsweir node plan` show each problem and what to do";
        found.add(Kind::Obstacles, "node", what, advice);
    }
    let ceiling = state.ceiling.read().total();
    if resident().is_some_and(|resident| resident as f64 > FULL * ceiling as f64) {
        let advice = "all limits are reached at once: there is a flood of queries, or the limits are too low";
        let what = "uses nearly all of the memory that its configuration allows";
        found.add(Kind::Memory, "process", what, advice);
    }
    if let Some(error) = &*state.reload_error.lock() {
        let first = error.lines().next().unwrap_or_default();
        let advice = "the previous configuration is still in use; `dnsweir check FILE` shows the mistake";
        found.add(
            Kind::Reload,
            "configuration",
            format!("the last reload failed: {first}"),
            advice,
        );
    }
}

fn of_upstreams(generation: &Generation, growth: &Growth, found: &mut Found) {
    let mut known = HashSet::new();
    let zones = LazyCell::new(|| zones_by_upstream(generation));
    for upstream in generation
        .sources
        .iter()
        .flat_map(|source| source.upkeep().status().upstreams)
    {
        // Zones that share an upstream each report it.
        if !known.insert(upstream.to.clone()) {
            continue;
        }
        let about = || {
            let zones = zones
                .get(&upstream.address)
                .map(Vec::as_slice)
                .unwrap_or_default();
            format!("upstream {} ({})", upstream.address, in_words(zones))
        };
        if upstream.looping {
            let advice = "`forward` names this proxy, or kube-proxy's rules are missing on this node";
            found.add(Kind::Loop, about(), "queries to it come back", advice);
        } else if let Some(fault) = &upstream.fault {
            let advice =
                "query it with dig; meanwhile, the other upstreams of the zone answer, if there are any";
            found.add(Kind::Out, about(), format!("fails its probes: {fault}"), advice);
        }
        if growth.of("denied", &upstream.to) > 0.0 {
            let advice = "raise net.netfilter.nf_conntrack_max, or find the rule; the log shows which of the two it is";
            let what = "this node drops queries to it: its connection tracking table is full, or a rule forbids them";
            found.add(Kind::Denied, about(), what, advice);
        }
        let (asked, lost) = (growth.of("asked", &upstream.to), growth.of("lost", &upstream.to));
        if upstream.healthy && lost >= FEW && lost > LOST * asked {
            let advice = "packets are lost, or the upstream is overloaded; clients do not notice it while other upstreams answer";
            found.add(
                Kind::Lost,
                about(),
                format!("leaves {} of its queries unanswered", share(lost, asked)),
                advice,
            );
        }
    }
}

/// Returns the zones that use each upstream.
fn zones_by_upstream(generation: &Generation) -> HashMap<String, Vec<&Name>> {
    let mut zones: HashMap<String, Vec<&Name>> = HashMap::new();
    for pipeline in &generation.pipelines {
        for stage in &pipeline.stages {
            let Stage::Source(index) = stage else { continue };
            for upstream in generation.sources[*index].upkeep().status().upstreams {
                zones.entry(upstream.address).or_default().extend(&pipeline.zones);
            }
        }
    }
    zones
}

fn in_words(zones: &[&Name]) -> String {
    match zones {
        [] => "asked for filters".to_owned(),
        [zone] => format!("zone {zone}"),
        [one, other] => format!("zones {one} {other}"),
        [one, other, more @ ..] => format!("zones {one} {other} and {} more", more.len()),
    }
}

fn of_zones(growth: &Growth, found: &mut Found) {
    for zone in growth.whom("answers") {
        let answers = growth.of("answers", zone);
        let (failed, unknown) = (growth.of("failed", zone), growth.of("unknown", zone));
        let about = format!("zone {zone}");
        if failed >= FEW && failed > FAILED * answers {
            let advice = "the list of failed queries shows the reasons";
            found.add(
                Kind::Failed,
                &*about,
                format!("{} of its answers are SERVFAIL", share(failed, answers)),
                advice,
            );
        }
        if growth.of("rejects", zone) > 0.0 {
            let advice = "check for slow or silent upstreams, or raise `waiting-queries` together with the memory limit";
            found.add(
                Kind::Rejects,
                &*about,
                "queries are rejected because too many are waiting",
                advice,
            );
        }
        if unknown >= MANY && unknown > UNKNOWN * answers {
            let advice = "pods with ndots:5 try every search domain for each name: lower ndots, or use the filter search-path";
            found.add(
                Kind::Unknown,
                about,
                format!("{} of its answers are NXDOMAIN", share(unknown, answers)),
                advice,
            );
        }
    }
}

fn of_filters(state: &State, generation: &Generation, growth: &Growth, found: &mut Found) {
    for (Loaded { filter, .. }, config) in generation.filters.iter().zip(&generation.config.filters) {
        let (name, about) = (filter.name(), format!("filter {}", filter.name()));
        let suspended = filter.counters().suspended.load(Ordering::Relaxed);
        let advice = "the log has the reason; `on-error` decides what happens to its queries";
        match growth.of("traps", name) {
            _ if suspended > 0 => found.add(
                Kind::Suspended,
                &*about,
                "is suspended because it keeps failing",
                advice,
            ),
            1.0 => found.add(Kind::Traps, &*about, "failed once in the last minute", advice),
            traps if traps > 0.0 => found.add(
                Kind::Traps,
                &*about,
                format!("failed {traps} times in the last minute"),
                advice,
            ),
            _ => {}
        }
        let (items, seconds) = (growth.of("items", name), growth.of("seconds", name));
        if items >= MANY && seconds > SLOW * items {
            let advice =
                "meanwhile, its worker answers no other query; `dnsweir explain` shows what the filter does";
            let what = format!("takes {:.1} ms for each query", seconds / items * 1e3);
            found.add(Kind::Slow, &*about, what, advice);
        }
        if let Some(why) = &config.reverted {
            found.add(Kind::Reverted, &*about, why, "");
        }
        let pulled = match &config.module {
            Module::Artifact(reference) => state.deliveries.error(reference),
            _ => None,
        };
        let refreshed = filter.refresh_config().and_then(|_| filter.refreshes().problem());
        for (kind, problem, advice) in [
            (Kind::Pull, pulled, "the current module stays in use"),
            (Kind::Refresh, refreshed, "the current data stays in use"),
        ] {
            if let Some(problem) = problem {
                found.add(kind, &*about, problem, advice);
            }
        }
    }
}

fn share(part: f64, whole: f64) -> String {
    format!("{:.0} %", 100.0 * (part / whole.max(part).max(1.0)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::History;
    use crate::metrics::Metrics;

    /// Returns the problems of zones with these counts of NOERROR, SERVFAIL and NXDOMAIN.
    fn said(counts: [u64; 3]) -> Vec<String> {
        let mut metrics = Metrics::default();
        let responses = metrics.counter("responses", "");
        for (rcode, count) in ["NOERROR", "SERVFAIL", "NXDOMAIN"].into_iter().zip(counts) {
            responses.add(&[("server", "s"), ("zone", "a."), ("rcode", rcode)], count);
        }
        let mut found = Found::default();
        of_zones(&History::default().grown(Tally::of(&metrics)), &mut found);
        found
            .0
            .into_iter()
            .map(|problem| format!("{}: {}", problem.about, problem.what))
            .collect()
    }

    #[test]
    fn shares_of_answers_are_wrong_from_a_threshold_on() {
        for (counts, expected) in [
            ([1000, 50, 0], &[][..]),
            ([1000, 60, 0], &["zone a.: 6 % of its answers are SERVFAIL"]),
            ([0, 2, 0], &[]),
            ([0, 3, 0], &["zone a.: 100 % of its answers are SERVFAIL"]),
            ([50, 0, 99], &[]),
            ([50, 0, 100], &["zone a.: 67 % of its answers are NXDOMAIN"]),
            ([100, 0, 100], &[]),
        ] {
            assert_eq!(said(counts), expected, "{counts:?}");
        }
    }
}
