//! An upstream's message: a walk over its records, and what they mean.
//!
//! Records keep their bytes (RFC 3597 section 3, RFC 5625 section 4.3): an answer is checked once, so that
//! names and lengths are consistent, and its TTL offsets are recorded, so that TTLs can age in place. Both
//! cost time in proportion to the message's length, wherever its pointers lead.

use std::ops::Range;

use smallvec::SmallVec;

use super::edns::{self, ExtendedErrorCode};
use super::name;
use super::names::Names;
use super::{CLASS_IN, HEADER, QUESTION_TAIL, flag, rcode, rtype, u16_at, u32_at};

/// A section of a message after the question.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Section {
    /// The answer to the question.
    Answer,
    /// Servers that know more, or the SOA of a negative answer.
    Authority,
    /// Other useful records.
    Additional,
}

impl Section {
    /// The section's name.
    pub fn as_str(self) -> &'static str {
        match self {
            Section::Answer => "answer",
            Section::Authority => "authority",
            Section::Additional => "additional",
        }
    }
}

/// One record, as positions in its message.
#[derive(Debug, Clone)]
pub struct Record {
    /// Its section.
    pub section: Section,
    /// The offset of the owner name.
    pub start: usize,
    /// Its type.
    pub rtype: u16,
    /// Its class, or for OPT the UDP size.
    pub class: u16,
    /// The offset of the TTL's four bytes.
    pub ttl_at: usize,
    /// The TTL as written there.
    pub ttl: u32,
    /// The range of its data.
    pub data: Range<usize>,
}

/// A record and the hash of its owner's name.
type Owned = (Record, u64);

/// Room for the records of most answers, OPT included.
const FEW_RECORDS: usize = 4;

type Records = SmallVec<[Owned; FEW_RECORDS]>;

/// The offsets of a message's TTLs; eight fit inline at no extra size.
pub type TtlOffsets = SmallVec<[u16; 8]>;

/// Bytes of the shortest record: root name, type, class, TTL, and a data length of zero.
const RECORD_MINIMUM: usize = 11;

/// A message's records are inconsistent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the message's records overrun it or hold a malformed name")]
pub struct BadRecords;

/// Iterates over the records that the header counts; ends after the first error.
pub struct Walk<'a> {
    message: &'a [u8],
    at: usize,
    left: [u16; 3],
}

/// The record counts of the three sections (RFC 1035 section 4.1.1); the message must have a header.
// Every cache hit reads them twice; by default the compiler emits a call.
#[inline(always)]
pub fn counts(message: &[u8]) -> [u16; 3] {
    [u16_at(message, 6), u16_at(message, 8), u16_at(message, 10)]
}

impl<'a> Walk<'a> {
    /// Starts at `at`, after the question.
    pub fn new(message: &'a [u8], at: usize, counts: [u16; 3]) -> Walk<'a> {
        Walk {
            message,
            at,
            left: counts,
        }
    }

    /// The offset of the next record, or of the end of the records.
    pub fn position(&self) -> usize {
        self.at
    }

    fn read(&mut self, section: Section) -> Result<Record, BadRecords> {
        let start = self.at;
        let fixed = name::skip_compressed(self.message, start).map_err(|_| BadRecords)?;
        if self.message.len() < fixed + 10 {
            return Err(BadRecords);
        }
        let data_start = fixed + 10;
        let data = data_start..data_start + usize::from(u16_at(self.message, fixed + 8));
        if self.message.len() < data.end {
            return Err(BadRecords);
        }
        self.at = data.end;
        Ok(Record {
            section,
            start,
            rtype: u16_at(self.message, fixed),
            class: u16_at(self.message, fixed + 2),
            ttl_at: fixed + 4,
            ttl: u32_at(self.message, fixed + 4),
            data,
        })
    }
}

impl Iterator for Walk<'_> {
    type Item = Result<Record, BadRecords>;

