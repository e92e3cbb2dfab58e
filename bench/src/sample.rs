//! One measurement: the load, the outcome, and the cost. Stored as a line of JSON.

use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::workload::{Workload, grouped};

/// The load offered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Load {
    /// Queries per second, regardless of answers.
    Rate(u32),
    /// A share of the server's capacity, in percent.
    Share(u8),
    /// As many as are answered.
    Saturation,
}

impl Load {
    /// Returns its form on the command line and in the raw numbers.
    pub fn text(self) -> String {
        match self {
            Load::Rate(rate) => rate.to_string(),
            Load::Share(share) => format!("{share}%"),
            Load::Saturation => "saturation".to_owned(),
        }
    }

    /// Returns its form in the table.
    pub fn title(self) -> String {
        match self {
            Load::Rate(rate) => format!("{} q/s", grouped(rate.into())),
            Load::Share(share) => format!("{share} % of its capacity"),
            Load::Saturation => "saturated".to_owned(),
        }
    }
}

impl FromStr for Load {
    type Err = String;

    fn from_str(text: &str) -> Result<Load, String> {
        let share = text.strip_suffix('%').map(str::parse);
        match (text.parse(), share) {
            _ if text == "saturation" => Ok(Load::Saturation),
            (Ok(rate @ 1..=10_000_000), _) => Ok(Load::Rate(rate)),
            (_, Some(Ok(share @ 1..=100))) => Ok(Load::Share(share)),
            _ => Err("neither a rate up to 10000000, nor a share such as 50%, nor `saturation`".to_owned()),
        }
    }
}

impl TryFrom<String> for Load {
    type Error = String;

    fn try_from(text: String) -> Result<Load, String> {
        text.parse()
    }
}

impl From<Load> for String {
    fn from(load: Load) -> String {
        load.text()
    }
}

/// Latencies from when a query was due to its answer, in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Latency {
    /// Half of the queries were faster.
    #[serde(rename = "p50_ns")]
    pub p50: u64,
    /// 99 of 100 were faster.
    #[serde(rename = "p99_ns")]
    pub p99: u64,
    /// 999 of 1000 were faster.
    #[serde(rename = "p999_ns")]
    pub p999: u64,
    /// The slowest.
    #[serde(rename = "max_ns")]
    pub max: u64,
}

/// One measurement.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// The round of the rotation, from 0.
    pub round: u32,
    /// [`Peer::name`](crate::peers::Peer::name).
    pub peer: String,
    /// The workload.
    pub workload: Workload,
    /// The load.
    pub load: Load,
    /// How long queries were sent, in seconds.
    pub seconds: f64,
    /// Seconds in which the server's cost was counted: that, plus the wait for the last answer.
    #[serde(rename = "counted_seconds")]
    pub counted: f64,
    /// Queries sent.
    pub sent: u64,
    /// Answered correctly.
    pub answered: u64,
    /// Answered with something else, such as SERVFAIL.
    pub wrong: u64,
    /// Not answered within a second.
    pub lost: u64,
    /// Connections that the server closed.
    pub reconnects: u64,
    /// Nanoseconds of CPU time, from the scheduler.
    #[serde(rename = "processor_ns")]
    pub processor: u64,
    /// The same, from the process's ticks.
    #[serde(rename = "processor_ticked_ns")]
    pub ticked: u64,
    /// Nanoseconds for which others used the server's processor.
    #[serde(rename = "foreign_ns")]
    pub foreign: u64,
    /// From due to answered.
    #[serde(flatten)]
    pub latency: Latency,
    /// The client's own delay: 99 % of batches were sent within this many ns of when they were due.
    #[serde(rename = "client_late_p99_ns")]
    pub client_late: u64,
    /// Resident memory afterwards, in KiB.
    #[serde(rename = "rss_kib")]
    pub resident: u64,
    /// The same, with shared pages counted proportionally.
    #[serde(rename = "pss_kib")]
    pub proportional: u64,
}

impl Sample {
    /// Returns the microseconds of CPU time per answer; `None` without answers.
    pub fn cost(&self) -> Option<f64> {
        let answers = self.answered + self.wrong;
        (answers > 0).then(|| self.processor as f64 / 1000.0 / answers as f64)
    }

    /// Returns the right answers per second.
    pub fn rate(&self) -> f64 {
        self.answered as f64 / self.seconds
    }

    /// Returns the share of queries without a right answer.
    pub fn failed(&self) -> f64 {
        (self.lost + self.wrong) as f64 / self.sent.max(1) as f64
    }

    /// Returns the share of a processor that the server used.
    pub fn busy(&self) -> f64 {
        self.processor as f64 / 1e9 / self.counted
    }

