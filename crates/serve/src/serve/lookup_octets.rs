//! Bytes of filters' lookups and their answers while queries wait, limited over all workers.

use tokio::sync::{Semaphore, SemaphorePermit};

/// Bytes of one `ask`, response or answer that count towards what a waiting query takes anyway.
const SMALL: usize = 1024;

/// Limit on the bytes beyond that, of all lookups that filters wait for.
pub const LOOKUP_OCTETS: usize = 16 << 20;

/// A permit for each byte that lookups may hold, beyond [`SMALL`] each.
#[derive(Debug)]
pub(super) struct LookupOctets(Semaphore);

/// Some of them, returned when dropped.
pub(super) type Held<'a> = SemaphorePermit<'a>;

impl LookupOctets {
    /// Returns all of them, held by none.
    pub fn new() -> LookupOctets {
        LookupOctets(Semaphore::new(LOOKUP_OCTETS))
    }

    /// Reserves this many bytes, if there are any left.
    pub fn hold(&self, octets: usize) -> Option<Held<'_>> {
        let octets = u32::try_from(octets.saturating_sub(SMALL)).ok()?;
        self.0.try_acquire_many(octets).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn octets_are_held_and_given_back() {
        let all = LookupOctets::new();
        assert!(all.hold(SMALL).is_some(), "small ones are not reckoned");
        let most = all.hold(LOOKUP_OCTETS).unwrap();
        let rest = all.hold(2 * SMALL).unwrap();
        assert!(all.hold(SMALL + 1).is_none());
        assert!(all.hold(SMALL).is_some());
        drop(rest);
        assert!(all.hold(SMALL + 1).is_some());
        drop(most);
        assert_eq!(all.0.available_permits(), LOOKUP_OCTETS);
    }
}
