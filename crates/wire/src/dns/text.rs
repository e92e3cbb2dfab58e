//! Types and data of records as text, for tools: the query path needs no text.

use std::fmt::Write as _;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::ops::Range;

use domain::base::iana::Rtype;

use super::name::{Name, expand, skip_compressed};
use super::records::{Record, Section, Walk, counts};
use super::{HEADER, QUESTION_TAIL, named, rtype, u16_at, u32_at};

/// A type's name, or `TYPE65280` for one without (RFC 3597 section 5).
pub fn type_text(rtype: u16) -> String {
    Rtype::from_int(rtype).to_string()
}

/// Parses a type's name, in any letter case, or its number: `TYPE65280`. `*` is ANY (RFC 1035 section 3.2.3).
pub fn parse_type(text: &str) -> Option<u16> {
    match text {
        "*" => Some(rtype::ANY),
        _ => text.parse().ok().map(|known: Rtype| known.to_int()),
    }
}

/// Classes by name (RFC 1035 section 3.2.4, RFC 2136 section 2.4).
pub const CLASSES: [(&str, u16); 5] = [("IN", 1), ("CH", 3), ("HS", 4), ("NONE", 254), ("ANY", 255)];

/// A class's name, or `CLASS7`.
pub fn class_text(class: u16) -> String {
    named(&CLASSES, class).map_or_else(|| format!("CLASS{class}"), str::to_owned)
}

/// A record's data in presentation format; unsupported types and malformed data in the form of RFC 3597
/// section 5. Names in it may be compressed, with pointers into `message`.
pub fn data_text(message: &[u8], rtype: u16, data: Range<usize>) -> String {
    known_data(message, rtype, data.clone()).unwrap_or_else(|| {
        let octets = message.get(data).unwrap_or_default();
        let mut text = format!("\\# {}", octets.len());
        for (index, octet) in octets.iter().enumerate() {
            let _ = write!(text, "{}{octet:02x}", if index == 0 { " " } else { "" });
        }
        text
    })
}

fn known_data(message: &[u8], rtype: u16, data: Range<usize>) -> Option<String> {
    let octets = message.get(data.clone())?;
    // The name at an offset, and the offset after it, which must lie within the data.
    let name = |at: usize| {
        let mut name = Name::ROOT;
        expand(message, at, &mut name).ok()?;
        let end = skip_compressed(message, at).ok()?;
        (end <= data.end).then(|| (name.to_string(), end))
    };
    // The last name of the data: nothing follows it.
    let last = |at: usize| name(at).filter(|(_, end)| *end == data.end).map(|(text, _)| text);
    Some(match rtype {
        rtype::A => Ipv4Addr::from(<[u8; 4]>::try_from(octets).ok()?).to_string(),
        rtype::AAAA => Ipv6Addr::from(<[u8; 16]>::try_from(octets).ok()?).to_string(),
        rtype::NS | rtype::CNAME | rtype::PTR | rtype::DNAME => last(data.start)?,
        rtype::MX if octets.len() > 2 => format!("{} {}", u16_at(octets, 0), last(data.start + 2)?),
        rtype::SRV if octets.len() > 6 => {
            let number = |at| u16_at(octets, at);
            format!(
                "{} {} {} {}",
                number(0),
                number(2),
                number(4),
                last(data.start + 6)?
            )
        }
        rtype::SOA => {
            let (primary, at) = name(data.start)?;
            let (contact, at) = name(at)?;
            (at + 20 == data.end).then_some(())?;
            let numbers = (0..5).map(|index| u32_at(message, at + 4 * index).to_string());
            format!("{primary} {contact} {}", numbers.collect::<Vec<_>>().join(" "))
        }
        rtype::TXT if !octets.is_empty() => {
            let mut parts = Vec::new();
            let mut rest = octets;
            while let [length, tail @ ..] = rest {
                let (part, next) = tail.split_at_checked(usize::from(*length))?;
                parts.push(character_string(part));
                rest = next;
            }
            parts.join(" ")
        }
        _ => return None,
    })
}

/// A character string in quotes (RFC 1035 section 5.1).
fn character_string(octets: &[u8]) -> String {
    let mut text = String::from("\"");
    for &octet in octets {
        // Infallible for String.
        let _ = match octet {
            b'"' | b'\\' => write!(text, "\\{}", octet as char),
            0x20..=0x7e => write!(text, "{}", octet as char),
            other => write!(text, "\\{other:03}"),
        };
    }
    text.push('"');
    text
}

/// The records of one section of a message with at most one question, each as a zone file line. A malformed
/// message yields the records before the fault.
pub fn record_lines(message: &[u8], section: Section) -> Vec<String> {
    aged_record_lines(message, section, 0)
}

/// The same for a message that is `age` seconds old.
pub fn aged_record_lines(message: &[u8], section: Section, age: u32) -> Vec<String> {
    if message.len() < HEADER {
        return Vec::new();
    }
    let start = match u16_at(message, 4) {
        0 => Ok(HEADER),
        _ => skip_compressed(message, HEADER).map(|end| end + QUESTION_TAIL),
    };
    let Ok(start) = start else { return Vec::new() };
    let records = Walk::new(message, start, counts(message)).map_while(Result::ok);
    records
        .filter(|record| record.section == section && record.rtype != rtype::OPT)
        .map(|record| record_line(message, &record, age))
        .collect()
}

fn record_line(message: &[u8], record: &Record, age: u32) -> String {
    let mut owner = Name::ROOT;
    let _ = expand(message, record.start, &mut owner);
    let (class, rtype) = (class_text(record.class), type_text(record.rtype));
    format!(
        "{owner} {} {class} {rtype} {}",
        record.ttl.saturating_sub(age),
        data_text(message, record.rtype, record.data.clone())
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_have_names_or_numbers() {
        for (text, number) in [
            ("AAAA", 28),
            ("LOC", 29),
            ("SVCB", 64),
            ("ANY", 255),
            ("TYPE65280", 65280),
        ] {
            assert_eq!(
                (parse_type(text), type_text(number)),
                (Some(number), text.to_owned())
            );
        }
        assert_eq!(parse_type("https"), Some(65));
        assert_eq!(parse_type("type1"), Some(1));
        assert_eq!(parse_type("*"), Some(255));
        for wrong in ["", "TYPE", "TYPE65536", "A A", "Ä"] {
            assert_eq!(parse_type(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn data_is_shown_as_zone_files_have_it() {
        for (rtype, data, text) in [
            (rtype::A, &b"\x7f\0\0\x01"[..], "127.0.0.1"),
            (rtype::A, b"\x7f\0\0", r"\# 3 7f0000"),
            (rtype::MX, b"\0\x0a\x01a\0", "10 a."),
            (rtype::SRV, b"\0\x01\0\x02\0\x35\x01a\0", "1 2 53 a."),
            (rtype::CNAME, b"\x01a\0x", r"\# 4 01610078"),
            (rtype::TXT, b"\x03a\"b\x01\x07", r#""a\"b" "\007""#),
            (
                rtype::SOA,
                b"\x01a\0\0\0\0\0\x01\0\0\0\x02\0\0\0\x03\0\0\0\x04\0\0\0\x05",
                "a. . 1 2 3 4 5",
            ),
            (65280, b"", r"\# 0"),
        ] {
            assert_eq!(data_text(data, rtype, 0..data.len()), text);
        }
    }
}
