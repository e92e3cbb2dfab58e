//! Record data as text, in the form of its type (RFC 1035 section 5.1) or in hexadecimal (RFC 3597 section 5).

use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, Ipv6Addr};
use std::str::Bytes;

use super::{Words, absolute, seconds};
use crate::form::{Field, form, may_be_empty};
use crate::reader::Reader;
use crate::{NameBuf, Type};

/// The parameters of services that have names, by their keys (RFC 9460 section 14.3.2).
const PARAMETERS: [&str; 7] = [
    "mandatory",
    "alpn",
    "no-default-alpn",
    "port",
    "ipv4hint",
    "ech",
    "ipv6hint",
];

/// Reads the words of a record's data, and returns it in wire format. Relative names end in `origin`.
pub(super) fn read(rtype: Type, mut words: Words<'_>, origin: &NameBuf) -> Result<Vec<u8>, String> {
    let mut data = Vec::new();
    if words.clone().next() == Some(r"\#") {
        words.next();
        let read = in_full(&mut words).ok_or(r"after \# are a length, and as many bytes in hexadecimal")?;
        data.extend(read);
    } else {
        for &field in form(rtype) {
            data.extend(read_field(rtype, field, &mut words, origin)?);
        }
    }
    if let Some(word) = words.next() {
        return Err(format!("{word:?} is too much for {rtype}"));
    }
    // No record has more, and what was not read field by field may have another form, or compressed names.
    let is_record = data.len() <= usize::from(u16::MAX)
        && (!data.is_empty() || may_be_empty(rtype))
        && Reader::new(&data)
            .data(rtype, data.len())
            .is_some_and(|read| read == data);
    match is_record {
        true => Ok(data),
        false => Err(format!("the data has not the form of {rtype}")),
    }
}

/// Reads a field, from one word or from all that follow.
fn read_field(rtype: Type, field: Field, words: &mut Words<'_>, origin: &NameBuf) -> Result<Vec<u8>, String> {
    let first = words.clone().next().unwrap_or_default();
    let (read, expected) = match field {
        Field::Name => return absolute(words.next().unwrap_or_default(), origin).map(NameBuf::into_wire),
        Field::Number(length) => (
            words.next().and_then(|word| number(word, length)),
            "a number that fits",
        ),
        Field::Seconds => (
            words
                .next()
                .and_then(seconds)
                .map(|time| time.to_be_bytes().to_vec()),
            "a time in seconds",
        ),
        Field::Ipv4 => (words.next().and_then(ipv4), "an IPv4 address"),
        Field::Ipv6 => (words.next().and_then(ipv6), "an IPv6 address"),
        Field::String => (words.next().and_then(string), "a string of up to 255 bytes"),
        Field::Strings => (strings(words), "a string of up to 255 bytes"),
        Field::Text => (words.next().and_then(unescaped), "a text"),
        Field::Hex => (hexadecimal(words), "in hexadecimal"),
        Field::Base64 => (base64(words.collect::<String>().as_bytes()), "in base64"),
        Field::Types => (types(words), "the name of a type"),
        Field::Parameters => (parameters(words), "a parameter of a service"),
        Field::Octets(_) | Field::Opaque => {
            return Err(format!(r"data of {rtype} is read in hexadecimal only: \# 2 c0de"));
        }
    };
    read.ok_or_else(|| match first {
        "" => format!("the data of {rtype} is incomplete"),
        word => format!("{word:?} is not {expected}"),
    })
}

/// A length in bytes, and the bytes in hexadecimal.
fn in_full(words: &mut Words<'_>) -> Option<Vec<u8>> {
    let length: usize = words.next()?.parse().ok()?;
    match length {
        0 => Some(Vec::new()),
        _ => hexadecimal(words).filter(|octets| octets.len() == length),
    }
}

fn number(word: &str, length: usize) -> Option<Vec<u8>> {
    // `u32::from_str` would accept a sign.
    let is_plain = word.bytes().all(|digit| digit.is_ascii_digit());
    let number: u32 = word.parse().ok().filter(|_| is_plain)?;
    let octets = number.to_be_bytes();
    let (high, low) = octets.split_at(octets.len() - length);
    high.iter().all(|octet| *octet == 0).then(|| low.to_vec())
}

fn ipv4(word: &str) -> Option<Vec<u8>> {
    let address: Ipv4Addr = word.parse().ok()?;
    Some(address.octets().to_vec())
}

fn ipv6(word: &str) -> Option<Vec<u8>> {
    let address: Ipv6Addr = word.parse().ok()?;
    Some(address.octets().to_vec())
}

/// The bytes that a word stands for, without its quotes and escapes.
fn unescaped(word: &str) -> Option<Vec<u8>> {
    let (mut octets, mut quoted) = (Vec::with_capacity(word.len()), false);
    let mut rest = word.bytes();
    while let Some(octet) = rest.next() {
        match octet {
            b'"' => quoted = !quoted,
            b'\\' => octets.push(unescape(&mut rest)?),
            octet => octets.push(octet),
        }
    }
    (!quoted).then_some(octets)
}

/// The byte that an escape stands for: three decimal digits, or the character itself.
fn unescape(rest: &mut Bytes<'_>) -> Option<u8> {
    let first = rest.next()?;
    if !first.is_ascii_digit() {
        return Some(first);
    }
    let digits = [first, rest.next()?, rest.next()?];
    let digits = digits.map(|digit| char::from(digit).to_digit(10));
    let [hundreds, tens, ones] = digits;
    u8::try_from(hundreds? * 100 + tens? * 10 + ones?).ok()
}

