//! A hash that never changes.

/// A number that depends only on these bytes and the seed: the same in every instance, on every machine, and
/// in every later version of this crate, unlike the standard library's hashes. Use it where many proxies must
/// agree: which clients take part in a trial, which address a name gets.
///
/// Similar inputs have unrelated hashes, and all bits are equally usable. Each `seed` selects another hash
/// function. It is not cryptographic: anyone who can choose the bytes can choose the number.
///
/// ```
/// assert_eq!(dnsweir_filter::stable_hash(b"hello", 0), 0xe9c5_62c0_fdb2_3244);
/// assert_ne!(dnsweir_filter::stable_hash(b"hello", 1), dnsweir_filter::stable_hash(b"hello", 0));
/// ```
#[must_use]
pub fn stable_hash(octets: &[u8], seed: u64) -> u64 {
    // FNV-1a, then the final steps of MurmurHash3.
    let mut hash = 0xcbf2_9ce4_8422_2325 ^ seed;
    for &octet in octets {
        hash = (hash ^ u64::from(octet)).wrapping_mul(0x0100_0000_01b3);
    }
    hash = (hash ^ hash >> 33).wrapping_mul(0xff51_afd7_ed55_8ccd);
    hash = (hash ^ hash >> 33).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    hash ^ hash >> 33
}
