//! Which upstream is asked first, and which next.

use rand::seq::SliceRandom;
use smallvec::SmallVec;

use crate::config::Policy;

/// Indexes of upstreams. Usually few, so they are stored inline.
pub(super) type Indexes = SmallVec<[usize; 2]>;

/// The upstreams that one query may still ask.
#[derive(Debug)]
pub(super) struct Rotation {
    live: Indexes,
    /// Those whose last probe failed. They are asked when no other is left: one may be back, not probed yet.
    reserve: Indexes,
    at: usize,
}

impl Rotation {
    /// `position` is the forwarder's count of queries, for round-robin.
    pub fn new(policy: Policy, position: usize, mut live: Indexes, mut reserve: Indexes) -> Self {
        match policy {
            Policy::Random => live.shuffle(&mut rand::rng()),
            // Over the live ones only; otherwise the neighbour of one that is out would get a double share.
            Policy::RoundRobin if !live.is_empty() => {
                let by = position % live.len();
                live.rotate_left(by);
            }
            Policy::RoundRobin | Policy::Sequential => {}
        }
        // The policy's order means nothing here: spread the load, and find the one that is back.
        reserve.shuffle(&mut rand::rng());
        let mut rotation = Self { live, reserve, at: 0 };
        if rotation.live.is_empty() {
            rotation.call_reserve();
        }
        rotation
    }

    /// The next one to ask; after the last comes the first.
    pub fn next(&self) -> Option<usize> {
        self.live.get(self.at % self.live.len().max(1)).copied()
    }

    /// Moves on after the next one has been asked.
    pub fn advance(&mut self) {
        self.at = (self.at + 1) % self.live.len().max(1);
    }

    /// Removes one for the rest of this query.
    pub fn remove(&mut self, index: usize) {
        if let Some(place) = self.live.iter().position(|&live| live == index) {
            self.live.remove(place);
            if place < self.at {
                self.at -= 1;
            }
        }
    }

    /// Adds those that are out.
    pub(crate) fn call_reserve(&mut self) {
        self.live.append(&mut self.reserve);
    }

    pub fn is_empty(&self) -> bool {
        self.live.is_empty()
    }

    /// Whether one is left to ask, and none in reserve.
    pub fn is_last(&self) -> bool {
        self.live.len() == 1 && self.reserve.is_empty()
    }

    /// Whether only one is left to ask, disregarding the reserve.
    pub(crate) fn has_one(&self) -> bool {
        self.live.len() == 1
    }
}

#[cfg(test)]
mod tests {
    use smallvec::smallvec;

    use super::*;

    fn take(rotation: &mut Rotation, count: usize) -> Vec<usize> {
        let next = || rotation.next().inspect(|_| rotation.advance());
        std::iter::from_fn(next).take(count).collect()
    }

    #[test]
    fn sequential_keeps_the_written_order_and_starts_over() {
        let mut rotation = Rotation::new(Policy::Sequential, 7, smallvec![0, 1, 2], smallvec![]);
        assert_eq!(take(&mut rotation, 5), [0, 1, 2, 0, 1]);
    }

    #[test]
    fn round_robin_turns_by_one_per_query_over_the_live_ones() {
        let firsts: Vec<_> = (0..6)
            .map(|n| {
                take(
                    &mut Rotation::new(Policy::RoundRobin, n, smallvec![0, 2, 3], smallvec![1]),
                    1,
                )[0]
            })
            .collect();
        assert_eq!(firsts, [0, 2, 3, 0, 2, 3]);
    }

    #[test]
    fn random_asks_each_first_equally_often() {
        let mut firsts = [0u32; 3];
        for position in 0..3000 {
            firsts[take(
                &mut Rotation::new(Policy::Random, position, smallvec![0, 1, 2], smallvec![]),
                1,
            )[0]] += 1;
        }
        // 1000 ± 7.7 standard deviations.
        assert!(
            firsts.iter().all(|count| (800..1200).contains(count)),
            "{firsts:?}"
        );
    }

    #[test]
    fn a_removed_one_is_not_asked_again_and_no_other_is_skipped() {
        let mut rotation = Rotation::new(Policy::Sequential, 0, smallvec![0, 1, 2], smallvec![]);
        assert_eq!(take(&mut rotation, 2), [0, 1]);
        rotation.remove(0);
        assert_eq!(take(&mut rotation, 3), [2, 1, 2]);
        rotation.remove(1);
        rotation.remove(2);
        assert_eq!(rotation.next(), None);
    }

    #[test]
    fn those_that_are_out_are_asked_only_when_called_or_when_all_are_out() {
        let mut rotation = Rotation::new(Policy::Sequential, 0, smallvec![0], smallvec![1]);
        assert_eq!(take(&mut rotation, 2), [0, 0]);
        rotation.remove(0);
        assert!(rotation.is_empty());
        rotation.call_reserve();
        assert_eq!(take(&mut rotation, 2), [1, 1]);

        let mut all_out = take(
            &mut Rotation::new(Policy::RoundRobin, 0, smallvec![], smallvec![0, 1]),
            2,
        );
        all_out.sort_unstable();
        assert_eq!(all_out, [0, 1]);
    }
}
