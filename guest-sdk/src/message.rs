//! Messages, with all their records.

use std::fmt;
use std::net::IpAddr;

use crate::reader::Reader;
use crate::{Found, NameBuf, Record, Response, ResponseEdit, Section, Selector, Type, budget};

/// How many records an edit removes one by one. A verdict has room for 64 such changes, also of the filter's
/// own.
const REMOVED: usize = 16;

/// The operation code of dynamic updates (RFC 2136 section 2.2).
const UPDATE: u16 = 5;

/// A parsed message.
///
/// ```
/// use std::net::{IpAddr, Ipv4Addr};
/// use dnsweir_filter::{Message, Rdata, Type, test};
///
/// // An answer that leads through an alias.
/// let address = Ipv4Addr::new(192, 0, 2, 1);
/// let wire = test::message("www.shop.test", Type::A, [
///     ("www.shop.test", Rdata::Cname("t.tracker.test".parse().unwrap())),
///     ("t.tracker.test", Rdata::A(address)),
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
        Message::parse(wire).ok_or(Unreadable)
    }

    fn parse(wire: &[u8]) -> Option<Message> {
        let mut reader = Reader::new(wire);
        // The ID, flags, and how many questions and records each section has (RFC 1035 section 4.1.1).
        let mut header = [0; 6];
        for number in &mut header {
            *number = reader.number()?;
        }
        let [_, flags, questions, answers, authority, additional] = header;
        for _ in 0..questions {
            reader.name(&mut Vec::new())?;
            reader.take(4)?;
        }
        let is_update = flags >> 11 & 0xf == UPDATE;
        let mut section = |section, count| records(&mut reader, section, count, is_update);
        Some(Message {
            answers: section(Section::Answer, answers)?,
            authority: section(Section::Authority, authority)?,
            additional: section(Section::Additional, additional)?,
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
        self.answers().iter().filter_map(Record::address)
    }

    /// The targets of the CNAME records in the answer section, in order.
    pub fn aliases(&self) -> impl Iterator<Item = NameBuf> {
        let aliases = self
            .answers()
            .iter()
            .filter(|record| record.rtype() == Type::CNAME);
        aliases.filter_map(Record::target)
    }

    /// An edit that removes the matching answer records; none if no record matches. If many do, it
    /// [replaces](Message::with_sections) the answer section by the others.
    ///
    /// ```
    /// # use dnsweir_filter::{Message, Rdata, Type, test};
    /// let data = Rdata::A("10.0.0.1".parse().unwrap());
    /// let message = Message::read(&test::message("a.test", Type::A, [("a.test", data)])).unwrap();
    /// assert!(message.without(|record| record.address().is_some()).is_some());
    /// assert!(message.without(|_| false).is_none());
    /// ```
    pub fn without(&self, unwanted: impl Fn(&Record) -> bool) -> Option<ResponseEdit> {
        let answers = self.answers();
        let found = (0u32..).zip(answers).filter(|(_, record)| unwanted(record));
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
                let kept = answers.iter().filter(|record| !unwanted(record));
                Some(self.with_sections([(Section::Answer, kept)]))
            }
        }
    }

    /// An edit that gives these sections of the message other records, however many there are.
    ///
    /// Three kinds of records are left out: the signatures (RRSIG) that a section had, since they are over the
    /// records that it had; records that [no verdict may have](Record::is_writable); and those beyond
    /// about 900 KB, which is as much as a call about one message can hand over. Messages have less, unless
    /// thousands of records have names of more than 150 bytes.
    ///
    /// ```
    /// # use dnsweir_filter::{Message, Rdata, Section, Type, test};
    /// # let data = Rdata::A("192.0.2.1".parse().unwrap());
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
            let is_stale = |record: &&Record| record.rtype() == Type::RRSIG && had.contains(record);
            let records = records.into_iter().filter(|record| !is_stale(record));
            let records = records.filter(|record| record.is_writable());
            let fitting = records.map_while(|record| {
                let octets = record.name().as_wire().len() + record.data().len();
                room = room.checked_sub(budget::RECORD + octets)?;
                Some(record.clone())
            });
            let records: Vec<Record> = fitting.collect();
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
fn records(reader: &mut Reader<'_>, section: Section, count: u16, is_update: bool) -> Option<Vec<Record>> {
    let mut records = Vec::with_capacity(usize::from(count.min(8)));
    let mut has_opt = false;
    for _ in 0..count {
        let record = Record::read(reader, is_update)?;
        match record.rtype() {
            // One at most (RFC 6891 section 6.1.1).
            Type::OPT if has_opt || section != Section::Additional => return None,
            Type::OPT => has_opt = true,
            // These sign whole messages.
            Type::SIG | Type::TSIG if section != Section::Additional => return None,
            _ => records.push(record),
        }
    }
    Some(records)
}

