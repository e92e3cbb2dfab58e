//! Bytes of filters' lookups and their answers while queries wait, limited over all workers.

use std::sync::atomic::{AtomicUsize, Ordering};

/// Bytes of one `ask`, response or answer that count towards what a waiting query takes anyway.
const SMALL: usize = 1024;

/// Limit on the bytes beyond that, of all lookups that filters wait for.
pub const LOOKUP_OCTETS: usize = 16 << 20;

/// Bytes that lookups hold now, beyond [`SMALL`] each.
#[derive(Debug, Default)]
pub(super) struct LookupOctets(AtomicUsize);

/// Some of them, returned when dropped.
pub(super) struct Held<'a> {
    all: &'a LookupOctets,
    octets: usize,
}

impl LookupOctets {
    /// Reserves this many bytes, if there are any left.
    pub fn hold(&self, octets: usize) -> Option<Held<'_>> {
        let octets = octets.saturating_sub(SMALL);
        let room = |held: usize| Some(held + octets).filter(|&held| held <= LOOKUP_OCTETS);
        if octets > 0 {
            self.0
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, room)
                .ok()?;
        }
        Some(Held { all: self, octets })
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.all.0.fetch_sub(self.octets, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn octets_are_held_and_given_back() {
        let all = LookupOctets::default();
        assert!(all.hold(SMALL).is_some(), "small ones are not reckoned");
        let most = all.hold(LOOKUP_OCTETS).unwrap();
        let rest = all.hold(2 * SMALL).unwrap();
        assert!(all.hold(SMALL + 1).is_none());
        assert!(all.hold(SMALL).is_some());
        drop(rest);
        assert!(all.hold(SMALL + 1).is_some());
        drop(most);
        assert_eq!(all.0.load(Ordering::Relaxed), 0);
    }
}
