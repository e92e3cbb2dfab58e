//! Resource records: those of messages and master files, and those that a filter makes.

use std::net::IpAddr;
use std::ops::Range;
use std::time::Duration;

use crate::bindings::dnsweir::filter::types as raw;
use crate::form::{Field, form, may_be_empty};
use crate::reader::{IPV4_HINT, IPV6_HINT, Reader};
use crate::verdict::seconds;
use crate::{Class, Name, NameBuf, Rdata, Type};

/// A resource record.
///
/// ```
/// use std::time::Duration;
/// use dnsweir_filter::{NameBuf, Rdata, Record, Type};
/// # fn main() -> Result<(), dnsweir_filter::NameError> {
/// let (name, server): (NameBuf, NameBuf) = ("example.org".parse()?, "mail.example.org".parse()?);
/// let mut record = Record::new(&name, Duration::from_secs(300), Rdata::Mx(10, server.clone()));
/// assert_eq!(record.rtype(), Type::MX);
/// assert_eq!(record.target(), Some(server));
/// record.set_target(&"mail.example.net".parse()?);
/// assert_eq!(record.data(), b"\0\x0a\x04mail\x07example\x03net\0");
/// # Ok(()) }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub struct Record {
    name: NameBuf,
    rtype: Type,
    class: Class,
    /// In seconds.
    ttl: u32,
    /// In wire format, with uncompressed names.
    data: Vec<u8>,
}

impl Record {
    /// A record of class IN.
    pub fn new<'b>(name: impl Into<Name<'b>>, ttl: Duration, rdata: Rdata) -> Record {
        let name: Name<'b> = name.into();
        let (rtype, data) = rdata.into_wire();
        Record {
            name: name.into(),
            rtype,
            class: Class::IN,
            ttl: seconds(ttl),
            data,
        }
    }

    /// Reads a record of a message; none if it is malformed. In dynamic updates, any may be without data (RFC 2136
    /// sections 2.4 and 2.5).
    pub(crate) fn read(reader: &mut Reader<'_>, is_update: bool) -> Option<Record> {
        let mut name = Vec::new();
        reader.name(&mut name)?;
        let (rtype, class) = (Type(reader.number()?), Class(reader.number()?));
        let ttl = u32::from(reader.number()?) << 16 | u32::from(reader.number()?);
        // One with the top bit set counts as 0 (RFC 2181 section 8).
        let ttl = if ttl > i32::MAX as u32 { 0 } else { ttl };
        let data = match usize::from(reader.number()?) {
            0 if is_update => Vec::new(),
            length => reader.data(rtype, length)?,
        };
        Some(Record {
            name: NameBuf::from_wire(name),
            rtype,
            class,
            ttl,
            data,
        })
    }

    /// Whether a verdict may have the record; if not, the host refuses the whole verdict. Types and classes of questions
    /// and of messages as a whole (RFC 6895 section 3) are excluded, and records without the data that their type has.
    pub fn is_writable(&self) -> bool {
        let is_meta = self.rtype.is_meta() || matches!(self.class, Class(0) | Class::NONE | Class::ANY);
        !is_meta && (!self.data.is_empty() || may_be_empty(self.rtype))
    }

    /// Changes the class.
    pub fn with_class(mut self, class: Class) -> Record {
        self.class = class;
        self
    }

    /// The name of the owner.
    pub fn name(&self) -> Name<'_> {
        self.name.as_name()
    }

    /// The type.
    pub fn rtype(&self) -> Type {
        self.rtype
    }

    /// The class.
    pub fn class(&self) -> Class {
        self.class
    }

    /// The TTL, in whole seconds.
    pub fn ttl(&self) -> Duration {
        Duration::from_secs(self.ttl.into())
    }

    /// The data in wire format, with uncompressed names.
    pub fn data(&self) -> &[u8] {
        &self.data
    }

    /// The data, for another record.
    pub fn rdata(&self) -> Rdata {
        Rdata::Other(self.rtype, self.data.clone())
    }

    /// The address in an A or AAAA record.
    pub fn address(&self) -> Option<IpAddr> {
        match (self.rtype, self.data.len()) {
            (Type::A, 4) | (Type::AAAA, 16) => address(&self.data),
            _ => None,
        }
    }

    /// The first name in the data: what an alias, a name server, a mail server or a service leads to; in SOA, the
    /// primary server. Only for types whose names may be compressed in messages (RFC 3597 section 4), and for DNAME, SVCB
    /// and HTTPS.
    pub fn target(&self) -> Option<NameBuf> {
        self.first_name().map(|(name, _)| name)
    }

    /// Replaces what [`target`](Record::target) returns, if the data has such a name.
    pub fn set_target(&mut self, target: &NameBuf) {
        if let Some((_, place)) = self.first_name() {
            self.data
                .splice(place, target.as_name().as_wire().iter().copied());
        }
    }

    /// The addresses at which an SVCB or HTTPS record hints (RFC 9460 section 7.3).
    pub fn hints(&self) -> impl Iterator<Item = IpAddr> {
        let behind = match self.rtype {
            Type::SVCB | Type::HTTPS => self.first_name().map(|(_, place)| place.end),
            _ => None,
        };
        let parameters = behind.and_then(|at| self.data.get(at..));
        let mut reader = Reader::new(parameters.unwrap_or_default());
        let hints = std::iter::from_fn(move || reader.parameter()).map(|(key, value)| match key {
            IPV4_HINT => value.chunks_exact(4),
            IPV6_HINT => value.chunks_exact(16),
            _ => [].chunks_exact(1),
        });
        hints.flatten().filter_map(address)
    }

    /// The first name in the data, and its place.
    fn first_name(&self) -> Option<(NameBuf, Range<usize>)> {
        let (mut reader, mut octets) = (Reader::new(&self.data), Vec::new());
        for field in form(self.rtype) {
            let begins = reader.at();
            octets.clear();
            reader.field(*field, &mut octets)?;
            if *field == Field::Name {
                return Some((NameBuf::from_wire(octets), begins..reader.at()));
            }
        }
        None
    }

    pub(crate) fn into_raw(self) -> raw::ResourceRecord {
        raw::ResourceRecord {
            name: self.name.into_wire(),
            rtype: self.rtype.0,
            class: self.class.0,
            ttl: self.ttl,
            rdata: self.data,
        }
    }
}

/// The address that consists of these bytes.
fn address(octets: &[u8]) -> Option<IpAddr> {
    match octets.len() {
        4 => octets.first_chunk::<4>().map(|octets| IpAddr::from(*octets)),
        _ => octets.first_chunk::<16>().map(|octets| IpAddr::from(*octets)),
    }
}

/// A section of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Section {
    /// The records that answer the question.
    Answer,
    /// The name servers of a referral, or the SOA record of a denial.
    Authority,
    /// Related records, such as addresses.
    Additional,
}

impl Section {
    pub(crate) fn into_raw(self) -> raw::Section {
        match self {
            Section::Answer => raw::Section::Answer,
            Section::Authority => raw::Section::Authority,
            Section::Additional => raw::Section::Additional,
        }
    }
}
