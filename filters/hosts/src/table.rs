//! A table of names and their records, with the rules of DNS for existence and wildcards.

use std::collections::HashSet;
use std::net::IpAddr;

use dnsweir_filter::{Name, NameBuf, NameMap};

/// The records of a name, in the order of the configuration.
#[derive(Debug, Default)]
pub struct Records {
    /// For `A` and `AAAA`.
    pub addresses: Vec<IpAddr>,
    /// For `PTR`.
    pub names: Vec<NameBuf>,
}

/// A name that exists.
#[derive(Debug, Default)]
struct Entry {
    records: Option<Records>,
    /// The records of nonexistent names below this one. Boxed, because it is rare and tables are large.
    wildcard: Option<Box<Records>>,
    /// Whether this is the apex of a zone.
    zone: bool,
}

/// The table.
#[derive(Debug, Default)]
pub struct Table {
    entries: NameMap<Entry>,
    /// All entries so far, to find duplicates while the table is built: a block list has one address with
    /// every name.
    listed: HashSet<(NameBuf, Listed)>,
}

/// An entry of a name.
#[derive(Debug, PartialEq, Eq, Hash)]
enum Listed {
    Address(IpAddr),
    /// An address of a wildcard.
    Below(IpAddr),
    Name(NameBuf),
}

/// The result of a lookup.
pub enum Found<'t> {
    /// The name is listed, or covered by a wildcard.
    Records(&'t Records),
    /// The name is not listed, but names below it are.
    Inner,
    /// The name does not exist here.
    Nothing,
}

impl Table {
    /// Adds a zone. Returns false if it exists already.
    pub fn add_zone(&mut self, apex: NameBuf) -> bool {
        !std::mem::replace(&mut self.entries.entry(apex).zone, true)
    }

    /// Adds an address. Returns false if it exists already.
    pub fn add_address(&mut self, name: NameBuf, address: IpAddr) -> bool {
        let new = self.listed.insert((name.clone(), Listed::Address(address)));
        if new {
            let records = self.entries.entry(name).records.get_or_insert_default();
            records.addresses.push(address);
        }
        new
    }

    /// Adds an address to the wildcard below `base`. Returns false if it exists already.
    pub fn add_wildcard(&mut self, base: NameBuf, address: IpAddr) -> bool {
        let new = self.listed.insert((base.clone(), Listed::Below(address)));
        if new {
            let records = self.entries.entry(base).wildcard.get_or_insert_default();
            records.addresses.push(address);
        }
        new
    }

    /// Adds a PTR record.
    pub fn add_pointer(&mut self, address: IpAddr, name: NameBuf) {
        let reverse = NameBuf::reverse(address);
        if self.listed.insert((reverse.clone(), Listed::Name(name.clone()))) {
            let records = self.entries.entry(reverse).records.get_or_insert_default();
            records.names.push(name);
        }
    }

    /// The names at or below which the table may have an answer.
    pub fn reach(&self) -> impl Iterator<Item = &NameBuf> {
        self.entries.iter().map(|(name, _)| name)
    }

    /// Adds the empty names between the listed names and the zone or wildcard above them: a name exists if a
    /// name below it does (RFC 4592 section 2.2.2). Call it once, after all other entries have been added.
    pub fn complete(&mut self) {
        self.listed = HashSet::new();
        let mut missing = Vec::new();
        for name in self.reach() {
            let anchors = self
                .entries
                .suffixes(name)
                .filter(|(_, entry)| entry.zone || entry.wildcard.is_some());
            let Some((top, _)) = anchors.last() else { continue };
            let between = name.as_name().ancestors().take_while(|between| *between != top);
            missing.extend(
                between
                    .filter(|between| self.entries.get(*between).is_none())
                    .map(NameBuf::from),
            );
        }
        for name in missing {
            self.entries.entry(name);
        }
    }

    /// Looks up a name according to RFC 4592 section 3.3.1: a wildcard covers a name only if the closest
    /// existing name above it is the wildcard's parent.
    pub fn find(&self, name: Name<'_>) -> Found<'_> {
        let Some((closest, entry)) = self.entries.suffixes(name).next() else {
            return Found::Nothing;
        };
        match (&entry.records, &entry.wildcard) {
            (Some(records), _) if closest == name => Found::Records(records),
            (None, _) if closest == name => Found::Inner,
            (_, Some(wildcard)) => Found::Records(wildcard),
            _ => Found::Nothing,
        }
    }

    /// The zone that a name is in.
    pub fn zone_of<'n>(&self, name: Name<'n>) -> Option<Name<'n>> {
        self.entries
            .suffixes(name)
            .find(|(_, entry)| entry.zone)
            .map(|(apex, _)| apex)
    }
}
