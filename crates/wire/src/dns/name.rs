//! Names in wire format: scanning, lowercasing, suffixes, text.
//!
//! A *wire name* here is uncompressed and ends in the root label. Every table key that is a name (zones,
//! cache, remembered verdicts) is a lowercased wire name, since names compare without regard to ASCII case
//! (RFC 4343 section 3) and any octet is legal in a label (RFC 2181 section 11).

use std::fmt;
use std::hash::{Hash, Hasher};

/// The longest wire name, root label included (RFC 1035 section 2.3.4).
pub const NAME_MAXIMUM: usize = 255;

/// The longest label (RFC 1035 section 2.3.4).
pub const LABEL_MAXIMUM: u8 = 63;

/// The most compression pointers to follow in one name. RFC 1035 section 4.1.4 sets no bound; a server that
/// points to names as it has written them needs few, and Go's resolver, common in pods, follows ten.
pub(crate) const POINTERS_MAXIMUM: u8 = 16;

/// A name that breaks RFC 1035 sections 2.3.4 or 4.1.4.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BadName;

impl fmt::Display for BadName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "a label is empty or over 63 octets, or the name is over 255 octets, cut off, or wrongly compressed",
        )
    }
}

impl std::error::Error for BadName {}

/// Whether a text consists only of labels that Kubernetes accepts in a subdomain, whatever its length: lower
/// case letters, digits and inner hyphens (RFC 1123 section 2.1).
pub fn is_subdomain(text: &str) -> bool {
    let is_label = |label: &str| {
        let allowed = |octet: u8| octet.is_ascii_lowercase() || octet.is_ascii_digit() || octet == b'-';
        (1..64).contains(&label.len())
            && label.bytes().all(allowed)
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    text.split('.').all(is_label)
}

/// Whether `name` is `suffix` or lies below it. Both must be in wire format and lower case.
pub fn is_at_or_below(name: &[u8], suffix: &[u8]) -> bool {
    let mut rest = name;
    loop {
        if rest == suffix {
            return true;
        }
        // A name ends at the root label; bytes that are not a name end where they run out.
        match rest.split_first() {
            Some((&length, tail)) if length > 0 && tail.len() >= usize::from(length) => {
                rest = &tail[usize::from(length)..];
            }
            _ => return false,
        }
    }
}

/// Returns the end of the uncompressed name that starts at `start`.
///
/// Rejects compression pointers: nothing precedes a question that one could point to.
pub fn skip_plain(message: &[u8], start: usize) -> Result<usize, BadName> {
    let mut at = start;
    loop {
        let length = *message.get(at).ok_or(BadName)?;
        if length > LABEL_MAXIMUM {
            return Err(BadName);
        }
        at += 1 + length as usize;
        if at - start > NAME_MAXIMUM {
            return Err(BadName);
        }
        if length == 0 {
            return Ok(at);
        }
    }
}

/// Returns the end, in the message, of the possibly compressed name that starts at `start`.
///
/// A name ends with its first pointer or with the root label. Pointers are not followed: a walk over records
/// costs no more than the bytes it passes, whatever they contain. [`Names`](super::names::Names) checks the
/// targets.
pub(crate) fn skip_compressed(message: &[u8], start: usize) -> Result<usize, BadName> {
    ending(message, start).map(|(end, _)| end)
}

/// The end of a name, as from [`skip_compressed`], and the offset of its pointer if it ends with one.
pub(super) fn ending(message: &[u8], start: usize) -> Result<(usize, Option<usize>), BadName> {
    let mut at = start;
    loop {
        let length = *message.get(at).ok_or(BadName)?;
        if is_pointer(length) {
            return if at + 1 < message.len() {
                Ok((at + 2, Some(at)))
            } else {
                Err(BadName)
            };
        }
        if length > LABEL_MAXIMUM {
            return Err(BadName);
        }
        at += 1 + length as usize;
        if at - start > NAME_MAXIMUM {
            return Err(BadName);
        }
        if length == 0 {
            return Ok((at, None));
        }
    }
}

/// Whether a byte begins a compression pointer (RFC 1035 section 4.1.4).
pub(super) fn is_pointer(length: u8) -> bool {
    length & 0xc0 == 0xc0
}

/// The target of the pointer at `at`, in a part of a name that starts at `start`: strictly backwards (RFC
/// 1035 section 4.1.4: "a prior occurrence"), so that a chain of pointers always ends.
pub(super) fn target(message: &[u8], at: usize, start: usize) -> Result<usize, BadName> {
    let (Some(&high), Some(&low)) = (message.get(at), message.get(at + 1)) else {
        return Err(BadName);
    };
    let target = usize::from(high & 0x3f) << 8 | usize::from(low);
    if target < start && target >= super::HEADER {
        Ok(target)
    } else {
        Err(BadName)
    }
}

/// Replaces `out` with the name that starts at `start`, uncompressed and lowercased.
pub fn expand(message: &[u8], start: usize, out: &mut Name) -> Result<(), BadName> {
    out.clear();
    for_labels(message, start, |label| out.push_label(label))
}

/// Returns the name that starts at `start`, uncompressed and with its letter case.
pub fn spelled(message: &[u8], start: usize) -> Result<Vec<u8>, BadName> {
    let mut name = Vec::with_capacity(32);
    for_labels(message, start, |label| {
        name.extend_from_slice(label);
        name.len() <= NAME_MAXIMUM
    })?;
    Ok(name)
}

/// Passes each label of a name, length byte first, to `take`, up to the root, while `take` returns true.
#[inline(always)]
fn for_labels(message: &[u8], start: usize, mut take: impl FnMut(&[u8]) -> bool) -> Result<(), BadName> {
    let mut part = start;
    let mut at = start;
    let mut pointers = 0;
    // Where this part has to end: a pointer's target must lie wholly before the part with the pointer.
    // Otherwise it is no "prior occurrence" (RFC 1035 section 4.1.4), and might reach into bytes that change,
    // such as TTLs.
    let mut limit = message.len();
    loop {
        let length = *message.get(at).ok_or(BadName)?;
        if is_pointer(length) {
            pointers += 1;
            if pointers > POINTERS_MAXIMUM || at + 2 > limit {
                return Err(BadName);
            }
            limit = part;
            part = target(message, at, part)?;
            at = part;
            continue;
        }
        if length > LABEL_MAXIMUM || at + 1 + usize::from(length) > limit {
            return Err(BadName);
        }
        let label = message.get(at..at + 1 + length as usize).ok_or(BadName)?;
        if !take(label) {
            return Err(BadName);
        }
        if length == 0 {
            return Ok(());
        }
        at += 1 + length as usize;
    }
}

/// Lowercases the ASCII capitals in eight bytes.
#[inline(always)]
fn lowercase(octets: &[u8]) -> u64 {
    const EACH: u64 = 0x0101_0101_0101_0101;
    let octets = octets
        .first_chunk()
        .map_or(0, |octets| u64::from_ne_bytes(*octets));
    // The top bit of each byte tells, without a carry into the next byte, whether the other seven are at
    // least `A`, and whether they are above `Z`.
    let low = octets & (EACH * 0x7f);
    let from_a = low + EACH * u64::from(0x80 - b'A');
    let above_z = low + EACH * u64::from(0x7f - b'Z');
    let capitals = (from_a ^ above_z) & !octets & (EACH * 0x80);
    // A capital lacks the bit 0x20.
    octets | capitals >> 2
}

/// A lowercased wire name, stored inline: 256 bytes, no allocation.
#[derive(Clone)]
pub struct Name {
    length: u8,
    octets: [u8; NAME_MAXIMUM],
}

impl Name {
    /// The root name.
    pub const ROOT: Name = Name {
        length: 1,
        octets: [0; NAME_MAXIMUM],
    };

    /// Lowercases a wire name that [`skip_plain`] has checked.
    pub fn lowercased(wire: &[u8]) -> Name {
        let mut name = Name {
            length: 0,
            octets: [0; NAME_MAXIMUM],
        };
        name.set_lowercased(wire);
        name
    }

    /// Sets it to the lowercased form of `wire`, a name that [`skip_plain`] has checked.
    ///
    /// Length octets are below 64 and ASCII capitals are above, so both are treated alike.
    pub fn set_lowercased(&mut self, wire: &[u8]) {
        debug_assert!(!wire.is_empty() && wire.len() <= NAME_MAXIMUM);
        let length = wire.len().min(NAME_MAXIMUM);
        let (from, to) = (&wire[..length], &mut self.octets[..length]);
        // Eight at a time: names are too short for the standard library's sixteen, and every query has one.
        for (from, to) in from.chunks_exact(8).zip(to.chunks_exact_mut(8)) {
            to.copy_from_slice(&lowercase(from).to_ne_bytes());
        }
        // The last eight bytes; some of them are processed twice.
        match (from.last_chunk::<8>(), to.last_chunk_mut::<8>()) {
            (Some(from), Some(to)) => *to = lowercase(from).to_ne_bytes(),
            _ => {
                to.copy_from_slice(from);
                to.make_ascii_lowercase();
            }
        }
        self.length = length as u8;
    }

    /// Parses a name in presentation format (RFC 1035 section 5.1), lowercased; the final dot is optional.
    pub fn parse(text: &str) -> Result<Name, BadName> {
        let mut name = Name {
            length: 0,
            octets: [0; NAME_MAXIMUM],
        };
        let mut label = vec![0u8];
        let mut octets = text.bytes().peekable();
        if text == "." {
            return Ok(Name::ROOT);
        }
        while let Some(octet) = octets.next() {
            match octet {
                b'.' => {
                    if label.len() == 1 || !name.push_label(&label) {
                        return Err(BadName);
                    }
                    label.truncate(1);
                    label[0] = 0;
                    continue;
                }
                b'\\' => {
                    let first = octets.next().ok_or(BadName)?;
                    if first.is_ascii_digit() {
                        let mut value = u32::from(first - b'0');
                        for _ in 0..2 {
                            let digit = octets.next().filter(u8::is_ascii_digit).ok_or(BadName)?;
                            value = value * 10 + u32::from(digit - b'0');
                        }
                        label.push(u8::try_from(value).map_err(|_| BadName)?);
                    } else {
                        label.push(first);
                    }
                }
                plain => label.push(plain),
            }
            if label.len() > 1 + LABEL_MAXIMUM as usize {
                return Err(BadName);
            }
            label[0] = (label.len() - 1) as u8;
        }
        if label.len() > 1 && !name.push_label(&label) {
            return Err(BadName);
        }
        if name.length == 0 || !name.push_label(&[0]) {
            return Err(BadName);
        }
        Ok(name)
    }

    /// The name in wire format.
    #[inline]
    pub fn as_bytes(&self) -> &[u8] {
        &self.octets[..self.length as usize]
    }

    fn clear(&mut self) {
        self.length = 0;
    }

    /// Appends a length octet and its label; returns false if the name would get too long.
    fn push_label(&mut self, label: &[u8]) -> bool {
        let start = self.length as usize;
        let Some(room) = self.octets.get_mut(start..start + label.len()) else {
            return false;
        };
        room.copy_from_slice(label);
        room.make_ascii_lowercase();
        self.length += label.len() as u8;
        true
    }
}

impl PartialEq for Name {
    fn eq(&self, other: &Name) -> bool {
        self.as_bytes() == other.as_bytes()
    }
}

impl Eq for Name {}

impl Hash for Name {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.as_bytes().hash(state);
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", Text(self.as_bytes()))
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", Text(self.as_bytes()))
    }
}

