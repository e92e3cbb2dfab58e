//! Messages are read as another implementation, hickory-proto, reads them.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::time::Duration;

use dnsweir_filter::{Message, NameBuf, Record, Type, Unreadable};
use hickory_proto::rr;
use hickory_proto::serialize::binary::{BinDecodable, BinEncodable, BinEncoder, NameEncoding};

/// A question for `a.test`; the name begins at byte 12.
const QUESTION: &[u8] = b"\x01a\x04test\0\0\x01\0\x01";

/// A message with this question and these records.
fn message(flags: u8, counts: [u8; 3], records: &[u8]) -> Vec<u8> {
    let [answers, authority, additional] = counts;
    let header = [0, 0, flags, 0, 0, 1, 0, answers, 0, authority, 0, additional];
    [&header, QUESTION, records].concat()
}

const RESPONSE: u8 = 0x80;

/// The bytes of a record whose owner has this spelling.
fn record(owner: &[u8], rtype: Type, data: &[u8]) -> Vec<u8> {
    let length = (data.len() as u16).to_be_bytes();
    [
        owner,
        &rtype.0.to_be_bytes(),
        b"\0\x01\0\0\x01\x2c",
        &length,
        data,
    ]
    .concat()
}

/// Owner, type, class, TTL and data of a record, without compression, names of owners in lower case.
type Row = (Vec<u8>, u16, u16, Duration, Vec<u8>);

fn ours(record: &Record) -> Row {
    let name = record.name().as_wire().to_vec();
    let (rtype, class) = (record.rtype().0, record.class().0);
    (name, rtype, class, record.ttl(), record.data().to_vec())
}

fn theirs(record: &rr::Record) -> Row {
    let name = record.name.to_lowercase().to_bytes().unwrap();
    let (rtype, class) = (record.record_type().into(), record.dns_class.into());
    // RFC 2181 section 8.
    let ttl = i32::try_from(record.ttl).unwrap_or(0);
    let ttl = Duration::from_secs(ttl as u64);
    let mut data = Vec::new();
    let mut encoder = BinEncoder::new(&mut data);
    encoder.set_name_encoding(NameEncoding::Uncompressed);
    record.data.emit(&mut encoder).unwrap();
    (name, rtype, class, ttl, data)
}

/// The records of each section; none if the message is malformed.
fn read_by_us(wire: &[u8]) -> Option<[Vec<Row>; 3]> {
    let message = Message::read(wire).ok()?;
    let sections = [message.answers(), message.authority(), message.additional()];
    Some(sections.map(|section| section.iter().map(ours).collect()))
}

fn read_by_them(wire: &[u8]) -> Option<[Vec<Row>; 3]> {
    let message = hickory_proto::op::Message::from_bytes(wire).ok()?;
    let sections = [message.answers, message.authorities, message.additionals];
    Some(sections.map(|section| section.iter().map(theirs).collect()))
}

#[test]
fn sections_are_those_that_hickory_reads() {
    const UPDATE: u8 = 5 << 3;
    let records: [&[u8]; 4] = [
        b"\0\0\x01\0\x01\0\0\0\x3c\0\x04\xc0\0\x02\x01", // an address
        b"\0\0\x01\0\x01\0\0\0\x3c\0\0",                 // no data
        b"\0\0\x18\0\xff\0\0\0\0\0\x140123456789abcdef01\0x", // SIG
        b"\0\0\x29\x04\xd0\0\0\0\0\0\0",                 // OPT
    ];
    let pairs = records.map(|first| records.map(|second| [first, second].concat()));
    let counts = [[2, 0, 0], [0, 2, 0], [0, 0, 2], [1, 0, 1], [0, 0, 3]];
    for pair in pairs.as_flattened() {
        for counts in counts {
            for flags in [RESPONSE, UPDATE] {
                let wire = message(flags, counts, pair);
                assert_eq!(read_by_us(&wire), read_by_them(&wire), "{wire:?}");
            }
        }
    }
}

/// Some servers send TXT without strings, which the proxy lets pass, but takes from no filter.
#[test]
fn some_records_may_be_without_data() {
    for (rtype, is_writable) in [
        (Type::TXT, Some(false)),
        (Type::NULL, Some(true)),
        (Type(65_280), Some(true)),
        (Type::A, None),
        (Type::NS, None),
        (Type::HTTPS, None),
    ] {
        let wire = message(RESPONSE, [1, 0, 0], &record(b"\0", rtype, b""));
        let message = Message::read(&wire).ok();
        let found = message.map(|message| message.answers()[0].is_writable());
        assert_eq!(found, is_writable, "{rtype}");
    }
}

