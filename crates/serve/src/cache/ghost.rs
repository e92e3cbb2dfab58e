//! Names that left the cache recently, remembered by a fingerprint.

use super::entry::heap_bytes;

/// Fingerprints, each at the place that its hash selects; a newer one overwrites an older. What is forgotten
/// first depends on chance rather than age, but a name costs four bytes and the table never grows.
#[derive(Debug)]
pub(super) struct Ghosts(Box<[u32]>);

/// An empty place. The few names with this fingerprint are not remembered.
const NONE: u32 = 0;

impl Ghosts {
    /// Creates room for `count` names, rounded down to a power of two.
    pub fn new(count: usize) -> Self {
        let places = count.checked_ilog2().map_or(0, |exponent| 1 << exponent);
        Self(vec![NONE; places].into_boxed_slice())
    }

    /// Heap bytes used.
    pub fn bytes(&self) -> usize {
        heap_bytes(size_of_val(&*self.0))
    }

    /// The place and the fingerprint. Bits 48 and up select the shard and are the same for all names in it,
    /// so the place comes from lower bits.
    fn split(&mut self, hash: u64) -> Option<(&mut u32, u32)> {
        let mask = self.0.len().checked_sub(1)?;
        Some((&mut self.0[(hash >> 24) as usize & mask], hash as u32))
    }

    /// Remembers that an entry with this hash left.
    pub fn remember(&mut self, hash: u64) {
        if let Some((place, fingerprint)) = self.split(hash) {
            *place = fingerprint;
        }
    }

    /// Whether an entry with this hash left recently. Forgets it: a second call returns false.
    pub fn recall(&mut self, hash: u64) -> bool {
        match self.split(hash) {
            Some((place, fingerprint)) if *place == fingerprint && fingerprint != NONE => {
                *place = NONE;
                true
            }
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_left_is_recalled_once() {
        let mut ghosts = Ghosts::new(100);
        assert_eq!(ghosts.bytes(), heap_bytes(64 * 4));
        assert!(!ghosts.recall(77));
        ghosts.remember(77);
        assert!(!ghosts.recall(78), "same place, another name");
        assert!(ghosts.recall(77));
        assert!(!ghosts.recall(77));
        ghosts.remember(77);
        ghosts.remember(78);
        assert!(!ghosts.recall(77), "overwritten");
    }

    #[test]
    fn an_empty_place_recalls_nothing() {
        let mut ghosts = Ghosts::new(4);
        assert!(!ghosts.recall(0));
        ghosts.remember(0);
        assert!(!ghosts.recall(0));
    }

    #[test]
    fn without_room_nothing_is_remembered() {
        let mut ghosts = Ghosts::new(0);
        ghosts.remember(77);
        assert!(!ghosts.recall(77));
        assert_eq!(ghosts.bytes(), 0);
    }
}
