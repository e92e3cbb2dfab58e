//! Moments, keys and answers for the tests of the cache.

use dnsweir_os::clock::Uptime;

use super::{Key, KeyFlags, KeyHasher, Kind, Stored};

/// The moment this many milliseconds after the start.
pub const fn ms(millis: u64) -> Uptime {
    Uptime::from_micros(1000 * millis)
}

/// The key of a question of class IN, in a zone of its own.
pub fn key<'a>(hasher: &KeyHasher, name: &'a [u8], qtype: u16, flags: KeyFlags) -> Key<'a> {
    Key::new(hasher.question(name, qtype, 1), name, qtype, 1, flags, 0)
}

/// A message without records, fresh for 10 s and stale for another 100 s.
pub fn stored(wire: &[u8], kind: Kind, now: Uptime) -> Stored<'_> {
    Stored {
        wire,
        ttl_offsets: &[],
        kind,
        error: None,
        ttl_secs: 10,
        stale_secs: 100,
        now,
    }
}