/// RFC 2181 section 8.
#[test]
fn a_ttl_with_its_top_bit_set_is_0() {
    for (ttl, seconds) in [
        ([0, 0, 1, 0x2c], 300),
        ([0x7f, 0xff, 0xff, 0xff], i32::MAX as u64),
        ([0x80, 0, 0, 0], 0),
        ([0xff; 4], 0),
    ] {
        let record = [b"\0\0\x01\0\x01", &ttl[..], b"\0\x04\xc0\0\x02\x01"].concat();
        let message = Message::read(&message(RESPONSE, [1, 0, 0], &record)).unwrap();
        let expected = Duration::from_secs(seconds);
        assert_eq!(message.answers()[0].ttl(), expected, "{ttl:?}");
    }
}

/// The types whose names may be compressed, the bytes before their names, the number of names, and the bytes behind.
const FORMS: [(Type, &[u8], usize, &[u8]); 23] = [
    (Type::NS, b"", 1, b""),
    (Type::MD, b"", 1, b""),
    (Type::MF, b"", 1, b""),
    (Type::CNAME, b"", 1, b""),
    (Type::SOA, b"", 2, b"serial  refresh retr"),
    (Type::MB, b"", 1, b""),
    (Type::MG, b"", 1, b""),
    (Type::MR, b"", 1, b""),
    (Type::PTR, b"", 1, b""),
    (Type::MINFO, b"", 2, b""),
    (Type::MX, b"\0\x0a", 1, b""),
    (Type::RP, b"", 2, b""),
    (Type::AFSDB, b"\0\x01", 1, b""),
    (Type::RT, b"\0\x0a", 1, b""),
    (Type::SIG, b"what is before it.", 1, b"signature"),
    (Type::PX, b"\0\x0a", 2, b""),
    (Type::NXT, b"", 1, b"\x40"),
    (Type::SRV, b"\0\x01\0\x02\0\x50", 1, b""),
    (Type::NAPTR, b"\0\x01\0\x02\x01u\x07E2U+sip\x03!x!", 1, b""),
    (Type::DNAME, b"", 1, b""),
    (
        Type::SVCB,
        b"\0\x01",
        1,
        b"\0\x01\0\x03\x02h2\0\x04\0\x04\xc0\0\x02\x01",
    ),
    (Type::HTTPS, b"\0\x01", 1, b"\0\x03\0\x02\x01\xbb"),
    (Type::TXT, b"\x03abc\0\x02de", 0, b""),
];

/// Whether hickory-proto knows one of these types, too; it leaves the others compressed.
fn is_known_to_them(rtype: Type) -> bool {
    let is_known = ![3, 4, 7, 8, 9, 14, 17, 18, 21, 24, 26, 30, 39].contains(&rtype.0);
    is_known && FORMS.iter().any(|(known, ..)| *known == rtype)
}

#[test]
fn names_in_data_are_expanded() {
    // The first record's owner is a pointer, and the name of the second ends in a pointer to that.
    let first = record(b"\x01B\xc0\x0c", Type::A, &[192, 0, 2, 1]);
    let owner = 0xc0_u8;
    let at = (12 + QUESTION.len()) as u8;
    let spellings: [(&[u8], &[u8]); 4] = [
        (b"\x02NS\x04test\0", b"\x02NS\x04test\0"),
        (b"\xc0\x0c", b"\x01a\x04test\0"),
        (&[2, b'n', b's', owner, at], b"\x02ns\x01B\x01a\x04test\0"),
        (b"\0", b"\0"),
    ];
    for (rtype, before, names, behind) in FORMS {
        for (spelling, name) in spellings {
            let compressed = [before, &spelling.repeat(names), behind].concat();
            let data = [before, &name.repeat(names), behind].concat();
            let records = [first.clone(), record(&[owner, at], rtype, &compressed)].concat();
            // SIG may stand in the last section only.
            let wire = message(RESPONSE, [0, 0, 2], &records);
            let found = Message::read(&wire).unwrap();
            let found = &found.additional()[1];
            assert_eq!(found.name().to_string(), "b.a.test.");
            assert_eq!((found.rtype(), found.data()), (rtype, &data[..]));
            let target = found.target().map(|target| target.as_name().as_wire().to_vec());
            assert_eq!(target, (names > 0).then(|| name.to_ascii_lowercase()), "{rtype}");
            if is_known_to_them(rtype) {
                assert_eq!(read_by_us(&wire), read_by_them(&wire), "{rtype}");
            }
            // Neither less nor more.
            for cut in [
                &compressed[..compressed.len() - 1],
                &[&compressed[..], b"\x02"].concat(),
            ] {
                let wire = message(RESPONSE, [0, 0, 1], &record(b"\0", rtype, cut));
                let is_open = matches!(rtype, Type::SIG | Type::NXT);
                assert_eq!(
                    Message::read(&wire).is_ok(),
                    is_open && !cut.is_empty(),
                    "{rtype} {cut:?}"
                );
            }
        }
    }
}

