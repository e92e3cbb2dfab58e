//! Parses numbers, addresses and keys from zone file text, for types that no library here supports.

use std::net::{Ipv4Addr, Ipv6Addr};

use crate::hex;

/// Location on Earth (RFC 1876).
pub(super) const LOC: u16 = 29;
/// Address ranges (RFC 3123).
pub(super) const APL: u16 = 42;
/// Host identity (RFC 8005).
pub(super) const HIP: u16 = 55;
/// Nodes and their locators (RFC 6742).
pub(super) const NID: u16 = 104;
pub(super) const L32: u16 = 105;
pub(super) const L64: u16 = 106;
/// Link-layer addresses (RFC 7043).
pub(super) const EUI48: u16 = 108;
pub(super) const EUI64: u16 = 109;

/// Parsers that HIP needs in addition: base64 and a name.
pub(super) struct Others<'a> {
    pub base64: &'a dyn Fn(&str) -> Result<Vec<u8>, String>,
    pub name: &'a dyn Fn(&str) -> Result<Vec<u8>, String>,
}

/// Whether a type is one of these.
pub(super) fn is_one(rtype: u16) -> bool {
    matches!(rtype, LOC | APL | HIP | NID | L32 | L64 | EUI48 | EUI64)
}

/// Data of [one of these types](is_one) in wire format.
///
/// # Errors
/// What is wrong, as the end of a sentence about the data.
pub(super) fn parse(rtype: u16, text: &str, others: &Others<'_>) -> Result<Vec<u8>, String> {
    let words: Vec<&str> = text.split_ascii_whitespace().collect();
    let wrong = |what: &'static str| move || what.to_owned();
    match rtype {
        LOC => place(&words).ok_or_else(wrong(
            "is not a location: `52 22 23 N 4 53 32 E -2m 1m 10000m 10m`",
        )),
        APL => words
            .iter()
            .map(|word| range(word))
            .collect::<Option<Vec<_>>>()
            .map(|ranges| ranges.concat())
            .ok_or_else(wrong("has an invalid range of addresses: `!1:192.0.2.0/24`")),
        NID | L64 => numbered(&words, |word| groups(word, ':', 4, 4))
            .ok_or_else(wrong("is not a number and four groups of hexadecimal digits")),
        L32 => numbered(&words, |word| {
            Some(word.parse::<Ipv4Addr>().ok()?.octets().to_vec())
        })
        .ok_or_else(wrong("is not a number and an IPv4 address")),
        EUI48 | EUI64 => {
            let pairs = if rtype == EUI48 { 6 } else { 8 };
            let one = <[&str; 1]>::try_from(&words[..]).ok();
            one.and_then(|[word]| groups(word, '-', pairs, 2))
                .ok_or_else(wrong(
                    "is not a link-layer address: pairs of hexadecimal digits with hyphens",
                ))
        }
        _ => identity(&words, others),
    }
}

/// `count` groups of `digits` hexadecimal digits each.
fn groups(text: &str, separator: char, count: usize, digits: usize) -> Option<Vec<u8>> {
    let groups: Vec<&str> = text.split(separator).collect();
    let whole = groups.len() == count && groups.iter().all(|group| group.len() == digits);
    hex::octets(&groups.concat()).filter(|_| whole)
}

/// A preference, and the value that it is for.
fn numbered(words: &[&str], read: impl Fn(&str) -> Option<Vec<u8>>) -> Option<Vec<u8>> {
    let [preference, what] = words else { return None };
    let preference: u16 = preference.parse().ok()?;
    Some([preference.to_be_bytes().to_vec(), read(what)?].concat())
}

/// RFC 3123 section 5: `[!]afi:address/prefix`; the address's trailing zeros are left out (section 4).
fn range(word: &str) -> Option<Vec<u8>> {
    let negated = word.starts_with('!');
    let (family, rest) = word.trim_start_matches('!').split_once(':')?;
    let (address, prefix) = rest.rsplit_once('/')?;
    let (family, address, most): (u16, Vec<u8>, u8) = match family {
        "1" => (1, address.parse::<Ipv4Addr>().ok()?.octets().to_vec(), 32),
        "2" => (2, address.parse::<Ipv6Addr>().ok()?.octets().to_vec(), 128),
        _ => return None,
    };
    let prefix: u8 = prefix.parse().ok().filter(|prefix| *prefix <= most)?;
    let length = address
        .iter()
        .rposition(|octet| *octet != 0)
        .map_or(0, |at| at + 1);
    let mut data = family.to_be_bytes().to_vec();
    data.push(prefix);
    data.push(u8::from(negated) << 7 | length as u8);
    data.extend_from_slice(&address[..length]);
    Some(data)
}