    fn next(&mut self) -> Option<Self::Item> {
        let index = self.left.iter().position(|&left| left > 0)?;
        self.left[index] -= 1;
        let section = [Section::Answer, Section::Authority, Section::Additional][index];
        let record = self.read(section);
        if record.is_err() {
            self.left = [0; 3];
        }
        Some(record)
    }
}

/// What kind of answer a message is, for its TTL bounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Meaning {
    /// Data of the type asked for, or a chain of aliases that leads to it.
    Success,
    /// NXDOMAIN or NODATA with the SOA that limits its lifetime (RFC 2308 section 5).
    Denial,
    /// Not cacheable: a negative answer without SOA, or a referral (RFC 2308 section 5); a truncated message.
    Unkept,
    /// An rcode that means that the resolution failed (RFC 9520 section 2).
    Failure,
}

impl Meaning {
    /// The meaning of the same records under another rcode.
    pub fn with_rcode(self, rcode: u16) -> Meaning {
        match (rcode, self) {
            (rcode::NOERROR | rcode::NXDOMAIN, Meaning::Failure) => Meaning::Unkept,
            (rcode::NOERROR | rcode::NXDOMAIN, as_before) => as_before,
            _ => Meaning::Failure,
        }
    }
}

/// An upstream's message, checked and ready to be cached: without OPT, with known TTL offsets.
#[derive(Debug, Clone)]
pub struct Answer {
    /// The message without its OPT record.
    pub message: Vec<u8>,
    /// The offset of each record's TTL.
    pub ttl_offsets: TtlOffsets,
    /// The rcode, including its upper bits from OPT.
    pub rcode: u16,
    /// The kind of answer.
    pub meaning: Meaning,
    /// The extended error from OPT, if any (RFC 8914).
    pub error: Option<ExtendedErrorCode>,
    /// The extended error's text, if a filter set one. An upstream's text is dropped: it is for that
    /// upstream's operator.
    pub error_text: Box<str>,
    /// The lowest TTL; 0 if there are no records.
    pub ttl: u32,
}

impl Answer {
    /// Checks `message`, a response to one question, removes OPT, and corrects TTLs: one with its top bit set
    /// becomes 0 (RFC 2181 section 8), the records of a set get the lowest (section 5.2), and the SOA of a
    /// negative answer gets min(TTL, MINIMUM) (RFC 2308 section 5).
    pub fn read(mut message: Vec<u8>) -> Result<Answer, BadRecords> {
        let question_end = question_end(&message)?;
        let qtype = match question_end {
            HEADER => 0,
            end => u16_at(&message, end - QUESTION_TAIL),
        };
        let counts = counts(&message);
        let mut walk = Walk::new(&message, question_end, counts);
        let mut names = Names::new(&message);
        // At most as many as fit into the message, whatever the header counts.
        let most = counts.into_iter().map(usize::from).sum::<usize>();
        let mut records = Records::with_capacity(most.min(message.len() / RECORD_MINIMUM));
        for record in &mut walk {
            let record = record?;
            let owner = names.at(record.start).map_err(|_| BadRecords)?.hash;
            check_names(&mut names, &message, &record)?;
            records.push((record, owner));
        }
        let end = walk.position();
        // Bytes after the counted records belong to nothing.
        message.truncate(end);

        let mut rcode = u16_at(&message, 2) & flag::RCODE;
        let mut error = None;
        if let Some(at) = records.iter().position(|(record, _)| record.rtype == rtype::OPT) {
            let (opt, _) = records.remove(at);
            // OPT is allowed only in the additional section (RFC 6891 section 6.1.1).
            if opt.section != Section::Additional {
                return Err(BadRecords);
            }
            rcode |= (opt.ttl >> 24 << 4) as u16;
            error = edns::extended_error(&message[opt.data.clone()]);
            if records.iter().any(|(record, _)| record.rtype == rtype::OPT) {
                return Err(BadRecords);
            }
            message[10..12].copy_from_slice(&(counts[2] - 1).to_be_bytes());
            if opt.data.end != message.len() {
                cut_out(&mut message, &opt, &records[at..])?;
                return Answer::read(message).map(|answer| Answer {
                    rcode,
                    error,
                    ..answer
                });
            }
            message.truncate(opt.start);
        }

        let soa = records
            .iter()
            .find(|(record, _)| record.section == Section::Authority && record.rtype == rtype::SOA)
            .map(|(record, _)| (record.ttl_at, soa_minimum(&message, record)));
        let meaning = meaning(&message, rcode, qtype, &records, soa.is_some());
        let ttl_offsets = records.iter().map(|(record, _)| record.ttl_at as u16).collect();
        equalise(&mut message, &mut records);
        if let (Meaning::Denial, Some((ttl_at, minimum))) = (meaning, soa) {
            let ttl = u32_at(&message, ttl_at).min(minimum);
            message[ttl_at..ttl_at + 4].copy_from_slice(&ttl.to_be_bytes());
        }
        let mut answer = Answer {
            message,
            ttl_offsets,
            rcode,
            meaning,
            error,
            error_text: Box::default(),
            ttl: 0,
        };
        answer.measure();
        Ok(answer)
    }

