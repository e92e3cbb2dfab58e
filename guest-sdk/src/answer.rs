//! Answers that a filter makes itself.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use crate::bindings::dnsweir::filter::types as raw;
use crate::verdict::seconds;
use crate::{ExtendedError, Name, NameBuf, Query, Rcode, Record, Section, Type};

/// A complete answer. The host fills in question, ID, flags and EDNS.
///
/// ```
/// use std::time::Duration;
/// use dnsweir_filter::{Answer, NameBuf, Rdata, Verdict};
/// # fn main() -> Result<(), dnsweir_filter::NameError> {
/// let name: NameBuf = "hello.demo.test".parse()?;
/// let minute = Duration::from_secs(60);
/// let answer = Answer::noerror().record(&name, minute, Rdata::A([127, 0, 0, 53].into()));
/// let verdict = Verdict::answer(answer).remember(minute);
/// # let _ = verdict; Ok(()) }
/// ```
#[derive(Debug, Clone, PartialEq)]
#[must_use]
pub struct Answer(raw::Answer);

impl Answer {
    /// An answer with this rcode, without records.
    pub fn new(rcode: Rcode) -> Answer {
        Answer(raw::Answer {
            rcode: rcode.0,
            authoritative: false,
            answers: Vec::new(),
            authority: Vec::new(),
            additional: Vec::new(),
            error: None,
        })
    }

    /// An empty answer with NOERROR, to add records to.
    pub fn noerror() -> Answer {
        Answer::new(Rcode::NOERROR)
    }

    /// An answer that says that the name does not exist. The SOA bounds how long clients may cache it (RFC
    /// 2308 section 2.1).
    pub fn nxdomain(soa: &Soa) -> Answer {
        Answer::new(Rcode::NXDOMAIN).denied_by(soa)
    }

    /// An answer that says that the name exists, but not with this type (RFC 2308 section 2.2).
    pub fn nodata(soa: &Soa) -> Answer {
        Answer::noerror().denied_by(soa)
    }

    /// The answer for a host that has these addresses and no other records: those of the type asked for, or a
    /// NODATA answer with the same TTL.
    pub fn of_host(query: &Query<'_>, addresses: &[IpAddr], ttl: Duration) -> Answer {
        let name = query.name();
        let mut answer = Answer::noerror();
        for &address in addresses {
            let rtype = if address.is_ipv4() { Type::A } else { Type::AAAA };
            if [rtype, Type::ANY].contains(&query.qtype()) {
                answer = answer.record(name, ttl, Rdata::address(address));
            }
        }
        if answer.is_empty() {
            return Answer::nodata(&Soa::new(name.into(), ttl));
        }
        answer
    }

    fn denied_by(self, soa: &Soa) -> Answer {
        self.authority(&soa.zone, soa.ttl, Rdata::Soa(soa.clone()))
    }

    /// Marks the answer as authoritative.
    pub fn authoritative(mut self) -> Answer {
        self.0.authoritative = true;
        self
    }

    /// Adds an extended DNS error.
    pub fn error(mut self, error: ExtendedError) -> Answer {
        self.0.error = Some(error.into_raw());
        self
    }

    /// Whether the answer section is empty.
    pub fn is_empty(&self) -> bool {
        self.0.answers.is_empty()
    }

    /// Adds a record of class IN to the answer section.
    pub fn record<'b>(self, name: impl Into<Name<'b>>, ttl: Duration, rdata: Rdata) -> Answer {
        self.append(Section::Answer, Record::new(name, ttl, rdata))
    }

    /// Adds a record of class IN to the authority section.
    pub fn authority<'b>(self, name: impl Into<Name<'b>>, ttl: Duration, rdata: Rdata) -> Answer {
        self.append(Section::Authority, Record::new(name, ttl, rdata))
    }

    /// Adds a record of class IN to the additional section.
    pub fn additional<'b>(self, name: impl Into<Name<'b>>, ttl: Duration, rdata: Rdata) -> Answer {
        self.append(Section::Additional, Record::new(name, ttl, rdata))
    }

    /// Adds a record to the end of a section.
    pub fn append(mut self, section: Section, record: Record) -> Answer {
        let records = match section {
            Section::Answer => &mut self.0.answers,
            Section::Authority => &mut self.0.authority,
            Section::Additional => &mut self.0.additional,
        };
        records.push(record.into_raw());
        self
    }

    pub(crate) fn into_raw(self) -> raw::Answer {
        self.0
    }
}

/// The data of a record. More types may be added; [`Rdata::Other`] takes any.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Rdata {
    /// An IPv4 address.
    A(Ipv4Addr),
    /// An IPv6 address.
    Aaaa(Ipv6Addr),
    /// The canonical name of an alias.
    Cname(NameBuf),
    /// A name server.
    Ns(NameBuf),
    /// The name that belongs to an address.
    Ptr(NameBuf),
    /// A text. It is split into strings of up to 255 bytes.
    Txt(String),
    /// A mail server, with its preference: the lowest is tried first.
    Mx(u16, NameBuf),
    /// The location of a service (RFC 2782).
    Srv {
        /// The lowest is tried first.
        priority: u16,
        /// Share among equal priorities.
        weight: u16,
        /// The port.
        port: u16,
        /// The host.
        target: NameBuf,
    },
    /// The start of authority of a zone.
    Soa(Soa),
    /// Data in wire format, with uncompressed names.
    Other(Type, Vec<u8>),
}