/// A string after its length.
fn string(word: &str) -> Option<Vec<u8>> {
    prefixed(&unescaped(word)?)
}

fn prefixed(octets: &[u8]) -> Option<Vec<u8>> {
    let length = u8::try_from(octets.len()).ok()?;
    Some([&[length], octets].concat())
}

/// One string, or several.
fn strings(words: &mut Words<'_>) -> Option<Vec<u8>> {
    let strings: Vec<_> = words.map(string).collect::<Option<_>>()?;
    Some(strings.concat()).filter(|strings| !strings.is_empty())
}

/// At least one byte, with spaces anywhere.
fn hexadecimal(words: &mut Words<'_>) -> Option<Vec<u8>> {
    let digits = words.flat_map(str::chars).map(|digit| digit.to_digit(16));
    let digits: Vec<u32> = digits.collect::<Option<_>>()?;
    let pairs = digits.chunks_exact(2);
    let is_even = pairs.remainder().is_empty() && !digits.is_empty();
    is_even.then(|| pairs.map(|pair| (pair[0] << 4 | pair[1]) as u8).collect())
}

/// At least one byte (RFC 4648 section 4).
fn base64(text: &[u8]) -> Option<Vec<u8>> {
    let digits = text
        .strip_suffix(b"==")
        .or(text.strip_suffix(b"="))
        .unwrap_or(text);
    let (mut octets, mut bits, mut count) = (Vec::new(), 0u32, 0);
    for &digit in digits {
        let value = match digit {
            b'A'..=b'Z' => digit - b'A',
            b'a'..=b'z' => digit - b'a' + 26,
            b'0'..=b'9' => digit - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => return None,
        };
        (bits, count) = (bits << 6 | u32::from(value), count + 6);
        if count >= 8 {
            count -= 8;
            octets.push((bits >> count) as u8);
        }
    }
    let is_whole = text.len().is_multiple_of(4) && !octets.is_empty();
    is_whole.then_some(octets)
}

/// A bitmap of types (RFC 4034 section 4.1.2).
fn types(words: &mut Words<'_>) -> Option<Vec<u8>> {
    let types = words.map(|word| word.parse::<Type>().map(|rtype| rtype.0));
    let types: BTreeSet<u16> = types.collect::<Result<_, _>>().ok()?;
    let mut windows = BTreeMap::<u8, Vec<u8>>::new();
    for rtype in types {
        let [window, low] = rtype.to_be_bytes();
        let bitmap = windows.entry(window).or_default();
        bitmap.resize(usize::from(low / 8) + 1, 0);
        if let Some(octet) = bitmap.last_mut() {
            *octet |= 0x80 >> (low % 8);
        }
    }
    let windows = windows.into_iter();
    let windows = windows.map(|(window, bitmap)| [&[window, bitmap.len() as u8], &*bitmap].concat());
    Some(windows.collect::<Vec<_>>().concat())
}

/// Parameters of a service, in any order (RFC 9460 section 2.1).
fn parameters(words: &mut Words<'_>) -> Option<Vec<u8>> {
    let mut parameters = BTreeMap::new();
    for word in words {
        let (name, value) = word.split_once('=').unwrap_or((word, ""));
        let value = unescaped(value)?;
        let value = match PARAMETERS.contains(&name) {
            true => parameter(name, &value)?,
            false => value,
        };
        if parameters.insert(key(name)?, value).is_some() {
            return None;
        }
    }
    let mut data = Vec::new();
    for (key, value) in parameters {
        data.extend(key.to_be_bytes());
        data.extend(u16::try_from(value.len()).ok()?.to_be_bytes());
        data.extend(value);
    }
    Some(data)
}

/// The key of a parameter: `alpn`, or `key65280`.
fn key(name: &str) -> Option<u16> {
    match PARAMETERS.iter().position(|known| *known == name) {
        Some(key) => u16::try_from(key).ok(),
        None => name.strip_prefix("key")?.parse().ok(),
    }
}

/// The value of a parameter that has a name, in wire format (RFC 9460 sections 7 and 8, RFC 9848 section 4).
fn parameter(name: &str, value: &[u8]) -> Option<Vec<u8>> {
    let text = str::from_utf8(value).unwrap_or_default();
    let all = |read: fn(&str) -> Option<Vec<u8>>| {
        let all: Vec<_> = text.split(',').map(read).collect::<Option<_>>()?;
        Some(all.concat())
    };
    match name {
        "mandatory" => {
            let keys: BTreeSet<u16> = text.split(',').map(key).collect::<Option<_>>()?;
            Some(keys.into_iter().flat_map(u16::to_be_bytes).collect())
        }
        "alpn" => protocols(value),
        "no-default-alpn" => value.is_empty().then(Vec::new),
        "port" => number(text, 2),
        "ipv4hint" => all(ipv4),
        "ipv6hint" => all(ipv6),
        _ => base64(value),
    }
}

/// A list with commas, before which a backslash stands in an item (RFC 9460 appendix A.1).
fn protocols(value: &[u8]) -> Option<Vec<u8>> {
    let mut items = vec![Vec::new()];
    let mut octets = value.iter();
    while let Some(octet) = octets.next() {
        match (octet, items.last_mut()) {
            (b',', _) => items.push(Vec::new()),
            (b'\\', Some(item)) => item.push(*octets.next()?),
            (_, Some(item)) => item.push(*octet),
            (_, None) => {}
        }
    }
    let items = items
        .iter()
        .filter(|item| !item.is_empty())
        .map(|item| prefixed(item));
    let items: Vec<_> = items.collect::<Option<_>>()?;
    Some(items.concat()).filter(|items| !items.is_empty())
}
