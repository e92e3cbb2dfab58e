//! Names that left the cache a short while ago, remembered by a fingerprint.

use super::entry::heap_bytes;

/// Fingerprints, each at the place its hash says; a newer one overwrites an older. So what is forgotten
/// first is left to chance rather than to age, at four bytes a name and without ever growing.
#[derive(Debug)]
pub(super) struct Ghosts(Box<[u32]>);

/// A place without a fingerprint. The few names whose fingerprint this is are not remembered.
const NONE: u32 = 0;

impl Ghosts {
    /// Room for `count` names, rounded down to a power of two.
    pub fn new(count: usize) -> Self {
        let places = count.checked_ilog2().map_or(0, |exponent| 1 << exponent);
        Self(vec![NONE; places].into_boxed_slice())
    }

    /// What this has on the heap.
    pub fn bytes(&self) -> usize {
        heap_bytes(size_of_val(&*self.0))
    }

    /// The place and the fingerprint. The shard is chosen by bits 48 and up, and within it all names share
    /// those, so the place comes from lower ones.
    fn split(&mut self, hash: u64) -> Option<(&mut u32, u32)> {
        let mask = self.0.len().checked_sub(1)?;
        Some((&mut self.0[(hash >> 24) as usize & mask], hash as u32))
    }

    /// Remembers that an entry of this hash left.
    pub fn remember(&mut self, hash: u64) {
        if let Some((place, fingerprint)) = self.split(hash) {
            *place = fingerprint;
        }
    }

    /// Whether an entry of this hash left lately. Forgets it: the answer is yes once.
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
