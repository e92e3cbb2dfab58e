//! A hash that stays what it is.

/// A number that depends on these octets and on nothing else: it is the same in every instance and on every
/// machine, and stays so in every later version of this crate, unlike those of the standard library. For what
/// many proxies have to agree about: which clients take part in a trial, which address a name gets.
///
/// Neighbours have nothing in common, so that any of its bits will do. Another `seed` is another hash. It is
/// no secret: whoever may choose the octets may choose the number.
///
/// ```
/// assert_eq!(dnsweir_filter::stable_hash(b"hello", 0), 0xe9c5_62c0_fdb2_3244);
/// assert_ne!(dnsweir_filter::stable_hash(b"hello", 1), dnsweir_filter::stable_hash(b"hello", 0));
/// ```
#[must_use]
pub fn stable_hash(octets: &[u8], seed: u64) -> u64 {
    // FNV-1a, and the last steps of MurmurHash3.
    let mut hash = 0xcbf2_9ce4_8422_2325 ^ seed;
    for &octet in octets {
        hash = (hash ^ u64::from(octet)).wrapping_mul(0x0100_0000_01b3);
    }
    hash = (hash ^ hash >> 33).wrapping_mul(0xff51_afd7_ed55_8ccd);
    hash = (hash ^ hash >> 33).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    hash ^ hash >> 33
}