#[test]
fn a_new_target_takes_the_place_of_the_old_one() {
    let new: NameBuf = "new.example".parse().unwrap();
    for (rtype, before, names, behind) in FORMS {
        let data = [before, &b"\xc0\x0c".repeat(names), behind].concat();
        let wire = message(RESPONSE, [0, 0, 1], &record(b"\0", rtype, &data));
        let message = Message::read(&wire).unwrap();
        let mut record = message.additional()[0].clone();
        record.set_target(&new);
        assert_eq!(record.target(), (names > 0).then(|| new.clone()), "{rtype}");
        let others = b"\x01a\x04test\0".repeat(names.saturating_sub(1));
        let name = if names > 0 {
            &b"\x03new\x07example\0"[..]
        } else {
            b""
        };
        assert_eq!(record.data(), [before, name, &others, behind].concat());
    }
}

#[test]
fn addresses_are_found_where_they_stand() {
    let hints = b"\0\x01\0\0\x04\0\x08\xc0\0\x02\x01\xc0\0\x02\x02\0\x06\0\x10 \x01\x0d\xb8\0\0\0\0\0\0\0\0\0\0\0\x01";
    let records = [
        record(b"\0", Type::A, &[192, 0, 2, 1]),
        record(b"\0", Type::AAAA, &[0; 16]),
        record(b"\0", Type::HTTPS, hints),
        record(b"\0", Type(65_280), &[192, 0, 2, 1]),
    ];
    let message = Message::read(&message(RESPONSE, [4, 0, 0], &records.concat())).unwrap();
    let text = |address: std::net::IpAddr| address.to_string();
    let addresses: Vec<String> = message.addresses().map(text).collect();
    assert_eq!(addresses, ["192.0.2.1", "::"]);
    let hints: Vec<String> = message
        .answers()
        .iter()
        .flat_map(Record::hints)
        .map(text)
        .collect();
    assert_eq!(hints, ["192.0.2.1", "192.0.2.2", "2001:db8::1"]);
}

#[test]
fn malformed_services_are_not_read() {
    for parameters in [
        &b"\0\x04\0\x03\xc0\0\x02"[..],              // part of an address
        b"\0\x06\0\x04\xc0\0\x02\x01",               // an address of another kind
        b"\0\x01\0\x04\x02h2",                       // beyond the data
        b"\0\x03\0\x02\x01\xbb\0\x01\0\x03\x02h2",   // not in order
        b"\0\x03\0\x02\x01\xbb\0\x03\0\x02\x01\xbb", // twice
        b"\0\x03\0",
    ] {
        let data = [b"\0\x01\0", parameters].concat();
        let wire = message(RESPONSE, [1, 0, 0], &record(b"\0", Type::HTTPS, &data));
        assert_eq!(read_by_us(&wire), None, "{parameters:?}");
        assert_eq!(read_by_them(&wire), None, "{parameters:?}");
    }
}

#[test]
fn pointers_lead_backwards_and_not_for_ever() {
    let at = (12 + QUESTION.len()) as u8;
    for owner in [
        &[0xc0, at][..],      // itself
        &[0xc0, at + 1],      // itself, and what follows
        &[0xc0, at + 40],     // beyond it
        &[0xff, 0xff],        // beyond the message
        &[1, b'x', 0xc0, at], // its own beginning
        &[0xc0],
        &[0x80, 0x0c], // no label and no pointer
    ] {
        let wire = message(RESPONSE, [1, 0, 0], &record(owner, Type::A, &[192, 0, 2, 1]));
        assert_eq!(Message::read(&wire).unwrap_err(), Unreadable, "{owner:?}");
        assert_eq!(read_by_them(&wire), None, "{owner:?}");
    }
    // Pointers to pointers, as data of a record.
    let chained = |count: usize| {
        let begins = 12 + QUESTION.len() + record(b"\0", Type(65_280), &[]).len();
        let mut data = vec![0xc0, 0x0c];
        for number in 1..count {
            let before = (begins + 2 * (number - 1)) as u16 | 0xc000;
            data.extend(before.to_be_bytes());
        }
        let last = (begins + data.len() - 2) as u16 | 0xc000;
        let alias = record(b"\0", Type::CNAME, &last.to_be_bytes());
        message(
            RESPONSE,
            [2, 0, 0],
            &[record(b"\0", Type(65_280), &data), alias].concat(),
        )
    };
    let aliases = |count| Some(Message::read(&chained(count)).ok()?.aliases().count());
    assert_eq!((aliases(126), aliases(127)), (Some(1), None));
}

