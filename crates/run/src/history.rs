//! Counters of the last minute, and since when each problem has existed, so that a report shows the present.
//!
//! It holds two tallies, whatever is counted, and forgets problems that are over.

use std::collections::HashMap;
use std::time::{Duration, Instant, SystemTime};

use parking_lot::Mutex;

use crate::metrics::{Metrics, Sample};

/// The age at which the newer tally becomes the older one: growth covers this time, or up to twice as long.
const AGE: Duration = Duration::from_secs(30);

/// What is remembered.
pub struct History(Mutex<Past>);

struct Past {
    older: Tally,
    newer: Tally,
    /// When `newer` was taken.
    at: Instant,
    /// Since when each problem has existed, by its name.
    since: HashMap<String, SystemTime>,
}

/// Counters by name and subject, as far as [`Growth`] needs them.
#[derive(Debug, Default, Clone)]
pub struct Tally(HashMap<(&'static str, String), f64>);

/// An entry of a tally: its name, the metric, the label of the subject, and optionally another label with the
/// value that counts.
type Counted = (
    &'static str,
    &'static str,
    &'static str,
    Option<(&'static str, &'static str)>,
);

const COUNTED: [Counted; 10] = [
    ("answers", "responses", "zone", None),
    ("failed", "responses", "zone", Some(("rcode", "SERVFAIL"))),
    ("unknown", "responses", "zone", Some(("rcode", "NXDOMAIN"))),
    ("asked", "forward_requests", "to", None),
    ("lost", "forward_failures", "to", Some(("reason", "timeout"))),
    ("denied", "forward_failures", "to", Some(("reason", "denied"))),
    ("items", "filter_items", "filter", None),
    ("seconds", "filter_seconds", "filter", None),
    ("traps", "filter_traps", "filter", None),
    ("rejects", "waiting_rejects", "zone", None),
];

impl Tally {
    /// Collects a tally from the metrics.
    pub fn of(metrics: &Metrics) -> Tally {
        let mut tally = Tally::default();
        for (name, metric, whose, only) in COUNTED {
            let Some(metric) = metrics.all().iter().find(|known| known.name == metric) else {
                continue;
            };
            for (labels, sample) in &metric.samples {
                let value = |wanted: &str| {
                    labels
                        .iter()
                        .find(|(label, _)| label == wanted)
                        .map(|(_, value)| value)
                };
                let Some(whom) = value(whose) else { continue };
                if only.is_some_and(|(label, wanted)| value(label).is_none_or(|value| value != wanted)) {
                    continue;
                }
                let count = match sample {
                    Sample::Whole(count) => *count as f64,
                    Sample::Seconds(seconds) => *seconds,
                    Sample::Signed(_) | Sample::Durations(..) => continue,
                };
                *tally.0.entry((name, whom.clone())).or_default() += count;
            }
        }
        tally
    }
}

/// By how much counters have grown in the last minute.
pub struct Growth {
    before: Tally,
    now: Tally,
}

impl Growth {
    /// Returns the growth of a counter for a subject. A counter that decreased restarted from 0, as after a
    /// reload.
    pub fn of(&self, name: &'static str, whom: &str) -> f64 {
        let key = (name, whom.to_owned());
        let now = self.now.0.get(&key).copied().unwrap_or_default();
        let before = self.before.0.get(&key).copied().unwrap_or_default();
        if now < before { now } else { now - before }
    }

    /// Returns the current subjects of a counter, sorted.
    pub fn whom(&self, name: &'static str) -> Vec<&str> {
        let of_name = self.now.0.keys().filter(|(known, _)| *known == name);
        let mut whom: Vec<&str> = of_name.map(|(_, whom)| &**whom).collect();
        whom.sort_unstable();
        whom
    }
}

impl Default for History {
    fn default() -> Self {
        History(Mutex::new(Past {
            older: Tally::default(),
            newer: Tally::default(),
            at: Instant::now(),
            since: HashMap::new(),
        }))
    }
}

impl History {
    /// Returns the growth until `now`, and keeps the tally when it is time.
    pub fn grown(&self, now: Tally) -> Growth {
        let mut past = self.0.lock();
        let before = past.older.clone();
        if past.at.elapsed() >= AGE {
            past.older = std::mem::replace(&mut past.newer, now.clone());
            past.at = Instant::now();
        }
        Growth { before, now }
    }

    /// Returns since when each of these problems has existed, and forgets all others.
    pub fn since(&self, wrong: &[String]) -> Vec<SystemTime> {
        let now = SystemTime::now();
        let mut past = self.0.lock();
        let since: Vec<SystemTime> = wrong
            .iter()
            .map(|what| past.since.get(what).copied().unwrap_or(now))
            .collect();
        past.since = wrong.iter().cloned().zip(since.iter().copied()).collect();
        since
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tally(asked: u64, lost: u64, spent: f64) -> Tally {
        let mut metrics = Metrics::default();
        for proto in ["udp", "tcp"] {
            metrics
                .counter("forward_requests", "")
                .add(&[("to", "a"), ("proto", proto)], asked / 2);
        }
        let failures = metrics.counter("forward_failures", "");
        failures.add(&[("to", "a"), ("reason", "timeout")], lost);
        failures.add(&[("to", "a"), ("reason", "servfail")], 1000);
        metrics
            .counter("filter_seconds", "")
            .add_seconds(&[("filter", "f"), ("phase", "query")], spent);
        Tally::of(&metrics)
    }

    #[test]
    fn what_has_grown_is_by_whom_it_is_about() {
        let history = History::default();
        let growth = history.grown(tally(100, 7, 0.5));
        assert_eq!([growth.of("asked", "a"), growth.of("lost", "a")], [100.0, 7.0]);
        assert_eq!([growth.of("seconds", "f"), growth.of("asked", "b")], [0.5, 0.0]);
        assert_eq!(growth.whom("asked"), ["a"]);
        // Both older tallies are replaced.
        for _ in 0..2 {
            history.0.lock().at -= AGE;
            history.grown(tally(100, 7, 0.5));
        }
        let growth = history.grown(tally(140, 8, 0.25));
        assert_eq!([growth.of("asked", "a"), growth.of("lost", "a")], [40.0, 1.0]);
        assert_eq!(growth.of("seconds", "f"), 0.25, "another one");
    }

    #[test]
    fn what_is_wrong_is_known_since_it_began() {
        let history = History::default();
        let [one, two] = ["one", "two"].map(str::to_owned);
        let first = history.since(std::slice::from_ref(&one));
        let both = history.since(&[two.clone(), one.clone()]);
        assert_eq!(both[1], first[0]);
        assert!(both[0] >= first[0]);
        history.since(&[two]);
        assert!(history.since(&[one])[0] >= both[0], "it began once more");
        assert_eq!(history.0.lock().since.len(), 1);
    }
}
