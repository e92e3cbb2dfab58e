//! Messages and records of all types, parsed and written by hickory-proto, so that filters need no wire
//! format.

use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

// Links its implementation.
use critical_section as _;
pub use hickory_proto as hickory;
// Turned off, as Cargo.toml says.
#[cfg(target_family = "wasm")]
use tracing as _;

use hickory::op::{Header, OpCode, Query};
use hickory::rr::{RData, Record, RecordType};
use hickory::serialize::binary::{BinDecodable, BinDecoder, BinEncodable, BinEncoder, NameEncoding};

use crate::{Class, Found, NameBuf, Rdata, Response, ResponseEdit, Section, Selector, Type, budget};

/// How many records an edit removes one by one. A verdict has room for 64 such changes, also of the filter's
/// own.
const REMOVED: usize = 16;

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
pub struct Message {
    answers: Vec<Record>,
    authority: Vec<Record>,
    additional: Vec<Record>,
}

impl Message {
    /// Parses a message in wire format.
    ///
    /// # Errors
    /// If it is malformed.
    pub fn read(wire: &[u8]) -> Result<Message, Unreadable> {
        // Not by hickory-proto's `Message`: it can panic with a record as text, so that every module would contain
        // 50 KB of code that writes records.
        let mut decoder = BinDecoder::new(wire);
        let header = Header::read(&mut decoder).map_err(|_| Unreadable)?;
        for _ in 0..header.counts.queries {
            Query::read(&mut decoder).map_err(|_| Unreadable)?;
        }
        let is_update = header.metadata.op_code == OpCode::Update;
        let mut section = |section, count| records(&mut decoder, section, count, is_update);
        Ok(Message {
            answers: section(Section::Answer, header.counts.answers)?,
            authority: section(Section::Authority, header.counts.authorities)?,
            additional: section(Section::Additional, header.counts.additionals)?,
        })
    }

    /// The answer section, in order.
    pub fn answers(&self) -> &[Record] {
        &self.answers
    }

    /// The authority section.
    pub fn authority(&self) -> &[Record] {
        &self.authority
    }

    /// The additional section, without its OPT record.
    pub fn additional(&self) -> &[Record] {
        &self.additional
    }