    /// Bounds every TTL to `min..=max` seconds.
    pub fn clamp(&mut self, min: u32, max: u32) {
        for &at in &self.ttl_offsets {
            let at = usize::from(at);
            let ttl = u32_at(&self.message, at).max(min).min(max);
            self.message[at..at + 4].copy_from_slice(&ttl.to_be_bytes());
        }
        self.measure();
    }

    /// Whether every TTL is within `min..=max` seconds.
    pub fn is_within(&self, min: u32, max: u32) -> bool {
        self.ttls().all(|ttl| (min..=max).contains(&ttl))
    }

    /// Replaces the rcode.
    pub fn set_rcode(&mut self, rcode: u16) {
        self.meaning = self.meaning.with_rcode(rcode);
        self.rcode = rcode;
        self.message[3] = self.message[3] & 0xf0 | (rcode & flag::RCODE) as u8;
    }

    /// The number of records in the answer section.
    pub fn answer_count(&self) -> u16 {
        u16_at(&self.message, 6)
    }

    fn measure(&mut self) {
        self.ttl = self.ttls().min().unwrap_or(0);
    }

    fn ttls(&self) -> impl Iterator<Item = u32> {
        let offsets = self.ttl_offsets.iter();
        offsets.map(|&at| u32_at(&self.message, usize::from(at)))
    }
}

fn meaning(message: &[u8], rcode: u16, qtype: u16, records: &[Owned], soa: bool) -> Meaning {
    let records = records.iter().map(|(record, _)| record);
    let mut answers = records.filter(|record| record.section == Section::Answer);
    // RFC 1035 section 7.4, RFC 2181 section 9: a truncated answer is not cached.
    if u16_at(message, 2) & flag::TC != 0 {
        return Meaning::Unkept;
    }
    match rcode {
        rcode::NOERROR => {
            let wanted = |record: &Record| record.rtype == qtype || qtype == rtype::ANY;
            let alias = |record: &Record| matches!(record.rtype, rtype::CNAME | rtype::DNAME);
            if answers.clone().any(wanted) {
                Meaning::Success
            } else if soa {
                Meaning::Denial
            } else if answers.any(|record| !alias(record) && record.rtype != rtype::RRSIG) {
                // A type unknown here may answer a question of unknown type.
                Meaning::Success
            } else {
                Meaning::Unkept
            }
        }
        rcode::NXDOMAIN if soa => Meaning::Denial,
        rcode::NXDOMAIN => Meaning::Unkept,
        _ => Meaning::Failure,
    }
}

