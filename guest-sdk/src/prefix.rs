//! Address prefixes.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use crate::{FromValue, Invalid, Node, Value};

/// An address prefix: `10.0.0.0/8`, `2001:db8::/32`. An address without a length is a prefix of all its bits.
///
/// ```
/// use dnsweir_filter::Prefix;
/// # fn main() -> Result<(), dnsweir_filter::PrefixError> {
/// let pods: Prefix = "10.244.0.0/16".parse()?;
/// assert!(pods.contains([10, 244, 3, 7].into()));
/// assert!(!pods.contains("2001:db8::1".parse().unwrap()));
/// assert_eq!(Prefix::of([10, 244, 3, 7].into(), 24).to_string(), "10.244.3.0/24");
/// # Ok(()) }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Prefix {
    /// The first address.
    address: IpAddr,
    length: u8,
}

impl Prefix {
    /// The first bits of an address, as many as given, but no more than it has.
    pub fn of(address: IpAddr, length: u8) -> Prefix {
        match address {
            IpAddr::V4(address) => {
                let length = length.min(32);
                let mask = u32::MAX.checked_shl(32 - u32::from(length)).unwrap_or(0);
                let address = Ipv4Addr::from_bits(address.to_bits() & mask).into();
                Prefix { address, length }
            }
            IpAddr::V6(address) => {
                let length = length.min(128);
                let mask = u128::MAX.checked_shl(128 - u32::from(length)).unwrap_or(0);
                let address = Ipv6Addr::from_bits(address.to_bits() & mask).into();
                Prefix { address, length }
            }
        }
    }

    /// Parses the labels with which response policy zones encode a prefix, last part first: `24.0.2.0.192`,
    /// or `48.zz.1.db8.2001`, where `zz` is the longest run of zeros.
    ///
    /// ```
    /// use dnsweir_filter::Prefix;
    ///
    /// let prefix = Prefix::from_labels(&[b"48", b"zz", b"1", b"db8", b"2001"]);
    /// assert_eq!(prefix, "2001:db8:1::/48".parse().ok());
    /// assert_eq!(Prefix::from_labels(&[b"33", b"0", b"2", b"0", b"192"]), None);
    /// ```
    pub fn from_labels(labels: &[&[u8]]) -> Option<Prefix> {
        let labels = labels.iter().map(|label| std::str::from_utf8(label));
        let mut labels = labels.rev().collect::<Result<Vec<_>, _>>().ok()?;
        let length = labels.pop()?;
        let address = match labels[..] {
            [_, _, _, _] if !labels.contains(&"zz") => labels.join("."),
            _ => labels.join(":").replace("zz", ":").replace(":::", "::"),
        };
        format!("{address}/{length}").parse().ok()
    }

    /// The first address.
    pub fn address(self) -> IpAddr {
        self.address
    }

    /// The number of bits.
    pub fn length(self) -> u8 {
        self.length
    }

    /// The address with this index within the prefix, counted from 0.
    ///
    /// ```
    /// use dnsweir_filter::Prefix;
    ///
    /// let prefix: Prefix = "192.0.2.0/30".parse().unwrap();
    /// assert_eq!(prefix.nth(3), Some([192, 0, 2, 3].into()));
    /// assert_eq!(prefix.nth(4), None);
    /// assert_eq!(prefix.position([192, 0, 2, 3].into()), Some(3));
    /// ```
    pub fn nth(self, number: u128) -> Option<IpAddr> {
        let address = match self.address {
            IpAddr::V4(first) => {
                Ipv4Addr::from_bits(first.to_bits().checked_add(number.try_into().ok()?)?).into()
            }
            IpAddr::V6(first) => Ipv6Addr::from_bits(first.to_bits().checked_add(number)?).into(),
        };
        self.contains(address).then_some(address)
    }

    /// The index of an address within the prefix, counted from 0.
    pub fn position(self, address: IpAddr) -> Option<u128> {
        match (address, self.address) {
            _ if !self.contains(address) => None,
            (IpAddr::V4(address), IpAddr::V4(first)) => Some(u128::from(address.to_bits() - first.to_bits())),
            (IpAddr::V6(address), IpAddr::V6(first)) => Some(address.to_bits() - first.to_bits()),
            _ => None,
        }
    }

    /// Whether an address is in the prefix. IPv4 addresses are in no IPv6 prefix, and vice versa.
    pub fn contains(self, address: IpAddr) -> bool {
        address.is_ipv4() == self.address.is_ipv4() && Prefix::of(address, self.length) == self
    }
}

/// How many bits of an address identify a client, so that a subnet can count as one client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PrefixLengths {
    ipv4: u8,
    ipv6: u8,
}

