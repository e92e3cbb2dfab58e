//! Finds who holds the most memory, without looking at all.

use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::SeqCst;

/// Entries that are out of date are kept until there are this many more than twice the holders.
const OUTDATED: usize = 64;

/// What a client or a connection holds, in bytes.
#[derive(Debug, Default)]
pub(super) struct Holding {
    octets: AtomicUsize,
    /// What its entry says; 0: it has none. That is at least what it holds, except between a change that
    /// outgrows it and the next [`Largest::enter`].
    entered: AtomicUsize,
}

impl Holding {
    /// Returns what it holds.
    pub fn octets(&self) -> usize {
        self.octets.load(SeqCst)
    }

    /// Adds this much.
    pub fn grow(&self, by: usize) {
        self.octets.fetch_add(by, SeqCst);
    }

    /// Removes this much.
    pub fn shrink(&self, by: usize) {
        self.octets.fetch_sub(by, SeqCst);
    }

    /// Whether it holds more than its entry says.
    pub(crate) fn is_outgrown(&self) -> bool {
        self.octets() > self.entered.load(SeqCst)
    }

    /// Whether this is what its entry says.
    fn has_entry(&self, entered: usize) -> bool {
        self.entered.load(SeqCst) == entered
    }

    /// Lowers its entry to what it holds, which is returned.
    fn lower(&self) -> usize {
        let octets = self.octets();
        self.entered.store(octets, SeqCst);
        // Another thread may have added some meanwhile, and have seen the entry as it was before.
        let now = self.octets().max(octets);
        self.entered.store(now, SeqCst);
        now
    }
}

/// Holders by what their entries say. One that holds less is put back, once, when it would be the first.
#[derive(Debug)]
pub(super) struct Largest<K>(BinaryHeap<(usize, K)>);

impl<K: Ord> Default for Largest<K> {
    fn default() -> Largest<K> {
        Largest(BinaryHeap::new())
    }
}

impl<K: Copy + Ord> Largest<K> {
    /// Enters one of so many holders, if it has outgrown its entry. `look` returns `None` for a holder that has
    /// ended.
    pub fn enter<'h>(
        &mut self,
        key: K,
        holding: &Holding,
        holders: usize,
        look: impl Fn(K) -> Option<&'h Holding>,
    ) {
        if !holding.is_outgrown() {
            return;
        }
        if self.0.len() > 2 * holders + OUTDATED {
            let mut entries = std::mem::take(&mut self.0).into_sorted_vec();
            // Who shrinks and grows again may have the same entry several times.
            entries.dedup();
            entries.retain(|(entered, key)| look(*key).is_some_and(|holding| holding.has_entry(*entered)));
            self.0 = entries.into();
        }
        // With room to grow, so that it is not entered again for each reply.
        let entered = holding.octets().next_power_of_two();
        holding.entered.store(entered, SeqCst);
        self.0.push((entered, key));
    }

    /// Returns the holder that holds most; `None` if none holds anything.
    pub fn first<'h>(&mut self, look: impl Fn(K) -> Option<&'h Holding>) -> Option<K> {
        while let Some(mut first) = self.0.peek_mut() {
            let (entered, key) = *first;
            let holding = look(key).filter(|holding| holding.has_entry(entered));
            match holding.map_or(0, Holding::lower) {
                0 => drop(PeekMut::pop(first)),
                octets if octets == entered => return Some(key),
                octets => first.0 = octets,
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    fn empty(count: usize) -> Vec<Holding> {
        (0..count).map(|_| Holding::default()).collect()
    }

    /// Thousands that hold more than all others in turn cost a few looks each.
    #[test]
    fn a_flood_costs_a_few_looks_a_holder() {
        const HOLDERS: usize = 10_000;
        let holdings = empty(HOLDERS);
        let looks = Cell::new(0);
        let look = |key: usize| {
            looks.set(looks.get() + 1);
            Some(&holdings[key])
        };
        let mut largest = Largest::default();
        for (key, holding) in holdings.iter().enumerate() {
            holding.grow(1 + key);
            largest.enter(key, holding, HOLDERS, look);
        }
        for (key, holding) in holdings.iter().enumerate() {
            holding.grow(2 * HOLDERS);
            largest.enter(key, holding, HOLDERS, look);
            assert_eq!(largest.first(look), Some(key));
            holding.shrink(2 * HOLDERS + key);
        }
        holdings[7].grow(4);
        assert_eq!(largest.first(look), Some(7));
        assert!(looks.get() < 8 * HOLDERS, "{} looks", looks.get());
        holdings
            .iter()
            .for_each(|holding| holding.shrink(holding.octets()));
        assert_eq!(largest.first(look), None);
    }

    #[test]
    fn entries_of_those_that_have_ended_go() {
        let holdings = empty(1000);
        let mut largest = Largest::default();
        for (key, holding) in holdings.iter().enumerate() {
            holding.grow(100);
            let look = |other: usize| (other + 1 >= key).then(|| &holdings[other]);
            largest.enter(key, holding, 1, look);
        }
        assert!(largest.0.len() <= 2 + OUTDATED + 1, "{}", largest.0.len());
    }

    /// Each time, its entry is outgrown, and lowered to the same size.
    #[test]
    fn who_shrinks_and_grows_again_has_few_entries() {
        let holding = Holding::default();
        let mut largest = Largest::default();
        holding.grow(100);
        for _ in 0..1000 {
            holding.grow(100);
            largest.enter(0, &holding, 1, |_| Some(&holding));
            holding.shrink(100);
            assert_eq!(largest.first(|_| Some(&holding)), Some(0));
        }
        assert!(largest.0.len() <= 2 + OUTDATED + 1, "{}", largest.0.len());
    }
}
