//! The contents of a zone, by name.

use std::collections::HashMap;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::path::PathBuf;

use foldhash::fast::RandomState;

use crate::dns::name::Name;

/// The records of one name and type (RFC 2181 section 5).
#[derive(Debug)]
pub struct Set {
    /// Their type.
    pub rtype: u16,
    /// Their TTL, in seconds: the lowest of those given.
    pub ttl: u32,
    /// The data of each, in uncompressed wire format; empty if there are only signatures.
    pub data: Vec<Box<[u8]>>,
    /// The data of the RRSIG records that cover them.
    pub signatures: Vec<Box<[u8]>>,
}

/// What names at or below a name are redirected to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Redirect {
    /// Other servers: there is a zone cut (RFC 1034 section 4.2).
    Delegation,
    /// Other names (RFC 6672).
    Dname,
}

/// The contents of a name.
#[derive(Debug, Default)]
pub struct Node {
    /// The sets, by type; empty if there are only names below it (RFC 4592 section 2.2.2).
    pub sets: Vec<Set>,
    /// The topmost redirection that applies to the name, and the length of the name that has it.
    pub redirect: Option<(u8, Redirect)>,
}

impl Node {
    /// The records of a type.
    pub fn set(&self, rtype: u16) -> Option<&Set> {
        self.sets
            .iter()
            .find(|set| set.rtype == rtype && !set.data.is_empty())
    }
}

/// How the zone proves that a name or type does not exist.
#[derive(Debug)]
pub enum Chain {
    /// Not at all: the zone is not signed.
    None,
    /// With NSEC: the names that have such records, in canonical order.
    Nsec(Vec<Box<[u8]>>),
    /// With NSEC3 (RFC 5155).
    Nsec3(Hashed),
}

/// The NSEC3 records of a zone.
#[derive(Debug)]
pub struct Hashed {
    /// The number of additional hash iterations.
    pub iterations: u16,
    /// The salt hashed with each name.
    pub salt: Box<[u8]>,
    /// The hashes in order, each with its owner name and records.
    pub records: Vec<([u8; 20], Box<[u8]>, Set)>,
}

/// A set and the name that owns it, in lower case.
pub(super) type OwnedSet = (Box<[u8]>, Set);

/// A zone as its files define it; immutable.
pub struct Zone {
    /// Its name.
    pub origin: Name,
    /// Every name that has a record at or below it, lowercased.
    pub nodes: HashMap<Box<[u8]>, Node, RandomState>,
    /// The records that prove that a name or type does not exist.
    pub chain: Chain,
    /// The other NSEC3 records, with their owners, which prove nothing: their NSEC3PARAM record has not come
    /// yet, or has gone before them (RFC 5155 sections 10.4 and 10.5).
    pub other_hashed: Vec<OwnedSet>,
    /// The serial of its SOA record.
    pub serial: u32,
    /// How many records it has.
    pub records: usize,
    /// Its approximate size in memory, in bytes.
    pub octets: usize,
    /// Every file that it was read from, and the digest of its contents.
    pub files: Vec<(PathBuf, [u8; 32])>,
}

impl Zone {
    /// The contents of a name.
    pub fn node(&self, name: &[u8]) -> Option<&Node> {
        self.nodes.get(name)
    }
}

impl fmt::Debug for Zone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Zone({}, serial {}, {} records)",
            self.origin, self.serial, self.records
        )
    }
}

/// Zones read from the same files are equal.
impl PartialEq for Zone {
    fn eq(&self, other: &Zone) -> bool {
        self.origin == other.origin && self.files == other.files
    }
}

impl Eq for Zone {}

impl Hash for Zone {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.origin.as_bytes().hash(state);
        self.files.hash(state);
    }
}
