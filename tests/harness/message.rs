//! DNS messages as the tests write and read them.
//!
//! Records are lines of a zone file in both directions, `www.example. 300 A 192.0.2.1`, so that a test shows
//! what it sends and expects. This is deliberately not the proxy's own DNS library, so that both do not make
//! the same mistakes. It checks less than a server must; whatever it cannot read is a test failure.

use std::fmt::{self, Write as _};
use std::net::{Ipv4Addr, Ipv6Addr};

/// Bits of the header's second 16.
pub mod flags {
    /// Response.
    pub const QR: u16 = 0x8000;
    /// Authoritative answer.
    pub const AA: u16 = 0x0400;
    /// Truncated.
    pub const TC: u16 = 0x0200;
    /// Recursion desired.
    pub const RD: u16 = 0x0100;
    /// Recursion available.
    pub const RA: u16 = 0x0080;
    /// Reserved; must be zero.
    pub const Z: u16 = 0x0040;
    /// Authentic data.
    pub const AD: u16 = 0x0020;
    /// Checking disabled.
    pub const CD: u16 = 0x0010;
}

/// Types by number; the ones with a name in [`type_name`].
pub const OPT: u16 = 41;
/// EDNS option: TCP keepalive (RFC 7828).
pub const KEEPALIVE: u16 = 11;
/// EDNS option: extended error (RFC 8914).
pub const EXTENDED_ERROR: u16 = 15;

const TYPES: &[(&str, u16)] = &[
    ("A", 1),
    ("NS", 2),
    ("CNAME", 5),
    ("SOA", 6),
    ("PTR", 12),
    ("MX", 15),
    ("TXT", 16),
    ("AAAA", 28),
    ("SRV", 33),
    ("DS", 43),
    ("HTTPS", 65),
    ("IXFR", 251),
    ("AXFR", 252),
    ("ANY", 255),
];

const RCODES: &[(&str, u16)] = &[
    ("NOERROR", 0),
    ("FORMERR", 1),
    ("SERVFAIL", 2),
    ("NXDOMAIN", 3),
    ("NOTIMP", 4),
    ("REFUSED", 5),
    ("NOTAUTH", 9),
    ("BADVERS", 16),
];

/// Returns the number of a type: `A`, `TYPE65400`.
pub fn type_number(name: &str) -> u16 {
    let known = TYPES
        .iter()
        .find(|(known, _)| *known == name)
        .map(|(_, number)| *number);
    let number = known.or_else(|| name.strip_prefix("TYPE")?.parse().ok());
    number.unwrap_or_else(|| panic!("no such type: {name}"))
}

/// Returns the name of a type, RFC 3597's `TYPE65400` if it has none here.
pub fn type_name(number: u16) -> String {
    let known = TYPES.iter().find(|(_, known)| *known == number);
    known.map_or_else(|| format!("TYPE{number}"), |(name, _)| (*name).to_owned())
}

/// Returns the number of an rcode.
pub fn rcode_number(name: &str) -> u16 {
    let known = RCODES.iter().find(|(known, _)| *known == name);
    known.unwrap_or_else(|| panic!("no such rcode: {name}")).1
}

/// Returns the name of an rcode.
pub fn rcode_name(number: u16) -> String {
    let known = RCODES.iter().find(|(_, known)| *known == number);
    known.map_or_else(|| format!("RCODE{number}"), |(name, _)| (*name).to_owned())
}

/// A DNS message.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Message {
    /// The ID.
    pub id: u16,
    /// The header's second 16 bits.
    pub header: u16,
    /// Usually one.
    pub questions: Vec<Question>,
    /// The answer section.
    pub answers: Vec<Record>,
    /// The authority section.
    pub authority: Vec<Record>,
    /// The additional section, without the OPT record.
    pub additional: Vec<Record>,
    /// The OPT record.
    pub edns: Option<Edns>,
    /// How many bytes followed the message.
    pub trailing: usize,
}

