//! Record data from zone file text (RFC 1035 section 5.1, RFC 3597 section 5) to wire format.

use bytes::Bytes;
use domain::base::Name;
use domain::base::iana::{Class, SecurityAlgorithm};
use domain::base::rdata::ComposeRecordData;
use domain::zonefile::inplace::{Entry, Zonefile};

use super::binding_data;
use super::name::skip_plain;
use super::number_data::{self, Others};
use super::records::{are_strings, names_in_data};
use super::rtype;

/// The most bytes of data (RFC 1035 section 3.2.1).
const LONGEST: usize = u16::MAX as usize;

/// Types that the library does not know, and known types of the same form.
const SAME_FORM: [(u16, u16); 10] = [
    (AFSDB, rtype::MX),
    (RT, rtype::MX),
    (KX, rtype::MX),
    (LP, rtype::MX),
    (DHCID, OPENPGPKEY),
    (SPF, rtype::TXT),
    (rtype::SIG, rtype::RRSIG),
    (KEY, rtype::DNSKEY),
    (SMIMEA, TLSA),
    (DLV, rtype::DS),
];
const AFSDB: u16 = 18;
const RT: u16 = 21;
const KEY: u16 = 25;
const KX: u16 = 36;
const CERT: u16 = 37;
const DHCID: u16 = 49;
const TLSA: u16 = 52;
const SMIMEA: u16 = 53;
const OPENPGPKEY: u16 = 61;
const CSYNC: u16 = 62;
const SPF: u16 = 99;
const LP: u16 = 107;
const URI: u16 = 256;
const DLV: u16 = 32769;

/// Certificate types by name (RFC 4398 section 2.1).
const CERTIFICATES: [(&str, u16); 10] = [
    ("PKIX", 1),
    ("SPKI", 2),
    ("PGP", 3),
    ("IPKIX", 4),
    ("ISPKI", 5),
    ("IPGP", 6),
    ("ACPKIX", 7),
    ("IACPKIX", 8),
    ("URI", 253),
    ("OID", 254),
];

/// Converts one line of data from presentation to uncompressed wire format; relative names end in `origin`.
///
/// # Errors
/// What is wrong, as the end of a sentence about the data.
pub fn parse_data(rtype: u16, text: &[u8], origin: &[u8]) -> Result<Vec<u8>, String> {
    if text
        .iter()
        .any(|octet| octet.is_ascii_control() && *octet != b'\t')
    {
        return Err("has a control character that is not escaped".into());
    }
    let generic = text.trim_ascii_start().starts_with(b"\\#");
    let data = match rtype {
        CERT if !generic => certificate(text, origin)?,
        CSYNC if !generic => synchronization(text, origin)?,
        URI if !generic => location(text, origin)?,
        rtype::SVCB | rtype::HTTPS if !generic => {
            binding_data::parse(text, |text| scan(rtype, text, origin))?
        }
        _ if !generic && number_data::is_one(rtype) => numbers(rtype, text, origin)?,
        _ => {
            let same = SAME_FORM.iter().find(|(known, _)| *known == rtype);
            scan(same.map_or(rtype, |(_, form)| *form), text, origin)?
        }
    };
    match data.len() <= LONGEST && are_names_whole(rtype, &data) {
        true => Ok(data),
        false => Err("has not the form of its type".into()),
    }
}

/// Parses data with the library, which reads only whole zone file entries, so it gets one.
fn scan(rtype: u16, text: &[u8], origin: &[u8]) -> Result<Vec<u8>, String> {
    let start = format!(". 0 {} TYPE{rtype} ", Class::IN);
    let mut file = Zonefile::with_capacity(start.len() + text.len() + 1);
    file.extend_from_slice(start.as_bytes());
    file.extend_from_slice(text);
    file.extend_from_slice(b"\n");
    let origin = Name::from_octets(Bytes::copy_from_slice(origin)).map_err(|error| error.to_string())?;
    file.set_origin(origin);
    match file.next_entry() {
        Ok(Some(Entry::Record(record))) => {
            let mut data = Vec::new();
            match record.data().compose_rdata(&mut data) {
                Ok(()) => Ok(data),
                Err(never) => match never {},
            }
        }
        Ok(_) => Err("is missing".into()),
        Err(error) => {
            // Drop the line and column: they refer to the entry built here.
            let text = error.to_string();
            let what = text.splitn(3, ':').nth(2).unwrap_or(&text).trim();
            Err(format!("cannot be read: {what}"))
        }
    }
}

