//! One measurement: what was offered, what came of it, and what it cost. Kept as a line of JSON.

use serde_json::{Value, json};

use crate::workload::{Workload, grouped};

/// How much was asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Load {
    /// Queries per second, whatever comes back.
    Rate(u32),
    /// As many as are answered.
    Saturation,
}

impl Load {
    /// As the command line and the raw numbers have it.
    pub fn text(self) -> String {
        match self {
            Load::Rate(rate) => rate.to_string(),
            Load::Saturation => "saturation".to_owned(),
        }
    }

    /// What [`text`](Load::text) gave.
    pub fn parse(text: &str) -> Option<Load> {
        match text {
            "saturation" => Some(Load::Saturation),
            rate => rate
                .parse()
                .ok()
                .filter(|rate| (1..=10_000_000).contains(rate))
                .map(Load::Rate),
        }
    }

    /// As the table has it.
    pub fn title(self) -> String {
        match self {
            Load::Rate(rate) => format!("{} q/s", grouped(rate.into())),
            Load::Saturation => "saturated".to_owned(),
        }
    }
}

/// Latencies from when a query was due to its answer, in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Latency {
    /// Half were faster.
    pub p50: u64,
    /// 99 of 100 were faster.
    pub p99: u64,
    /// 999 of 1000 were faster.
    pub p999: u64,
    /// The slowest.
    pub max: u64,
}

/// One measurement.
#[derive(Debug, Clone, PartialEq)]
pub struct Sample {
    /// Which round of the rotation, from 0.
    pub round: u32,
    /// [`Peer::name`](crate::peers::Peer::name).
    pub peer: String,
    /// What was asked.
    pub workload: Workload,
    /// How much.
    pub load: Load,
    /// How long queries were sent, in seconds.
    pub seconds: f64,
    /// How long the server's cost was counted: that, and until the last answer.
    pub counted: f64,
    /// Queries sent.
    pub sent: u64,
    /// Answered as they should be.
    pub answered: u64,
    /// Answered with something else, such as SERVFAIL.
    pub wrong: u64,
    /// Not answered within a second.
    pub lost: u64,
    /// Connections that the server closed.
    pub reconnects: u64,
    /// Nanoseconds of processor time, by the scheduler's account.
    pub processor: u64,
    /// The same by the process's ticks.
    pub ticked: u64,
    /// Nanoseconds that others used the server's processor.
    pub foreign: u64,
    /// From due to answered.
    pub latency: Latency,
    /// How late the client itself was: 99 of 100 batches were sent sooner after they were due, in ns.
    pub client_late: u64,
    /// Resident memory afterwards, in KiB.
    pub resident: u64,
    /// The same with shared pages counted by their part.
    pub proportional: u64,
}

impl Sample {
    /// Microseconds of processor time for each answer; none if there was none.
    pub fn cost(&self) -> Option<f64> {
        let answers = self.answered + self.wrong;
        (answers > 0).then(|| self.processor as f64 / 1000.0 / answers as f64)
    }

    /// Right answers per second.
    pub fn rate(&self) -> f64 {
        self.answered as f64 / self.seconds
    }

    /// Part of the queries that got no right answer.
    pub fn failed(&self) -> f64 {
        (self.lost + self.wrong) as f64 / self.sent.max(1) as f64
    }

    /// Part of a processor that the server used.
    pub fn busy(&self) -> f64 {
        self.processor as f64 / 1e9 / self.counted
    }

    /// Part of the server's processor that others used.
    pub fn disturbed(&self) -> f64 {
        self.foreign as f64 / 1e9 / self.counted
    }

    /// A line of the raw numbers.
    pub fn to_json(&self) -> Value {
        json!({
            "kind": "sample",
            "round": self.round,
            "peer": self.peer,
            "workload": self.workload.name(),
            "load": self.load.text(),
            "seconds": self.seconds,
            "counted_seconds": self.counted,
            "sent": self.sent,
            "answered": self.answered,
            "wrong": self.wrong,
            "lost": self.lost,
            "reconnects": self.reconnects,
            "processor_ns": self.processor,
            "processor_ticked_ns": self.ticked,
            "foreign_ns": self.foreign,
            "p50_ns": self.latency.p50,
            "p99_ns": self.latency.p99,
            "p999_ns": self.latency.p999,
            "max_ns": self.latency.max,
            "client_late_p99_ns": self.client_late,
            "rss_kib": self.resident,
            "pss_kib": self.proportional,
        })
    }

    /// What [`to_json`](Sample::to_json) gave.
    pub fn from_json(value: &Value) -> Option<Sample> {
        let number = |name: &str| value.get(name)?.as_u64();
        let text = |name: &str| value.get(name)?.as_str();
        Some(Sample {
            round: u32::try_from(number("round")?).ok()?,
            peer: text("peer")?.to_owned(),
            workload: Workload::find(text("workload")?)?,
            load: Load::parse(text("load")?)?,
            seconds: value.get("seconds")?.as_f64()?,
            counted: value.get("counted_seconds")?.as_f64()?,
            sent: number("sent")?,
            answered: number("answered")?,
            wrong: number("wrong")?,
            lost: number("lost")?,
            reconnects: number("reconnects")?,
            processor: number("processor_ns")?,
            ticked: number("processor_ticked_ns")?,
            foreign: number("foreign_ns")?,
            latency: Latency {
                p50: number("p50_ns")?,
                p99: number("p99_ns")?,
                p999: number("p999_ns")?,
                max: number("max_ns")?,
            },
            client_late: number("client_late_p99_ns")?,
            resident: number("rss_kib")?,
            proportional: number("pss_kib")?,
        })
    }
}

/// The middle value, or the mean of the two in the middle; none of nothing.
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
pub struct Samples(pub Vec<Sample>);

impl Samples {
    /// Those of one cell of the table.
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

    /// What a query costs `peer` beside what it costs `other`: the ratio in each round, of which the
    /// median. A machine that is slower for a while is so for both of a round.
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

    /// A sample with a cost per answer, in microseconds.
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
        for load in [Load::Rate(60_000), Load::Saturation] {
            let sample = sample("unbound", 3, load, 11);
            let line = sample.to_json().to_string();
            let read = Sample::from_json(&serde_json::from_str(&line).unwrap());
            assert_eq!(read, Some(sample));
        }
        assert_eq!(Sample::from_json(&json!({"kind": "sample"})), None);
        assert_eq!(Load::parse("0"), None);
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
