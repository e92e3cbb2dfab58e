//! Names and what is known about them: a small piece of the name space, with its rules.

use std::collections::HashSet;
use std::net::IpAddr;

use dnsweir_filter::{Name, NameBuf, NameMap};

/// What a name has. Kept in the order it is written.
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
    /// What names below have that do not exist. Boxed because it is rare and tables are large.
    wildcard: Option<Box<Records>>,
    /// Whether a zone begins here.
    zone: bool,
}

/// The table.
#[derive(Debug, Default)]
pub struct Table {
    entries: NameMap<Entry>,
    /// All that is listed, by name, until everything is in: a block list has one address with every name there is.
    listed: HashSet<(NameBuf, Listed)>,
}

/// Something that a name has.
#[derive(Debug, PartialEq, Eq, Hash)]
enum Listed {
    Address(IpAddr),
    /// An address of those below.
    Below(IpAddr),
    Name(NameBuf),
}

/// What the table knows about a name.
pub enum Found<'t> {
    /// The name is listed, or a wildcard covers it.
    Records(&'t Records),
    /// The name is not listed, but names below it are.
    Inner,
    /// The name does not exist here.
    Nothing,
}

impl Table {
    /// Begins a zone. False if there is one.
    pub fn add_zone(&mut self, apex: NameBuf) -> bool {
        !std::mem::replace(&mut self.entries.entry(apex).zone, true)
    }

    /// Lists an address. False if it is listed.
    pub fn add_address(&mut self, name: NameBuf, address: IpAddr) -> bool {
        let new = self.listed.insert((name.clone(), Listed::Address(address)));
        if new {
            let records = self.entries.entry(name).records.get_or_insert_default();
            records.addresses.push(address);
        }
        new
    }

    /// Lists an address of the names below `base` that do not exist. False if it is listed.
    pub fn add_wildcard(&mut self, base: NameBuf, address: IpAddr) -> bool {
        let new = self.listed.insert((base.clone(), Listed::Below(address)));
        if new {
            let records = self.entries.entry(base).wildcard.get_or_insert_default();
            records.addresses.push(address);
        }
        new
    }

    /// Lists the name of an address.
    pub fn add_pointer(&mut self, address: IpAddr, name: NameBuf) {
        let reverse = NameBuf::reverse(address);
        if self.listed.insert((reverse.clone(), Listed::Name(name.clone()))) {
            let records = self.entries.entry(reverse).records.get_or_insert_default();
            records.names.push(name);
        }
    }

    /// The names at or below which the table knows anything.
    pub fn reach(&self) -> impl Iterator<Item = &NameBuf> {
        self.entries.iter().map(|(name, _)| name)
    }

    /// Adds the names between those that are listed and the zone or wildcard above them: a name exists
    /// if one below it does (RFC 4592 section 2.2.2). Once, after everything else is in.
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

    /// Looks a name up as RFC 4592 section 3.3.1 has it: a wildcard covers a name if the closest name
    /// above it that exists is the wildcard's own parent.
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
