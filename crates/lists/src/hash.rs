//! Hashes of names: 122 bits, keyed, for a name and each name above it in one pass.
//!
//! A name's labels, from the top down, are the coefficients of a polynomial modulo 2^61 - 1. The hash is the
//! value of that polynomial at two points drawn at random when the process starts. Two polynomials of degree
//! n agree in at most n points. So for anyone who does not know the points, any two names collide with a
//! probability below (n / 2^61)^2, where n is at most 128, and below 8 for most names. The hash of a name is
//! the prefix from which the hashes of all names below it continue.

use std::sync::LazyLock;

use smallvec::SmallVec;

use crate::dns::name::{LABEL_MAXIMUM, NAME_MAXIMUM};

/// The modulus, a Mersenne prime.
const PRIME: u64 = (1 << 61) - 1;

/// Bytes per coefficient. In a label's first coefficient, one of them is its length.
const CHUNK: usize = 7;

/// Labels that fit without a heap allocation.
const USUAL: usize = 10;

/// The random points at which polynomials are evaluated.
static PLACES: LazyLock<[u64; 2]> =
    LazyLock::new(|| [rand::random(), rand::random()].map(|drawn: u64| drawn % PRIME));

/// The hash of a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Hash(pub [u64; 2]);

/// The hashes of a name and of those above it.
pub(crate) struct Names(SmallVec<[(Hash, u8); USUAL]>);

impl Names {
    /// Hashes a name in lowercase wire format. Malformed input is cut at its first invalid label.
    pub fn of(name: &[u8]) -> Names {
        let (mut starts, mut at) = (SmallVec::<[u8; USUAL]>::new(), 0);
        while let Some(&length) = name.get(at)
            && length > 0
            && length <= LABEL_MAXIMUM
            && at + usize::from(length) < name.len().min(NAME_MAXIMUM)
        {
            starts.push(at as u8);
            at += 1 + usize::from(length);
        }
        let (places, mut hash) = (*PLACES, Hash([0; 2]));
        let names = starts.iter().rev().map(|&start| {
            let label = &name[usize::from(start)..];
            hash.push(&label[1..], usize::from(label[0]), places);
            // The hash covers the labels from `start` on.
            (hash, start)
        });
        Names(names.collect())
    }

    /// Yields, from the top down, each hash, the offset of its name, and whether it is the whole name.
    #[inline]
    pub fn each(&self) -> impl Iterator<Item = (Hash, usize, bool)> {
        let last = self.0.len().wrapping_sub(1);
        let names = self.0.iter().enumerate();
        names.map(move |(index, &(hash, start))| (hash, usize::from(start), index == last))
    }

    /// Returns the hash of the whole name, or `None` for the root.
    pub fn last(&self) -> Option<Hash> {
        self.0.last().map(|(hash, _)| *hash)
    }
}

impl Hash {
    /// Hashes a name as lists spell it, or returns `None` if it is not a host name.
    ///
    /// Names are not converted: internationalized names must be in the form that is queried (`xn--`), or in
    /// UTF-8.
    pub fn parse(text: &[u8]) -> Option<Hash> {
        let text = text.strip_suffix(b".").unwrap_or(text);
        // Wire format takes two bytes more: the first length and the root.
        if text.is_empty() || text.len() > NAME_MAXIMUM - 2 {
            return None;
        }
        let is_octet = |octet: &u8| octet.is_ascii_alphanumeric() || matches!(octet, b'-' | b'_' | 0x80..);
        let text = text.to_ascii_lowercase();
        let (places, mut hash, mut is_top) = (*PLACES, Hash([0; 2]), true);
        for label in text.rsplit(|octet| *octet == b'.') {
            let is_label =
                (1..=usize::from(LABEL_MAXIMUM)).contains(&label.len()) && label.iter().all(is_octet);
            // An address is not a name.
            let is_number = is_top && label.iter().all(u8::is_ascii_digit);
            if !is_label || is_number {
                return None;
            }
            hash.push(label, label.len(), places);
            is_top = false;
        }
        Some(hash)
    }

