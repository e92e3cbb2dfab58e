//! Networks as a table of steps: the addresses at which another network begins to decide.
//!
//! The smallest network that contains an address decides, whatever the order. That is computed when the table
//! is built: a lookup is a binary search, of five steps for the default networks.

use std::net::IpAddr;

use crate::config::{Network, left_aligned};

/// Whether networks allow the addresses in them.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct NetworkTable {
    v4: Vec<(u128, Option<bool>)>,
    v6: Vec<(u128, Option<bool>)>,
}

impl NetworkTable {
    /// Builds the table of these networks, each allowed or not.
    pub fn new(networks: &[(Network, bool)]) -> NetworkTable {
        let (v4, v6): (Vec<_>, Vec<_>) = networks
            .iter()
            .partition(|(network, _)| network.address.is_ipv4());
        NetworkTable {
            v4: family(&v4),
            v6: family(&v6),
        }
    }

    /// Whether the smallest network that contains the address is allowed; `None` if none contains it.
    pub fn find(&self, address: IpAddr) -> Option<bool> {
        let (_, at) = left_aligned(address);
        let steps = if address.is_ipv4() { &self.v4 } else { &self.v6 };
        let behind = steps.partition_point(|&(first, _)| first <= at);
        steps.get(behind.checked_sub(1)?)?.1
    }
}

fn family(networks: &[&(Network, bool)]) -> Vec<(u128, Option<bool>)> {
    let mut firsts: Vec<u128> = networks
        .iter()
        .flat_map(|(network, _)| {
            let (first, last) = network.bounds();
            [Some(first), last.checked_add(1)]
        })
        .flatten()
        .collect();
    firsts.sort_unstable();
    firsts.dedup();
    let steps = firsts.into_iter().map(|at| {
        let holding = networks.iter().filter(|(network, _)| {
            let (first, last) = network.bounds();
            (first..=last).contains(&at)
        });
        let smallest = holding.max_by_key(|(network, _)| network.length);
        (at, smallest.map(|&&(_, allowed)| allowed))
    });
    let mut steps: Vec<_> = steps.collect();
    steps.dedup_by_key(|&mut (_, says)| says);
    steps
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_families_are_apart() {
        let steps = NetworkTable::new(&[(Network::ANY[1], true)]);
        assert_eq!(steps.find("::ffff:1.2.3.4".parse().unwrap()), Some(true));
        assert_eq!(steps.find("1.2.3.4".parse().unwrap()), None);
        assert_eq!(NetworkTable::default().find("::1".parse().unwrap()), None);
    }

    proptest! {
        /// Gives the same result as checking every network.
        #[test]
        fn the_smallest_network_decides(
            networks in prop::collection::vec((any::<[u8; 4]>(), 0_u8..=32, any::<bool>(), any::<bool>()), 0..20),
            clients in prop::collection::vec(any::<[u8; 4]>(), 20),
        ) {
            // Few bits, so that networks overlap.
            let address = |bits: [u8; 4], v6: bool| -> IpAddr {
                let bits = bits.map(|octet| octet & 0x81);
                match v6 {
                    true => u128::from(u32::from_be_bytes(bits)).rotate_right(32).to_be_bytes().into(),
                    false => bits.into(),
                }
            };
            let mut rules: Vec<(Network, bool)> = Vec::new();
            for (bits, length, v6, allowed) in networks {
                let network = Network::of(address(bits, v6), length).unwrap();
                if !rules.iter().any(|(known, _)| *known == network) {
                    rules.push((network, allowed));
                }
            }
            let steps = NetworkTable::new(&rules);
            let ends = rules.iter().map(|(network, _)| network.address);
            for client in clients.into_iter().flat_map(|bits| [address(bits, false), address(bits, true)]).chain(ends) {
                let holding = rules.iter().filter(|(network, _)| network.contains(client));
                let expected = holding.max_by_key(|(network, _)| network.length).map(|(_, allowed)| *allowed);
                prop_assert_eq!(steps.find(client), expected, "{}", client);
            }
        }
    }
}
