//! Metrics, independent of the format they are exported in.
//!
//! A part adds its metrics to a [`Metrics`] on request; samples of the same metric with the same labels are
//! merged. Only `metrics` knows the exposition format.

use std::collections::BTreeMap;

use crate::histogram::Histogram;

/// Metrics in the order in which they were first named.
#[derive(Debug, Default)]
pub struct Metrics(Vec<Metric>);

/// One metric with all its samples.
#[derive(Debug)]
pub struct Metric {
    /// The name, without the program's prefix and the format's unit suffix.
    pub name: &'static str,
    /// The help text, for operators.
    pub help: &'static str,
    /// The type of its samples.
    pub kind: Kind,
    /// The samples, by label set.
    pub samples: BTreeMap<Labels, Sample>,
}

/// Label names and values.
pub type Labels = Vec<(String, String)>;

/// The type of a metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A value that only grows.
    Counter,
    /// A value that goes up and down.
    Gauge,
    /// A histogram of durations.
    Histogram,
}

/// A sample's value.
#[derive(Debug, Clone, PartialEq)]
pub enum Sample {
    /// A non-negative integer.
    Whole(u64),
    /// An integer that may be negative.
    Signed(i64),
    /// A number of seconds.
    Seconds(f64),
    /// Durations: their sum in seconds, and each bucket's upper bound in seconds with its count, not
    /// cumulative.
    Durations(f64, Vec<(f64, u64)>),
}

impl Metrics {
    /// All metrics.
    pub fn all(&self) -> &[Metric] {
        &self.0
    }

    /// Returns the counter of this name; adds it if missing.
    pub fn counter(&mut self, name: &'static str, help: &'static str) -> &mut Metric {
        self.metric(name, help, Kind::Counter)
    }

    /// Returns the gauge of this name; adds it if missing.
    pub fn gauge(&mut self, name: &'static str, help: &'static str) -> &mut Metric {
        self.metric(name, help, Kind::Gauge)
    }

    /// Returns the histogram of this name; adds it if missing.
    pub fn histogram(&mut self, name: &'static str, help: &'static str) -> &mut Metric {
        self.metric(name, help, Kind::Histogram)
    }

    fn metric(&mut self, name: &'static str, help: &'static str, kind: Kind) -> &mut Metric {
        let at = self.0.iter().position(|known| known.name == name);
        let at = at.unwrap_or_else(|| {
            let samples = BTreeMap::new();
            self.0.push(Metric {
                name,
                help,
                kind,
                samples,
            });
            self.0.len() - 1
        });
        &mut self.0[at]
    }
}

impl Metric {
    /// Adds to the sample with these labels.
    pub fn add(&mut self, labels: &[(&str, &str)], count: u64) {
        self.join(labels, Sample::Whole(count), |known, more| known + more);
    }

    /// Adds another metric's sample to the sample with these labels.
    pub fn add_sample(&mut self, labels: &[(&str, &str)], sample: Sample) {
        self.join(labels, sample, |known, more| known + more);
    }

    /// Reports a value that several owners share: the largest counts, not the sum.
    pub fn shared(&mut self, labels: &[(&str, &str)], count: u64) {
        self.join(labels, Sample::Whole(count), |known, more| known.max(more));
    }

    /// Reports 1 if `holds` is true in every call with these labels, else 0.
    pub fn all(&mut self, labels: &[(&str, &str)], holds: bool) {
        self.join(labels, Sample::Whole(holds.into()), |known, more| known.min(more));
    }

    /// Reports 1 if `holds` is true in any call with these labels, else 0.
    pub fn any(&mut self, labels: &[(&str, &str)], holds: bool) {
        self.join(labels, Sample::Whole(holds.into()), |known, more| known.max(more));
    }

    /// Reports the smallest number of all calls with these labels.
    pub fn least(&mut self, labels: &[(&str, &str)], number: u64) {
        self.join(labels, Sample::Whole(number), |known, more| known.min(more));
    }

    /// Adds a number that may be negative to the sample with these labels.
    pub fn add_signed(&mut self, labels: &[(&'static str, &str)], number: i64) {
        self.join(labels, Sample::Signed(number), |known, _| known);
    }

    /// Adds seconds to the sample with these labels.
    pub fn add_seconds(&mut self, labels: &[(&str, &str)], seconds: f64) {
        self.join(labels, Sample::Seconds(seconds), |known, _| known);
    }

    /// Adds durations to the sample with these labels.
    pub fn add_durations<const BUCKETS: usize>(
        &mut self,
        labels: &[(&str, &str)],
        histogram: &Histogram<BUCKETS>,
    ) {
        let (sum, buckets) = Histogram::total([histogram].into_iter());
        self.join(labels, Sample::Durations(sum, buckets), |known, _| known);
    }

    /// Merges `sample` into the one with the same labels, if any; `whole` merges two integers.
    fn join(&mut self, labels: &[(&str, &str)], sample: Sample, whole: fn(u64, u64) -> u64) {
        let labels = labels
            .iter()
            .map(|&(name, value)| (name.to_owned(), value.to_owned()))
            .collect();
        match (self.samples.get_mut(&labels), sample) {
            (Some(Sample::Whole(known)), Sample::Whole(more)) => *known = whole(*known, more),
            (Some(Sample::Signed(known)), Sample::Signed(more)) => *known = known.saturating_add(more),
            (Some(Sample::Seconds(known)), Sample::Seconds(more)) => *known += more,
            (Some(Sample::Durations(sum, buckets)), Sample::Durations(more, counts)) => {
                *sum += more;
                for ((_, known), (_, more)) in buckets.iter_mut().zip(counts) {
                    *known += more;
                }
            }
            (_, sample) => drop(self.samples.insert(labels, sample)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_with_the_same_labels_become_one() {
        let mut metrics = Metrics::default();
        for (to, count, healthy) in [("a", 1, true), ("b", 2, true), ("a", 4, false)] {
            metrics.counter("requests", "Queries").add(&[("to", to)], count);
            metrics
                .gauge("healthy", "Whether all")
                .all(&[("to", to)], healthy);
            metrics
                .gauge("looping", "Whether any")
                .any(&[("to", to)], healthy);
        }
        let [requests, healthy, looping] = metrics.all() else {
            panic!("{metrics:?}")
        };
        let samples = |metric: &Metric| metric.samples.values().cloned().collect::<Vec<_>>();
        assert_eq!(samples(requests), [Sample::Whole(5), Sample::Whole(2)]);
        assert_eq!(samples(healthy), [Sample::Whole(0), Sample::Whole(1)]);
        assert_eq!(samples(looping), [Sample::Whole(1), Sample::Whole(1)]);
    }
}
