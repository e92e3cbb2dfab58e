//! Addresses to give out, chosen by name: the same on every node, and after every change of the list.

use std::collections::HashSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use dnsweir_filter::{Name, Prefix, stable_hash};

/// The addresses of a prefix, but for its first and last: hosts do not like them.
pub struct Pool {
    prefix: Prefix,
    /// How many there are, at most 2⁶³.
    size: u64,
    /// Numbers of those that are gone, from 0.
    taken: HashSet<u64>,
}

impl Pool {
    /// None if there are no addresses.
    pub fn new(prefix: Prefix) -> Option<Pool> {
        let bits = match prefix.address() {
            IpAddr::V4(_) => 32 - prefix.length(),
            // More than anybody counts.
            IpAddr::V6(_) => (128 - prefix.length()).min(63),
        };
        let size = (1u64 << bits).checked_sub(2).filter(|&size| size > 0)?;
        Some(Pool {
            prefix,
            size,
            taken: HashSet::new(),
        })
    }

    /// Keeps an address from being given out.
    pub fn reserve(&mut self, address: IpAddr) {
        if !self.prefix.contains(address) {
            return;
        }
        let offset = match (address, self.prefix.address()) {
            (IpAddr::V4(address), IpAddr::V4(first)) => u128::from(address.to_bits() - first.to_bits()),
            (IpAddr::V6(address), IpAddr::V6(first)) => address.to_bits() - first.to_bits(),
            _ => return,
        };
        // Beyond the last of ours it is nobody's.
        if let Some(number) = offset
            .checked_sub(1)
            .and_then(|number| u64::try_from(number).ok())
        {
            self.taken.insert(number);
        }
    }

    /// The address that a name's hash stands for, or the next one that is free; none if there is none.
    pub fn give(&mut self, name: Name<'_>, wildcard: bool) -> Option<IpAddr> {
        let mut number = stable_hash(name.as_wire(), wildcard.into()) % self.size;
        let mut tries = 0;
        while !self.taken.insert(number) {
            tries += 1;
            if tries == self.size {
                return None;
            }
            number = (number + 1) % self.size;
        }
        Some(match self.prefix.address() {
            // Below the size of the prefix, and so of an address.
            IpAddr::V4(first) => Ipv4Addr::from_bits(first.to_bits() + 1 + number as u32).into(),
            IpAddr::V6(first) => Ipv6Addr::from_bits(first.to_bits() + 1 + u128::from(number)).into(),
        })
    }
}

#[cfg(test)]
mod tests {
    use dnsweir_filter::NameBuf;

    use super::*;

    fn pool(prefix: &str) -> Pool {
        Pool::new(prefix.parse().unwrap()).unwrap()
    }

    fn name(number: usize) -> NameBuf {
        format!("service-{number}.test").parse().unwrap()
    }

    #[test]
    fn every_address_is_given_once() {
        let mut pool = pool("192.0.2.0/28");
        pool.reserve("192.0.2.5".parse().unwrap());
        pool.reserve("192.0.3.5".parse().unwrap());
        let mut given: Vec<IpAddr> = (0..13)
            .map(|number| pool.give(name(number).as_name(), false).unwrap())
            .collect();
        assert_eq!(pool.give(name(13).as_name(), false), None);
        given.sort();
        let expected: Vec<IpAddr> = (1..15)
            .filter(|last| *last != 5)
            .map(|last| [192, 0, 2, last].into())
            .collect();
        assert_eq!(given, expected);
    }

    #[test]
    fn small_and_large_prefixes() {
        for none in ["192.0.2.0/31", "192.0.2.0/32", "2001:db8::/127", "::1"] {
            assert!(Pool::new(none.parse().unwrap()).is_none(), "{none}");
        }
        for prefix in [
            "192.0.2.0/30",
            "0.0.0.0/0",
            "2001:db8::/126",
            "2001:db8::/64",
            "::/0",
        ] {
            let (mut pool, prefix) = (pool(prefix), prefix.parse::<Prefix>().unwrap());
            pool.reserve(prefix.address());
            assert!(
                prefix.contains(pool.give(name(1).as_name(), true).unwrap()),
                "{prefix}"
            );
        }
    }

    #[test]
    fn a_name_has_its_address_whoever_else_there_is() {
        let (mut few, mut many) = (pool("240.240.0.0/16"), pool("240.240.0.0/16"));
        let addresses: Vec<_> = (0..100)
            .map(|number| few.give(name(number).as_name(), false))
            .collect();
        let moved = (0..200)
            .map(|number| many.give(name(number).as_name(), false))
            .zip(addresses)
            .filter(|(one, other)| one != other)
            .count();
        assert_eq!(moved, 0);
        assert_ne!(
            few.give(name(1).as_name(), true),
            few.give(name(2).as_name(), true)
        );
    }
}