    /// Appends a label: the first `length` bytes of `octets`, in lowercase.
    #[inline]
    fn push(&mut self, octets: &[u8], length: usize, places: [u64; 2]) {
        let mut at = length.min(CHUNK - 1);
        // Never 0: leading zero coefficients would leave the hash unchanged.
        self.add(number(octets, at) << 8 | length as u64, places);
        while at < length {
            let count = (length - at).min(CHUNK);
            self.add(number(&octets[at..], count), places);
            at += count;
        }
    }

    #[inline]
    fn add(&mut self, coefficient: u64, places: [u64; 2]) {
        for (value, place) in self.0.iter_mut().zip(places) {
            let product = u128::from(*value + coefficient) * u128::from(place);
            // Below 2^62 + 2^56, since a coefficient is below 2^56; the second fold leaves at most two above
            // the prime.
            let sum = (product as u64 & PRIME) + (product >> 61) as u64;
            let sum = (sum & PRIME) + (sum >> 61);
            *value = if sum >= PRIME { sum - PRIME } else { sum };
        }
    }
}

/// Returns the first `count` bytes, at most seven, as a little-endian number.
#[inline]
fn number(octets: &[u8], count: usize) -> u64 {
    match octets.first_chunk::<8>() {
        Some(eight) => u64::from_le_bytes(*eight) & ((1 << (8 * count)) - 1),
        None => octets[..count]
            .iter()
            .rev()
            .fold(0, |number, octet| number << 8 | u64::from(*octet)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dns::name::Name;

    fn names(text: &str) -> Vec<Hash> {
        let name = Name::parse(text).unwrap();
        Names::of(name.as_bytes()).each().map(|(hash, ..)| hash).collect()
    }

    #[test]
    fn a_name_and_those_above_it_have_their_hashes() {
        for text in [
            "a",
            "example.com",
            "a-longer-label.of.example.com",
            "xn--e1afmkfd.xn--p1ai",
        ] {
            let mut name = text;
            for hash in names(text).iter().rev() {
                assert_eq!(Hash::parse(name.to_uppercase().as_bytes()), Some(*hash), "{name}");
                name = name.split_once('.').map_or("", |(_, above)| above);
            }
            assert_eq!(name, "");
        }
        assert!(names(".").is_empty());
        let longest = "a.".repeat(127);
        assert_eq!(names(&longest).len(), 127);
        assert_eq!(Hash::parse(longest.as_bytes()), names(&longest).last().copied());
    }

    /// Names with the same characters in different labels differ.
    #[test]
    fn names_that_look_alike_differ() {
        let texts = [
            "ab.c", "a.bc", "abc", "c.ab", "b.a.c", "a.b.c", "aaaaaaa", "aaaaaaaa", "aaaaaa.a", "a.aaaaaa",
            "\\000a", "a\\000",
        ];
        let mut hashes: Vec<_> = texts.iter().map(|text| names(text).last().unwrap().0).collect();
        hashes.sort_unstable();
        hashes.dedup();
        assert_eq!(hashes.len(), texts.len());
    }

    /// Also at the highest points, where the remainders are largest.
    #[test]
    fn a_number_is_below_the_prime() {
        for places in [[PRIME - 1, PRIME - 2], [1, 2], *PLACES] {
            let mut hash = Hash([0; 2]);
            for octet in (0..=255).cycle().take(10_000) {
                hash.push(&[octet; 63], 63, places);
                assert!(hash.0.iter().all(|number| *number < PRIME), "{hash:?}");
                let Hash(numbers) = hash;
                hash = Hash(numbers.map(|number| if octet % 3 == 0 { PRIME - 1 } else { number }));
            }
        }
    }

    #[test]
    fn what_is_no_name_has_no_hash() {
        let (long, longer) = ("a".repeat(64), "aaaaaaa.".repeat(32));
        for text in [
            "",
            ".",
            "a..b",
            ".a",
            "a b",
            "*.a",
            "a/b",
            "192.0.2.1",
            "a.1",
            "::1",
            "a\\.b",
            &long,
            &longer,
        ] {
            assert!(Hash::parse(text.as_bytes()).is_none(), "{text:?}");
        }
        // Truncated wire format is cut, not trusted.
        for octets in [&b""[..], b"\x03ab", b"\x03", b"\xc0\x0c", b"\x01a\x3fb"] {
            assert!(Names::of(octets).each().count() < 2);
        }
    }
}
