//! The contents of a zone file for transfers: every record.

use crate::dns::rtype;
use crate::dns::transfer::Record;
use crate::transfer::Contents;
use crate::zonefile::{Chain, Set, Zone};

impl Contents for Zone {
    fn soa(&self) -> Record {
        let origin = self.origin.as_bytes();
        let soa = self.node(origin).and_then(|apex| apex.set(rtype::SOA));
        let (ttl, data) = soa.map_or((0, Box::default()), |soa| (soa.ttl, soa.data[0].clone()));
        Record {
            owner: origin.into(),
            rtype: rtype::SOA,
            ttl,
            data,
        }
    }

    fn batches(&self) -> Box<dyn Iterator<Item = Vec<Record>> + '_> {
        let nodes = self.nodes.iter();
        let nodes = nodes.map(|(owner, node)| node.sets.iter().flat_map(|set| records(owner, set)).collect());
        let hashed = match &self.chain {
            Chain::Nsec3(hashed) => &hashed.records[..],
            Chain::None | Chain::Nsec(_) => &[],
        };
        let hashed = hashed.iter().map(|(_, owner, set)| (owner, set));
        // RFC 5936 section 2.2: all records, also those that the zone does not use.
        let hashed = hashed.chain(self.other_hashed.iter().map(|(owner, set)| (owner, set)));
        let hashed = hashed.map(|(owner, set)| records(owner, set).collect());
        Box::new(nodes.chain(hashed))
    }
}

/// The records of a set and their signatures, without the SOA record, which begins and ends a transfer.
fn records(owner: &[u8], set: &Set) -> impl Iterator<Item = Record> {
    let record = move |rtype: u16, data: &[u8]| Record {
        owner: owner.into(),
        rtype,
        ttl: set.ttl,
        data: data.into(),
    };
    let data = set.data.iter().filter(|_| set.rtype != rtype::SOA);
    let data = data.map(move |data| record(set.rtype, data));
    let signatures = set.signatures.iter();
    data.chain(signatures.map(move |data| record(rtype::RRSIG, data)))
}