impl PrefixLengths {
    /// Every address is a separate client.
    pub const WHOLE: PrefixLengths = PrefixLengths { ipv4: 32, ipv6: 128 };

    /// Reads the properties of a node such as `prefix ipv4=24 ipv6=64`. A missing one stands for the whole
    /// address.
    ///
    /// # Errors
    /// If a number is larger than the address has bits.
    pub fn read(node: Node<'_>) -> Result<PrefixLengths, Invalid> {
        let (ipv4, ipv6) = (
            node.property::<Bits<32>>("ipv4"),
            node.property::<Bits<128>>("ipv6"),
        );
        Ok(PrefixLengths {
            ipv4: ipv4?.map_or(32, |bits| bits.0),
            ipv6: ipv6?.map_or(128, |bits| bits.0),
        })
    }

    /// The client that an address belongs to, as a prefix.
    pub fn of(self, address: IpAddr) -> Prefix {
        let length = if address.is_ipv4() { self.ipv4 } else { self.ipv6 };
        Prefix::of(address, length)
    }
}

/// A number of bits, at most `MAX`.
struct Bits<const MAX: u8>(u8);

impl<const MAX: u8> FromValue for Bits<MAX> {
    const EXPECTED: &'static str = "a number of bits";

    fn from_value(value: Value<'_>) -> Result<Bits<MAX>, String> {
        match u8::from_value(value) {
            Ok(bits) if bits <= MAX => Ok(Bits(bits)),
            _ => Err(format!("from 0 to {MAX}")),
        }
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.length)
    }
}

/// The reason why a text is not a prefix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum PrefixError {
    /// The address is malformed, or the slash is followed by something other than a valid number of bits.
    Malformed,
    /// The address has bits beyond the prefix; this is the prefix without them.
    Host(Prefix),
}

impl fmt::Display for PrefixError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PrefixError::Malformed => f.write_str("such as \"10.0.0.0/8\" or \"2001:db8::/32\""),
            PrefixError::Host(prefix) => write!(f, "the address has bits beyond the prefix: \"{prefix}\""),
        }
    }
}

impl std::error::Error for PrefixError {}

impl FromStr for Prefix {
    type Err = PrefixError;

    fn from_str(text: &str) -> Result<Prefix, PrefixError> {
        let (address, length) = match text.split_once('/') {
            Some((address, length)) => (address, Some(length)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| PrefixError::Malformed)?;
        let bits = if address.is_ipv4() { 32 } else { 128 };
        let length = match length {
            // `u8::from_str` would accept a sign.
            Some(digits) if digits.bytes().all(|digit| digit.is_ascii_digit()) => {
                digits.parse().map_err(|_| PrefixError::Malformed)?
            }
            Some(_) => return Err(PrefixError::Malformed),
            None => bits,
        };
        if length > bits {
            return Err(PrefixError::Malformed);
        }
        let prefix = Prefix::of(address, length);
        if prefix.address == address {
            Ok(prefix)
        } else {
            Err(PrefixError::Host(prefix))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prefix(text: &str) -> Prefix {
        text.parse().unwrap()
    }

    #[test]
    fn texts_are_read_strictly() {
        for text in ["10.0.0.0/8", "0.0.0.0/0", "192.0.2.7/32", "2001:db8::/33", "::/0"] {
            assert_eq!(prefix(text).to_string(), text);
        }
        assert_eq!(prefix("192.0.2.7").length(), 32);
        assert_eq!(prefix("::1").length(), 128);
        for text in [
            "",
            "/8",
            "10.0.0.0/",
            "10.0.0.0/33",
            "10.0.0.0/+8",
            "10.0.0/8",
            "::/129",
            "::/8/8",
        ] {
            assert_eq!(text.parse::<Prefix>(), Err(PrefixError::Malformed), "{text:?}");
        }
        assert_eq!(
            "10.0.0.1/8".parse::<Prefix>(),
            Err(PrefixError::Host(prefix("10.0.0.0/8")))
        );
    }

    #[test]
    fn addresses_are_in_them() {
        for (text, inside, outside) in [
            ("10.0.0.0/8", "10.255.0.1", "11.0.0.0"),
            ("192.0.2.128/25", "192.0.2.255", "192.0.2.127"),
            ("0.0.0.0/0", "255.255.255.255", "::"),
            ("2001:db8::/33", "2001:db8:7fff::1", "2001:db8:8000::"),
            ("::/0", "ffff::", "0.0.0.0"),
        ] {
            assert!(prefix(text).contains(inside.parse().unwrap()), "{text} {inside}");
            assert!(
                !prefix(text).contains(outside.parse().unwrap()),
                "{text} {outside}"
            );
        }
    }
}
