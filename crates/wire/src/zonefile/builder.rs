//! Builds a zone from records, and rejects what cannot be one.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::hash::BuildHasher as _;
use std::path::PathBuf;

use foldhash::fast::RandomState;

use super::canonical::compare;
use super::mistake::Wrong;
use super::zone::{Chain, Hashed, Node, OwnedSet, Redirect, Set, Zone};
use crate::dns::name::{Name, is_at_or_below};
use crate::dns::text::type_text;
use crate::dns::{rtype, u16_at, u32_at};

/// A signer that wants its zone accepted uses no more (RFC 9276 section 3.2); each query would pay for them.
const MOST_ITERATIONS: u16 = 150;

/// The hash algorithm of NSEC3: SHA-1 (RFC 5155 section 11).
const SHA1: u8 = 1;

/// The most records, or signatures, of one name and type: with their headers, more would fit into no message.
const MOST_IN_SET: usize = 5000;

/// The most types at one name: a lookup scans all of them.
const MOST_TYPES: usize = 100;

/// Up to this size, a set is scanned for duplicates; a larger one gets a hash table.
const FEW: usize = 16;

/// Bytes that a name, a set and a record take besides their contents.
const OVERHEAD: [usize; 3] = [112, 96, 16];

/// The indexes of a set's records, by hash of their data.
type Places = HashMap<u64, usize, RandomState>;

/// A zone under construction.
pub struct Builder {
    origin: Name,
    nodes: HashMap<Box<[u8]>, Node, RandomState>,
    /// The owners of NSEC3 records, which are no names of the zone (RFC 5155 section 7.2.8).
    hashed: BTreeMap<Box<[u8]>, Set>,
    /// The records of large sets, by owner and type and then by hash of their data.
    wide: HashMap<Vec<u8>, Places, RandomState>,
    records: usize,
    octets: usize,
    /// The limit of `octets`.
    most: usize,
}

impl Builder {
    /// A zone of this name without records, which may take `most` bytes.
    pub fn new(origin: &Name, most: usize) -> Builder {
        Builder {
            origin: origin.clone(),
            nodes: HashMap::default(),
            hashed: BTreeMap::new(),
            wide: HashMap::default(),
            records: 0,
            octets: 0,
            most,
        }
    }

    /// Adds a record. The owner must be lowercased.
    pub fn push(&mut self, owner: &[u8], rtype: u16, ttl: u32, data: Vec<u8>) -> Result<(), Wrong> {
        self.check(owner, rtype, &data)?;
        let covered = match rtype {
            rtype::RRSIG => u16_at(&data, 0),
            other => other,
        };
        let set = if covered == rtype::NSEC3 {
            let hashed = self.hashed.entry(owner.into());
            hashed.or_insert_with(|| {
                self.octets += owner.len() + OVERHEAD[0] + OVERHEAD[1];
                Set::new(rtype::NSEC3, ttl)
            })
        } else {
            if !self.nodes.contains_key(owner) {
                self.octets += owner.len() + OVERHEAD[0];
                self.nodes.insert(owner.into(), Node::default());
            }
            let sets = &mut self.nodes.entry(owner.into()).or_default().sets;
            match sets.iter().position(|set| set.rtype == covered) {
                Some(at) => &mut sets[at],
                None if sets.len() >= MOST_TYPES => {
                    let problem = format!("this name has records of more than {MOST_TYPES} types");
                    return Err(Wrong::new(problem, "remove some of them"));
                }
                None => {
                    self.octets += OVERHEAD[1];
                    sets.push(Set::new(covered, ttl));
                    let last = sets.len() - 1;
                    &mut sets[last]
                }
            }
        };
        let is_first = set.data.is_empty();
        let all = match rtype {
            rtype::RRSIG => &mut set.signatures,
            _ => &mut set.data,
        };
        // A duplicate record counts once (RFC 2181 section 5).
        let name = || [owner, &rtype.to_be_bytes(), &covered.to_be_bytes()].concat();
        if !is_new(all, &data, &mut self.wide, name) {
            return Ok(());
        }
        if all.len() >= MOST_IN_SET {
            return Err(too_many(owner, rtype));
        }
        self.octets += data.len() + OVERHEAD[2];
        self.records += 1;
        all.push(data.into_boxed_slice());
        // A set has one TTL (RFC 2181 section 5.2), and so have its signatures (RFC 4034 section 3).
        match rtype {
            rtype::RRSIG => {}
            _ if is_first => set.ttl = ttl,
            _ => set.ttl = set.ttl.min(ttl),
        }
        self.bound()
    }