/// Formats a wire name in presentation format, escaped as in RFC 1035 section 5.1.
pub struct Text<'a>(pub &'a [u8]);

impl fmt::Display for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.first().is_none_or(|&length| length == 0) {
            return f.write_str(".");
        }
        let mut at = 0;
        while let Some(&length) = self.0.get(at) {
            if length == 0 {
                return Ok(());
            }
            for &octet in self.0.get(at + 1..at + 1 + length as usize).unwrap_or_default() {
                match octet {
                    b'.' | b'\\' | b'"' | b'(' | b')' | b';' | b'@' | b'$' => {
                        write!(f, "\\{}", octet as char)?
                    }
                    0x21..=0x7e => write!(f, "{}", octet as char)?,
                    other => write!(f, "\\{other:03}")?,
                }
            }
            f.write_str(".")?;
            at += 1 + length as usize;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn every_octet_is_lowercased_wherever_it_stands() {
        for length in 1..=40 {
            for octet in 0..=255_u8 {
                for at in 0..length {
                    let mut octets = vec![b'Z'; length];
                    octets[at] = octet;
                    let mut name = Name::ROOT;
                    name.set_lowercased(&octets);
                    assert_eq!(name.as_bytes(), octets.to_ascii_lowercase(), "{octet} at {at}");
                }
            }
        }
    }

    #[test]
    fn text_and_wire_agree() {
        for (text, wire) in [
            (".", &b"\0"[..]),
            ("a.", b"\x01a\0"),
            ("Example.ORG.", b"\x07example\x03org\0"),
            (r"a\.b.c.", b"\x03a.b\x01c\0"),
            (r"\000\255.", b"\x02\x00\xff\0"),
        ] {
            assert_eq!(Name::parse(text).unwrap().as_bytes(), wire, "{text}");
            assert_eq!(Text(wire).to_string(), text.to_ascii_lowercase());
        }
        for bad in [
            "",
            "..",
            ".a",
            "a..b",
            &"x".repeat(64),
            &"abc.".repeat(64),
            r"\25",
            r"\999",
            "\\",
        ] {
            assert_eq!(Name::parse(bad), Err(BadName), "{bad}");
        }
    }

    /// RFC 1035 section 4.1.4.
    #[test]
    fn pointers_lead_strictly_backwards() {
        let mut message = vec![0; 12];
        message.extend(b"\x03org\0"); // 12
        message.extend(b"\x07example\xc0\x0c"); // 17
        message.extend(b"\xc0\x11"); // 27
        assert_eq!(skip_compressed(&message, 27), Ok(29));
        let mut name = Name::ROOT;
        expand(&message, 27, &mut name).unwrap();
        assert_eq!(name.to_string(), "example.org.");
        for bad in [
            &b"\xc0\x1d"[..],
            b"\xc0\x1e",
            b"\xc0\x00",
            b"\xc0",
            b"\x40abc",
            b"\x03ab",
        ] {
            let mut message = message.clone();
            message.extend(bad);
            assert_eq!(expand(&message, 29, &mut name), Err(BadName), "{bad:?}");
        }
    }

    /// Finding the end of a name follows no pointer; expanding it follows a bounded number.
    #[test]
    fn pointers_are_followed_so_many_times() {
        let mut message = [&[0; 12][..], b"\x01a\0"].concat();
        for pointers in 1..=usize::from(POINTERS_MAXIMUM) + 1 {
            let start = message.len();
            let to = if pointers == 1 { 12 } else { start - 2 };
            message.extend((0xc000 | to as u16).to_be_bytes());
            assert_eq!(skip_compressed(&message, start), Ok(start + 2));
            let expanded = expand(&message, start, &mut Name::ROOT.clone());
            assert_eq!(
                expanded.is_ok(),
                pointers <= usize::from(POINTERS_MAXIMUM),
                "{pointers}"
            );
        }
        assert_eq!(skip_compressed(b"\x01a\xc0", 0), Err(BadName), "half a pointer");
        assert_eq!(skip_compressed(b"\x01a\xff\xff", 0), Ok(4), "wherever it leads");
    }

    proptest! {
        #[test]
        fn parse_reads_what_display_writes(labels in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..20), 0..8)) {
            let mut wire = Vec::new();
            for label in &labels {
                wire.push(label.len() as u8);
                wire.extend(label);
            }
            wire.push(0);
            let name = Name::lowercased(&wire);
            prop_assert_eq!(Name::parse(&name.to_string()).unwrap(), name);
        }

        #[test]
        fn no_octets_make_it_panic(message in prop::collection::vec(any::<u8>(), 0..300), start in 0usize..300) {
            let _ = skip_plain(&message, start);
            let _ = skip_compressed(&message, start);
            let _ = expand(&message, start, &mut Name::ROOT.clone());
            let _ = Text(&message).to_string();
        }
    }

    const NAME: &[u8] = b"\x03www\x07example\x03org\0";

    #[test]
    fn suffixes_match_whole_labels() {
        assert!(is_at_or_below(NAME, NAME));
        assert!(is_at_or_below(NAME, b"\x07example\x03org\0"));
        assert!(is_at_or_below(NAME, b"\0"));
        assert!(!is_at_or_below(NAME, b"\x06xample\x03org\0"));
        assert!(!is_at_or_below(NAME, b"\x03org"));
        assert!(!is_at_or_below(b"\x07example\x03org\0", NAME));
        // "org\0" inside a label is text, not a suffix.
        assert!(!is_at_or_below(b"\x05\x03org\0\0", b"\x03org\0"));
    }

    #[test]
    fn broken_names_are_below_nothing() {
        assert!(!is_at_or_below(b"", b"\0"));
        assert!(!is_at_or_below(b"\x09abc", b"\0"));
    }
}
