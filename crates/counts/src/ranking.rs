//! The most frequent keys in bounded memory: the Space-Saving algorithm (Metwally, Agrawal and El Abbadi,
//! 2005), with weights that decay.
//!
//! A key that is not in the ranking replaces the last one and inherits its score. A score is therefore never
//! too low, and too high by at most what it inherited. Every key that makes up more than one in `capacity` of
//! all is in the ranking.

use std::borrow::Borrow;
use std::collections::HashMap;
use std::hash::Hash;

/// The time in seconds after which an observation counts for e times less.
const FADING: f64 = 60.0;

/// After this many fading times scores are rescaled, so that they do not grow without bound.
const RESCALE: f64 = 50.0;

/// The most frequent keys.
#[derive(Debug)]
pub struct Ranking<K> {
    capacity: usize,
    places: HashMap<K, usize>,
    entries: Vec<Entry<K>>,
    /// When an observation of weight 1 added a score of 1, in seconds.
    since: f64,
}

#[derive(Debug)]
struct Entry<K> {
    key: K,
    score: f64,
    inherited: f64,
}

impl<K: Clone + Eq + Hash> Ranking<K> {
    /// Creates an empty ranking for `capacity` keys, at least one.
    pub fn new(capacity: usize) -> Ranking<K> {
        Ranking {
            capacity: capacity.max(1),
            places: HashMap::new(),
            entries: Vec::new(),
            since: 0.0,
        }
    }

    /// Counts `weight` occurrences of a key. `now` is in seconds and never decreases.
    pub fn note<Q>(&mut self, key: &Q, weight: u32, now: f64)
    where
        K: Borrow<Q>,
        Q: Eq + Hash + ToOwned<Owned = K> + ?Sized,
    {
        if (now - self.since) / FADING > RESCALE {
            self.rescale(now);
        }
        let weight = f64::from(weight) * ((now - self.since) / FADING).exp();
        if let Some(&place) = self.places.get(key) {
            self.entries[place].score += weight;
        } else if self.entries.len() < self.capacity {
            self.places.insert(key.to_owned(), self.entries.len());
            self.entries.push(Entry {
                key: key.to_owned(),
                score: weight,
                inherited: 0.0,
            });
        } else {
            self.replace_last(key.to_owned(), weight);
        }
    }

    fn replace_last(&mut self, key: K, weight: f64) {
        let lowest =
            |one: &(usize, &Entry<K>), other: &(usize, &Entry<K>)| one.1.score.total_cmp(&other.1.score);
        let Some((place, _)) = self.entries.iter().enumerate().min_by(lowest) else {
            return;
        };
        let entry = &mut self.entries[place];
        self.places.remove(&entry.key);
        self.places.insert(key.clone(), place);
        entry.key = key;
        entry.inherited = entry.score;
        entry.score += weight;
    }

    fn rescale(&mut self, now: f64) {
        let by = (-(now - self.since) / FADING).exp();
        for entry in &mut self.entries {
            entry.score *= by;
            entry.inherited *= by;
        }
        self.since = now;
    }

    /// Returns the top `count` keys with their recent rate per second. Keys whose score may be mostly
    /// inherited are left out.
    pub fn first(&self, count: usize, now: f64) -> Vec<(K, f64)> {
        let faded = (-(now - self.since) / FADING).exp();
        // A ranking younger than the fading time has not seen as much.
        let seen = FADING * (1.0 - (-now / FADING).exp());
        let mut all: Vec<(K, f64)> = self
            .entries
            .iter()
            .filter(|entry| entry.score > 2.0 * entry.inherited)
            .map(|entry| {
                (
                    entry.key.clone(),
                    (entry.score - entry.inherited) * faded / seen.max(1.0),
                )
            })
            .collect();
        all.sort_by(|one, other| other.1.total_cmp(&one.1));
        all.truncate(count);
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_of_names_that_come_once_does_not_push_out_the_frequent() {
        let mut ranking = Ranking::new(16);
        for second in 0..300u32 {
            for name in 0..50 {
                ranking.note(&(1000 + second * 50 + name), 1, f64::from(second));
            }
            ranking.note(&1, 20, f64::from(second));
            ranking.note(&2, 10, f64::from(second));
        }
        let first = ranking.first(2, 300.0);
        assert_eq!(first.iter().map(|(key, _)| *key).collect::<Vec<_>>(), [1, 2]);
        assert!((first[0].1 - 20.0).abs() < 1.0, "{first:?}");
        assert!((first[1].1 - 10.0).abs() < 1.0, "{first:?}");
        assert_eq!(ranking.entries.len(), 16);
        assert_eq!(ranking.places.len(), 16);
    }

    #[test]
    fn what_does_not_come_any_more_fades() {
        let mut ranking = Ranking::new(4);
        for second in 0..600 {
            ranking.note(&"old", 5, f64::from(second));
        }
        for second in 600..1200 {
            ranking.note(&"new", 1, f64::from(second));
        }
        let first = ranking.first(4, 1200.0);
        assert_eq!(first[0].0, "new");
        assert!(first[1].1 < 0.01, "{first:?}");
    }

    #[test]
    fn a_scale_that_has_to_be_made_anew_changes_nothing() {
        let mut ranking = Ranking::new(4);
        for minute in 0..600u32 {
            for _ in 0..60 {
                ranking.note(&"a", 1, f64::from(minute) * 60.0);
            }
        }
        let rate = ranking.first(1, 599.0 * 60.0)[0].1;
        assert!(rate.is_finite() && (1.0..2.0).contains(&rate), "{rate}");
    }

    #[test]
    fn rates_are_right_from_the_first_seconds_on() {
        let mut ranking = Ranking::new(4);
        for tenth in 0..100 {
            ranking.note(&"a", 1, f64::from(tenth) / 10.0);
        }
        let rate = ranking.first(1, 10.0)[0].1;
        assert!((rate - 10.0).abs() < 1.0, "{rate}");
    }
}
