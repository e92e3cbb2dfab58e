//! The raw numbers of a run: lines of JSON, each written as soon as it is known.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use crate::options::Pace;
use crate::sample::Sample;

/// A line of the raw numbers.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum Entry {
    /// Where and how the rest was measured.
    Environment(Environment),
    /// A note for the report.
    Note { text: String },
    /// One measurement.
    Sample(Sample),
    /// A figure that is not part of a sample.
    Figure(Figure),
}

/// Where and how something is measured.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Environment {
    unix_time: u64,
    /// The model.
    pub processor: String,
    pub processors: usize,
    pub kernel: String,
    pub load_average_before: String,
    pub server_core: usize,
    pub client_core: usize,
    pub rounds: u32,
    pub seconds: f64,
    pub burst: usize,
    /// The servers' versions, by name.
    #[serde(default)]
    pub versions: BTreeMap<String, String>,
}

/// A named figure of something.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Figure {
    pub of: String,
    pub what: String,
    pub value: f64,
}

impl Environment {
    /// Describes this machine.
    pub fn of(pace: &Pace) -> Environment {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let cpuinfo = read("/proc/cpuinfo");
        let model = cpuinfo.lines().find_map(|line| line.strip_prefix("model name"));
        let average = read("/proc/loadavg");
        let average: Vec<&str> = average.split(' ').take(3).collect();
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH);
        Environment {
            unix_time: since_epoch.map_or(0, |time| time.as_secs()),
            processor: model
                .unwrap_or_default()
                .trim_matches([':', ' ', '\t'])
                .to_owned(),
            processors: cpuinfo
                .lines()
                .filter(|line| line.starts_with("processor"))
                .count(),
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
            load_average_before: average.join(" "),
            server_core: pace.cores.server,
            client_core: pace.cores.client,
            rounds: pace.rounds,
            seconds: pace.duration.as_secs_f64(),
            burst: pace.burst,
            versions: BTreeMap::new(),
        }
    }
}

/// The file of raw numbers.
pub struct Record(File);

impl Record {
    /// Creates an empty file at `path`.
    pub fn create(path: &Path) -> io::Result<Record> {
        File::create(path).map(Record)
    }

    /// Adds a line.
    pub fn write(&mut self, entry: &Entry) -> io::Result<()> {
        writeln!(self.0, "{}", serde_json::to_string(entry)?)
    }

    /// Adds a figure.
    pub fn figure(&mut self, of: &str, what: &str, value: f64) -> io::Result<()> {
        self.write(&Entry::Figure(Figure {
            of: of.to_owned(),
            what: what.to_owned(),
            value,
        }))
    }

    /// Adds a note for the report, and prints it.
    pub fn note(&mut self, text: &str) -> io::Result<()> {
        eprintln!("{text}");
        self.write(&Entry::Note {
            text: text.to_owned(),
        })
    }
}