/// RFC 8005 section 5: an algorithm, a tag in hexadecimal, a key in base64, and servers.
fn identity(words: &[&str], others: &Others<'_>) -> Result<Vec<u8>, String> {
    let [algorithm, tag, key, servers @ ..] = words else {
        return Err("needs an algorithm, a tag and a key".into());
    };
    let algorithm: u8 = algorithm
        .parse()
        .map_err(|_| "has an algorithm that is not a number")?;
    let tag = hex::octets(tag).ok_or("has a tag that is not in hexadecimal")?;
    let key = (others.base64)(key)?;
    let tag_length = u8::try_from(tag.len()).map_err(|_| "has a tag that is too long")?;
    let key_length = u16::try_from(key.len()).map_err(|_| "has a key that is too long")?;
    let mut data = vec![tag_length, algorithm];
    data.extend(key_length.to_be_bytes());
    data.extend(tag);
    data.extend(key);
    for server in servers {
        data.extend((others.name)(server)?);
    }
    Ok(data)
}

/// RFC 1876 section 3: two angles in degrees, minutes and seconds, an altitude, a size, and two precisions.
fn place(words: &[&str]) -> Option<Vec<u8>> {
    let mut words = words.iter().copied().peekable();
    let latitude = angle(&mut words, ["N", "S"], 90)?;
    let longitude = angle(&mut words, ["E", "W"], 180)?;
    let altitude = u32::try_from(hundredths(words.next()?)? + 10_000_000).ok()?;
    let mut data = vec![0];
    // Defaults: one metre, ten kilometres and ten metres.
    for default in [100, 1_000_000, 1_000] {
        let length = words.next().map_or(Some(default), hundredths)?;
        data.push(precision(u64::try_from(length).ok()?)?);
    }
    for number in [latitude, longitude, altitude] {
        data.extend(number.to_be_bytes());
    }
    words.next().is_none().then_some(data)
}

/// Thousandths of a second of arc from the equator or the meridian, which is 2^31.
fn angle<'w>(
    words: &mut std::iter::Peekable<impl Iterator<Item = &'w str>>,
    sides: [&str; 2],
    most: i64,
) -> Option<u32> {
    let (mut thousandths, mut unit) = (0, 3_600_000);
    loop {
        let word = words.next()?;
        if let Some(side) = sides.iter().position(|side| side.eq_ignore_ascii_case(word)) {
            let within = unit < 3_600_000 && thousandths <= most * 3_600_000;
            let signed = if side == 0 { thousandths } else { -thousandths };
            return within.then(|| u32::try_from((1_i64 << 31) + signed).ok())?;
        }
        let part = match unit {
            1_000 => fixed(word, 3)?,
            0 => return None,
            _ => word.parse::<u16>().ok().map(|part| i64::from(part) * unit)?,
        };
        let whole_of = if unit == 3_600_000 { most + 1 } else { 60 } * unit;
        thousandths += Some(part).filter(|part| (0..whole_of).contains(part))?;
        unit = match unit {
            3_600_000 => 60_000,
            60_000 => 1_000,
            _ => 0,
        };
    }
}

/// Metres with at most two decimals, as centimetres.
fn hundredths(word: &str) -> Option<i64> {
    fixed(word.strip_suffix(['m', 'M']).unwrap_or(word), 2)
}

/// A number with at most `digits` decimals, multiplied by that power of ten.
fn fixed(word: &str, digits: usize) -> Option<i64> {
    let (negative, word) = match word.strip_prefix('-') {
        Some(word) => (true, word),
        None => (false, word),
    };
    let (whole, behind) = word.split_once('.').unwrap_or((word, ""));
    let fits = behind.len() <= digits && whole.len() <= 9 && !whole.is_empty();
    let number = format!("{whole}{behind:0<digits$}");
    let plain = number.bytes().all(|digit| digit.is_ascii_digit());
    let number: i64 = number.parse().ok().filter(|_| fits && plain)?;
    Some(if negative { -number } else { number })
}