impl Rdata {
    /// An `A` or an `AAAA`.
    pub fn address(address: IpAddr) -> Rdata {
        match address {
            IpAddr::V4(address) => Rdata::A(address),
            IpAddr::V6(address) => Rdata::Aaaa(address),
        }
    }

    /// The type, and the data in wire format.
    pub(crate) fn into_wire(self) -> (Type, Vec<u8>) {
        match self {
            Rdata::A(address) => (Type::A, address.octets().to_vec()),
            Rdata::Aaaa(address) => (Type::AAAA, address.octets().to_vec()),
            Rdata::Cname(name) => (Type::CNAME, name.into_wire()),
            Rdata::Ns(name) => (Type::NS, name.into_wire()),
            Rdata::Ptr(name) => (Type::PTR, name.into_wire()),
            Rdata::Txt(text) => (Type::TXT, character_strings(text.as_bytes())),
            Rdata::Mx(preference, name) => (
                Type::MX,
                [&preference.to_be_bytes(), name.as_name().as_wire()].concat(),
            ),
            Rdata::Srv {
                priority,
                weight,
                port,
                target,
            } => {
                let mut rdata = Vec::new();
                for number in [priority, weight, port] {
                    rdata.extend_from_slice(&number.to_be_bytes());
                }
                rdata.extend_from_slice(target.as_name().as_wire());
                (Type::SRV, rdata)
            }
            Rdata::Soa(soa) => (Type::SOA, soa.to_wire()),
            Rdata::Other(rtype, rdata) => (rtype, rdata),
        }
    }
}

/// Encodes a text as length-prefixed strings of up to 255 bytes, at least one (RFC 1035 section 3.3.14).
fn character_strings(text: &[u8]) -> Vec<u8> {
    if text.is_empty() {
        return vec![0];
    }
    let mut rdata = Vec::with_capacity(text.len() + text.len() / 255 + 1);
    for string in text.chunks(255) {
        rdata.push(string.len() as u8);
        rdata.extend_from_slice(string);
    }
    rdata
}

/// The start of authority of a zone (RFC 1035 section 3.3.13), as negative answers need it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Soa {
    /// The zone it belongs to.
    pub zone: NameBuf,
    /// The TTL of the record, and thus of a negative answer.
    pub ttl: Duration,
    /// The primary name server.
    pub primary: NameBuf,
    /// The mailbox of the person responsible, with a dot for `@`.
    pub mailbox: NameBuf,
    /// The version of the zone.
    pub serial: u32,
}

impl Soa {
    /// A simple SOA: the zone is its own name server, and `hostmaster` its mailbox.
    pub fn new(zone: NameBuf, ttl: Duration) -> Soa {
        // If the zone's name leaves no room for a mailbox below it, the root stands for none (RFC 1035).
        let mailbox = zone
            .as_name()
            .child("hostmaster")
            .unwrap_or_else(|_| NameBuf::root());
        Soa {
            primary: zone.clone(),
            mailbox,
            ttl,
            serial: 1,
            zone,
        }
    }

    fn to_wire(&self) -> Vec<u8> {
        let mut rdata = [self.primary.as_name().as_wire(), self.mailbox.as_name().as_wire()].concat();
        // Refresh, retry and expire are for secondaries, which these zones do not have. The last, the
        // minimum, bounds the negative TTL (RFC 2308 section 4).
        for number in [self.serial, 7200, 1800, 86400, seconds(self.ttl)] {
            rdata.extend_from_slice(&number.to_be_bytes());
        }
        rdata
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wire(rdata: Rdata) -> Vec<u8> {
        rdata.into_wire().1
    }

    #[test]
    fn data_is_in_wire_format() {
        let name: NameBuf = "a.test".parse().unwrap();
        assert_eq!(wire(Rdata::address("::1".parse().unwrap())).len(), 16);
        assert_eq!(wire(Rdata::Mx(10, name.clone())), b"\0\x0a\x01a\x04test\0");
        let srv = Rdata::Srv {
            priority: 1,
            weight: 2,
            port: 80,
            target: name.clone(),
        };
        assert_eq!(wire(srv), b"\0\x01\0\x02\0\x50\x01a\x04test\0");
        assert_eq!(wire(Rdata::Txt(String::new())), [0]);
        let long = wire(Rdata::Txt("x".repeat(300)));
        assert_eq!((long.len(), long[0], long[256]), (302, 255, 45));
        let soa = wire(Rdata::Soa(Soa::new(name, Duration::from_secs(30))));
        assert!(soa.starts_with(b"\x01a\x04test\0\x0ahostmaster\x01a\x04test\0\0\0\0\x01"));
        assert!(soa.ends_with(&30u32.to_be_bytes()));
    }

    #[test]
    fn a_ttl_has_31_bits() {
        let answer = Answer::noerror().record(Name::ROOT, Duration::MAX, Rdata::A([0; 4].into()));
        assert_eq!(answer.0.answers[0].ttl, 0x7fff_ffff);
    }
}
