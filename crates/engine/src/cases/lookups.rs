//! The answers to a filter's lookups in its test cases.
//!
//! ```kdl
//! lookup "banner.example.list.test" "A" { record "banner.example.list.test." 300 "A" "127.0.0.2" }
//! lookup "slow.example" "TXT" status="timed-out"
//! ```

use std::collections::HashMap;

use kdl::KdlNode;

use super::given::{ANSWERS, push_record};
use super::values::{origin, query_name, query_type, rcode};
use crate::config::decode::{Decoder, Shape, arguments, block, word};
use crate::dns::name::Name;
use crate::dns::{CLASS_IN, Origin, build, rcode};
use crate::filter::{Ask, Found, LookupStatus};

const LOOKUP: Shape = Shape {
    example: r#"lookup "www.example" "A" { record "www.example." 300 "A" "192.0.2.1" }"#,
    arguments: 2..=2,
    properties: &["rcode", "status", "source"],
    children: &["record"],
    repeated: &["record"],
};

const STATUSES: [(&str, LookupStatus); 4] = [
    ("answered", LookupStatus::Answered),
    ("failed", LookupStatus::Failed),
    ("timed-out", LookupStatus::TimedOut),
    ("limited", LookupStatus::Limited),
];

/// Answers by name and type, whatever the path of the lookup. All other names do not exist.
#[derive(Debug, Clone, Default)]
pub struct Lookups(HashMap<(Vec<u8>, u16), (Found, Vec<u8>)>);

impl Lookups {
    /// Decodes a `lookup` node and adds it.
    pub(super) fn decode(&mut self, decoder: &mut Decoder, node: &KdlNode) {
        decoder.check(node, &LOOKUP);
        let mut given = arguments(node);
        let (name, qtype) = (given.next(), given.next());
        let name = name.and_then(|entry| decoder.value("name", entry, query_name));
        let qtype = qtype.and_then(|entry| decoder.value("type", entry, query_type));
        let status = decoder.property(node, "status", word(&STATUSES));
        let rcode = rcode(decoder, node);
        let source = origin(decoder, node);
        let (Some(name), Some(qtype)) = (name, qtype) else {
            return;
        };
        let mut message = build::empty(&question(name.as_bytes(), qtype), rcode);
        let mut ttls = Vec::new();
        for record in block(node) {
            ttls.extend(push_record(decoder, record, ANSWERS, &mut message));
        }
        let found = match status {
            None | Some(LookupStatus::Answered) => {
                let (ttl, count) = (ttls.iter().min(), ttls.len());
                let found = found(rcode, ttl.copied().unwrap_or(0), count as u16);
                (Found { source, ..found }, message)
            }
            Some(status) => {
                let lost = found(rcode::SERVFAIL, 0, 0);
                (Found { status, ..lost }, Vec::new())
            }
        };
        self.0.insert((name.as_bytes().to_vec(), qtype), found);
    }

    /// The answers to these lookups.
    pub(super) fn answer(&self, ask: &Ask) -> Vec<(Found, Vec<u8>)> {
        let answers = ask.lookups.iter().map(|lookup| {
            let name = Name::lowercased(&lookup.name);
            let known = self.0.get(&(name.as_bytes().to_vec(), lookup.qtype));
            known.cloned().unwrap_or_else(|| {
                let message = build::empty(&question(name.as_bytes(), lookup.qtype), rcode::NXDOMAIN);
                (found(rcode::NXDOMAIN, 0, 0), message)
            })
        });
        answers.collect()
    }
}

fn found(rcode: u16, ttl: u32, answer_count: u16) -> Found {
    Found {
        status: LookupStatus::Answered,
        rcode,
        source: Origin::Upstream,
        ttl,
        answer_count,
    }
}

fn question(name: &[u8], qtype: u16) -> Vec<u8> {
    [name, &qtype.to_be_bytes()[..], &CLASS_IN.to_be_bytes()].concat()
}