/// A question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Question {
    /// In presentation format, case preserved, ending in a dot.
    pub name: String,
    /// The type.
    pub qtype: u16,
    /// The class; 1 is IN.
    pub class: u16,
}

/// A resource record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// The owner.
    pub name: String,
    /// The type.
    pub rtype: u16,
    /// The class.
    pub class: u16,
    /// Seconds.
    pub ttl: u32,
    /// Uncompressed.
    pub data: Vec<u8>,
}

/// An OPT record (RFC 6891).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Edns {
    /// The UDP payload size.
    pub size: u16,
    /// Upper 8 bits of the rcode.
    pub rcode_high: u8,
    /// The EDNS version.
    pub version: u8,
    /// The flags; the top bit is DO.
    pub flags: u16,
    /// Code and content.
    pub options: Vec<(u16, Vec<u8>)>,
}

impl Message {
    /// A query as a stub resolver sends it: RD, no EDNS.
    pub fn query(name: &str, qtype: &str) -> Message {
        Message {
            id: fresh_id(),
            header: flags::RD,
            questions: vec![Question {
                name: dotted(name),
                qtype: type_number(qtype),
                class: 1,
            }],
            ..Message::default()
        }
    }

    /// Adds an OPT record that advertises this payload size.
    pub fn edns(mut self, size: u16) -> Message {
        self.edns = Some(Edns {
            size,
            ..Edns::default()
        });
        self
    }

    /// Sets DO, in a new OPT record if needed.
    pub fn dnssec_ok(mut self) -> Message {
        self.edns
            .get_or_insert_with(|| Edns {
                size: 1232,
                ..Edns::default()
            })
            .flags |= 0x8000;
        self
    }

    /// Adds an EDNS option, in a new OPT record if needed.
    pub fn option(mut self, code: u16, content: &[u8]) -> Message {
        let edns = self.edns.get_or_insert_with(|| Edns {
            size: 1232,
            ..Edns::default()
        });
        edns.options.push((code, content.to_vec()));
        self
    }

    /// Sets these header bits.
    pub fn set(mut self, bits: u16) -> Message {
        self.header |= bits;
        self
    }

    /// Clears these header bits.
    pub fn clear(mut self, bits: u16) -> Message {
        self.header &= !bits;
        self
    }

    /// Sets the class.
    pub fn class(mut self, class: u16) -> Message {
        for question in &mut self.questions {
            question.class = class;
        }
        self
    }

    /// Sets the opcode.
    pub fn opcode(mut self, opcode: u16) -> Message {
        self.header = self.header & !0x7800 | opcode << 11;
        self
    }

    /// A response to `query`, with NOERROR and no records.
    pub fn reply_to(query: &Message) -> Message {
        Message {
            id: query.id,
            header: flags::QR | flags::RA | query.header & (flags::RD | flags::CD | 0x7800),
            questions: query.questions.clone(),
            edns: query.edns.as_ref().map(|_| Edns {
                size: 1232,
                ..Edns::default()
            }),
            ..Message::default()
        }
    }

    /// Sets the rcode.
    pub fn rcode_set(mut self, name: &str) -> Message {
        let number = rcode_number(name);
        self.header = self.header & !0xf | number & 0xf;
        if number > 0xf {
            self.edns.get_or_insert_default().rcode_high = (number >> 4) as u8;
        }
        self
    }

    /// Returns the rcode, with the upper bits from the OPT record.
    pub fn rcode(&self) -> String {
        let high = self.edns.as_ref().map_or(0, |edns| u16::from(edns.rcode_high));
        rcode_name(high << 4 | self.header & 0xf)
    }

    /// Whether these header bits are all set.
    pub fn has(&self, bits: u16) -> bool {
        self.header & bits == bits
    }

    /// Returns the answer section as lines without TTLs, for comparisons when time has passed.
    pub fn answers(&self) -> Vec<String> {
        self.answers.iter().map(Record::without_ttl).collect()
    }