    /// The records of a section.
    fn section(&self, section: Section) -> &[Record] {
        match section {
            Section::Answer => self.answers(),
            Section::Authority => self.authority(),
            Section::Additional => self.additional(),
        }
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

    /// An edit that removes the answer records whose data matches; none if no record does. If many do, it
    /// [replaces](Message::with_sections) the answer section by the others.
    ///
    /// ```
    /// # use dnsweir_filter::{Message, Type, hickory::rr::RData, test};
    /// let data = RData::A("10.0.0.1".parse().unwrap());
    /// let message = Message::read(&test::message("a.test", Type::A, [("a.test", data)])).unwrap();
    /// assert!(message.without(|data| data.ip_addr().is_some()).is_some());
    /// assert!(message.without(|_| false).is_none());
    /// ```
    pub fn without(&self, unwanted: impl Fn(&RData) -> bool) -> Option<ResponseEdit> {
        let answers = self.answers();
        let found = (0u32..).zip(answers).filter(|(_, record)| unwanted(&record.data));
        let found: Vec<u32> = found.map(|(index, _)| index).collect();
        match found.len() {
            0 => None,
            1..=REMOVED => {
                let all = Selector::all().section(Section::Answer);
                // Last record first, so that the indices of the others stay valid.
                let indices = found.into_iter().rev();
                Some(indices.fold(ResponseEdit::new(), |edit, index| {
                    edit.remove(all.clone().index(index))
                }))
            }
            _ => {
                let kept = answers.iter().filter(|record| !unwanted(&record.data));
                Some(self.with_sections([(Section::Answer, kept)]))
            }
        }
    }

    /// An edit that gives these sections of the message other records, however many there are.
    ///
    /// Three kinds of records are left out: the signatures (RRSIG) that a section had, since they are over the
    /// records that it had; records that no verdict may have, for which the host would refuse it; and those beyond
    /// about 900 KB, which is as much as a call about one message can hand over. Messages have less, unless
    /// thousands of records have names of more than 150 bytes.
    ///
    /// ```
    /// # use dnsweir_filter::{Message, Section, Type, hickory::rr::RData, test};
    /// # let data = RData::A("192.0.2.1".parse().unwrap());
    /// # let message = Message::read(&test::message("a.test", Type::A, [("a.test", data)])).unwrap();
    /// let mut records = message.answers().to_vec();
    /// records.truncate(100);
    /// let edit = message.with_sections([(Section::Answer, &records)]);
    /// # let _ = edit;
    /// ```
    pub fn with_sections<'r, R>(&self, sections: impl IntoIterator<Item = (Section, R)>) -> ResponseEdit
    where
        R: IntoIterator<Item = &'r Record>,
    {
        let mut edit = ResponseEdit::new();
        let mut room = budget::MOST;
        for (section, records) in sections {
            let had = self.section(section);
            let is_stale =
                |record: &&Record| Type(record.record_type().into()) == Type::RRSIG && had.contains(record);
            let records = records.into_iter().filter(|record| !is_stale(record));
            let records = records.filter_map(writable);
            let fitting = records.map_while(|(record, octets)| {
                room = room.checked_sub(octets)?;
                Some(record)
            });
            let records: Vec<crate::Record> = fitting.collect();
            let all = Selector::all().section(section);
            edit = match records.first() {
                None => edit.remove(all),
                // Nothing can take the place of records that are not there.
                Some(first) if had.is_empty() => {
                    let first = first.clone();
                    edit.append(section, first).replace(all, records)
                }
                Some(_) => edit.replace(all, records),
            };
        }
        edit
    }
}

/// Reads the records of a section, except OPT.
fn records(
    decoder: &mut BinDecoder<'_>,
    section: Section,
    count: u16,
    is_update: bool,
) -> Result<Vec<Record>, Unreadable> {
    let mut records = Vec::with_capacity(usize::from(count.min(8)));
    let mut has_opt = false;
    for _ in 0..count {
        let record = Record::read(decoder).map_err(|_| Unreadable)?;
        match record.record_type() {
            // One at most (RFC 6891 section 6.1.1).
            RecordType::OPT if has_opt || section != Section::Additional => return Err(Unreadable),
            RecordType::OPT => has_opt = true,
            // These sign whole messages.
            RecordType::SIG | RecordType::TSIG if section != Section::Additional => return Err(Unreadable),
            // Only prerequisites and deletions of dynamic updates have none (RFC 2136 sections 2.4 and 2.5).
            _ if matches!(record.data, RData::Update0(_)) && !is_update => return Err(Unreadable),
            _ => records.push(record),
        }
    }
    Ok(records)
}

/// A record as a verdict may have it, and what the host counts for it; none if no verdict may.
fn writable(record: &Record) -> Option<(crate::Record, usize)> {
    let rtype = Type(record.record_type().into());
    let class = Class(record.dns_class.into());
    // Types and classes of questions and of messages as a whole (RFC 6895 section 3).
    let is_reserved = matches!(rtype.0, 0 | 41 | 128..=255) || matches!(class.0, 0 | 254 | 255);
    let data = encoded(&record.data);
    if is_reserved || !is_whole(rtype, &data) {
        return None;
    }
    let owner = NameBuf::try_from(&record.name).ok()?;
    let octets = budget::RECORD + owner.as_name().as_wire().len() + data.len();
    let ttl = Duration::from_secs(record.ttl.into());
    let record = crate::Record::new(&owner, ttl, Rdata::Other(rtype, data));
    Some((record.class(class), octets))
}

/// Whether data can stand outside of the message it is from, where compressed names in it lead nowhere.
fn is_whole(rtype: Type, data: &[u8]) -> bool {
    match rtype {
        // hickory-proto does not know these and leaves their names compressed: the mail types before MX (RFC
        // 1035 section 3.3), and DNAME.
        Type::MD | Type::MF | Type::MB | Type::MG | Type::MR | Type::DNAME => {
            crate::Name::from_host(data).is_some()
        }
        // The same with two names, which nobody uses.
        Type::MINFO => false,
        // Empty: it could not be written.
        _ => !data.is_empty(),
    }
}

/// The data in wire format; empty if it is too long for a record.
fn encoded(data: &RData) -> Vec<u8> {
    let mut wire = Vec::new();
    let mut encoder = BinEncoder::new(&mut wire);
    // The host compresses names itself, and accepts no compressed ones (`resource-record.rdata`).
    encoder.set_name_encoding(NameEncoding::Uncompressed);
    if data.emit(&mut encoder).is_err() {
        wire.clear();
    }
    // The encoder reserves 512 bytes, and a message may have thousands of records.
    wire.shrink_to_fit();
    wire
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
        Rdata::Other(Type(data.record_type().into()), encoded(&data))
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
        hickory::rr::Name::from_bytes(name.as_wire()).unwrap_or_else(|_| hickory::rr::Name::root())
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use hickory::rr::rdata::svcb::{Alpn, SVCB, SvcParamKey, SvcParamValue};
    use hickory::rr::rdata::{HTTPS, NULL, SOA};

    use super::*;
    use crate::bindings::dnsweir::filter::types as raw;
    use crate::{Name, test};

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

    /// An answer with these data under one name.
    fn answer(data: impl IntoIterator<Item = RData>) -> Message {
        let records = data.into_iter().map(|data| ("a.test", data));
        Message::read(&test::message("a.test", Type::A, records)).unwrap()
    }

    fn private(number: u16) -> RData {
        let [high, low] = number.to_be_bytes();
        RData::A(Ipv4Addr::new(10, 0, high, low).into())
    }

    fn is_private(data: &RData) -> bool {
        matches!(data, RData::A(address) if address.0.octets()[0] == 10)
    }

    /// The record of an address in such an answer.
    fn record(address: [u8; 4]) -> crate::Record {
        let owner: NameBuf = "a.test".parse().unwrap();
        crate::Record::new(&owner, Duration::from_secs(300), Rdata::A(address.into()))
    }

    /// The records that an edit puts in the place of others.
    fn replacements(edit: ResponseEdit) -> Vec<raw::ResourceRecord> {
        match edit.into_raw().records.pop() {
            Some(raw::RecordEdit::Replace((_, records))) => records,
            _ => Vec::new(),
        }
    }

    /// A verdict has at most 64 edits of records.
    #[test]
    fn few_records_go_one_by_one_and_many_at_once() {
        let all = || Selector::all().section(Section::Answer);
        let public = || RData::A(Ipv4Addr::new(192, 0, 2, 1).into());
        let mixed = |count: u16| answer((0..count).map(private).chain([public()])).without(is_private);
        assert_eq!(mixed(0), None);
        let few = (0..REMOVED as u32).rev();
        let few = few.fold(ResponseEdit::new(), |edit, index| edit.remove(all().index(index)));
        assert_eq!(mixed(REMOVED as u16), Some(few));
        for count in [REMOVED as u16 + 1, 65, 1000] {
            let replaced = ResponseEdit::new().replace(all(), [record([192, 0, 2, 1])]);
            assert_eq!(mixed(count), Some(replaced), "{count}");
            let none = answer((0..count).map(private)).without(is_private);
            assert_eq!(none, Some(ResponseEdit::new().remove(all())), "{count}");
        }
    }

    /// One of them would make the host refuse the whole verdict.
    #[test]
    fn what_no_verdict_may_have_is_left_out() {
        let unknown = |code: Type, octets: &[u8]| RData::Unknown {
            code: code.0.into(),
            rdata: NULL::with(octets.to_vec()),
        };
        let message = answer([
            unknown(Type::RRSIG, &[0; 18]),
            unknown(Type(200), b"x"),
            unknown(Type::DNAME, b"\xc0\x0c"),
            unknown(Type::MINFO, b"\0\0"),
            unknown(Type::DNAME, b"\x04test\0"),
            unknown(Type(65_280), b"x"),
        ]);
        assert_eq!(message.answers().len(), 6);
        let kept = replacements(message.with_sections([(Section::Answer, message.answers())]));
        let types: Vec<u16> = kept.iter().map(|record| record.rtype).collect();
        assert_eq!(types, [Type::DNAME.0, 65_280]);
    }

    #[test]
    fn a_section_without_records_gets_some() {
        let (message, others) = (answer([]), answer([private(1), private(2)]));
        let edit = message.with_sections([(Section::Authority, others.answers())]);
        let [first, second] = [record([10, 0, 0, 1]), record([10, 0, 0, 2])];
        let expected = ResponseEdit::new()
            .append(Section::Authority, first.clone())
            .replace(Selector::all().section(Section::Authority), [first, second]);
        assert_eq!(edit, expected);
    }

    /// The host counts the name of every record, however short it is in a message.
    #[test]
    fn no_more_is_handed_over_than_a_call_may() {
        const LONGEST: usize = 255;
        let label = [&[63][..], &[b'a'; 63]].concat();
        let name = [&label[..], &label, &label, &[61], &[b'a'; 61], &[0]].concat();
        assert_eq!(name.len(), LONGEST);
        let count = 4000u16;
        let header = [&[0, 0, 0x80, 0, 0, 1][..], &count.to_be_bytes(), &[0; 4]].concat();
        let mut wire = [&header[..], &name, &[0, 1, 0, 1]].concat();
        for number in 0..count {
            let [high, low] = number.to_be_bytes();
            wire.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 192, 0, high, low]);
        }
        let message = Message::read(&wire).unwrap();
        assert_eq!(message.answers().len(), usize::from(count));
        let kept = replacements(message.with_sections([(Section::Answer, message.answers())]));
        assert_eq!(kept.len(), budget::MOST / (budget::RECORD + LONGEST + 4));
    }

    /// hickory-proto's own type for messages is not used only because of its size.
    #[test]
    fn sections_are_those_that_hickory_reads() {
        const RESPONSE: u8 = 0x80;
        const UPDATE: u8 = 5 << 3;
        let records: [&[u8]; 4] = [
            b"\0\0\x01\0\x01\0\0\0\x3c\0\x04\xc0\0\x02\x01", // an address
            b"\0\0\x01\0\x01\0\0\0\x3c\0\0",                 // no data
            b"\0\0\x18\0\xff\0\0\0\0\0\x01x",                // SIG
            b"\0\0\x29\x04\xd0\0\0\0\0\0\0",                 // OPT
        ];
        let pairs = records.map(|first| records.map(|second| [first, second].concat()));
        let counts = [[2, 0, 0], [0, 2, 0], [0, 0, 2], [1, 0, 1], [0, 0, 3]];
        for pair in pairs.as_flattened() {
            for [answers, authority, additional] in counts {
                for flags in [RESPONSE, UPDATE] {
                    let header = [0, 0, flags, 0, 0, 1, 0, answers, 0, authority, 0, additional];
                    let wire = [&header[..], b"\x01a\0\0\x01\0\x01", pair].concat();
                    let ours = Message::read(&wire).ok();
                    let ours = ours.map(|message| [message.answers, message.authority, message.additional]);
                    let theirs = hickory::op::Message::from_bytes(&wire).ok();
                    let theirs =
                        theirs.map(|theirs| [theirs.answers, theirs.authorities, theirs.additionals]);
                    assert_eq!(ours, theirs, "{wire:?}");
                }
            }
        }
    }

    #[test]
    fn what_is_no_message_is_unreadable() {
        for octets in [&b""[..], b"\0\0", &[0xff; 12]] {
            assert_eq!(Message::read(octets).unwrap_err(), Unreadable);
        }
    }
}
