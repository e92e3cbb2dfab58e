//! Networks: addresses with a common prefix.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Addresses with a common prefix.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Network {
    /// The first address.
    pub address: IpAddr,
    /// Length of the prefix in bits.
    pub length: u8,
}

impl Network {
    /// Loopback, link-local, private and unique local networks: RFC 6890 section 2.2.2, RFC 1918, RFC 6598
    /// (from which clouds and clusters take pod addresses), RFC 4193.
    pub const PRIVATE: [Network; 9] = [
        Network::v4([127, 0, 0, 0], 8),
        Network::v4([10, 0, 0, 0], 8),
        Network::v4([172, 16, 0, 0], 12),
        Network::v4([192, 168, 0, 0], 16),
        Network::v4([100, 64, 0, 0], 10),
        Network::v4([169, 254, 0, 0], 16),
        Network::v6([0, 0, 0, 0, 0, 0, 0, 1], 128),
        Network::v6([0xfc00, 0, 0, 0, 0, 0, 0, 0], 7),
        Network::v6([0xfe80, 0, 0, 0, 0, 0, 0, 0], 10),
    ];

    /// Whether an address is in [`Network::PRIVATE`].
    pub fn is_private(ip: IpAddr) -> bool {
        Network::PRIVATE.iter().any(|network| network.contains(ip))
    }

    /// All addresses.
    pub const ANY: [Network; 2] = [Network::v4([0; 4], 0), Network::v6([0; 8], 0)];

    const fn v4(octets: [u8; 4], length: u8) -> Network {
        let address = IpAddr::V4(Ipv4Addr::from_octets(octets));
        Network { address, length }
    }

    const fn v6(groups: [u16; 8], length: u8) -> Network {
        let address = IpAddr::V6(Ipv6Addr::from_segments(groups));
        Network { address, length }
    }

    /// The network of an address with a prefix of `length` bits; `None` if addresses are shorter.
    pub fn of(address: IpAddr, length: u8) -> Option<Network> {
        let (width, bits) = left_aligned(address);
        if length > width {
            return None;
        }
        let bits = bits & mask(length);
        let address = match address {
            IpAddr::V4(_) => IpAddr::V4(((bits >> 96) as u32).into()),
            IpAddr::V6(_) => IpAddr::V6(bits.into()),
        };
        Some(Network { address, length })
    }

    /// The first and last address as left-aligned numbers: in both families, the prefix is in the upper bits.
    pub fn bounds(&self) -> (u128, u128) {
        let (_, first) = left_aligned(self.address);
        (first, first | !mask(self.length))
    }

    /// Whether it contains an address.
    pub fn contains(&self, address: IpAddr) -> bool {
        Network::of(address, self.length).as_ref() == Some(self)
    }

    /// Whether it contains all of another network.
    pub fn covers(&self, other: &Network) -> bool {
        self.length <= other.length && self.contains(other.address)
    }
}

/// Parses an address, with or without the length of a prefix; `None` for a length that is none.
pub(super) fn parse(text: &str) -> Option<(IpAddr, Option<u8>)> {
    match text.split_once('/') {
        Some((address, length)) => Some((address.parse().ok()?, length.parse().ok())),
        None => {
            let address = text.parse().ok()?;
            Some((address, Some(left_aligned(address).0)))
        }
    }
}

/// The number of bits of an address, and the address as a left-aligned number.
pub fn left_aligned(address: IpAddr) -> (u8, u128) {
    match address {
        IpAddr::V4(address) => (32, u128::from(address.to_bits()) << 96),
        IpAddr::V6(address) => (128, address.to_bits()),
    }
}

/// The upper `length` bits.
fn mask(length: u8) -> u128 {
    u128::MAX.checked_shl(128 - u32::from(length)).unwrap_or(0)
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn network(text: &str) -> Network {
        let (address, length) = parse(text).unwrap();
        Network::of(address, length.unwrap()).unwrap()
    }

    #[test]
    fn networks_hold_what_begins_like_them() {
        for (net, inside, outside) in [
            ("10.0.0.0/8", "10.255.0.1", "11.0.0.0"),
            ("0.0.0.0/0", "255.255.255.255", "::1"),
            ("2001:db8::/33", "2001:db8:7fff::", "2001:db8:8000::"),
            ("::/0", "::1", "127.0.0.1"),
            ("192.0.2.1/32", "192.0.2.1", "192.0.2.0"),
        ] {
            let net = network(net);
            assert!(net.contains(inside.parse().unwrap()), "{net} {inside}");
            assert!(!net.contains(outside.parse().unwrap()), "{net} {outside}");
        }
    }
}