    /// Returns the TTLs of the answer section.
    pub fn ttls(&self) -> Vec<u32> {
        self.answers.iter().map(|record| record.ttl).collect()
    }

    /// Returns the first TTL of the answer section.
    pub fn ttl(&self) -> u32 {
        self.answers
            .first()
            .unwrap_or_else(|| panic!("no answer in {self}"))
            .ttl
    }

    /// Returns the extended error codes (RFC 8914), in order.
    pub fn extended_errors(&self) -> Vec<u16> {
        let options = self.edns.iter().flat_map(|edns| &edns.options);
        options
            .filter(|(code, _)| *code == EXTENDED_ERROR)
            .map(|(_, content)| u16::from_be_bytes([content[0], content[1]]))
            .collect()
    }

    /// Returns the content of an EDNS option.
    pub fn find_option(&self, code: u16) -> Option<&[u8]> {
        let options = self.edns.iter().flat_map(|edns| &edns.options);
        options
            .filter(|(found, _)| *found == code)
            .map(|(_, content)| content.as_slice())
            .next()
    }

    /// Encodes to wire format, with names uncompressed.
    pub fn encode(&self) -> Vec<u8> {
        let additional = self.additional.len() + usize::from(self.edns.is_some());
        let mut wire = Vec::with_capacity(512);
        let counts = [
            self.questions.len(),
            self.answers.len(),
            self.authority.len(),
            additional,
        ];
        wire.extend(self.id.to_be_bytes());
        wire.extend(self.header.to_be_bytes());
        for count in counts {
            wire.extend((count as u16).to_be_bytes());
        }
        for question in &self.questions {
            wire.extend(encode_name(&question.name));
            wire.extend(question.qtype.to_be_bytes());
            wire.extend(question.class.to_be_bytes());
        }
        for record in self.answers.iter().chain(&self.authority).chain(&self.additional) {
            record.encode(&mut wire);
        }
        if let Some(edns) = &self.edns {
            edns.record().encode(&mut wire);
        }
        wire
    }

    /// Parses wire format; the error says what is wrong with it.
    pub fn decode(wire: &[u8]) -> Result<Message, String> {
        let mut reader = Reader { wire, at: 0 };
        let (id, header) = (reader.u16()?, reader.u16()?);
        let counts = [reader.u16()?, reader.u16()?, reader.u16()?, reader.u16()?];
        let mut message = Message {
            id,
            header,
            ..Message::default()
        };
        for _ in 0..counts[0] {
            let (name, qtype, class) = (reader.name()?, reader.u16()?, reader.u16()?);
            message.questions.push(Question { name, qtype, class });
        }
        for _ in 0..counts[1] {
            message.answers.push(reader.record()?);
        }
        for _ in 0..counts[2] {
            message.authority.push(reader.record()?);
        }
        for _ in 0..counts[3] {
            let record = reader.record()?;
            if record.rtype != OPT {
                message.additional.push(record);
            } else if message.edns.is_some() {
                return Err("two OPT records".to_owned());
            } else {
                message.edns = Some(Edns::from_record(&record)?);
            }
        }
        message.trailing = wire.len() - reader.at;
        Ok(message)
    }
}

impl fmt::Display for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} id {} header {:#06x}", self.rcode(), self.id, self.header)?;
        for question in &self.questions {
            writeln!(f, "? {} {}", question.name, type_name(question.qtype))?;
        }
        for (section, records) in [
            ("=", &self.answers),
            ("^", &self.authority),
            ("+", &self.additional),
        ] {
            for record in records {
                writeln!(f, "{section} {record}")?;
            }
        }
        match &self.edns {
            Some(edns) => writeln!(f, "{edns:?}"),
            None => Ok(()),
        }
    }
}

