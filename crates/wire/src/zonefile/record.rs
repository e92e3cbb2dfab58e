//! Parses the words of an entry into a record (RFC 1035 section 5.1).

use super::entries::{Entry, Word};
use super::mistake::Wrong;
use crate::dns::data::parse_data;
use crate::dns::name::Name;
use crate::dns::rtype;
use crate::dns::text::{parse_type, type_text};

/// The highest TTL (RFC 2181 section 8).
const HIGHEST_TTL: u64 = i32::MAX as u64;

/// Types whose data contains names: there, `@` is the origin.
const WITH_NAMES: [u16; 24] = [
    2, 3, 4, 5, 6, 7, 8, 9, 12, 14, 15, 17, 18, 21, 24, 26, 33, 35, 36, 39, 46, 47, 64, 65,
];

/// Examples of record types, for help texts.
const EXAMPLES: [(u16, &str); 12] = [
    (rtype::A, "A 192.0.2.1"),
    (rtype::AAAA, "AAAA 2001:db8::1"),
    (rtype::NS, "NS ns1.example.org."),
    (rtype::CNAME, "CNAME www.example.org."),
    (rtype::DNAME, "DNAME example.net."),
    (rtype::PTR, "PTR host.example.org."),
    (rtype::MX, "MX 10 mail.example.org."),
    (rtype::SRV, "SRV 0 5 443 www.example.org."),
    (rtype::TXT, "TXT \"up to 255 octets\" \"and more\""),
    (
        rtype::SOA,
        "SOA ns1.example.org. admin.example.org. 2026010100 1h 15m 4w 5m",
    ),
    (rtype::DS, "DS 12345 13 2 0123456789ABCDEF…"),
    (rtype::HTTPS, "HTTPS 1 . alpn=h2,h3"),
];

/// A record.
pub struct Record {
    /// Lowercased.
    pub owner: Vec<u8>,
    pub rtype: u16,
    pub ttl: u32,
    /// In wire format.
    pub data: Vec<u8>,
}

/// The defaults for what entries leave out.
#[derive(Clone)]
pub struct Scope {
    /// Appended to relative names.
    pub origin: Vec<u8>,
    /// The owner of the last record.
    pub owner: Option<Vec<u8>>,
    /// The value of `$TTL` (RFC 2308 section 4).
    pub ttl: Option<u32>,
    /// The last TTL written in a record.
    pub last_ttl: Option<u32>,
}

/// Parses an entry into a record, with defaults from `scope`, which it updates.
pub fn read(entry: &Entry<'_>, scope: &mut Scope) -> Result<Record, Wrong> {
    let mut words = &entry.words[..];
    if !entry.indented {
        scope.owner = Some(lowercased(name(&words[0], &scope.origin)?));
        words = &words[1..];
    }
    let owner = scope.owner.clone().ok_or_else(|| {
        Wrong::new(
            "no record before this one has a name",
            "begin the line with a name, or with `@`",
        )
    })?;
    let mut ttl = None;
    let rtype = loop {
        let Some((word, rest)) = words.split_first() else {
            return Err(Wrong::new(
                "the type and data of a record are missing",
                "write them: www A 192.0.2.1",
            ));
        };
        words = rest;
        if is_class(word)? {
            continue;
        }
        match (self::ttl(word), ttl) {
            (Some(read), None) => ttl = Some(read),
            _ => break type_of(word)?,
        }
    };
    let data = data(rtype, words, scope)?;
    scope.last_ttl = ttl.or(scope.last_ttl);
    let ttl = ttl.or(scope.ttl).or(scope.last_ttl);
    // An SOA record's minimum is the default if there is no other.
    let ttl = ttl.or((rtype == rtype::SOA).then(|| minimum(&data)));
    scope.last_ttl = scope.last_ttl.or(ttl);
    let ttl = ttl.ok_or_else(|| {
        Wrong::new(
            "this record has no TTL",
            "write `$TTL 3600` at the top of the file",
        )
    })?;
    Ok(Record {
        owner,
        rtype,
        ttl,
        data,
    })
}

/// Whether a word is the class, which has to be IN.
fn is_class(word: &Word<'_>) -> Result<bool, Wrong> {
    let others = ["CH", "HS", "CS", "CHAOS", "HESIOD", "NONE"];
    let number = word.text.len() > 5 && word.text[..5].eq_ignore_ascii_case(b"CLASS");
    if others.iter().any(|other| word.is(other)) || (number && !word.is("CLASS1")) {
        let problem = format!("the class {} is not IN", word.shown());
        return Err(Wrong::new(problem, "remove the record, or write IN"));
    }
    Ok(word.is("IN") || word.is("CLASS1"))
}