    fn bound(&self) -> Result<(), Wrong> {
        match self.octets <= self.most {
            true => Ok(()),
            false => Err(Wrong::new(
                format!("the zone takes more than {} bytes of memory", self.most),
                "raise `memory` of this `file`, or split the zone",
            )),
        }
    }

    /// Whether a record may coexist with those already there.
    fn check(&self, owner: &[u8], rtype: u16, data: &[u8]) -> Result<(), Wrong> {
        if !is_at_or_below(owner, self.origin.as_bytes()) {
            let problem = format!("{} is not in the zone {}", Name::lowercased(owner), self.origin);
            return Err(Wrong::new(
                problem,
                "remove it, or end relative names without a dot",
            ));
        }
        let at_apex = owner == self.origin.as_bytes();
        let sets = self.nodes.get(owner).map_or(&[][..], |node| &node.sets);
        let has = |wanted: u16| sets.iter().any(|set| set.rtype == wanted && !set.data.is_empty());
        // These types allow only one record.
        let is_new = || {
            !sets
                .iter()
                .any(|set| set.rtype == rtype && set.data.iter().any(|known| **known == *data))
        };
        match rtype {
            rtype::SOA if !at_apex => {
                return Err(Wrong::new(
                    "an SOA record is below the name of the zone",
                    "remove it",
                ));
            }
            rtype::SOA | rtype::CNAME | rtype::DNAME if has(rtype) && is_new() => {
                let problem = format!("there is another {} record at this name", type_text(rtype));
                return Err(Wrong::new(problem, "keep one of them"));
            }
            rtype::NSEC3 if hash_in(owner, &self.origin).is_none() => {
                let help = "the first label is the hash in base32hex, 32 letters and digits";
                return Err(Wrong::new("the owner of this NSEC3 record is not a hash", help));
            }
            rtype::NSEC3PARAM if u16_at(data, 2) > MOST_ITERATIONS => {
                let problem = format!("NSEC3 hashes more than {MOST_ITERATIONS} times");
                return Err(Wrong::new(
                    problem,
                    "sign the zone with 0 iterations (RFC 9276 section 3.1)",
                ));
            }
            _ => {}
        }
        match beside_cname(rtype, sets) {
            Some(other) => {
                let problem = format!("there is a CNAME and a {} record at this name", type_text(other));
                Err(Wrong::new(
                    problem,
                    "a name with a CNAME has nothing else: remove one of them",
                ))
            }
            None => Ok(()),
        }
    }

    /// Returns the zone, if there is an SOA record.
    pub fn finish(mut self, files: Vec<(PathBuf, [u8; 32])>) -> Result<Zone, Wrong> {
        let apex = self.nodes.get(self.origin.as_bytes());
        let soa = apex
            .and_then(|apex| apex.set(rtype::SOA))
            .and_then(|set| set.data.first());
        let Some(serial) = soa.map(|soa| u32_at(soa, soa.len() - 20)) else {
            let problem = format!("there is no SOA record at {}", self.origin);
            return Err(Wrong::new(
                problem,
                "write one, or name the zone that the file has with `origin`",
            ));
        };
        self.insert_empty()?;
        self.redirect();
        let (chain, other_hashed) = self.chain();
        Ok(Zone {
            origin: self.origin,
            nodes: self.nodes,
            chain,
            other_hashed,
            serial,
            records: self.records,
            octets: self.octets,
            files,
        })
    }

    /// Adds names that exist only because of names below them (RFC 4592 section 2.2.2).
    fn insert_empty(&mut self) -> Result<(), Wrong> {
        let owners: Vec<Box<[u8]>> = self.nodes.keys().cloned().collect();
        for owner in owners {
            let mut name = &owner[..];
            while name.len() > self.origin.as_bytes().len() {
                name = &name[1 + usize::from(name[0])..];
                if self.nodes.contains_key(name) {
                    break;
                }
                self.octets += name.len() + OVERHEAD[0];
                // One record can need more than a hundred names: all of them may be far more than is allowed.
                self.bound()?;
                self.nodes.insert(name.into(), Node::default());
            }
        }
        Ok(())
    }

