//! What queries are answered from: the hosts, and which host has which address of the ranges.
//!
//! A table is immutable. A change publishes a new one, which shares everything unchanged with the old.

use std::net::IpAddr;
use std::sync::Arc;

use rpds::HashTrieMapSync;

use super::entry::{Entry, Host, Rank};
use super::host_name::HostName;
use super::range;
use crate::config::Network;
use crate::kubernetes::known::Indexed;

type Map<K, V> = HashTrieMapSync<K, V, foldhash::fast::RandomState>;

type Hosts = Map<Box<[u8]>, Box<[Claim]>>;

/// All hosts at one time.
#[derive(Debug, Clone)]
pub struct Table {
    /// The objects with each host in order of precedence: hosts that are one name, and wildcards.
    names: Hosts,
    wildcards: Hosts,
    /// The hosts that hash to each address of the ranges; the first has it.
    given: Map<IpAddr, Box<[Holder]>>,
    ranges: Arc<[Network]>,
    /// Hosts without an address because another host has theirs.
    pub collisions: usize,
    /// Messages about that for the log.
    pub refused: Vec<String>,
}

/// An object's claim to a host.
#[derive(Debug, Clone, PartialEq)]
struct Claim {
    rank: Rank,
    addresses: Box<[IpAddr]>,
}

/// A host that hashes to an address.
#[derive(Debug, Clone, PartialEq, PartialOrd)]
struct Holder {
    rank: Rank,
    host: HostName,
}

impl Table {
    /// A table without hosts.
    pub fn new(ranges: &[Network]) -> Table {
        Table {
            names: Map::new_with_hasher_and_ptr_kind(Default::default()),
            wildcards: Map::new_with_hasher_and_ptr_kind(Default::default()),
            given: Map::new_with_hasher_and_ptr_kind(Default::default()),
            ranges: ranges.into(),
            collisions: 0,
            refused: Vec::new(),
        }
    }

    /// The addresses of a name; `None` if it is no host, or has none.
    pub fn addresses(&self, name: &[u8]) -> Option<Vec<IpAddr>> {
        let (host, wildcard, claims) = match self.names.get(name) {
            Some(claims) => (name, false, &**claims),
            None => {
                let (base, claims) = self.wildcard(name)?;
                (base, true, claims)
            }
        };
        let claim = claims.first()?;
        if !claim.addresses.is_empty() {
            return Some(claim.addresses.to_vec());
        }
        let all = self.ranges.iter();
        let all = all.map(|range| range::address(range, host, wildcard));
        let is_own = |address: &IpAddr| {
            let holder = self.holder(*address);
            holder.is_some_and(|holder| *holder.name == *host && holder.wildcard == wildcard)
        };
        let own: Vec<IpAddr> = all.filter(is_own).collect();
        (!own.is_empty()).then_some(own)
    }

    /// The closest wildcard above a name (RFC 4592 section 3.3.1).
    fn wildcard<'a>(&self, name: &'a [u8]) -> Option<(&'a [u8], &[Claim])> {
        let mut rest = name;
        loop {
            let (&length, tail) = rest.split_first().filter(|(length, _)| **length > 0)?;
            rest = tail.get(usize::from(length)..)?;
            if let Some(claims) = self.wildcards.get(rest) {
                return Some((rest, claims));
            }
        }
    }

    fn holder(&self, address: IpAddr) -> Option<&HostName> {
        Some(&self.given.get(&address)?.first()?.host)
    }

    /// How many hosts hash to an address that another host has.
    fn without(&self, address: IpAddr) -> usize {
        let holders = self.given.get(&address).map_or(&[][..], |holders| holders);
        let mut hosts: Vec<&HostName> = holders.iter().map(|holder| &holder.host).collect();
        hosts.sort_unstable();
        hosts.dedup();
        hosts.len().saturating_sub(1)
    }

    /// Changes the holders of the addresses that a host hashes to.
    fn change_holders(&mut self, host: &HostName, change: impl Fn(&mut Vec<Holder>)) {
        for range in &*Arc::clone(&self.ranges) {
            let address = range::address(range, &host.name, host.wildcard);
            let before = self.without(address);
            let mut holders = self
                .given
                .get(&address)
                .map_or_else(Vec::new, |holders| holders.to_vec());
            change(&mut holders);
            match holders.is_empty() {
                true => self.given.remove_mut(&address),
                false => {
                    self.given.insert_mut(address, holders.into());
                    true
                }
            };
            let after = self.without(address);
            self.collisions = self.collisions + after - before;
            if after > before {
                self.tell_of(address);
            }
        }
    }

    /// Reports the hosts that go without an address that another has.
    fn tell_of(&mut self, address: IpAddr) {
        let Some((first, others)) = self.given.get(&address).and_then(|holders| holders.split_first()) else {
            return;
        };
        let without = others.iter().filter(|other| other.host != first.host);
        let told = without.map(|other| {
            format!(
                "{} of {} has no address, because {address} belongs to {} of {}: give it one in `addresses`, or write a larger `range`",
                other.host, other.rank.name, first.host, first.rank.name
            )
        });
        let told: Vec<String> = told.collect();
        self.refused.extend(told);
    }

    fn hosts(&mut self, host: &HostName) -> &mut Hosts {
        match host.wildcard {
            true => &mut self.wildcards,
            false => &mut self.names,
        }
    }

    fn add(&mut self, rank: &Rank, host: &Host) {
        let hosts = self.hosts(&host.name);
        let known = hosts.get(&host.name.name);
        let mut claims = known.map_or_else(Vec::new, |claims| claims.to_vec());
        let claim = Claim {
            rank: rank.clone(),
            addresses: host.addresses.clone(),
        };
        let at = claims.partition_point(|other| other.rank <= claim.rank);
        claims.insert(at, claim);
        hosts.insert_mut(host.name.name.clone(), claims.into());
        if host.addresses.is_empty() {
            self.change_holders(&host.name, |holders| {
                let holder = Holder {
                    rank: rank.clone(),
                    host: host.name.clone(),
                };
                let at = holders.partition_point(|other| *other <= holder);
                holders.insert(at, holder);
            });
        }
    }

    fn remove(&mut self, rank: &Rank, host: &Host) {
        let hosts = self.hosts(&host.name);
        let claims = hosts.get(&host.name.name).map_or(&[][..], |claims| claims);
        let others = claims.iter().filter(|claim| claim.rank != *rank);
        let others: Box<[Claim]> = others.cloned().collect();
        match others.is_empty() {
            true => hosts.remove_mut(&host.name.name),
            false => {
                hosts.insert_mut(host.name.name.clone(), others);
                true
            }
        };
        if host.addresses.is_empty() {
            self.change_holders(&host.name, |holders| {
                holders.retain(|holder| holder.rank != *rank || holder.host != host.name);
            });
        }
    }
}

/// Bytes of an object without its hosts, and of each host, here and in the table.
const OBJECT: usize = 480;
const HOST: usize = 640;

impl Indexed<Table> for Entry {
    fn enter(self: &Arc<Self>, table: &mut Table) -> usize {
        self.hosts.iter().for_each(|host| table.add(&self.rank, host));
        0
    }

    fn leave(self: &Arc<Self>, table: &mut Table) {
        self.hosts.iter().for_each(|host| table.remove(&self.rank, host));
    }

    fn octets(&self) -> usize {
        let hosts = self.hosts.iter();
        let hosts: usize = hosts
            .map(|host| HOST + 4 * host.name.name.len() + 2 * size_of_val(&*host.addresses))
            .sum();
        OBJECT + hosts * (1 + self.rank.name.len() / 128)
    }
}