impl Record {
    /// Parses a line of a zone file: owner, TTL, type, data. Data of a type that is not known here is written
    /// as in RFC 3597: `\# LENGTH HEX`.
    pub fn parse(line: &str) -> Record {
        let mut words = line.split_whitespace();
        let mut word = || {
            words
                .next()
                .unwrap_or_else(|| panic!("incomplete record: {line}"))
        };
        let (name, ttl, rtype) = (dotted(word()), word(), type_number(word()));
        let ttl = ttl.parse().unwrap_or_else(|_| panic!("no TTL: {line}"));
        let rest: Vec<&str> = words.collect();
        let number = |word: &str| {
            word.parse::<u16>()
                .unwrap_or_else(|_| panic!("no number: {line}"))
        };
        let data = match (type_name(rtype).as_str(), rest.as_slice()) {
            (_, ["\\#", _, hex @ ..]) => decode_hex(&hex.concat()),
            ("A", [address]) => address.parse::<Ipv4Addr>().expect(line).octets().to_vec(),
            ("AAAA", [address]) => address.parse::<Ipv6Addr>().expect(line).octets().to_vec(),
            ("NS" | "CNAME" | "PTR", [target]) => encode_name(&dotted(target)),
            ("MX", [preference, host]) => [
                number(preference).to_be_bytes().to_vec(),
                encode_name(&dotted(host)),
            ]
            .concat(),
            ("SRV", [priority, weight, port, host]) => {
                let numbers = [priority, weight, port].map(|word| number(word).to_be_bytes());
                [numbers.concat(), encode_name(&dotted(host))].concat()
            }
            ("SOA", [mname, rname, numbers @ ..]) if numbers.len() == 5 => {
                let mut data = [encode_name(&dotted(mname)), encode_name(&dotted(rname))].concat();
                for number in numbers {
                    data.extend(number.parse::<u32>().expect(line).to_be_bytes());
                }
                data
            }
            ("TXT", texts) => texts
                .iter()
                .flat_map(|text| {
                    let text = text.trim_matches('"').as_bytes();
                    [&[text.len() as u8], text].concat()
                })
                .collect(),
            _ => panic!("cannot read the data of: {line}"),
        };
        Record {
            name,
            rtype,
            class: 1,
            ttl,
            data,
        }
    }

    /// Returns the line without its TTL.
    pub fn without_ttl(&self) -> String {
        format!("{} {} {}", self.name, type_name(self.rtype), self.shown_data())
    }

    fn shown_data(&self) -> String {
        let data = &self.data;
        let mut reader = Reader { wire: data, at: 0 };
        let shown = match type_name(self.rtype).as_str() {
            "A" => <[u8; 4]>::try_from(data.as_slice())
                .ok()
                .map(|octets| Ipv4Addr::from(octets).to_string()),
            "AAAA" => <[u8; 16]>::try_from(data.as_slice())
                .ok()
                .map(|octets| Ipv6Addr::from(octets).to_string()),
            "NS" | "CNAME" | "PTR" => reader.name().ok(),
            "MX" => reader
                .u16()
                .and_then(|preference| Ok(format!("{preference} {}", reader.name()?)))
                .ok(),
            "SRV" => (|| {
                let (priority, weight, port) = (reader.u16()?, reader.u16()?, reader.u16()?);
                Ok::<_, String>(format!("{priority} {weight} {port} {}", reader.name()?))
            })()
            .ok(),
            "SOA" => (|| {
                let mut shown = format!("{} {}", reader.name()?, reader.name()?);
                for _ in 0..5 {
                    write!(shown, " {}", reader.u32()?).map_err(|error| error.to_string())?;
                }
                Ok::<_, String>(shown)
            })()
            .ok(),
            "TXT" => {
                let mut texts = Vec::new();
                while let Some(length) = data.get(reader.at).copied() {
                    let text = data.get(reader.at + 1..reader.at + 1 + usize::from(length));
                    texts.push(format!(
                        "\"{}\"",
                        String::from_utf8_lossy(text.unwrap_or(b"<cut>"))
                    ));
                    reader.at += 1 + usize::from(length);
                }
                Some(texts.join(" "))
            }
            _ => None,
        };
        shown.unwrap_or_else(|| format!("\\# {} {}", data.len(), encode_hex(data)))
    }