fn type_of(word: &Word<'_>) -> Result<u16, Wrong> {
    let text = word.shown();
    let problem = match parse_type(&text).filter(|_| !word.quoted) {
        // Types only for queries and messages (RFC 6895 section 3.1).
        Some(0 | rtype::OPT | 128..=255) => format!("records of type {text} are not allowed in zone files"),
        Some(known) => return Ok(known),
        None => format!("{text:?} is not a record type"),
    };
    Err(Wrong::new(
        problem,
        "write a type, such as A, or its number, such as TYPE65280",
    ))
}

/// Parses data from the rest of an entry.
fn data(rtype: u16, words: &[Word<'_>], scope: &Scope) -> Result<Vec<u8>, Wrong> {
    let has_names = WITH_NAMES.contains(&rtype);
    let mut text = Vec::new();
    for (index, word) in words.iter().enumerate() {
        if !word.joined {
            text.push(b' ');
        }
        match word {
            _ if has_names && word.is("@") => {
                text.extend(Name::lowercased(&scope.origin).to_string().into_bytes());
            }
            // Times in SOA may have units, as TTLs do.
            _ if rtype == rtype::SOA && index > 2 && ttl(word).is_some() => {
                text.extend(ttl(word).unwrap_or_default().to_string().into_bytes());
            }
            _ => word.write(&mut text),
        }
    }
    parse_data(rtype, &text, &scope.origin).map_err(|problem| {
        let shown = type_text(rtype);
        let example = EXAMPLES.iter().find(|(known, _)| *known == rtype);
        let help = match example {
            Some((_, example)) => format!("write it as: {example}"),
            None => format!(r"write it as its specification says, or in hexadecimal: {shown} \# 2 c0de"),
        };
        Wrong::new(format!("the data of this {shown} record {problem}"), help)
    })
}

/// The name that a word denotes.
pub fn name(word: &Word<'_>, origin: &[u8]) -> Result<Vec<u8>, Wrong> {
    if word.is("@") {
        return Ok(origin.to_vec());
    }
    let mut text = Vec::new();
    word.write(&mut text);
    parse_data(rtype::NS, &text, origin).map_err(|_| {
        let problem = format!("{:?} is not a name", word.shown());
        Wrong::new(
            problem,
            "labels have 1 to 63 octets, and a name at most 255; write `.` inside a label as `\\.`",
        )
    })
}

fn lowercased(name: Vec<u8>) -> Vec<u8> {
    name.to_ascii_lowercase()
}

/// Parses a TTL: a number of seconds, or with units: `1h30m`.
pub fn ttl(word: &Word<'_>) -> Option<u32> {
    if word.quoted || !word.text.first()?.is_ascii_digit() {
        return None;
    }
    let (mut seconds, mut number) = (0_u64, None::<u64>);
    for octet in word.text {
        let unit = match octet.to_ascii_lowercase() {
            digit @ b'0'..=b'9' => {
                number = Some((number.unwrap_or(0) * 10 + u64::from(digit - b'0')).min(HIGHEST_TTL + 1));
                continue;
            }
            b's' => 1,
            b'm' => 60,
            b'h' => 3600,
            b'd' => 86_400,
            b'w' => 604_800,
            _ => return None,
        };
        seconds += number.take()? * unit;
        seconds = seconds.min(HIGHEST_TTL + 1);
    }
    seconds += number.unwrap_or(0);
    u32::try_from(seconds).ok().filter(|_| seconds <= HIGHEST_TTL)
}

/// The last field of an SOA record (RFC 2308 section 4).
fn minimum(soa: &[u8]) -> u32 {
    soa.last_chunk().map_or(0, |last| u32::from_be_bytes(*last))
}

impl<'t> Word<'t> {
    /// A separate word without quotes.
    pub fn plain(text: &'t [u8]) -> Word<'t> {
        Word {
            text,
            quoted: false,
            joined: false,
        }
    }

    /// Appends the word with its quotes. Bytes other than printable ASCII are escaped (RFC 1035 section 5.1).
    fn write(&self, out: &mut Vec<u8>) {
        if self.quoted {
            out.push(b'"');
        }
        let mut octets = self.text.iter().copied();
        while let Some(mut octet) = octets.next() {
            if octet == b'\\' {
                let Some(next) = octets.next() else {
                    out.extend(b"\\\\");
                    break;
                };
                if (b' '..=b'~').contains(&next) {
                    out.extend([octet, next]);
                    continue;
                }
                octet = next;
            }
            match octet {
                b' '..=b'~' => out.push(octet),
                _ => out.extend(format!("\\{octet:03}").into_bytes()),
            }
        }
        if self.quoted {
            out.push(b'"');
        }
    }
}
