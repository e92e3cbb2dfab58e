//! What a list says of names, as it was read last.

use std::collections::HashMap;
use std::net::IpAddr;

use super::hash::{Hash, Names};
use super::line::Rule;
use super::table::{Builder, Full, Reach, Table};

/// Octets that are counted for a name with an address.
const RECORD: usize = 128;

/// The names of a list.
#[derive(Debug, Default)]
pub(crate) struct Rules {
    block: Table,
    allow: Table,
    empty: Table,
    addresses: HashMap<Hash, Vec<IpAddr>>,
    octets: usize,
}

/// What a list says of a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Word<'r> {
    /// What it says of all of its names.
    Block,
    /// It has no records.
    Empty,
    /// It has these addresses.
    Addresses(&'r [IpAddr]),
}

impl Rules {
    /// How many names it has.
    pub fn names(&self) -> usize {
        let tables = [&self.block, &self.allow, &self.empty];
        tables.map(Table::len).iter().sum::<usize>() + self.addresses.len()
    }

    /// Octets that it takes, about.
    pub fn octets(&self) -> usize {
        self.octets
    }

    /// What it says of a name, and where the one begins within it for which it says so.
    #[inline]
    pub fn find(&self, names: &Names) -> Option<(Word<'_>, usize)> {
        if !self.addresses.is_empty()
            && let Some(addresses) = names.last().and_then(|hash| self.addresses.get(&hash))
        {
            return Some((Word::Addresses(addresses), 0));
        }
        let tables = [(&self.block, Word::Block), (&self.empty, Word::Empty)];
        let mut tables = tables.into_iter();
        tables.find_map(|(table, word)| Some((word, table.find(names)?)))
    }

    /// Whether it says that whoever has a name answers.
    pub fn allows(&self, names: &Names) -> bool {
        self.allow.find(names).is_some()
    }
}

/// The names of a list that is being read.
pub(crate) struct Reading {
    block: Builder,
    allow: Builder,
    empty: Builder,
    addresses: HashMap<Hash, Vec<IpAddr>>,
    /// Octets of those.
    with_addresses: usize,
    /// The most octets of all.
    most: usize,
}

impl Reading {
    /// Nothing yet, and room for so many octets.
    pub fn new(most: usize) -> Reading {
        Reading {
            block: Builder::default(),
            allow: Builder::default(),
            empty: Builder::default(),
            addresses: HashMap::new(),
            with_addresses: 0,
            most,
        }
    }

    /// Takes a name in.
    ///
    /// # Errors
    /// When there is no room for more.
    pub fn push(&mut self, hash: Hash, reach: Reach, rule: Rule) -> Result<(), Full> {
        match rule {
            Rule::Block => self.block.push(hash, reach),
            Rule::Allow => self.allow.push(hash, reach),
            Rule::Empty => self.empty.push(hash, reach),
            Rule::Address(address) => self.push_address(hash, address),
        }
        let built = [&self.block, &self.allow, &self.empty].map(Builder::octets);
        match built.iter().sum::<usize>() + self.with_addresses > self.most {
            true => Err(Full),
            false => Ok(()),
        }
    }

    fn push_address(&mut self, hash: Hash, address: IpAddr) {
        let known = self.addresses.entry(hash).or_default();
        if !known.contains(&address) {
            self.with_addresses += if known.is_empty() {
                RECORD
            } else {
                2 * size_of::<IpAddr>()
            };
            known.push(address);
        }
    }

    /// The whole.
    pub fn finish(self) -> Result<Rules, Full> {
        let mut rules = Rules {
            block: self.block.finish()?,
            allow: self.allow.finish()?,
            empty: self.empty.finish()?,
            addresses: self.addresses,
            octets: 0,
        };
        let tables = [&rules.block, &rules.allow, &rules.empty];
        rules.octets = tables.map(Table::octets).iter().sum::<usize>() + self.with_addresses;
        Ok(rules)
    }
}