/// Where names are in the data of a type: bytes before the first, number of names, bytes after the last.
/// Covers the types that may hold compressed names (RFC 3597 section 4: those of RFC 1035), and two whose
/// names other software decompresses; the data of all others is opaque.
pub fn names_in_data(of: u16) -> Option<(usize, usize, usize)> {
    const MINFO: u16 = 14;
    match of {
        rtype::NS | rtype::CNAME | rtype::PTR | rtype::DNAME => Some((0, 1, 0)),
        rtype::MX => Some((2, 1, 0)),
        rtype::SRV => Some((6, 1, 0)),
        rtype::SOA => Some((0, 2, 20)),
        MINFO => Some((0, 2, 0)),
        // MD, MF, MB, MG and MR: the mail types before MX (RFC 1035 section 3.3).
        3 | 4 | 7 | 8 | 9 => Some((0, 1, 0)),
        _ => None,
    }
}

/// Rejects a record whose data violates the form of its type: its receiver would relay or read it wrongly.
/// Data of types not known here is opaque (RFC 3597 section 3). The cost is proportional to the record's
/// bytes and names.
///
/// # Errors
/// The data is longer or shorter than its type allows, or a name in it ends in the wrong place.
pub fn check_data(message: &[u8], record: &Record) -> Result<(), BadRecords> {
    const SPF: u16 = 99;
    let data = &message[record.data.clone()];
    let well_formed = match record.rtype {
        // RFC 1035 section 3.4.1; in other classes the type means something else.
        rtype::A => record.class != CLASS_IN || data.len() == 4,
        // RFC 3596 section 2.2.
        rtype::AAAA => record.class != CLASS_IN || data.len() == 16,
        // Some servers send none where RFC 1035 section 3.3.14 requires one or more. We do not reject that.
        rtype::TXT | SPF => data.is_empty() || are_strings(data),
        _ => are_names(message, record),
    };
    if well_formed { Ok(()) } else { Err(BadRecords) }
}

/// How many seconds an answer may be cached: the lowest TTL of its answer section, or what the SOA of a
/// denial allows (RFC 2308 section 5). None if it has neither.
pub fn least_ttl(message: &[u8]) -> Option<u32> {
    let start = match message.get(4..6)? {
        [0, 1] => super::name::skip_plain(message, super::HEADER).ok()? + super::QUESTION_TAIL,
        _ => return None,
    };
    let (mut least, mut denial) = (None, None);
    for record in Walk::new(message, start, counts(message)).map_while(Result::ok) {
        match record.section {
            Section::Answer => least = Some(least.map_or(record.ttl, |least: u32| least.min(record.ttl))),
            Section::Authority if record.rtype == rtype::SOA => {
                let minimum = message[record.data]
                    .last_chunk()
                    .map(|octets| u32::from_be_bytes(*octets));
                denial = minimum.map(|minimum| minimum.min(record.ttl));
            }
            _ => {}
        }
    }
    least.or(denial)
}

/// Reduces the TTLs of all records by `by` seconds.
pub fn age(message: &mut [u8], by: u32) {
    let Ok(start) = super::name::skip_plain(message, super::HEADER) else {
        return;
    };
    let records = Walk::new(message, start + super::QUESTION_TAIL, counts(message)).map_while(Result::ok);
    // OPT records hold flags in that field.
    let aging: Vec<_> = records.filter(|record| record.rtype != rtype::OPT).collect();
    for record in aging {
        let ttl = record.ttl.saturating_sub(by).to_be_bytes();
        message[record.ttl_at..record.ttl_at + 4].copy_from_slice(&ttl);
    }
}

/// Whether `data` is one or more character-strings and nothing else (RFC 1035 section 3.3.14).
pub(super) fn are_strings(mut data: &[u8]) -> bool {
    loop {
        let Some((&length, rest)) = data.split_first() else {
            return false;
        };
        match rest.get(usize::from(length)..) {
            Some([]) => return true,
            Some(rest) => data = rest,
            None => return false,
        }
    }
}

