//! Allocates addresses by name: the same on every node, and after every change of the list.

use std::collections::HashSet;
use std::net::IpAddr;

use dnsweir_filter::{Name, Prefix, stable_hash};

/// The addresses of a prefix, except for its first and last, which hosts may not accept.
pub struct Pool {
    prefix: Prefix,
    /// The number of addresses, limited to 2⁶³.
    size: u64,
    /// The indices of allocated addresses, from 0.
    taken: HashSet<u64>,
}

impl Pool {
    /// Returns `None` if the prefix has no addresses to allocate.
    pub fn new(prefix: Prefix) -> Option<Pool> {
        let bits = if prefix.address().is_ipv4() { 32 } else { 128 };
        let count = 1u64 << (bits - prefix.length()).min(63);
        let size = count.checked_sub(2).filter(|&size| size > 0)?;
        Some(Pool {
            prefix,
            size,
            taken: HashSet::new(),
        })
    }

    /// Excludes an address from allocation.
    pub fn reserve(&mut self, address: IpAddr) {
        let number = self.prefix.position(address).and_then(|at| at.checked_sub(1));
        // An index beyond the last address has no effect.
        self.taken
            .extend(number.and_then(|number| u64::try_from(number).ok()));
    }

    /// The address for a name's hash, or the next free one; `None` if all are taken.
    pub fn give(&mut self, name: Name<'_>, wildcard: bool) -> Option<IpAddr> {
        let first = stable_hash(name.as_wire(), wildcard.into()) % self.size;
        let mut numbers = (0..self.size).map(|tries| (first + tries) % self.size);
        let number = numbers.find(|&number| self.taken.insert(number))?;
        self.prefix.nth(u128::from(number) + 1)
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
