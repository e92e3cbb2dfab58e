//! IPv4 addresses embedded in IPv6 addresses (RFC 6052 section 2.2).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use dnsweir_filter::{FromValue, Name, Prefix, Value};

/// A prefix and its length, one of six.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Translation(u128, u8);

impl Translation {
    /// The well-known prefix, 64:ff9b::/96.
    pub const WELL_KNOWN: Translation = Translation(0x0064_ff9b << 96, 96);

    /// The IPv6 address that represents an IPv4 address. The well-known prefix must not represent addresses
    /// that are not globally reachable (RFC 6052 section 3.1); for those, returns `None`.
    pub fn embed(self, address: Ipv4Addr) -> Option<Ipv6Addr> {
        let local = match address.octets() {
            [0 | 10 | 127, ..] | [169, 254, ..] | [172, 16..=31, ..] | [192, 168, ..] => true,
            [100, second, ..] => second & 0xc0 == 64,
            [first, ..] => first >= 224,
        };
        if local && self == Translation::WELL_KNOWN {
            return None;
        }
        let bits = u128::from(address.to_bits()) << (96 - self.1);
        Some(Ipv6Addr::from_bits(self.0 | self.around(bits, |low| low >> 8)))
    }

    /// The IPv4 address that a name below `ip6.arpa` represents.
    pub fn extract(self, name: Name<'_>) -> Option<Ipv4Addr> {
        let Some(IpAddr::V6(address)) = name.reverse_address() else {
            return None;
        };
        let bits = address.to_bits();
        if bits >> (128 - self.1) != self.0 >> (128 - self.1) {
            return None;
        }
        let bits = self.around(bits, |low| low << 8);
        Some(Ipv4Addr::from_bits((bits >> (96 - self.1)) as u32))
    }

    /// With all but the longest prefix, bits 64 to 71 stay zero, and the bits after them move by eight.
    fn around(self, bits: u128, shift: impl Fn(u64) -> u64) -> u128 {
        match self.1 {
            96 => bits,
            _ => bits >> 64 << 64 | u128::from(shift(bits as u64)),
        }
    }
}

impl FromValue for Translation {
    const EXPECTED: &'static str = "a prefix of IPv6 addresses that can hold one of IPv4";

    fn from_value(value: Value<'_>) -> Result<Translation, String> {
        let prefix = Prefix::from_value(value)?;
        match (prefix.address(), prefix.length()) {
            (IpAddr::V6(address), length @ (32 | 40 | 48 | 56 | 64 | 96)) => {
                Ok(Translation(address.to_bits(), length))
            }
            _ => Err("its length is 32, 40, 48, 56, 64 or 96".into()),
        }
    }
}