    /// Marks each name that lies at or below a zone cut, or below a DNAME.
    fn redirect(&mut self) {
        let apex = self.origin.as_bytes().len();
        let mut found = HashMap::<Box<[u8]>, Redirect, RandomState>::default();
        for (name, node) in &self.nodes {
            // If there are both, the cut wins: below it is another zone.
            if node.set(rtype::NS).is_some() && name.len() > apex {
                found.insert(name.clone(), Redirect::Delegation);
            } else if node.set(rtype::DNAME).is_some() {
                found.insert(name.clone(), Redirect::Dname);
            }
        }
        if found.is_empty() {
            return;
        }
        for (name, node) in &mut self.nodes {
            let (mut rest, mut topmost) = (&name[..], None);
            loop {
                match found.get(rest) {
                    Some(Redirect::Dname) if rest.len() == name.len() => {}
                    Some(redirect) => topmost = Some((rest.len() as u8, *redirect)),
                    None => {}
                }
                if rest.len() <= apex {
                    break;
                }
                rest = &rest[1 + usize::from(rest[0])..];
            }
            node.redirect = topmost;
        }
    }

    /// The records that prove what does not exist, and all other NSEC3 records. These are kept, since a chain
    /// may come before its NSEC3PARAM record (RFC 5155 section 10.4), and a secondary passes on what it got.
    fn chain(&mut self) -> (Chain, Vec<OwnedSet>) {
        let parameters_in_use = self.parameters();
        let hashed = std::mem::take(&mut self.hashed).into_iter();
        let Some((iterations, salt)) = parameters_in_use else {
            return (self.names_in_order(), hashed.collect());
        };
        let matching = |set: &Set| {
            set.data
                .iter()
                .any(|data| parameters(data) == Some((iterations, &*salt)))
        };
        let (mut records, mut others) = (Vec::new(), Vec::new());
        for (owner, set) in hashed {
            let hash = hash_in(&owner, &self.origin).filter(|_| matching(&set));
            match hash {
                Some(hash) => records.push((hash, owner, set)),
                None => others.push((owner, set)),
            }
        }
        records.sort_by_key(|(hash, ..)| *hash);
        let chain = Chain::Nsec3(Hashed {
            iterations,
            salt,
            records,
        });
        (chain, others)
    }

    /// The chain of a zone without NSEC3: the names with NSEC records.
    fn names_in_order(&self) -> Chain {
        let signed = self
            .nodes
            .iter()
            .filter(|(_, node)| node.set(rtype::NSEC).is_some());
        let mut names: Vec<Box<[u8]>> = signed.map(|(name, _)| name.clone()).collect();
        names.sort_by(|one, other| compare(one, other));
        match names.is_empty() {
            true => Chain::None,
            false => Chain::Nsec(names),
        }
    }

    /// The parameters of an NSEC3 chain that is present (RFC 5155 section 7.2).
    fn parameters(&self) -> Option<(u16, Box<[u8]>)> {
        let all = self.nodes.get(self.origin.as_bytes())?.set(rtype::NSEC3PARAM)?;
        let mut usable = all.data.iter().filter_map(|data| parameters(data));
        let (iterations, salt) = usable.find(|wanted| {
            let mut records = self.hashed.values().flat_map(|set| &set.data);
            records.any(|record| parameters(record) == Some(*wanted))
        })?;
        Some((iterations, salt.into()))
    }
}

/// Whether no record of a set has this data. A large set is looked up in `wide`, under the key from `set`, where
/// the record is noted if there is room for it in the set.
fn is_new(
    all: &[Box<[u8]>],
    data: &[u8],
    wide: &mut HashMap<Vec<u8>, Places, RandomState>,
    set: impl FnOnce() -> Vec<u8>,
) -> bool {
    if all.len() < FEW {
        return !all.iter().any(|known| **known == *data);
    }
    let places = wide.entry(set()).or_default();
    let hash = |places: &Places, data: &[u8]| places.hasher().hash_one(data);
    if places.is_empty() {
        for (at, known) in all.iter().enumerate() {
            places.insert(hash(places, known), at);
        }
    }
    match places.entry(hash(places, data)) {
        Entry::Vacant(place) => {
            if all.len() < MOST_IN_SET {
                place.insert(all.len());
            }
            true
        }
        // Another record with the same hash: practically never.
        Entry::Occupied(place) => *all[*place.get()] != *data && !all.iter().any(|known| **known == *data),
    }
}

