//! Messages and records of all types, parsed and written by hickory-proto, so that filters need no wire
//! format.

use std::fmt;
use std::net::IpAddr;

// Links its implementation.
use critical_section as _;
pub use hickory_proto as hickory;

use hickory::op;
use hickory::rr::{RData, Record};
use hickory::serialize::binary::{BinDecodable, BinEncodable, BinEncoder, NameEncoding};

use crate::{Found, NameBuf, Rdata, Response, ResponseEdit, Section, Selector, Type};

/// A parsed message. Needs the feature `messages`.
///
/// ```
/// use std::net::{IpAddr, Ipv4Addr};
/// use dnsweir_filter::hickory::rr::{RData, rdata::CNAME};
/// use dnsweir_filter::{Message, Type, test};
///
/// // An answer that leads through an alias.
/// let alias = CNAME("t.tracker.test.".parse().unwrap());
/// let address = Ipv4Addr::new(192, 0, 2, 1);
/// let wire = test::message("www.shop.test", Type::A, [
///     ("www.shop.test", RData::CNAME(alias)),
///     ("t.tracker.test", RData::A(address.into())),
/// ]);
/// let message = Message::read(&wire).unwrap();
/// assert_eq!(message.aliases().next().unwrap().to_string(), "t.tracker.test.");
/// assert!(message.addresses().eq([IpAddr::from(address)]));
/// ```
#[derive(Debug, Clone)]
pub struct Message(op::Message);

impl Message {
    /// Parses a message in wire format.
    ///
    /// # Errors
    /// If it is malformed.
    pub fn read(wire: &[u8]) -> Result<Message, Unreadable> {
        op::Message::from_bytes(wire).map(Message).map_err(|_| Unreadable)
    }

    /// The answer section, in order.
    pub fn answers(&self) -> &[Record] {
        &self.0.answers
    }

    /// The authority section.
    pub fn authority(&self) -> &[Record] {
        &self.0.authorities
    }

    /// The additional section.
    pub fn additional(&self) -> &[Record] {
        &self.0.additionals
    }

    /// The addresses in the answer section.
    pub fn addresses(&self) -> impl Iterator<Item = IpAddr> {
        self.answers().iter().filter_map(|record| record.data.ip_addr())
    }

    /// The targets of the CNAME records in the answer section, in order.
    pub fn aliases(&self) -> impl Iterator<Item = NameBuf> {
        self.answers().iter().filter_map(|record| match &record.data {
            RData::CNAME(target) => NameBuf::try_from(&target.0).ok(),
            _ => None,
        })
    }

    /// An edit that removes the answer records whose data matches; none if no record does.
    ///
    /// ```
    /// # use dnsweir_filter::{Message, Type, hickory::rr::RData, test};
    /// let data = RData::A("10.0.0.1".parse().unwrap());
    /// let message = Message::read(&test::message("a.test", Type::A, [("a.test", data)])).unwrap();
    /// assert!(message.without(|data| data.ip_addr().is_some()).is_some());
    /// assert!(message.without(|_| false).is_none());
    /// ```
    pub fn without(&self, unwanted: impl Fn(&RData) -> bool) -> Option<ResponseEdit> {
        let answers = self.answers().iter().enumerate();
        // Last record first, so that the indices of the others stay valid.
        let found = answers.rev().filter(|(_, record)| unwanted(&record.data));
        found.fold(None, |edit: Option<ResponseEdit>, (index, _)| {
            let record = Selector::all().section(Section::Answer).index(index as u32);
            Some(edit.unwrap_or_default().remove(record))
        })
    }
}

impl Response<'_> {
    /// Parses the message; the [manifest](crate::Manifest::messages) must request it.
    ///
    /// # Errors
    /// If the manifest does not, or hickory-proto cannot parse a record that the proxy let pass.
    pub fn read(&self) -> Result<Message, Unreadable> {
        Message::read(self.message().ok_or(Unreadable)?)
    }
}