/// Whether the names that its type defines fill a record's data exactly; a name could otherwise end beyond
/// it, in a record that is not relayed.
fn are_names(message: &[u8], record: &Record) -> bool {
    let Some((before, names, behind)) = names_in_data(record.rtype) else {
        return true;
    };
    let end = (0..names).try_fold(record.data.start + before, |at, _| {
        name::skip_compressed(message, at)
    });
    end.is_ok_and(|end| end + behind == record.data.end)
}

/// Checks the names in a record's data.
fn check_names(names: &mut Names<'_>, message: &[u8], record: &Record) -> Result<(), BadRecords> {
    check_data(message, record)?;
    let (before, count, _) = names_in_data(record.rtype).unwrap_or_default();
    let mut end = record.data.start + before;
    for _ in 0..count {
        names.at(end).map_err(|_| BadRecords)?;
        end = name::skip_compressed(message, end).map_err(|_| BadRecords)?;
    }
    Ok(())
}

/// Removes OPT, which precedes the records `behind` it. Pointers lead backwards, so only those records' names
/// can point into the part that moves.
fn cut_out(message: &mut Vec<u8>, opt: &Record, behind: &[Owned]) -> Result<(), BadRecords> {
    let length = opt.data.end - opt.start;
    for (record, _) in behind {
        let (before, count, _) = names_in_data(record.rtype).unwrap_or_default();
        let mut start = record.start;
        for name in 0..=count {
            let (end, pointer) = name::ending(message, start).map_err(|_| BadRecords)?;
            if let Some(at) = pointer {
                let target = usize::from(u16_at(message, at) & 0x3fff);
                if target >= opt.data.end {
                    let moved = 0xc000 | (target - length) as u16;
                    message[at..end].copy_from_slice(&moved.to_be_bytes());
                } else if target >= opt.start {
                    return Err(BadRecords);
                }
            }
            start = if name == 0 {
                record.data.start + before
            } else {
                end
            };
        }
    }
    message.drain(opt.start..opt.data.end);
    Ok(())
}

/// The end of the question of a message that has one or none.
pub(super) fn question_end(message: &[u8]) -> Result<usize, BadRecords> {
    if message.len() < HEADER || message.len() > super::MESSAGE_MAXIMUM {
        return Err(BadRecords);
    }
    match u16_at(message, 4) {
        0 => Ok(HEADER),
        1 => {
            let name_end = name::skip_plain(message, HEADER).map_err(|_| BadRecords)?;
            let end = name_end + QUESTION_TAIL;
            if end <= message.len() {
                Ok(end)
            } else {
                Err(BadRecords)
            }
        }
        _ => Err(BadRecords),
    }
}

/// The last of the SOA's five numbers, which [`check_data`] has checked.
fn soa_minimum(message: &[u8], record: &Record) -> u32 {
    u32_at(message, record.data.end - 4)
}