impl Response<'_> {
    /// Parses the message; the [manifest](crate::Manifest::messages) must request it.
    ///
    /// # Errors
    /// If the manifest does not, or a record that the proxy let pass has not the form of its type.
    pub fn read(&self) -> Result<Message, Unreadable> {
        Message::read(self.message().ok_or(Unreadable)?)
    }
}

impl Found<'_> {
    /// Parses the message, which exists if the lookup was answered.
    ///
    /// # Errors
    /// If it was not answered, or a record that the proxy let pass has not the form of its type.
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::bindings::dnsweir::filter::types as raw;
    use crate::{Rdata, test};

    /// An answer with these data under one name.
    fn answer(data: impl IntoIterator<Item = Rdata>) -> Message {
        let records = data.into_iter().map(|data| ("a.test", data));
        Message::read(&test::message("a.test", Type::A, records)).unwrap()
    }

    fn private(number: u16) -> Rdata {
        let [high, low] = number.to_be_bytes();
        Rdata::A([10, 0, high, low].into())
    }

    fn is_private(record: &Record) -> bool {
        matches!(record.address(), Some(IpAddr::V4(address)) if address.octets()[0] == 10)
    }

    /// The record of an address in such an answer.
    fn record(address: [u8; 4]) -> Record {
        let owner: NameBuf = "a.test".parse().unwrap();
        Record::new(&owner, Duration::from_secs(300), Rdata::A(address.into()))
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
        let public = || Rdata::A([192, 0, 2, 1].into());
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
        let other = |rtype: Type, octets: &[u8]| Rdata::Other(rtype, octets.to_vec());
        let message = answer([
            other(Type::RRSIG, &[0; 18]),
            other(Type(200), b"x"),
            other(Type::DNAME, b"\x04test\0"),
            other(Type(65_280), b"x"),
        ]);
        assert_eq!(message.answers().len(), 4);
        let kept = replacements(message.with_sections([(Section::Answer, message.answers())]));
        let types: Vec<u16> = kept.iter().map(|record| record.rtype).collect();
        assert_eq!(types, [Type::DNAME.0, 65_280]);
    }

    /// In another message, a pointer would lead elsewhere.
    #[test]
    fn names_in_data_are_expanded() {
        let message = answer([
            Rdata::Other(Type::DNAME, b"\xc0\x0c".to_vec()),
            Rdata::Other(Type::MINFO, b"\x01b\xc0\x0e\0".to_vec()),
        ]);
        let kept = replacements(message.with_sections([(Section::Answer, message.answers())]));
        assert_eq!(kept[0].rdata, b"\x01a\x04test\0");
        assert_eq!(kept[1].rdata, b"\x01b\x04test\0\0");
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

    #[test]
    fn what_is_no_message_is_unreadable() {
        for octets in [&b""[..], b"\0\0", &[0xff; 12]] {
            assert_eq!(Message::read(octets).unwrap_err(), Unreadable);
        }
    }
}
