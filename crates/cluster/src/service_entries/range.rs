//! The address of a host in a range.

use std::net::IpAddr;

use crate::config::Network;

/// 64-bit FNV-1a. Must not change: it decides the hosts' addresses, on every node and after every restart.
const OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
const PRIME: u64 = 0x0000_0100_0000_01b3;

/// The address of a host in a range, but not the first or last one, which may have special meanings. The host
/// is a name in wire format, or everything below one.
pub fn address(range: &Network, name: &[u8], wildcard: bool) -> IpAddr {
    let (width, first, bits) = match range.address {
        IpAddr::V4(four) => (32, u128::from(four.to_bits()), 32 - range.length),
        IpAddr::V6(six) => (128, six.to_bits(), 128 - range.length),
    };
    // Of a range beyond 64 bits, only a part is used.
    let usable = (1_u128 << bits.min(64)) - 2;
    let at = first + 1 + u128::from(hash(name, wildcard)) % usable;
    match width {
        32 => IpAddr::V4((at as u32).into()),
        _ => IpAddr::V6(at.into()),
    }
}

fn hash(name: &[u8], wildcard: bool) -> u64 {
    let octets = std::iter::once(u8::from(wildcard)).chain(name.iter().copied());
    let hash = octets.fold(OFFSET, |hash, octet| {
        (hash ^ u64::from(octet)).wrapping_mul(PRIME)
    });
    // The upper bits depend on all bytes, too, but the range uses the lower ones.
    hash ^ hash >> 32
}