    fn encode(&self, wire: &mut Vec<u8>) {
        wire.extend(encode_name(&self.name));
        wire.extend(self.rtype.to_be_bytes());
        wire.extend(self.class.to_be_bytes());
        wire.extend(self.ttl.to_be_bytes());
        wire.extend((self.data.len() as u16).to_be_bytes());
        wire.extend(&self.data);
    }
}

impl fmt::Display for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} {} {} {}",
            self.name,
            self.ttl,
            type_name(self.rtype),
            self.shown_data()
        )
    }
}

impl Edns {
    /// Converts to the pseudo record.
    pub fn record(&self) -> Record {
        let mut data = Vec::new();
        for (code, content) in &self.options {
            data.extend(code.to_be_bytes());
            data.extend((content.len() as u16).to_be_bytes());
            data.extend(content);
        }
        let ttl = u32::from(self.rcode_high) << 24 | u32::from(self.version) << 16 | u32::from(self.flags);
        Record {
            name: ".".to_owned(),
            rtype: OPT,
            class: self.size,
            ttl,
            data,
        }
    }

    fn from_record(record: &Record) -> Result<Edns, String> {
        let mut reader = Reader {
            wire: &record.data,
            at: 0,
        };
        let mut options = Vec::new();
        while reader.at < record.data.len() {
            let (code, length) = (reader.u16()?, reader.u16()?);
            options.push((code, reader.take(usize::from(length))?.to_vec()));
        }
        let [rcode_high, version, high, low] = record.ttl.to_be_bytes();
        Ok(Edns {
            size: record.class,
            rcode_high,
            version,
            flags: u16::from_be_bytes([high, low]),
            options,
        })
    }
}

/// A cursor over wire format.
struct Reader<'a> {
    wire: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    fn take(&mut self, length: usize) -> Result<&'a [u8], String> {
        let bytes = self.wire.get(self.at..self.at + length);
        let bytes = bytes.ok_or_else(|| format!("cut off at octet {} of {}", self.at, self.wire.len()))?;
        self.at += length;
        Ok(bytes)
    }

    fn u16(&mut self) -> Result<u16, String> {
        self.take(2).map(|bytes| u16::from_be_bytes([bytes[0], bytes[1]]))
    }

    fn u32(&mut self) -> Result<u32, String> {
        Ok(u32::from(self.u16()?) << 16 | u32::from(self.u16()?))
    }

    /// Reads a name, following compression pointers (RFC 1035 section 4.1.4).
    fn name(&mut self) -> Result<String, String> {
        let mut name = String::new();
        let mut after = None;
        loop {
            let length = usize::from(self.take(1)?[0]);
            match length {
                0 => break,
                1..=63 => {
                    for octet in self.take(length)? {
                        match octet {
                            b'.' | b'\\' => write!(name, "\\{}", char::from(*octet)),
                            b'!'..=b'~' => write!(name, "{}", char::from(*octet)),
                            _ => write!(name, "\\{octet:03}"),
                        }
                        .map_err(|error| error.to_string())?;
                    }
                    name.push('.');
                }
                192.. => {
                    let target = (length & 63) << 8 | usize::from(self.take(1)?[0]);
                    after.get_or_insert(self.at);
                    if target >= self.at - 2 {
                        return Err(format!("a pointer forward, to {target}"));
                    }
                    self.at = target;
                }
                _ => return Err(format!("label type {length:#x}")),
            }
        }
        self.at = after.unwrap_or(self.at);
        if name.is_empty() {
            name.push('.');
        }
        Ok(name)
    }

    fn record(&mut self) -> Result<Record, String> {
        let name = self.name()?;
        let (rtype, class, ttl) = (self.u16()?, self.u16()?, self.u32()?);
        let length = usize::from(self.u16()?);
        let end = self.at + length;
        // Names inside the data may be compressed in the types of RFC 1035, and only there
        // (RFC 3597 section 4).
        let data = match rtype {
            2 | 5 | 12 => encode_name(&self.name()?),
            15 => [self.take(2)?.to_vec(), encode_name(&self.name()?)].concat(),
            6 => {
                let names = [encode_name(&self.name()?), encode_name(&self.name()?)].concat();
                [names, self.take(20)?.to_vec()].concat()
            }
            _ => self.take(length)?.to_vec(),
        };
        if self.at != end {
            return Err(format!(
                "the data of {name} {} ends at {}, not {end}",
                type_name(rtype),
                self.at
            ));
        }
        Ok(Record {
            name,
            rtype,
            class,
            ttl,
            data,
        })
    }
}