    /// Returns the share of the server's processor that others used.
    pub fn disturbed(&self) -> f64 {
        self.foreign as f64 / 1e9 / self.counted
    }
}

/// Returns the middle value, or the mean of the two in the middle; `None` without values.
pub fn median(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_unstable_by(f64::total_cmp);
    let upper = values.get(values.len() / 2)?;
    if values.len() % 2 == 1 {
        return Some(*upper);
    }
    let lower = values.get((values.len() / 2).checked_sub(1)?)?;
    Some((lower + upper) / 2.0)
}

/// All measurements of a run.
#[derive(Default)]
pub struct Samples(pub Vec<Sample>);

impl Samples {
    /// Returns the samples of one cell of the table.
    pub fn of<'a>(
        &'a self,
        peer: &'a str,
        workload: Workload,
        load: Load,
    ) -> impl Iterator<Item = &'a Sample> {
        let matching =
            move |sample: &&Sample| sample.peer == peer && sample.workload == workload && sample.load == load;
        self.0.iter().filter(matching)
    }

    /// Returns the median over rounds of the cost of a query for `peer` divided by that for `other`.
    /// Temporary slowness of the machine affects both in a round.
    pub fn cost_ratio(&self, peer: &str, other: &str, workload: Workload, load: Load) -> Option<f64> {
        median(self.of(peer, workload, load).filter_map(|sample| {
            let beside = self
                .of(other, workload, load)
                .find(|beside| beside.round == sample.round)?;
            Some(sample.cost()? / beside.cost()?)
        }))
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// Returns a sample with this cost per answer, in microseconds.
    pub fn sample(peer: &str, round: u32, load: Load, cost: u64) -> Sample {
        Sample {
            round,
            peer: peer.to_owned(),
            workload: Workload::HOT,
            load,
            seconds: 2.0,
            counted: 2.5,
            sent: 1010,
            answered: 990,
            wrong: 10,
            lost: 10,
            reconnects: 0,
            processor: cost * 1_000_000,
            ticked: cost * 1_000_000,
            foreign: 25_000_000,
            latency: Latency {
                p50: 100_000,
                p99: 200_000,
                p999: 300_000,
                max: 400_000,
            },
            client_late: 7,
            resident: 2048,
            proportional: 1024,
        }
    }

    #[test]
    fn figures_follow_from_what_was_counted() {
        let sample = sample("floor", 0, Load::Saturation, 5);
        assert_eq!(sample.cost(), Some(5.0));
        assert_eq!(sample.rate(), 495.0);
        assert!((sample.failed() - 20.0 / 1010.0).abs() < 1e-9);
        assert!((sample.disturbed() - 0.01).abs() < 1e-9);
        assert!((sample.busy() - 0.002).abs() < 1e-9);
        let silent = Sample {
            answered: 0,
            wrong: 0,
            ..sample
        };
        assert_eq!(silent.cost(), None);
    }

    #[test]
    fn a_line_is_read_as_it_was_written() {
        for load in [Load::Rate(60_000), Load::Share(90), Load::Saturation] {
            let sample = sample("unbound", 3, load, 11);
            let line = serde_json::to_string(&sample).unwrap();
            assert_eq!(serde_json::from_str::<Sample>(&line).unwrap(), sample);
        }
        assert!(serde_json::from_str::<Sample>("{}").is_err());
        for text in ["0", "0%", "101%", "%", "half"] {
            assert!(text.parse::<Load>().is_err(), "{text}");
        }
    }

    #[test]
    fn the_median_is_the_middle() {
        assert_eq!(median([]), None);
        assert_eq!(median([3.0]), Some(3.0));
        assert_eq!(median([9.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median([4.0, 1.0, 2.0, 100.0]), Some(3.0));
    }

    /// The machine is twice as slow in round 1; one round of the floor is missing.
    #[test]
    fn ratios_are_those_of_a_round() {
        let load = Load::Rate(1000);
        let samples = Samples(vec![
            sample("floor", 0, load, 10),
            sample("floor", 1, load, 20),
            sample("dnsweir", 0, load, 11),
            sample("dnsweir", 1, load, 22),
            sample("dnsweir", 2, load, 900),
            sample("floor", 2, Load::Saturation, 1),
        ]);
        let ratio = samples
            .cost_ratio("dnsweir", "floor", Workload::HOT, load)
            .unwrap();
        assert!((ratio - 1.1).abs() < 1e-9, "{ratio}");
        assert_eq!(samples.cost_ratio("dnsweir", "floor", Workload::Zipf, load), None);
    }
}
