//! Computes what happened between two snapshots.

use std::time::Instant;

use super::samples::Samples;
use super::status::Status;

/// A snapshot of a process.
pub struct Look {
    /// When it was taken.
    pub at: Instant,
    /// `/metrics`.
    pub samples: Samples,
    /// `/status`.
    pub status: Status,
}

/// Two snapshots of one process, the older first.
#[derive(Clone, Copy)]
pub struct Between<'a>(pub &'a Look, pub &'a Look);

type Labels<'a> = &'a [(&'a str, &'a str)];

impl Between<'_> {
    /// The growth of counters. 0 if they went back, because the process was restarted.
    pub fn grown(self, name: &str, labels: Labels<'_>) -> f64 {
        let Between(older, newer) = self;
        (newer.samples.sum(name, labels) - older.samples.sum(name, labels)).max(0.0)
    }

    /// The growth per second.
    pub fn rate(self, name: &str, labels: Labels<'_>) -> f64 {
        self.grown(name, labels) / self.seconds()
    }

    /// The seconds between the snapshots.
    pub fn seconds(self) -> f64 {
        let Between(older, newer) = self;
        newer.at.duration_since(older.at).as_secs_f64().max(1e-3)
    }

    /// The quantile `part` of a histogram, in seconds; `None` if it counted nothing.
    pub fn quantile(self, part: f64, name: &str, labels: Labels<'_>) -> Option<f64> {
        let bucket = format!("{name}_bucket");
        let mut bounds: Vec<(f64, f64)> = Vec::new();
        let Between(older, newer) = self;
        for (look, sign) in [(newer, 1.0), (older, -1.0)] {
            for (labels, value) in look.samples.matching(&bucket, labels) {
                let bound = labels.iter().find(|(key, _)| key == "le");
                let Some(bound) = bound.and_then(|(_, bound)| bound.parse::<f64>().ok()) else {
                    continue;
                };
                match bounds
                    .iter_mut()
                    .find(|(known, _)| known.total_cmp(&bound).is_eq())
                {
                    Some((_, count)) => *count += sign * value,
                    None => bounds.push((bound, sign * value)),
                }
            }
        }
        bounds.sort_by(|one, other| one.0.total_cmp(&other.0));
        let all = bounds.last().map_or(0.0, |(_, count)| *count);
        if all <= 0.0 {
            return None;
        }
        let (mut from, mut below) = (0.0, 0.0);
        for (bound, count) in bounds {
            if count >= part * all {
                // The last bucket has no upper bound.
                let within = (part * all - below) / (count - below).max(1.0);
                return Some(if bound.is_finite() {
                    from + (bound - from) * within
                } else {
                    from
                });
            }
            (from, below) = (bound, count);
        }
        Some(from)
    }
}