/// Gives the records of each set their lowest TTL (RFC 2181 section 5.2); a TTL with its top bit set counts
/// as 0 (section 8). Reorders `records`.
fn equalise(message: &mut [u8], records: &mut [Owned]) {
    let set = |(record, owner): &Owned| (record.section as u8, record.rtype, record.class, *owner);
    records.sort_unstable_by_key(set);
    for records in records.chunk_by_mut(|a, b| set(a) == set(b)) {
        for (record, _) in &mut *records {
            if record.ttl & 0x8000_0000 != 0 {
                record.ttl = 0;
            }
        }
        let lowest = records.iter().map(|(record, _)| record.ttl).min().unwrap_or(0);
        for (record, _) in records {
            // RRSIGs of one name cover different sets, so each keeps its own TTL.
            if record.rtype != rtype::RRSIG {
                record.ttl = lowest;
            }
            message[record.ttl_at..record.ttl_at + 4].copy_from_slice(&record.ttl.to_be_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::name::Name;
    use super::*;
    use proptest::prelude::*;

    /// A response to `a.test A` with the given records as (section, owner, type, ttl, data).
    fn response(rcode: u8, qtype: u16, records: &[(usize, &str, u16, u32, &[u8])]) -> Vec<u8> {
        let mut message = vec![0, 1, 0x81, 0x80 | rcode, 0, 1, 0, 0, 0, 0, 0, 0];
        message.extend(b"\x01a\x04test\0");
        message.extend(qtype.to_be_bytes());
        message.extend([0, 1]);
        for &(section, owner, rtype, ttl, data) in records {
            message[7 + 2 * section] += 1;
            message.extend(Name::parse(owner).unwrap().as_bytes());
            message.extend(rtype.to_be_bytes());
            message.extend([0, 1]);
            message.extend(ttl.to_be_bytes());
            message.extend((data.len() as u16).to_be_bytes());
            message.extend(data);
        }
        message
    }

    fn soa(minimum: u32) -> Vec<u8> {
        let mut data = vec![0, 0];
        data.extend([0; 16]);
        data.extend(minimum.to_be_bytes());
        data
    }

    const OPT: (usize, &str, u16, u32, &[u8]) = (2, ".", rtype::OPT, 0, &[]);

    /// RFC 8484 section 5.1: how long HTTP caches may keep a message, and how a cached one ages.
    #[test]
    fn caches_of_http_keep_to_ttls() {
        let address: &[u8] = &[1, 2, 3, 4];
        let mut answer = response(
            0,
            1,
            &[(0, "a.test", 1, 60, address), (0, "a.test", 1, 30, address), OPT],
        );
        assert_eq!(least_ttl(&answer), Some(30));
        age(&mut answer, 40);
        let flags = (2, ".", rtype::OPT, 0, &[][..]);
        let aged = [(0, "a.test", 1, 20, address), (0, "a.test", 1, 0, address), flags];
        assert_eq!(answer, response(0, 1, &aged));
        let denial = response(3, 1, &[(1, "test", rtype::SOA, 300, &soa(7))]);
        assert_eq!(least_ttl(&denial), Some(7));
        let failure = response(2, 1, &[]);
        assert_eq!(least_ttl(&failure), None);
        for length in 0..answer.len() {
            least_ttl(&answer[..length]);
            age(&mut answer[..length], 1);
        }
    }

    #[test]
    fn opt_is_taken_out() {
        let with = response(0, 1, &[(0, "a.test", 1, 60, &[1, 2, 3, 4]), OPT]);
        let without = response(0, 1, &[(0, "a.test", 1, 60, &[1, 2, 3, 4])]);
        let answer = Answer::read(with).unwrap();
        assert_eq!(answer.message, without);
        assert_eq!((answer.ttl, answer.meaning), (60, Meaning::Success));
        assert_eq!(u32_at(&without, usize::from(answer.ttl_offsets[0])), 60);
        let between = response(
            0,
            1,
            &[
                (0, "a.test", 1, 60, &[1, 2, 3, 4]),
                OPT,
                (2, "b.test", 1, 5, &[4, 3, 2, 1]),
            ],
        );
        let answer = Answer::read(between).unwrap();
        assert_eq!((answer.ttl_offsets.len(), answer.ttl), (2, 5));
        let extended = response(0, 1, &[(2, ".", rtype::OPT, 1 << 24, &[])]);
        assert_eq!(Answer::read(extended).unwrap().rcode, 16);
    }

    /// Records after OPT move, and pointers to them are adjusted.
    #[test]
    fn pointers_past_opt_lead_where_they_did() {
        let mut with = response(
            0,
            1,
            &[
                (2, "x.test", 1, 60, &[1, 2, 3, 4]),
                OPT,
                (2, "b.test", 1, 5, &[4, 3, 2, 1]),
            ],
        );
        let b = with.len() - 14 - 8;
        // An owner; a label with a pointer; a bare pointer: they lead to records after and before OPT and to
        // the question. A byte inside a label that looks like a pointer is none.
        let more = [
            &(0xc000 | b as u16).to_be_bytes()[..],
            b"\x00\x05\0\x01\0\0\0\x07\0\x04\x01y",
            &(0xc000 | (b as u16 + 2)).to_be_bytes(),
            b"\x01\xc0\x00\x00\x05\0\x01\0\0\0\x07\0\x02\xc0\x0c",
        ];
        with.extend(more.concat());
        with[11] += 2;
        let answer = Answer::read(with).unwrap();
        let lines = super::super::text::record_lines(&answer.message, Section::Additional);
        let expected = [
            "x.test. 60 IN A 1.2.3.4",
            "b.test. 5 IN A 4.3.2.1",
            "b.test. 7 IN CNAME y.test.",
            "\\192. 7 IN CNAME a.test.",
        ];
        assert_eq!(lines, expected);
        // Pointers into OPT itself are rejected.
        let mut into = response(0, 1, &[OPT, (2, "b.test", 1, 5, &[4, 3, 2, 1])]);
        into.extend(b"\xc0\x18\0\x01\0\x01\0\0\0\x05\0\x04\x01\x02\x03\x04");
        into[11] += 1;
        assert!(Answer::read(into).is_err());
    }

    /// If no additional record is counted, the count cannot be reduced.
    #[test]
    fn opt_in_another_section_is_refused() {
        for section in [0, 1] {
            let (_, name, rtype, ttl, data) = OPT;
            let misplaced = response(0, 1, &[(section, name, rtype, ttl, data)]);
            assert!(Answer::read(misplaced).is_err(), "section {section}");
        }
    }

    /// RFC 2308 section 5.
    #[test]
    fn negative_answers_live_as_long_as_the_soa_says() {
        for (rcode, ttl, minimum, expected) in [(3, 300, 2, 2), (3, 2, 300, 2), (0, 300, 7, 7)] {
            let soa = soa(minimum);
            let answer = Answer::read(response(rcode, 1, &[(1, "test", rtype::SOA, ttl, &soa)])).unwrap();
            assert_eq!((answer.meaning, answer.ttl), (Meaning::Denial, expected));
        }
        for rcode in [0, 3] {
            assert_eq!(
                Answer::read(response(rcode, 1, &[])).unwrap().meaning,
                Meaning::Unkept
            );
        }
        let referral = response(0, 1, &[(1, "test", rtype::NS, 60, b"\x02ns\0")]);
        assert_eq!(Answer::read(referral).unwrap().meaning, Meaning::Unkept);
        assert_eq!(
            Answer::read(response(2, 1, &[])).unwrap().meaning,
            Meaning::Failure
        );
    }

    /// RFC 2181 sections 5.2 and 8.
    #[test]
    fn ttls_of_a_set_are_the_lowest() {
        let answer = Answer::read(response(
            0,
            1,
            &[
                (0, "a.test", 1, 60, &[1, 2, 3, 4]),
                (0, "A.test", 1, 30, &[1, 2, 3, 5]),
                (0, "b.test", 1, 90, &[1, 2, 3, 6]),
            ],
        ))
        .unwrap();
        let ttls: Vec<_> = answer
            .ttl_offsets
            .iter()
            .map(|&at| u32_at(&answer.message, usize::from(at)))
            .collect();
        assert_eq!(ttls, [30, 30, 90]);
        let negative = response(0, 1, &[(0, "a.test", 1, 0x8000_0001, &[1, 2, 3, 4])]);
        assert_eq!(Answer::read(negative).unwrap().ttl, 0);
    }

    /// Data that ends in the wrong place for its type would be read with what follows it, or not at all.
    #[test]
    fn data_has_the_form_of_its_type() {
        let soa = soa(5);
        let cases: [(u16, &[u8], bool); 24] = [
            (rtype::A, &[192, 0, 2, 1], true),
            (rtype::A, &[192, 0, 2], false),
            (rtype::A, &[192, 0, 2, 1, 0], false),
            (rtype::A, &[], false),
            (rtype::AAAA, &[0; 16], true),
            (rtype::AAAA, &[0; 17], false),
            (rtype::AAAA, &[0; 4], false),
            (rtype::TXT, b"\x03abc\0\x01d", true),
            (rtype::TXT, b"\0", true),
            // Some servers send this instead of one empty string.
            (rtype::TXT, b"", true),
            (rtype::TXT, b"\x03ab", false),
            (99, b"\x01a\x02b", false),
            (rtype::CNAME, b"\x01b\0", true),
            (rtype::CNAME, b"\x01b\xc0\x0c", true),
            (rtype::CNAME, b"\x01b\0\0", false),
            (rtype::CNAME, b"\x01b", false),
            (rtype::CNAME, b"", false),
            (rtype::MX, b"\0\x0a\0", true),
            (rtype::MX, b"\0", false),
            (rtype::SRV, b"\0\0\0\0\0\x35\xc0\x0c", true),
            (rtype::SOA, &soa, true),
            (rtype::SOA, &soa[..soa.len() - 1], false),
            (14, b"\0\xc0\x0c", true),
            (rtype::HINFO, b"\x3f", true),
        ];
        for (rtype, data, good) in cases {
            let answer = Answer::read(response(0, rtype, &[(0, "a.test", rtype, 60, data)]));
            assert_eq!(answer.is_ok(), good, "type {rtype}, {data:02x?}");
        }
    }

    /// RFC 1035 section 4.1.4. Owners and names in data are checked alike, and through the same pointers.
    #[test]
    fn pointers_in_answers_lead_somewhere() {
        let owned = |owner: &[u8]| {
            let mut message = response(0, 1, &[]);
            message[7] = 1;
            message.extend(owner);
            message.extend(b"\0\x01\0\x01\0\0\0\x3c\0\x04\x7f\0\0\x01");
            message
        };
        assert!(Answer::read(owned(b"\xc0\x0c")).is_ok());
        // The owner is at 24, the data at 42.
        for bad in [&b"\xc0\x00"[..], b"\xff\xff", b"\xc0\x2a", b"\x01a\xc0\x2a"] {
            assert!(Answer::read(owned(bad)).is_err(), "{bad:02x?}");
            let data = response(0, 5, &[(0, "a.test", rtype::CNAME, 60, bad)]);
            assert!(Answer::read(data).is_err(), "{bad:02x?}");
        }
    }

    #[test]
    fn what_follows_the_records_is_cut_off() {
        let mut message = response(0, 1, &[(0, "a.test", 1, 60, &[1, 2, 3, 4])]);
        let whole = message.clone();
        message.extend(b"garbage");
        assert_eq!(Answer::read(message).unwrap().message, whole);
    }

    proptest! {
        #[test]
        fn no_octets_make_it_panic(message in prop::collection::vec(any::<u8>(), 0..300)) {
            if let Ok(mut answer) = Answer::read(message) {
                answer.clamp(1, 10);
            }
        }

        #[test]
        fn no_damage_makes_it_panic(damage in prop::collection::vec((12usize..120, any::<u8>()), 1..6)) {
            let soa = soa(5);
            let mut message = response(0, 1, &[
                (0, "a.test", 5, 60, b"\xc0\x0c"), (0, "b.test", 1, 60, &[1, 2, 3, 4]),
                (1, "test", rtype::SOA, 9, &soa), OPT, (2, "x.test", 1, 5, &[4, 3, 2, 1])]);
            for (at, value) in damage {
                if let Some(octet) = message.get_mut(at) {
                    *octet = value;
                }
            }
            if let Ok(mut answer) = Answer::read(message) {
                answer.clamp(1, 10);
                answer.set_rcode(3);
            }
        }
    }
}