/// Parses data of a type that the library does not know.
fn numbers(rtype: u16, text: &[u8], origin: &[u8]) -> Result<Vec<u8>, String> {
    let text = std::str::from_utf8(text).map_err(|_| "is not text")?;
    let others = Others {
        base64: &|word| scan(OPENPGPKEY, word.as_bytes(), origin),
        name: &|word| {
            let name = scan(rtype::NS, word.as_bytes(), origin)?;
            match are_names_whole(rtype::NS, &name) {
                true => Ok(name),
                false => Err("has a server that is not a name".into()),
            }
        },
    };
    number_data::parse(rtype, text, &others)
}

/// RFC 4398 section 2.2: a type, a key tag, an algorithm, and the certificate in base64.
fn certificate(text: &[u8], origin: &[u8]) -> Result<Vec<u8>, String> {
    let (words, rest) = words::<3>(text).ok_or("needs a type, a key tag, an algorithm and a certificate")?;
    let named = CERTIFICATES
        .iter()
        .find(|(name, _)| words[0].eq_ignore_ascii_case(name));
    let kind = named.map(|(_, kind)| *kind).or(words[0].parse().ok());
    let kind = kind.ok_or("has a type of certificate that does not exist")?;
    let tag: u16 = words[1]
        .parse()
        .map_err(|_| "has a key tag that is not a number")?;
    let algorithm = SecurityAlgorithm::from_mnemonic(words[2].as_bytes()).map(SecurityAlgorithm::to_int);
    let algorithm = algorithm
        .or(words[2].parse().ok())
        .ok_or("has an algorithm that does not exist")?;
    let mut data = [kind.to_be_bytes(), tag.to_be_bytes()].concat();
    data.push(algorithm);
    data.extend(scan(OPENPGPKEY, rest, origin)?);
    Ok(data)
}

/// RFC 7477 section 2.1.1: a serial, flags, and types as in NSEC.
fn synchronization(text: &[u8], origin: &[u8]) -> Result<Vec<u8>, String> {
    let (words, rest) = words::<2>(text).ok_or("needs a serial and flags")?;
    let serial: u32 = words[0]
        .parse()
        .map_err(|_| "has a serial that is not a number")?;
    let flags: u16 = words[1].parse().map_err(|_| "has flags that are not a number")?;
    let types = scan(rtype::NSEC, &[b". ", rest].concat(), origin)?;
    let mut data = serial.to_be_bytes().to_vec();
    data.extend(flags.to_be_bytes());
    data.extend_from_slice(&types[1..]);
    Ok(data)
}

/// RFC 7553 section 4.5: a priority, a weight, and a URI in quotes.
fn location(text: &[u8], origin: &[u8]) -> Result<Vec<u8>, String> {
    let (words, rest) = words::<2>(text).ok_or("needs a priority, a weight and a URI")?;
    let mut data = Vec::new();
    for word in words {
        let number: u16 = word
            .parse()
            .map_err(|_| "has a priority or weight that is not a number")?;
        data.extend(number.to_be_bytes());
    }
    let string = scan(rtype::TXT, rest, origin)?;
    match string.split_first() {
        Some((&length, uri)) if usize::from(length) == uri.len() => data.extend(uri),
        _ => return Err("has more than one URI".into()),
    }
    Ok(data)
}

/// The first `N` words of a text, and the rest.
fn words<const N: usize>(text: &[u8]) -> Option<([&str; N], &[u8])> {
    let mut found = [""; N];
    let mut rest = text.trim_ascii();
    for word in &mut found {
        let end = rest
            .iter()
            .position(u8::is_ascii_whitespace)
            .unwrap_or(rest.len());
        *word = std::str::from_utf8(&rest[..end])
            .ok()
            .filter(|word| !word.is_empty())?;
        rest = rest[end..].trim_ascii_start();
    }
    Some((found, rest))
}

