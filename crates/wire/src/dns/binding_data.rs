//! Data of service bindings, SVCB and HTTPS, from text (RFC 9460 section 2.1).
//!
//! The library refuses keys that contain a 9, such as `key19`. It gets other keys in their place.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;

use super::name::skip_plain;
use super::u16_at;

/// The words before the keys: the priority and the target.
const BEFORE_KEYS: usize = 2;

/// The key whose value lists others (RFC 9460 section 8).
const MANDATORY: u16 = 0;

/// Keys whose values the library takes as they are.
const GENERIC: RangeInclusive<u16> = 256..=65_534;

/// Converts data to wire format. `scan` does so where no key contains a 9.
///
/// # Errors
/// What is wrong, as the end of a sentence about the data.
pub fn parse(text: &[u8], scan: impl Fn(&[u8]) -> Result<Vec<u8>, String>) -> Result<Vec<u8>, String> {
    let words = words(text);
    let keys = words.iter().skip(BEFORE_KEYS).filter_map(|word| generic(word));
    let (refused, others): (BTreeSet<u16>, BTreeSet<u16>) =
        keys.map(|(key, _)| key).partition(|key| has_nine(*key));
    if refused.is_empty() {
        return scan(text);
    }
    let free = GENERIC.filter(|key| !has_nine(*key) && !others.contains(key));
    let stand_ins: BTreeMap<u16, u16> = refused.into_iter().zip(free).collect();
    let data = scan(&replace(&words, &stand_ins))?;
    let keys = stand_ins.into_iter().map(|(key, stand_in)| (stand_in, key));
    restore(&data, &keys.collect()).ok_or_else(|| "has a key twice".into())
}

/// The words of a text, with their quotes and escapes.
fn words(text: &[u8]) -> Vec<&[u8]> {
    let (mut quoted, mut escaped) = (false, false);
    let words = text.split(|octet| {
        let ends = !quoted && !escaped && octet.is_ascii_whitespace();
        quoted ^= !escaped && *octet == b'"';
        escaped = !escaped && *octet == b'\\';
        ends
    });
    words.filter(|word| !word.is_empty()).collect()
}

/// The number of a key that is written as one, such as `key19`, and what follows it.
fn generic(text: &[u8]) -> Option<(u16, &[u8])> {
    let digits = text.strip_prefix(b"key")?;
    let end = digits.iter().position(|octet| !octet.is_ascii_digit());
    let (digits, rest) = digits.split_at(end.unwrap_or(digits.len()));
    Some((str::from_utf8(digits).ok()?.parse().ok()?, rest))
}

fn has_nine(key: u16) -> bool {
    key.to_string().contains('9')
}

/// The text with other keys, also in the list of those that are mandatory.
fn replace(words: &[&[u8]], stand_ins: &BTreeMap<u16, u16>) -> Vec<u8> {
    let mut text = Vec::new();
    for (index, word) in words.iter().enumerate() {
        let lists_keys = word.starts_with(b"mandatory=");
        let parts = word.split_inclusive(|octet| b"=,\"".contains(octet));
        for (at, part) in parts.enumerate() {
            let is_key = index >= BEFORE_KEYS && (at == 0 || lists_keys);
            let key = generic(part).filter(|_| is_key);
            match key.and_then(|(key, rest)| Some((stand_ins.get(&key)?, rest))) {
                Some((stand_in, rest)) => {
                    text.extend(format!("key{stand_in}").into_bytes());
                    text.extend(rest);
                }
                None => text.extend(part),
            }
        }
        text.push(b' ');
    }
    text
}

/// The data with its own `keys`, in their order (RFC 9460 section 2.2); `None` if two are the same.
fn restore(data: &[u8], keys: &BTreeMap<u16, u16>) -> Option<Vec<u8>> {
    let own = |key: u16| keys.get(&key).copied().unwrap_or(key);
    let (before, mut rest) = data.split_at_checked(skip_plain(data, 2).ok()?)?;
    let mut parameters = BTreeMap::new();
    while !rest.is_empty() {
        let (head, after) = rest.split_at_checked(4)?;
        let (value, after) = after.split_at_checked(u16_at(head, 2).into())?;
        let mut value = value.to_vec();
        if u16_at(head, 0) == MANDATORY {
            let listed: BTreeSet<u16> = value.chunks_exact(2).map(|key| own(u16_at(key, 0))).collect();
            value = listed.into_iter().flat_map(u16::to_be_bytes).collect();
        }
        if parameters.insert(own(u16_at(head, 0)), value).is_some() {
            return None;
        }
        rest = after;
    }
    let mut data = before.to_vec();
    for (key, value) in parameters {
        data.extend(key.to_be_bytes());
        data.extend((value.len() as u16).to_be_bytes());
        data.extend(value);
    }
    Some(data)
}