impl Found<'_> {
    /// Parses the message, which exists if the lookup was answered.
    ///
    /// # Errors
    /// If it was not answered, or hickory-proto cannot parse a record that the proxy let pass.
    pub fn read(&self) -> Result<Message, Unreadable> {
        Message::read(self.message())
    }
}

/// The error for a message that is missing or malformed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unreadable;

impl fmt::Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not a message that can be read")
    }
}

impl std::error::Error for Unreadable {}

/// Converts every type that hickory-proto knows. Data too long for a record becomes empty.
impl From<RData> for Rdata {
    fn from(data: RData) -> Rdata {
        let mut wire = Vec::new();
        let mut encoder = BinEncoder::new(&mut wire);
        // The host compresses names itself, and accepts no compressed ones (`resource-record.rdata`).
        encoder.set_name_encoding(NameEncoding::Uncompressed);
        if data.emit(&mut encoder).is_err() {
            wire.clear();
        }
        Rdata::Other(Type(data.record_type().into()), wire)
    }
}

impl TryFrom<&hickory::rr::Name> for NameBuf {
    type Error = crate::NameError;

    /// Converts the name and lowercases it, like every [`NameBuf`].
    fn try_from(name: &hickory::rr::Name) -> Result<NameBuf, crate::NameError> {
        NameBuf::join(name.iter(), crate::Name::ROOT)
    }
}

impl From<crate::Name<'_>> for hickory::rr::Name {
    fn from(name: crate::Name<'_>) -> hickory::rr::Name {
        // Both types enforce the limits of RFC 1035 section 2.3.4.
        let name = hickory::rr::Name::from_labels(name.labels());
        name.map_or_else(
            |_| hickory::rr::Name::root(),
            |mut name| {
                name.set_fqdn(true);
                name
            },
        )
    }
}

#[cfg(test)]
mod tests {
    use hickory::rr::rdata::svcb::{Alpn, SVCB, SvcParamKey, SvcParamValue};
    use hickory::rr::rdata::{HTTPS, SOA};

    use super::*;
    use crate::Name;

    fn name(text: &str) -> hickory::rr::Name {
        text.parse().unwrap()
    }

    #[test]
    fn names_in_data_are_not_compressed() {
        let soa = SOA::new(name("ns.example."), name("admin.ns.example."), 1, 2, 3, 4, 5);
        let Rdata::Other(rtype, wire) = Rdata::from(RData::SOA(soa)) else {
            unreachable!()
        };
        assert_eq!(rtype, Type::SOA);
        assert!(wire.starts_with(b"\x02ns\x07example\0\x05admin\x02ns\x07example\0"));
    }

    #[test]
    fn parameters_of_https_are_kept() {
        let params = vec![(SvcParamKey::Alpn, SvcParamValue::Alpn(Alpn(vec!["h2".into()])))];
        let https = HTTPS(SVCB::new(1, name("svc.example."), params));
        let Rdata::Other(rtype, wire) = Rdata::from(RData::HTTPS(https)) else {
            unreachable!()
        };
        assert_eq!(rtype, Type(65));
        assert_eq!(wire, b"\0\x01\x03svc\x07example\0\0\x01\0\x03\x02h2");
    }

    #[test]
    fn names_come_and_go_lowercased() {
        let hickory = name(r"A\.b.Example.");
        let ours = NameBuf::try_from(&hickory).unwrap();
        assert_eq!(ours.to_string(), r"a\.b.example.");
        assert_eq!(hickory::rr::Name::from(ours.as_name()), hickory);
        assert_eq!(hickory::rr::Name::from(Name::ROOT), hickory::rr::Name::root());
    }

    #[test]
    fn what_is_no_message_is_unreadable() {
        for octets in [&b""[..], b"\0\0", &[0xff; 12]] {
            assert_eq!(Message::read(octets).unwrap_err(), Unreadable);
        }
    }
}
