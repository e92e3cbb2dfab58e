//! Latencies, counted in buckets whose width grows with the value.
//!
//! A bucket is at most 1/64 as wide as the values in it, so a percentile is right to 1.6 percent
//! however many values there are, and recording one is an addition.

/// Buckets to each doubling.
const STEPS: u64 = 64;

/// Values below 2^40 ns, eighteen minutes, are told apart; no measurement is that long.
const BUCKETS: usize = (STEPS as usize) * 36;

/// Counts of nanoseconds.
#[derive(Clone)]
pub struct Histogram {
    counts: Vec<u64>,
    total: u64,
    largest: u64,
}

impl Histogram {
    /// Empty.
    pub fn new() -> Histogram {
        Histogram {
            counts: vec![0; BUCKETS],
            total: 0,
            largest: 0,
        }
    }

    /// Counts one value, in nanoseconds.
    pub fn record(&mut self, value: u64) {
        self.counts[bucket(value)] += 1;
        self.total += 1;
        self.largest = self.largest.max(value);
    }

    /// The largest value, exactly.
    pub fn largest(&self) -> u64 {
        self.largest
    }

    /// The smallest value that `part` of all values do not exceed, to the width of a bucket and never
    /// too small. None of nothing. `part` is above 0 and at most 1.
    pub fn quantile(&self, part: f64) -> Option<u64> {
        // At least one value: the smallest is the quantile of any part however small.
        let wanted = ((part * self.total as f64).ceil() as u64).clamp(1, self.total.max(1));
        let mut seen = 0;
        for (index, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= wanted {
                return Some(upper(index).min(self.largest));
            }
        }
        None
    }
}

/// Values below two times [`STEPS`] have a bucket each; above, the bits after the highest choose.
fn bucket(value: u64) -> usize {
    let magnitude = (value | 1).ilog2().saturating_sub(STEPS.ilog2());
    let index = u64::from(magnitude) * STEPS + (value >> magnitude);
    usize::try_from(index).map_or(BUCKETS - 1, |index| index.min(BUCKETS - 1))
}

/// The largest value of a bucket.
fn upper(index: usize) -> u64 {
    let index = index as u64;
    let magnitude = (index / STEPS).saturating_sub(1);
    let first = (index - magnitude * STEPS) << magnitude;
    first + (1 << magnitude) - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_lies_in_its_bucket() {
        let mut before = None;
        for value in (0..100_000).chain((17..39).map(|bit| (1 << bit) - 1)) {
            let index = bucket(value);
            assert!(upper(index) >= value, "{value}");
            assert!(index == 0 || upper(index - 1) < value, "{value}");
            assert!(upper(index) - value <= value / 64, "{value} in {}", upper(index));
            assert!(before <= Some(index));
            before = Some(index);
        }
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
    }

    /// Against the definition: sort, and take the value at the rank.
    #[test]
    fn quantiles_are_those_of_the_sorted_values() {
        let mut histogram = Histogram::new();
        let mut values: Vec<u64> = (0..10_007_u64).map(|n| n * n % 1_000_003 + n).collect();
        for value in &values {
            histogram.record(*value);
        }
        values.sort_unstable();
        for part in [0.000_01, 0.01, 0.5, 0.9, 0.99, 0.999, 1.0] {
            let rank = ((part * values.len() as f64).ceil() as usize).max(1);
            let exact = values[rank - 1];
            let told = histogram.quantile(part).unwrap();
            assert!(
                told >= exact && told - exact <= exact / 64,
                "{part}: {exact}, told {told}"
            );
        }
        assert_eq!(histogram.quantile(1.0), values.last().copied());
        assert_eq!(histogram.largest(), *values.last().unwrap());
    }

    #[test]
    fn one_slow_value_shows_at_the_end_only() {
        let mut histogram = Histogram::new();
        for _ in 0..999 {
            histogram.record(100);
        }
        histogram.record(1_000_000);
        assert_eq!(histogram.quantile(0.999), Some(100));
        assert_eq!(histogram.quantile(1.0), Some(1_000_000));
        assert_eq!(Histogram::new().quantile(0.5), None);
    }
}