/// Whether the names in data end where they must. The library accepts `a..b` as a name, and any hexadecimal.
pub(super) fn are_names_whole(rtype: u16, data: &[u8]) -> bool {
    /// Bytes before the strings of NAPTR (RFC 3403 section 4.1).
    const NAPTR_NUMBERS: usize = 4;
    let ends = |at: usize, count: usize| (0..count).try_fold(at, |at, _| skip_plain(data, at)).ok();
    match rtype {
        rtype::A => data.len() == 4,
        rtype::AAAA => data.len() == 16,
        rtype::NAPTR => {
            let strings = (0..3).try_fold(NAPTR_NUMBERS, |at, _| Some(at + 1 + usize::from(*data.get(at)?)));
            strings.and_then(|at| ends(at, 1)) == Some(data.len())
        }
        AFSDB | RT | KX | LP => ends(2, 1) == Some(data.len()),
        rtype::RRSIG | rtype::SIG => data.len() > 18 && ends(18, 1).is_some_and(|end| end < data.len()),
        rtype::NSEC => ends(0, 1).is_some_and(|end| end < data.len()),
        rtype::SVCB | rtype::HTTPS => data.len() > 2 && ends(2, 1).is_some(),
        rtype::TXT | SPF => are_strings(data),
        number_data::EUI48 => data.len() == 6,
        number_data::EUI64 => data.len() == 8,
        number_data::L32 => data.len() == 6,
        number_data::NID | number_data::L64 => data.len() == 10,
        rtype::NSEC3 => data.len() > 5 && data.len() > 6 + usize::from(data[4]),
        rtype::NSEC3PARAM => data.len() > 4 && data.len() == 5 + usize::from(data[4]),
        rtype::DS | rtype::DNSKEY => data.len() >= 4,
        _ => match names_in_data(rtype) {
            Some((before, count, behind)) => {
                ends(before, count).is_some_and(|end| end + behind == data.len())
            }
            None => true,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::super::text::data_text;
    use super::*;

    const ORIGIN: &[u8] = b"\x07example\0";

    /// A compression pointer would count from the start of the data instead of the message it gets into.
    #[test]
    fn names_in_data_are_whole() {
        let text = "ns.example. root.example. 1 2 3 4 5";
        let data = parse_data(rtype::SOA, text.as_bytes(), b"\0").unwrap();
        assert_eq!(data.len(), 12 + 14 + 20);
        assert_eq!(data_text(&data, rtype::SOA, 0..data.len()), text);
    }

    #[test]
    fn data_is_read_as_zone_files_have_it() {
        let cases: [(u16, &str, &[u8]); 16] = [
            (rtype::A, "192.0.2.1", &[192, 0, 2, 1]),
            (rtype::A, r"\# 4 c0000201", &[192, 0, 2, 1]),
            (65280, r"\# 2 c0 de", &[0xc0, 0xde]),
            (65280, r"\# 0", &[]),
            (rtype::NS, "a", b"\x01a\x07example\0"),
            (rtype::NS, r"a\.b.", b"\x03a.b\0"),
            (rtype::NS, r"\000\255.", b"\x02\0\xff\0"),
            (rtype::TXT, r#""a b" c\"d"#, b"\x03a b\x03c\"d"),
            (rtype::TXT, "\"\"", b"\0"),
            (AFSDB, "1 a.", b"\0\x01\x01a\0"),
            (SPF, "a", b"\x01a"),
            (CERT, "PGP 1 2 AAAA", &[0, 3, 0, 1, 2, 0, 0, 0]),
            (CERT, "1 1 ECDSAP256SHA256 AAAA", &[0, 1, 0, 1, 13, 0, 0, 0]),
            (URI, "10 1 \"a:b\"", b"\0\x0a\0\x01a:b"),
            (CSYNC, "1 3 A NS", &[0, 0, 0, 1, 0, 3, 0, 1, 0x60]),
            (rtype::DNSKEY, "256 3 13 AAAA", &[1, 0, 3, 13, 0, 0, 0]),
        ];
        for (rtype, text, data) in cases {
            assert_eq!(
                parse_data(rtype, text.as_bytes(), ORIGIN).as_deref(),
                Ok(data),
                "{text}"
            );
        }
    }

    #[test]
    fn other_data_is_refused() {
        for (rtype, text) in [
            (rtype::A, "1.2.3"),
            (rtype::A, ""),
            (rtype::A, "1.2.3.4 5"),
            (rtype::A, r"\# 3 010203"),
            (rtype::NS, "a..b."),
            (rtype::NS, r"\# 2 c00c"),
            (rtype::MX, "70000 a."),
            (rtype::TXT, "a\nb"),
            (rtype::NSEC3, r"\# 0"),
            (rtype::NSEC3PARAM, r"\# 1 00"),
            (CERT, "PGP 1"),
            (65280, "1.2.3.4"),
            (65280, r"\# 3 c0de"),
        ] {
            assert!(parse_data(rtype, text.as_bytes(), ORIGIN).is_err(), "{text:?}");
        }
    }
}
