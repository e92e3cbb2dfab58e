//! Histograms of durations: the shared bucket bounds, and how durations are counted and summed.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// Upper bounds of the buckets in microseconds, inclusive. They double from 0.25 ms on; cache hits all fall
/// into the first two buckets.
const BOUNDS: [u64; 18] = [
    10, 50, 250, 500, 1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 64_000, 128_000, 256_000, 512_000,
    1_024_000, 2_048_000, 4_096_000, 8_192_000,
];

/// A histogram over the highest bounds, plus one bucket for everything above them. With 19 buckets it uses
/// every bound; with 17 it starts at 0.25 ms, below which nothing crosses a network.
#[derive(Debug)]
pub struct Histogram<const BUCKETS: usize> {
    /// How many durations fell into each bucket, not cumulative.
    pub buckets: [AtomicU64; BUCKETS],
    /// Sum of all durations, in microseconds.
    pub sum: AtomicU64,
}

impl<const BUCKETS: usize> Default for Histogram<BUCKETS> {
    fn default() -> Self {
        Histogram {
            buckets: [const { AtomicU64::new(0) }; BUCKETS],
            sum: AtomicU64::new(0),
        }
    }
}

impl<const BUCKETS: usize> Histogram<BUCKETS> {
    const BOUNDS: &'static [u64] = BOUNDS.split_at(BOUNDS.len() + 1 - BUCKETS).1;

    /// Counts a duration. `add` adds to a counter: one that only a single thread writes needs no atomic
    /// addition.
    pub fn observe(&self, microseconds: u64, add: impl Fn(&AtomicU64, u64)) {
        let at = Self::BOUNDS
            .iter()
            .position(|&bound| microseconds <= bound)
            .unwrap_or(BUCKETS - 1);
        add(&self.buckets[at], 1);
        add(&self.sum, microseconds);
    }

    /// Sums up `histograms`: all durations in seconds, and each bucket's upper bound in seconds (infinite for
    /// the last) with its count.
    pub fn total<'h>(histograms: impl Iterator<Item = &'h Self>) -> (f64, Vec<(f64, u64)>) {
        let bounds = Self::BOUNDS.iter().map(|&bound| bound as f64 / 1e6);
        let mut buckets: Vec<_> = bounds.chain([f64::INFINITY]).map(|bound| (bound, 0)).collect();
        let mut sum = 0;
        for histogram in histograms {
            sum += histogram.sum.load(Relaxed);
            for ((_, total), count) in buckets.iter_mut().zip(&histogram.buckets) {
                *total += count.load(Relaxed);
            }
        }
        (sum as f64 / 1e6, buckets)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn add(counter: &AtomicU64, by: u64) {
        counter.fetch_add(by, Relaxed);
    }

    #[test]
    fn durations_fall_into_the_bucket_whose_bound_they_do_not_exceed() {
        let histogram = Histogram::<17>::default();
        for micros in [1, 250, 251, 8_192_000, 8_192_001] {
            histogram.observe(micros, add);
        }
        let filled: Vec<_> = (0..17).map(|n| histogram.buckets[n].load(Relaxed)).collect();
        assert_eq!((filled[0], filled[1], filled[15], filled[16]), (2, 1, 1, 1));
        let (sum, buckets) = Histogram::total([&histogram, &histogram].into_iter());
        assert_eq!(sum, 2.0 * 16.384_503);
        assert_eq!(buckets[0], (0.000_25, 4));
        assert_eq!(buckets[15], (8.192, 2));
        assert_eq!(buckets[16], (f64::INFINITY, 2));
    }

    #[test]
    fn more_buckets_begin_lower() {
        let histogram = Histogram::<19>::default();
        for micros in [1, 10, 11, 8_192_001] {
            histogram.observe(micros, add);
        }
        let (_, buckets) = Histogram::total([&histogram].into_iter());
        assert_eq!((buckets[0], buckets[1]), ((0.000_01, 2), (0.000_05, 1)));
        assert_eq!(buckets[18], (f64::INFINITY, 1));
    }
}
