//! What a zone has, by name.

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
    /// Their TTL, in seconds: the lowest that one of them was given.
    pub ttl: u32,
    /// The data of each, in wire format, uncompressed; none where there are only signatures.
    pub data: Vec<Box<[u8]>>,
    /// The data of the RRSIG records that cover them.
    pub signatures: Vec<Box<[u8]>>,
}

/// What the names at and below one lead to instead of their records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Redirect {
    /// To other servers: there is a zone cut (RFC 1034 section 4.2).
    Delegation,
    /// To other names (RFC 6672).
    Dname,
}

/// What is at a name.
#[derive(Debug, Default)]
pub struct Node {
    /// The sets, by type; none: there is only something below the name (RFC 4592 section 2.2.2).
    pub sets: Vec<Set>,
    /// The topmost redirection that the name is subject to, with the length of the name where it is.
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

/// How it is proven that something does not exist.
#[derive(Debug)]
pub enum Chain {
    /// Not at all: the zone is not signed.
    None,
    /// By NSEC: the names that have such records, in canonical order.
    Nsec(Vec<Box<[u8]>>),
    /// By NSEC3 (RFC 5155).
    Nsec3(Hashed),
}

/// The NSEC3 records of a zone.
#[derive(Debug)]
pub struct Hashed {
    /// How often a hash is hashed once more.
    pub iterations: u16,
    /// What is hashed with each name.
    pub salt: Box<[u8]>,
    /// The hashes, the records that they own, in order.
    pub records: Vec<([u8; 20], Box<[u8]>, Set)>,
}

/// A zone as its files have it; it never changes.
pub struct Zone {
    /// Its name.
    pub origin: Name,
    /// Every name at or below which there is a record, lowercased.
    pub nodes: HashMap<Box<[u8]>, Node, RandomState>,
    /// How it is proven that something is not in it.
    pub chain: Chain,
    /// The serial of its SOA record.
    pub serial: u32,
    /// How many records it has.
    pub records: usize,
    /// About how many octets it takes.
    pub octets: usize,
    /// Every file that it was read from, and the digest of what was there.
    pub files: Vec<(PathBuf, [u8; 32])>,
}

impl Zone {
    /// What is at a name.
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

/// Zones that were read from the same are the same.
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