fn too_many(owner: &[u8], rtype: u16) -> Wrong {
    let problem = format!(
        "{} has more than {MOST_IN_SET} {} records, more than fit into any message",
        Name::lowercased(owner),
        type_text(rtype)
    );
    Wrong::new(problem, "give some of them other names")
}

impl Set {
    fn new(rtype: u16, ttl: u32) -> Set {
        Set {
            rtype,
            ttl,
            data: Vec::new(),
            signatures: Vec::new(),
        }
    }
}

/// Iterations and salt, at the same offsets in NSEC3 and NSEC3PARAM.
fn parameters(data: &[u8]) -> Option<(u16, &[u8])> {
    let salt = data.get(5..5 + usize::from(*data.get(4)?))?;
    (data[0] == SHA1).then(|| (u16_at(data, 2), salt))
}

/// The type that conflicts with a CNAME, if adding a record of this type would bring both together (RFC 1034
/// section 3.6.2, RFC 4035 section 2.5).
fn beside_cname(rtype: u16, sets: &[Set]) -> Option<u16> {
    let may = |rtype: u16| {
        matches!(
            rtype,
            rtype::CNAME | rtype::RRSIG | rtype::NSEC | rtype::NSEC3 | 25
        )
    };
    let mut there = sets
        .iter()
        .filter(|set| !set.data.is_empty())
        .map(|set| set.rtype);
    match rtype {
        rtype::CNAME => there.find(|there| !may(*there)),
        other => (!may(other) && there.any(|there| there == rtype::CNAME)).then_some(other),
    }
}

/// The hash in the first label of a name in the zone, in base32hex (RFC 5155 section 1.3, RFC 4648 section
/// 7).
fn hash_in(owner: &[u8], origin: &Name) -> Option<[u8; 20]> {
    let label = owner.strip_suffix(origin.as_bytes())?.strip_prefix(&[32])?;
    if label.len() != 32 {
        return None;
    }
    let mut hash = [0; 20];
    for (digits, octets) in label.chunks_exact(8).zip(hash.chunks_exact_mut(5)) {
        let number = digits.iter().try_fold(0_u64, |number, digit| {
            let value = match digit {
                b'0'..=b'9' => digit - b'0',
                b'a'..=b'v' => digit - b'a' + 10,
                _ => return None,
            };
            Some(number << 5 | u64::from(value))
        })?;
        octets.copy_from_slice(&number.to_be_bytes()[3..]);
    }
    Some(hash)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ORIGIN: &[u8] = b"\x07example\0";

    fn builder(most: usize) -> Builder {
        let mut builder = Builder::new(&Name::lowercased(ORIGIN), most);
        let soa = [&b"\0\0"[..], &[0; 20]].concat();
        builder.push(ORIGIN, rtype::SOA, 60, soa).unwrap();
        builder
    }

    /// Twenty names of 123 labels lie below 2420 others, which take 590 000 bytes.
    #[test]
    fn empty_names_are_within_the_bound() {
        let mut builder = builder(100_000);
        for number in 0..20 {
            let owner = [&b"\x01x".repeat(121)[..], &[1, b'a' + number], ORIGIN].concat();
            builder.push(&owner, rtype::A, 60, vec![192, 0, 2, 1]).unwrap();
        }
        let wrong = builder.insert_empty().unwrap_err();
        assert_eq!(wrong.problem, "the zone takes more than 100000 bytes of memory");
        // Each name takes at least its overhead.
        assert!(builder.nodes.len() <= builder.most / OVERHEAD[0]);
        assert!(builder.octets <= builder.most + OVERHEAD[0] + 255);
    }

    /// Their owners and sets take memory, too.
    #[test]
    fn nsec3_records_are_charged_in_full() {
        let mut builder = builder(100_000);
        let before = builder.octets;
        for digit in *b"0123456789" {
            let owner = [&[32][..], &[digit; 32], ORIGIN].concat();
            builder
                .push(&owner, rtype::NSEC3, 60, vec![1, 0, 0, 0, 0, 0])
                .unwrap();
        }
        assert!(builder.octets - before >= 10 * OVERHEAD.iter().sum::<usize>());
    }
}