/// Converts presentation format to wire format; understands `\.` and `\DDD`.
pub fn encode_name(name: &str) -> Vec<u8> {
    let mut wire = Vec::new();
    let mut label = Vec::new();
    let mut octets = name.bytes();
    while let Some(octet) = octets.next() {
        match octet {
            b'.' if label.is_empty() => {}
            b'.' => {
                wire.push(label.len() as u8);
                wire.append(&mut label);
            }
            b'\\' => match octets.next() {
                Some(first @ b'0'..=b'9') => {
                    let digits =
                        [Some(first), octets.next(), octets.next()].map(|digit| digit.unwrap_or(b'0') - b'0');
                    label.push(digits.into_iter().fold(0, |value, digit| value * 10 + digit));
                }
                other => label.extend(other),
            },
            _ => label.push(octet),
        }
    }
    wire.push(0);
    wire
}

/// Returns the name with a dot at its end.
fn dotted(name: &str) -> String {
    if name.ends_with('.') {
        name.to_owned()
    } else {
        format!("{name}.")
    }
}

fn encode_hex(octets: &[u8]) -> String {
    octets.iter().map(|octet| format!("{octet:02x}")).collect()
}

/// Converts hex digits to bytes; blanks are ignored.
pub fn decode_hex(text: &str) -> Vec<u8> {
    let digits: Vec<char> = text.chars().filter(|digit| !digit.is_whitespace()).collect();
    let octet = |pair: &[char]| u8::from_str_radix(&pair.iter().collect::<String>(), 16);
    digits
        .chunks(2)
        .map(|pair| octet(pair).unwrap_or_else(|_| panic!("not hex: {text}")))
        .collect()
}

/// Returns a different ID for every message of the process, so that an answer is matched to its query.
fn fresh_id() -> u16 {
    static NEXT: std::sync::atomic::AtomicU16 = std::sync::atomic::AtomicU16::new(1);
    NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed)
}

/// Checks the library itself.
#[test]
fn messages_survive_a_round_trip() {
    let mut message = Message::query("a\\.b.Example", "TXT")
        .dnssec_ok()
        .option(EXTENDED_ERROR, &[0, 3]);
    for line in [
        "a.example. 300 A 192.0.2.1",
        "a.example. 1 AAAA 2001:db8::1",
        "a.example. 2 SOA ns.example. root.example. 1 2 3 4 5",
        "a.example. 3 MX 10 mail.example.",
        "a.example. 4 TXT \"one\" \"two\"",
        "a.example. 5 SRV 1 2 53 ns.example.",
        "\\000.example. 6 TYPE65400 \\# 3 010203",
    ] {
        let record = Record::parse(line);
        assert_eq!(record.to_string(), line);
        message.answers.push(record);
    }
    assert_eq!(Message::decode(&message.encode()), Ok(message.clone()));
    assert_eq!(message.extended_errors(), [3]);
}