#[cfg(test)]
mod tests {
    use super::super::data::parse_data;
    use super::super::rtype;

    const ORIGIN: &[u8] = b"\x07example\0";

    fn parsed(text: &str) -> Result<String, String> {
        let data = parse_data(rtype::SVCB, text.as_bytes(), ORIGIN)?;
        let digits = data.iter().map(|octet| format!("{octet:02x}"));
        Ok(digits.collect())
    }

    /// RFC 9460 appendix D.1 and D.2, but for figure 10: the library reads no escapes in `alpn`.
    #[test]
    fn the_rfcs_examples_are_read() {
        const FOO: &str = "03666f6f 076578616d706c65 03636f6d 00";
        for (text, expected) in [
            ("0 foo.example.com.", format!("0000 {FOO}")),
            ("1 .", "0001 00".to_owned()),
            (
                "16 foo.example.com. port=53",
                format!("0010 {FOO} 0003 0002 0035"),
            ),
            (
                "1 foo.example.com. key667=hello",
                format!("0001 {FOO} 029b 0005 68656c6c6f"),
            ),
            (
                "1 foo.example.com. key667=\"hello\\210qoo\"",
                format!("0001 {FOO} 029b 0009 68656c6c6fd2716f6f"),
            ),
            (
                "1 foo.example.com. ipv6hint=\"2001:db8::1,2001:db8::53:1\"",
                format!(
                    "0001 {FOO} 0006 0020 20010db8000000000000000000000001 20010db8000000000000000000530001"
                ),
            ),
            (
                "1 example.com. ipv6hint=\"2001:db8:122:344::192.0.2.33\"",
                "0001 076578616d706c65 03636f6d 00 0006 0010 20010db8012203440000 0000c0000221".to_owned(),
            ),
            (
                "16 foo.example.org. alpn=h2,h3-19 mandatory=ipv4hint,alpn ipv4hint=192.0.2.1",
                "0010 03666f6f 076578616d706c65 036f7267 00 0000 0004 00010004 \
                 0001 0009 02 6832 05 68332d3139 0004 0004 c0000201"
                    .to_owned(),
            ),
        ] {
            assert_eq!(parsed(text), Ok(expected.replace(' ', "")), "{text}");
        }
    }

    #[test]
    fn keys_with_a_nine_are_read() {
        for (text, expected) in [
            ("1 . key19=a", "0001 00 0013 0001 61"),
            ("1 . key19", "0001 00 0013 0000"),
            (
                "1 . key667=b key65309=\"a b\" port=53",
                "0001 00 0003 0002 0035 029b 0001 62 ff1d 0003 612062",
            ),
            ("1 . key256=b key19=a", "0001 00 0013 0001 61 0100 0001 62"),
            (
                "1 . mandatory=key19,port,key9 key19=a key9 port=1",
                "0001 00 0000 0006 0003 0009 0013 0003 0002 0001 0009 0000 0013 0001 61",
            ),
            (
                "1 . mandatory=\"key19\" key19=\"\\\"key29\"",
                "0001 00 0000 0002 0013 0013 0006 226b65793239",
            ),
            (
                "1 key19 alpn=key19 key19=key19",
                "0001 05 6b65793139 07 6578616d706c65 00 0001 0006 05 6b65793139 0013 0005 6b65793139",
            ),
        ] {
            assert_eq!(parsed(text), Ok(expected.replace(' ', "")), "{text}");
        }
    }

    /// RFC 9460 appendix D.3, and the same with a 9.
    #[test]
    fn other_data_is_refused() {
        for text in [
            "1 foo.example.com. key123=abc key123=def",
            "1 foo.example.com. mandatory",
            "2 foo.example.com. alpn",
            "3 foo.example.com. port",
            "4 foo.example.com. ipv4hint",
            "5 foo.example.com. ipv6hint",
            "1 foo.example.com. no-default-alpn=abc",
            "1 foo.example.com. mandatory=key123",
            "1 foo.example.com. mandatory=mandatory",
            "1 foo.example.com. mandatory=key123,key123 key123=abc",
            "1 . key19=abc key19=def",
            "1 . key9=a tls-supported-groups=29",
            "1 . mandatory=key19",
            "1 . mandatory=key19,key19 key19=abc",
            "1 . key99999=abc",
            "1 . key19abc=abc",
        ] {
            assert!(parsed(text).is_err(), "{text}");
        }
    }
}
