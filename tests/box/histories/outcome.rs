//! The outcome of a history.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::Path;
use std::process::ExitStatus;
use std::{fs, io};

/// How it ended.
#[derive(Debug)]
pub enum Ended {
    By(ExitStatus),
    /// A thread made no call for two seconds: its stack.
    Silent(String),
    /// It exceeded the time limit.
    Late,
}

/// Everything known about a played history.
#[derive(Debug)]
pub struct Outcome {
    pub ended: Ended,
    /// Why the box wrote its report: `exit`, `the end`, `killed`; empty if it did not.
    pub why: String,
    /// Virtual milliseconds.
    pub milliseconds: u64,
    /// Digests of what clients and upstreams saw, of the order of threads, and of the log.
    pub digests: [u64; 3],
    pub violations: Vec<String>,
    /// How often each thing happened.
    pub counts: BTreeMap<String, u64>,
    /// Calls that can fail, by phase and kind.
    pub met: Vec<(String, String, u64)>,
    /// Calls that failed.
    pub failed: Vec<String>,
    /// What was held, by the name of the moment.
    pub held: BTreeMap<String, BTreeSet<String>>,
    /// Samples of gauges, by the name of the moment.
    pub gauges: BTreeMap<String, BTreeMap<String, String>>,
    pub log: String,
}

impl Outcome {
    /// Reads the outcome from a folder.
    ///
    /// # Errors
    /// If the log cannot be read.
    pub fn read(folder: &Path, ended: Ended) -> io::Result<Outcome> {
        let log = String::from_utf8_lossy(&fs::read(folder.join("log"))?).into_owned();
        let report = fs::read_to_string(folder.join("report")).unwrap_or_default();
        let mut hasher = DefaultHasher::new();
        log.hash(&mut hasher);
        let mut outcome = Outcome {
            ended,
            why: String::new(),
            milliseconds: 0,
            digests: [0, 0, hasher.finish()],
            violations: Vec::new(),
            counts: BTreeMap::new(),
            met: Vec::new(),
            failed: Vec::new(),
            held: BTreeMap::new(),
            gauges: BTreeMap::new(),
            log,
        };
        let place = folder.to_string_lossy();
        for line in report.lines() {
            outcome.take(&line.replace(&*place, "."));
        }
        for moment in outcome.held.keys() {
            let text = fs::read(folder.join(format!("report.{moment}"))).unwrap_or_default();
            let gauges = gauges(&String::from_utf8_lossy(&text));
            outcome.gauges.insert(moment.clone(), gauges);
        }
        Ok(outcome)
    }

    fn take(&mut self, line: &str) {
        let Some((word, rest)) = line.split_once(' ') else {
            return;
        };
        match word {
            "ended" => rest.clone_into(&mut self.why),
            "virtual" => self.milliseconds = rest.parse().unwrap_or(0),
            "digest" => self.digests[0] = u64::from_str_radix(rest, 16).unwrap_or(0),
            "order" => self.digests[1] = u64::from_str_radix(rest, 16).unwrap_or(0),
            "violation" => self.violations.push(rest.to_owned()),
            "failed" => self.failed.push(rest.to_owned()),
            "snapshot" => {
                if let Some((moment, what)) = rest.split_once(' ') {
                    self.held
                        .entry(moment.to_owned())
                        .or_default()
                        .insert(what.to_owned());
                }
            }
            "met" => {
                if let [phase, kind, count] = rest.split(' ').collect::<Vec<_>>()[..] {
                    self.met
                        .push((phase.to_owned(), kind.to_owned(), count.parse().unwrap_or(0)));
                }
            }
            "count" | "switches" | "jumps" | "calls" => {
                let named = line.trim_start_matches("count ");
                if let Some((what, count)) = named.rsplit_once(' ') {
                    self.counts.insert(what.to_owned(), count.parse().unwrap_or(0));
                }
            }
            _ => {}
        }
    }
}

/// Returns the samples of all gauges in a metrics text.
fn gauges(text: &str) -> BTreeMap<String, String> {
    let typed = text
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE ")?.strip_suffix(" gauge"));
    let names: BTreeSet<&str> = typed.collect();
    let samples = text.lines().filter(|line| !line.starts_with('#'));
    samples
        .filter_map(|line| line.rsplit_once(' '))
        .filter(|(series, _)| names.contains(series.split('{').next().unwrap_or(series)))
        .map(|(series, value)| (series.to_owned(), value.to_owned()))
        .collect()
}
