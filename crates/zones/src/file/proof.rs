//! Proofs that something does not exist in a signed zone (RFC 4035 section 3.1.3, RFC 5155 section 7.2).

use ring::digest::{Context, SHA1_FOR_LEGACY_USE_ONLY};

use super::lookup::{ending, next_closer, parent, wildcard};
use super::message::Message;
use crate::dns::records::Section;
use crate::dns::rtype;
use crate::zonefile::{Chain, Hashed, Set, Zone, compare};

/// The MINIMUM field of an SOA record (RFC 2308 section 4).
pub fn minimum(soa: &Set) -> u32 {
    let last = soa.data.first().and_then(|data| data.last_chunk());
    last.map_or(0, |minimum| u32::from_be_bytes(*minimum))
}

/// Adds the proof that neither the name nor a wildcard for it exists.
pub(crate) fn name_error<'z>(message: &mut Message<'z, '_>, zone: &'z Zone, name: &[u8], encloser: usize) {
    let source = wildcard(ending(name, encloser));
    match &zone.chain {
        Chain::None => {}
        // RFC 4035 section 3.1.3.2.
        Chain::Nsec(names) => {
            push_covering(message, zone, names, name);
            push_covering(message, zone, names, &source);
        }
        // RFC 5155 section 7.2.2.
        Chain::Nsec3(hashed) => {
            closest_encloser(message, zone, hashed, name, encloser);
            push_hashed_covering(message, hashed, &source);
        }
    }
}

/// Adds the proof that a name has no records of the type. `own` is the name that would have them: `name`
/// itself, or a wildcard that stands for it, below the name of length `encloser`.
pub fn no_data<'z>(
    message: &mut Message<'z, '_>,
    zone: &'z Zone,
    name: &[u8],
    own: &[u8],
    encloser: Option<usize>,
) {
    match (&zone.chain, encloser) {
        (Chain::None, _) => {}
        // RFC 4035 section 3.1.3.1. An empty name has no NSEC record: the one before it proves that it is
        // empty.
        (Chain::Nsec(names), encloser) => {
            push_covering(message, zone, names, own);
            // RFC 4035 section 3.1.3.4.
            if encloser.is_some() {
                push_covering(message, zone, names, name);
            }
        }
        // RFC 5155 section 7.2.5.
        (Chain::Nsec3(hashed), Some(encloser)) => {
            closest_encloser(message, zone, hashed, name, encloser);
            push_matching(message, hashed, own);
        }
        // RFC 5155 sections 7.2.3 and 7.2.4: a name without an NSEC3 record lies below an opt-out span.
        (Chain::Nsec3(hashed), None) => {
            if !push_matching(message, hashed, name) {
                closest_encloser(message, zone, hashed, name, parent(name).len());
            }
        }
    }
}

/// Adds the proof that a name answered from a wildcard does not exist.
pub(crate) fn expansion<'z>(message: &mut Message<'z, '_>, zone: &'z Zone, name: &[u8], encloser: usize) {
    match &zone.chain {
        Chain::None => {}
        // RFC 4035 section 3.1.3.3.
        Chain::Nsec(names) => push_covering(message, zone, names, name),
        // RFC 5155 section 7.2.6.
        Chain::Nsec3(hashed) => push_hashed_covering(message, hashed, next_closer(name, encloser)),
    }
}

/// Adds the proof that a child zone is not signed (RFC 4035 section 3.1.4, RFC 5155 section 7.2.7).
pub(crate) fn no_signers<'z>(message: &mut Message<'z, '_>, zone: &'z Zone, cut: &[u8]) {
    no_data(message, zone, cut, cut, None);
}

/// Adds the NSEC record of a name, or of the last name before it.
fn push_covering<'z>(message: &mut Message<'z, '_>, zone: &'z Zone, names: &'z [Box<[u8]>], name: &[u8]) {
    let behind = names.partition_point(|known| compare(known, name).is_le());
    let Some(owner) = behind.checked_sub(1).and_then(|at| names.get(at)) else {
        return;
    };
    if let Some(set) = zone.node(owner).and_then(|node| node.set(rtype::NSEC)) {
        message.push(Section::Authority, owner, set);
    }
}

/// Adds the NSEC3 record of the closest name above that has one, and the one that covers the next closer name
/// (RFC 5155 section 7.2.1).
fn closest_encloser<'z>(
    message: &mut Message<'z, '_>,
    zone: &'z Zone,
    hashed: &'z Hashed,
    name: &[u8],
    encloser: usize,
) {
    let mut above = ending(name, encloser);
    while !push_matching(message, hashed, above) {
        if above.len() <= zone.origin.as_bytes().len() {
            return;
        }
        above = parent(above);
    }
    push_hashed_covering(message, hashed, next_closer(name, above.len()));
}

/// Adds the NSEC3 record of a name. Returns whether there is one.
fn push_matching<'z>(message: &mut Message<'z, '_>, hashed: &'z Hashed, name: &[u8]) -> bool {
    let hash = hash(hashed, name);
    let found = hashed.records.binary_search_by_key(&hash, |(hash, ..)| *hash);
    if let Ok(at) = found {
        push_hashed(message, hashed, at);
    }
    found.is_ok()
}

/// Adds the NSEC3 record whose span covers the hash of a name.
fn push_hashed_covering<'z>(message: &mut Message<'z, '_>, hashed: &'z Hashed, name: &[u8]) {
    let hash = hash(hashed, name);
    let behind = hashed.records.partition_point(|(known, ..)| *known <= hash);
    // Hashes before the first record are covered by the last.
    if let Some(at) = behind.checked_sub(1).or(hashed.records.len().checked_sub(1)) {
        push_hashed(message, hashed, at);
    }
}

fn push_hashed<'z>(message: &mut Message<'z, '_>, hashed: &'z Hashed, at: usize) {
    let (_, owner, set) = &hashed.records[at];
    message.push(Section::Authority, owner, set);
}

/// The NSEC3 hash of a name (RFC 5155 section 5).
fn hash(hashed: &Hashed, name: &[u8]) -> [u8; 20] {
    let mut hash = [0; 20];
    for round in 0..=hashed.iterations {
        let mut context = Context::new(&SHA1_FOR_LEGACY_USE_ONLY);
        context.update(if round == 0 { name } else { &hash });
        context.update(&hashed.salt);
        hash.copy_from_slice(context.finish().as_ref());
    }
    hash
}