/// Centimetres as a digit and a power of ten (RFC 1876 section 2).
fn precision(centimetres: u64) -> Option<u8> {
    let (mut digit, mut power) = (centimetres, 0_u8);
    while digit > 9 {
        digit /= 10;
        power += 1;
    }
    (power <= 9).then_some((digit as u8) << 4 | power)
}

#[cfg(test)]
mod tests {
    use super::super::data::parse_data;
    use super::*;

    const ORIGIN: &[u8] = b"\x07example\0";

    #[test]
    fn data_is_read_as_its_rfc_writes_it() {
        const LP: u16 = 107;
        const DHCID: u16 = 49;
        let cases: [(u16, &str, &str); 14] = [
            (
                LOC,
                "42 21 54 N 71 06 18 W -24m 30m",
                "0033161389 17 2dd0 70be 15f0 00 98 8d 20",
            ),
            (LOC, "52 N 4 E 0", "00 12 16 13 8b28 7200 80db ba00 0098 9680"),
            (
                LOC,
                "0 0 0.5 S 0 0 0.001 E -100000.00m 1 2 3",
                "00 12 22 32 7fff fe0c 8000 0001 0000 0000",
            ),
            (
                APL,
                "1:192.0.2.0/24 !1:192.0.2.128/25",
                "0001 18 03 c00002 0001 19 84 c0000280",
            ),
            (
                APL,
                "2:2001:db8::/32 1:0.0.0.0/0",
                "0002 20 04 20010db8 0001 00 00",
            ),
            (APL, "", ""),
            (EUI48, "00-00-5e-00-53-2a", "00005e00532a"),
            (EUI64, "00-00-5e-EF-10-00-00-2a", "00005eef1000002a"),
            (NID, "10 0014:4fff:ff20:ee64", "000a 00144fffff20ee64"),
            (L64, "10 2001:0DB8:1140:1000", "000a 20010db811401000"),
            (L32, "10 10.1.2.0", "000a 0a010200"),
            (
                LP,
                "10 l64-subnet1",
                "000a 0b 6c36342d7375626e657431 07 6578616d706c65 00",
            ),
            (DHCID, "AAEC AwQ=", "0001020304"),
            (
                HIP,
                "2 200100107b1a AQID rvs",
                "06 02 0003 200100107b1a 010203 03 727673 07 6578616d706c65 00",
            ),
        ];
        for (rtype, text, expected) in cases {
            let data = parse_data(rtype, text.as_bytes(), ORIGIN).map(|data| {
                data.iter()
                    .fold(String::new(), |text, octet| format!("{text}{octet:02x}"))
            });
            assert_eq!(data, Ok(expected.replace(' ', "")), "{text}");
        }
    }

    #[test]
    fn other_data_is_refused() {
        for (rtype, text) in [
            (LOC, "91 N 4 E 0"),
            (LOC, "52 60 N 4 E 0"),
            (LOC, "N 4 E 0"),
            (LOC, "52 0 0 0 N 4 E 0"),
            (LOC, "52 N 4 E"),
            (LOC, "52 N 4 E 0 1 1 1 1"),
            (LOC, "52 N 4 E 1.234"),
            (LOC, "52 N 4 E -100001"),
            (LOC, "52 0 1.-1 N 4 E 0"),
            (APL, "3:192.0.2.0/24"),
            (APL, "1:192.0.2.0/33"),
            (EUI48, "00-00-5e-00-53"),
            (EUI48, "0-000-5e-00-53-2a"),
            (EUI64, "00-00-5e-00-53-2a"),
            (NID, "10 0014:4fff:ff20"),
            (NID, "70000 0014:4fff:ff20:ee64"),
            (L32, "10 2001:db8::"),
            (HIP, "2 2001001 AQID"),
            (HIP, "2 200100"),
            (HIP, "2 200100 ***"),
        ] {
            assert!(parse_data(rtype, text.as_bytes(), ORIGIN).is_err(), "{text:?}");
        }
    }
}
