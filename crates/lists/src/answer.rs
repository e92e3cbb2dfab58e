//! Answers for blocked names.

use std::net::IpAddr;
use std::sync::Arc;

use crate::dns::edns::ExtendedError;
use crate::dns::records::{Answer, Section};
use crate::dns::special::NOBODY;
use crate::dns::writer::{Writer, Written};
use crate::dns::{CLASS_IN, build, rcode, rtype};
use dnsweir_answer::{Question, Resolution};

/// Serial, refresh, retry and expire of the SOA record in a negative answer. No such zone is ever
/// transferred.
const NUMBERS: [u32; 4] = [1, 3600, 1200, 604_800];

/// The reply for a listed name.
pub(crate) struct Reply<'a> {
    /// The listed name in wire format: the qname, or a name above it.
    pub listed: &'a [u8],
    /// The rcode of an answer without records.
    pub rcode: u16,
    /// The name's addresses.
    pub addresses: &'a [IpAddr],
    /// TTL of all records, in seconds.
    pub ttl: u32,
    /// Why it is blocked, as text; `None` if it is not blocked but has these addresses.
    pub why: Option<String>,
}

impl Reply<'_> {
    /// Builds the answer to a question.
    pub fn to(self, question: &Question<'_>) -> Resolution {
        let mut asked = question.name.to_vec();
        asked.extend(question.qtype.to_be_bytes());
        asked.extend(question.qclass.to_be_bytes());
        let mut writer = Writer::new(&build::empty(&asked, self.rcode), asked.len(), question.room);
        let mut push = |section, owner, rtype, data: &[u8]| {
            writer.push(
                section,
                Written {
                    owner,
                    rtype,
                    class: CLASS_IN,
                    ttl: self.ttl,
                    data,
                },
            )
        };
        let mut found = false;
        for address in self.addresses {
            found |= match address {
                IpAddr::V4(v4) if question.qtype == rtype::A => {
                    push(Section::Answer, question.name, rtype::A, &v4.octets())
                }
                IpAddr::V6(v6) if question.qtype == rtype::AAAA => {
                    push(Section::Answer, question.name, rtype::AAAA, &v6.octets())
                }
                _ => false,
            };
        }
        if !found {
            // RFC 2308 section 2: the SOA record tells the client how long to cache the answer.
            push(
                Section::Authority,
                self.listed,
                rtype::SOA,
                &soa(self.listed, self.ttl),
            );
        }
        let Ok(mut answer) = Answer::read(writer.finish()) else {
            return Resolution::BOUNDED;
        };
        if let Some(why) = self.why {
            answer.error = Some(ExtendedError::Blocked.code());
            answer.error_text = why.into();
        }
        Resolution::Answer {
            answer: Arc::new(answer),
            authoritative: false,
        }
    }
}

fn soa(apex: &[u8], minimum: u32) -> Vec<u8> {
    let mut soa = [apex, NOBODY].concat();
    let numbers = NUMBERS.iter().chain([&minimum]);
    soa.extend(numbers.flat_map(|number| number.to_be_bytes()));
    soa
}

/// The rcode for a name that does not exist.
pub(crate) const DENIED: u16 = rcode::NXDOMAIN;

/// The rcode for a name that exists, with or without records.
pub(crate) const THERE: u16 = rcode::NOERROR;
