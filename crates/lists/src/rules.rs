//! The names of a list, and what to answer for them, as last read.

use std::collections::HashMap;
use std::net::IpAddr;

use super::hash::{Hash, Names};
use super::line::Rule;
use super::table::{Builder, Full, Reach, Table};

/// Bytes accounted for a name with an address.
const RECORD: usize = 128;

/// The names of a list.
#[derive(Debug, Default)]
pub(crate) struct Rules {
    block: Table,
    allow: Table,
    empty: Table,
    addresses: HashMap<Hash, Vec<IpAddr>>,
    /// Whether the rule for the longest name decides, as in a policy zone.
    by_length: bool,
    octets: usize,
}

/// A list's verdict on a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Word<'r> {
    /// Answered as the list is configured to.
    Block,
    /// Answered without records.
    Empty,
    /// Answered with these addresses.
    Addresses(&'r [IpAddr]),
}

impl Rules {
    /// Returns the number of names.
    pub fn names(&self) -> usize {
        let tables = [&self.block, &self.allow, &self.empty];
        tables.map(Table::len).iter().sum::<usize>() + self.addresses.len()
    }

    /// Returns its approximate size in bytes.
    pub fn octets(&self) -> usize {
        self.octets
    }

    /// Returns the verdict on a name, and the offset in it of the listed name.
    #[inline]
    pub fn find(&self, names: &Names) -> Option<(Word<'_>, usize)> {
        if !self.addresses.is_empty()
            && let Some(addresses) = names.last().and_then(|hash| self.addresses.get(&hash))
        {
            return Some((Word::Addresses(addresses), 0));
        }
        if self.by_length {
            return self.closest(names);
        }
        let tables = [(&self.block, Word::Block), (&self.empty, Word::Empty)];
        let mut tables = tables.into_iter();
        tables.find_map(|(table, word)| Some((word, table.find(names)?)))
    }

    /// Returns the verdict of the longest listed name: the name itself, or else the longest `*.` name
    /// (draft-vixie-dnsop-dns-rpz-00, "Domain Name Matching" precedence rule).
    fn closest(&self, names: &Names) -> Option<(Word<'_>, usize)> {
        let tables = [(&self.block, Word::Block), (&self.empty, Word::Empty)];
        let found = tables.into_iter();
        let found = found.filter_map(|(table, word)| Some((word, table.closest(names)?)));
        found.min_by_key(|(_, start)| *start)
    }

    /// Returns whether the list lets a name through.
    pub fn allows(&self, names: &Names) -> bool {
        if !self.by_length {
            return self.allow.find(names).is_some();
        }
        let is_closest = |start| self.find(names).is_none_or(|(_, other)| start <= other);
        self.allow.closest(names).is_some_and(is_closest)
    }
}

/// A list being read.
pub(crate) struct Reading {
    block: Builder,
    allow: Builder,
    empty: Builder,
    addresses: HashMap<Hash, Vec<IpAddr>>,
    /// Bytes accounted for `addresses`.
    with_addresses: usize,
    by_length: bool,
    /// The most bytes in total.
    most: usize,
}

impl Reading {
    /// Starts an empty list of at most `most` bytes; with `by_length`, the rule for the longest name decides.
    pub fn new(most: usize, by_length: bool) -> Reading {
        Reading {
            block: Builder::default(),
            allow: Builder::default(),
            empty: Builder::default(),
            addresses: HashMap::new(),
            with_addresses: 0,
            by_length,
            most,
        }
    }

    /// Adds a name.
    ///
    /// # Errors
    /// When it exceeds the limit.
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

    /// Builds the tables.
    pub fn finish(self) -> Result<Rules, Full> {
        let mut rules = Rules {
            block: self.block.finish()?,
            allow: self.allow.finish()?,
            empty: self.empty.finish()?,
            addresses: self.addresses,
            by_length: self.by_length,
            octets: 0,
        };
        let tables = [&rules.block, &rules.allow, &rules.empty];
        rules.octets = tables.map(Table::octets).iter().sum::<usize>() + self.with_addresses;
        Ok(rules)
    }
}
