//! Fuzz targets: parse bytes as a zone file and as an endpoint slice, query what was accepted, and check that
//! answers are messages that fit.

use super::file::File;
use super::kubernetes::fuzzing as kubernetes;
use crate::config::ZoneFile;
use crate::dns::name::Name;
use crate::dns::records::Answer;
use crate::dns::suffix_map::SuffixMap;
use crate::dns::{CLASS_IN, MESSAGE_MAXIMUM, rtype};
use crate::zonefile::{Bounds, read};
use dnsweir_answer::identity::Identity;
use dnsweir_answer::{Question, Resolution};

/// Memory limit of a zone and its file.
const MEMORY: usize = 1 << 20;

/// How many names of a zone are queried.
const NAMES: usize = 16;

/// Types queried for each name.
const TYPES: [u16; 8] = [
    rtype::A,
    rtype::SRV,
    rtype::MX,
    rtype::NS,
    rtype::CNAME,
    rtype::SOA,
    rtype::DS,
    rtype::ANY,
];

/// A zone file: either it is a zone, or it has at least one mistake. Queries names that it has, and names
/// below them.
pub fn zone(octets: &[u8]) {
    // One file per thread: tests run in parallel.
    let this = (std::process::id(), std::thread::current().id());
    let path = std::env::temp_dir().join(format!("dnsweir-fuzz-{this:?}.zone"));
    if std::fs::write(&path, octets).is_err() {
        return;
    }
    let zone = read(&path, "example.", Bounds { octets: MEMORY });
    let _ = std::fs::remove_file(&path);
    let zone = match zone {
        Ok(zone) => zone,
        Err(invalid) => {
            assert!(!invalid.mistakes.is_empty(), "what is wrong is said");
            return;
        }
    };
    assert!(zone.octets <= MEMORY, "{} octets", zone.octets);
    let mut names: Vec<Box<[u8]>> = zone.nodes.keys().cloned().collect();
    // Sorted, so that the same input queries the same names.
    names.sort_unstable();
    names.truncate(NAMES);
    let file = File::new(&ZoneFile {
        path,
        zones: vec![zone],
        fallthrough: Vec::new(),
        memory: MEMORY,
        transfer: None,
    });
    for name in &names {
        let below = [b"\x01x", &name[..]].concat();
        for name in [&name[..], &below] {
            asked(name, |question| file.immediate(question));
        }
    }
}

/// An endpoint slice in JSON: it is indexed or refused, and its service is queried.
pub fn slice(octets: &[u8]) {
    let Some(index) = kubernetes::index(octets) else {
        return;
    };
    let labels: [&[u8]; 3] = [b"", b"\x02_p\x04_tcp", b"\x01x"];
    for labels in labels {
        let name = [labels, b"\x03web\x03zoo\x03svc\x07cluster\x05local\0"].concat();
        asked(&name, |question| kubernetes::answer(&index, question));
    }
}

/// Queries a name for every type, with and without DNSSEC records, for a datagram and for a stream.
fn asked(name: &[u8], answer: impl Fn(&Question<'_>) -> Resolution) {
    if name.len() > crate::dns::name::NAME_MAXIMUM {
        return;
    }
    let (zone, zones) = (Name::ROOT, SuffixMap::default());
    for qtype in TYPES {
        for (room, dnssec_ok) in [(512, false), (MESSAGE_MAXIMUM, true)] {
            let resolution = answer(&Question {
                name,
                qtype,
                qclass: CLASS_IN,
                flags: 0,
                dnssec_ok,
                subnet: None,
                signed: None,
                room,
                client: [127, 0, 0, 1].into(),
                identity: &Identity::Unknown,
                zone: &zone,
                zones: &zones,
                tap: None,
                direct: true,
                traced: false,
            });
            if let Resolution::Answer { answer, .. } = resolution {
                assert!(
                    answer.message.len() <= room.max(512),
                    "{} octets",
                    answer.message.len()
                );
                assert!(
                    Answer::read(answer.message.clone()).is_ok(),
                    "an answer can be read"
                );
            }
        }
    }
}
