//! The key that an answer is cached under.

use std::fmt;
use std::hash::{BuildHasher, Hasher};

use foldhash::quality::RandomState;

/// Hashes questions with a seed drawn once per process, so that no client can choose names that collide.
///
/// Every [`Key`] of a process must come from the same hasher or a clone of it.
#[derive(Clone, Debug, Default)]
pub struct KeyHasher(RandomState);

impl KeyHasher {
    /// Creates a hasher with a new seed.
    pub fn new() -> Self {
        Self::default()
    }

    /// Hashes a question: the part of a key that filters and the cache share.
    ///
    /// `name` is in wire format and already in lower case.
    #[inline]
    pub fn question(&self, name: &[u8], qtype: u16, qclass: u16) -> u64 {
        let mut hasher = self.0.build_hasher();
        hasher.write(name);
        hasher.write_u32(u32::from(qtype) << 16 | u32::from(qclass));
        hasher.finish()
    }
}

/// The bits of a query that change what the answer to the same question holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeyFlags(u8);

impl KeyFlags {
    /// `dnssec_ok` is the DO bit (RFC 3225 §3), `checking_disabled` the CD bit (RFC 4035 §3.2.2).
    #[inline]
    pub const fn new(dnssec_ok: bool, checking_disabled: bool) -> Self {
        Self(dnssec_ok as u8 | (checking_disabled as u8) << 1)
    }

    /// The same flags for an upstream query with or without recursion (the RD bit, RFC 1035 §4.1.1). Answers
    /// without recursion are not cached, but their queries in flight are kept apart.
    #[inline]
    pub(crate) const fn with_recursion(self, recursion_desired: bool) -> Self {
        Self(self.0 | (!recursion_desired as u8) << 2)
    }
}

impl fmt::Display for KeyFlags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (bit, name) in [", DO", ", CD"].into_iter().enumerate() {
            if self.0 >> bit & 1 == 1 {
                f.write_str(name)?;
            }
        }
        Ok(())
    }
}

/// The key of a lookup. It borrows, so that a hit allocates nothing.
#[derive(Clone, Copy, Debug)]
pub struct Key<'a> {
    /// Hash of all the other fields.
    pub hash: u64,
    /// The question's name: wire format, lower case, ending in the root label, at most 255 octets.
    pub name: &'a [u8],
    /// The question's type.
    pub qtype: u16,
    /// The question's class.
    pub qclass: u16,
    /// DO and CD; for queries in flight also RD.
    pub flags: KeyFlags,
    /// Fingerprint of what answers a miss. Zones with different sources do not share answers, and after a
    /// reload changes a source, its old answers can no longer be found.
    pub partition: u64,
}

impl<'a> Key<'a> {
    /// `question` is [`KeyHasher::question`] of the same name, type and class.
    #[inline]
    pub fn new(
        question: u64,
        name: &'a [u8],
        qtype: u16,
        qclass: u16,
        flags: KeyFlags,
        partition: u64,
    ) -> Self {
        // The question's hash is uniform, and XOR with anything keeps it uniform.
        let hash = question ^ partition ^ u64::from(flags.0).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        Self {
            hash,
            name,
            qtype,
            qclass,
            flags,
            partition,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAME: &[u8] = b"\x03www\x07example\x03org\0";

    #[test]
    fn a_question_hashes_alike_in_clones_only_of_one_hasher() {
        let hasher = KeyHasher::new();
        let question = hasher.question(NAME, 1, 1);
        assert_eq!(question, hasher.clone().question(NAME, 1, 1));
        assert_ne!(question, hasher.question(NAME, 28, 1));
        assert_ne!(question, hasher.question(NAME, 1, 3));
        assert_ne!(question, hasher.question(&NAME[4..], 1, 1));
    }

    #[test]
    fn flags_and_view_change_the_hash() {
        let key = |flags, partition| Key::new(99, NAME, 1, 1, flags, partition);
        let hash = |dnssec_ok, checking_disabled, partition| {
            key(KeyFlags::new(dnssec_ok, checking_disabled), partition).hash
        };
        let all = [
            hash(false, false, 0),
            hash(true, false, 0),
            hash(false, true, 0),
            hash(true, true, 0),
            hash(false, false, 1),
        ];
        for (at, one) in all.iter().enumerate() {
            assert!(!all[at + 1..].contains(one));
        }
        assert_eq!(key(KeyFlags::default(), 0).flags, KeyFlags::new(false, false));
    }
}