/// Makes messages, always the same ones.
struct Maker {
    state: u64,
    /// Where names begin, and where pointers lead most of the time.
    places: Vec<usize>,
}

impl Maker {
    fn new() -> Maker {
        Maker {
            state: 0x2545_f491_4f6c_dd1d,
            places: Vec::new(),
        }
    }

    fn below(&mut self, end: usize) -> usize {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        (self.state >> 16) as usize % end
    }

    /// A name at this place: labels, and at the end a root or a pointer.
    fn name(&mut self, at: usize) -> Vec<u8> {
        let mut name = Vec::new();
        for _ in 0..self.below(3) {
            name.extend([1, b"aBcD"[self.below(4)]]);
        }
        let place = self.below(self.places.len());
        let target = match self.below(10) {
            0 => at + self.below(8),
            _ => self.places[place],
        };
        match self.below(3) {
            0 => name.push(0),
            _ => name.extend((0xc000 | target as u16).to_be_bytes()),
        }
        self.places.push(at);
        name
    }

    /// A record at this place whose data nearly always has the form of its type.
    fn record(&mut self, at: usize) -> Vec<u8> {
        let known = FORMS.iter().filter(|(rtype, ..)| is_known_to_them(*rtype));
        let known: Vec<_> = known.collect();
        let (rtype, before, names, behind) = *known[self.below(known.len())];
        let owner = self.name(at);
        let mut data = before.to_vec();
        for _ in 0..names {
            let name = self.name(at + owner.len() + 10 + data.len());
            data.extend(name);
        }
        data.extend(behind);
        if self.below(20) == 0 {
            data.pop();
        }
        record(&owner, rtype, &data)
    }

    /// A message with some records, all answers.
    fn message(&mut self) -> Vec<u8> {
        self.places = vec![12, 14];
        let (mut records, count) = (Vec::new(), 1 + self.below(4));
        for _ in 0..count {
            let record = self.record(12 + QUESTION.len() + records.len());
            records.extend(record);
        }
        message(RESPONSE, [count as u8, 0, 0], &records)
    }
}

#[test]
fn messages_are_read_alike() {
    let (mut maker, mut readable) = (Maker::new(), 0);
    for _ in 0..20_000 {
        let wire = maker.message();
        let ours = read_by_us(&wire);
        assert_eq!(ours, read_by_them(&wire), "{wire:?}");
        readable += usize::from(ours.is_some());
    }
    assert!((5000..15_000).contains(&readable), "{readable}");
}

/// It neither panics nor takes long. hickory-proto reads more: names that reach into what points to them.
#[test]
fn whatever_comes_is_read_or_not() {
    let (mut maker, mut readable) = (Maker::new(), 0);
    for _ in 0..50_000 {
        let mut wire = maker.message();
        // More answers, and more records, than there are.
        wire[7] = (wire[7] + maker.below(2) as u8).saturating_sub(maker.below(2) as u8);
        wire[11] = maker.below(20) as u8 / 18;
        for _ in 0..1 + maker.below(6) {
            let at = 12 + maker.below(wire.len() - 12);
            wire[at] = [0, 0xc0, 0xff, maker.below(256) as u8][maker.below(4)];
        }
        wire.truncate(wire.len() - maker.below(20) / 15);
        let Ok(message) = Message::read(&wire) else {
            continue;
        };
        readable += 1;
        // Strings in these must be text to hickory-proto, and none may be without data.
        let strict = [Type::NAPTR, Type::SVCB, Type::HTTPS];
        let is_lenient = |record: &Record| strict.contains(&record.rtype()) || record.data().is_empty();
        let mut records = message.answers().iter().chain(message.additional());
        if records.all(|record| is_known_to_them(record.rtype()) && !is_lenient(record)) {
            assert_eq!(read_by_us(&wire), read_by_them(&wire), "{wire:?}");
        }
        for record in message.answers().iter().chain(message.additional()) {
            let mut record = record.clone();
            assert!(record.hints().count() <= wire.len());
            record.set_target(&NameBuf::root());
            assert!(record.target().is_none_or(|target| target == NameBuf::root()));
        }
    }
    assert!((5000..45_000).contains(&readable), "{readable}");
}
