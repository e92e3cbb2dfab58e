//! Domain names in wire format: length-prefixed labels that end with the empty root label (RFC 1035 section
//! 3.1), lowercased (RFC 4343), never compressed, never relative.
//!
//! [`Name`] borrows a name, as a query provides it; [`NameBuf`] owns one. Both compare and hash as bytes;
//! since they are lowercased, this is the comparison of RFC 4343.

mod text;

use std::borrow::Borrow;
use std::net::IpAddr;

pub use text::NameError;

/// The maximum length of a name in bytes, including all length bytes (RFC 1035 section 2.3.4).
pub(crate) const NAME_MAX: usize = 255;
/// The maximum length of a label in bytes (RFC 1035 section 2.3.4).
pub(crate) const LABEL_MAX: usize = 63;

/// A borrowed name. Copying it copies a pointer.
///
/// ```
/// use dnsweir_filter::NameBuf;
/// # fn main() -> Result<(), dnsweir_filter::NameError> {
/// let owned: NameBuf = "API.prod.example.org".parse()?;
/// let name = owned.as_name();
/// let zone: NameBuf = "example.org.".parse()?;
/// assert!(name.is_at_or_below(&zone));
/// assert_eq!(name.labels().next(), Some(&b"api"[..]));
/// assert_eq!(name.to_string(), "api.prod.example.org.");
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name<'a>(&'a [u8]);

impl<'a> Name<'a> {
    /// The root, `.`
    pub const ROOT: Name<'static> = Name(&[0]);

    /// Checks the labels, but not the letter case: the host has lowercased them.
    pub(crate) fn from_host(wire: &'a [u8]) -> Option<Name<'a>> {
        if wire.len() > NAME_MAX {
            return None;
        }
        let mut rest = wire;
        while let Some((&length, after)) = rest.split_first() {
            if length == 0 {
                return after.is_empty().then_some(Name(wire));
            }
            // Two high bits make a length a compression pointer (RFC 1035 section 4.1.4).
            if usize::from(length) > LABEL_MAX {
                return None;
            }
            rest = after.get(usize::from(length)..)?;
        }
        None
    }

    /// The wire format: labels, each after its length, ending with the empty root label.
    pub fn as_wire(self) -> &'a [u8] {
        self.0
    }

    /// Whether this is the root.
    pub fn is_root(self) -> bool {
        self.0.len() == 1
    }

    /// The labels from left to right, without the root label.
    pub fn labels(self) -> Labels<'a> {
        Labels(self.0)
    }

    /// The name without its first label; the root has none.
    #[inline]
    pub fn parent(self) -> Option<Name<'a>> {
        match self.0 {
            [] | [0, ..] => None,
            [length, rest @ ..] => rest.get(usize::from(*length)..).map(Name),
        }
    }

    /// The name itself, its parent, and so on up to the root.
    pub fn ancestors(self) -> impl Iterator<Item = Name<'a>> + use<'a> {
        std::iter::successors(Some(self), |name| name.parent())
    }

    /// The name without its wildcard label, if its first label is an asterisk (RFC 4592 section 2.1.1).
    pub fn wildcard_base(self) -> Option<Name<'a>> {
        self.parent().filter(|_| self.labels().next() == Some(b"*"))
    }

    /// Whether the name is `ancestor` or is below it. Compares labels: `notexample.org` is not below
    /// `example.org`.
    pub fn is_at_or_below<'b>(self, ancestor: impl Into<Name<'b>>) -> bool {
        self.strip_suffix(ancestor).is_some()
    }

    /// The labels before `suffix`, if the name is at or below it.
    pub fn strip_suffix<'b>(self, suffix: impl Into<Name<'b>>) -> Option<Labels<'a>> {
        let suffix = suffix.into().0;
        let front = self.0.len().checked_sub(suffix.len())?;
        if &self.0[front..] != suffix {
            return None;
        }
        // Equal bytes are not enough: the suffix must start at a label.
        let mut cut = 0;
        while cut < front {
            cut += 1 + usize::from(self.0[cut]);
        }
        (cut == front).then_some(Labels(&self.0[..front]))
    }

    /// The address, if this is a [reverse](NameBuf::reverse) name.
    pub fn reverse_address(self) -> Option<IpAddr> {
        let labels: Vec<&[u8]> = self.labels().collect();
        match labels.as_slice() {
            [parts @ .., b"in-addr", b"arpa"] if parts.len() == 4 => {
                let parts = parts.iter().rev().map(|part| str::from_utf8(part));
                let text = parts.collect::<Result<Vec<_>, _>>().ok()?.join(".");
                text.parse().ok().map(IpAddr::V4)
            }
            [nibbles @ .., b"ip6", b"arpa"] if nibbles.len() == 32 => {
                let mut bits = 0;
                for nibble in nibbles.iter().rev() {
                    let [digit] = **nibble else { return None };
                    bits = bits << 4 | u128::from(char::from(digit).to_digit(16)?);
                }
                Some(IpAddr::V6(bits.into()))
            }
            _ => None,
        }
    }

    /// The name with this label prepended.
    ///
    /// # Errors
    /// If the label is empty or longer than 63 bytes, or the name exceeds 255.
    pub fn child(self, label: &str) -> Result<NameBuf, NameError> {
        NameBuf::join([label.as_bytes()], self)
    }
}

impl PartialEq<NameBuf> for Name<'_> {
    fn eq(&self, other: &NameBuf) -> bool {
        self.0 == other.0
    }
}

/// The labels of a name, from left to right.
#[derive(Debug, Clone)]
pub struct Labels<'a>(&'a [u8]);

impl<'a> Iterator for Labels<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let (&length, rest) = self.0.split_first()?;
        if length == 0 {
            return None;
        }
        let (label, rest) = rest.split_at_checked(usize::from(length))?;
        self.0 = rest;
        Some(label)
    }
}

/// An owned name.
///
/// Parses presentation format: `\.` and `\032` escapes, with or without the final dot. Letters are
/// lowercased. There are no relative names.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NameBuf(Vec<u8>);

impl NameBuf {
    /// The root, `.`
    pub fn root() -> NameBuf {
        Name::ROOT.into()
    }

    /// Borrows the name.
    pub fn as_name(&self) -> Name<'_> {
        Name(&self.0)
    }

    /// Prepends labels to a name.
    ///
    /// # Errors
    /// If a label is empty or longer than 63 bytes, or the name exceeds 255.
    pub fn join<'b>(
        labels: impl IntoIterator<Item = &'b [u8]>,
        suffix: impl Into<Name<'b>>,
    ) -> Result<NameBuf, NameError> {
        let mut wire = Vec::new();
        for label in labels {
            push_label(&mut wire, label)?;
        }
        wire.extend_from_slice(suffix.into().0);
        NameBuf::bounded(wire)
    }

    /// The reverse name of an address, which leads to its names: `1.0.0.127.in-addr.arpa.` (RFC 1035 section
    /// 3.5), or nibbles below `ip6.arpa.` (RFC 3596 section 2.5).
    pub fn reverse(address: IpAddr) -> NameBuf {
        let mut wire = Vec::new();
        match address {
            IpAddr::V4(address) => {
                for octet in address.octets().iter().rev() {
                    let digits = octet.to_string();
                    wire.push(digits.len() as u8);
                    wire.extend_from_slice(digits.as_bytes());
                }
                wire.extend_from_slice(b"\x07in-addr\x04arpa\0");
            }
            IpAddr::V6(address) => {
                for octet in address.octets().iter().rev() {
                    for nibble in [octet & 0xf, octet >> 4] {
                        wire.extend_from_slice(&[1, b"0123456789abcdef"[usize::from(nibble)]]);
                    }
                }
                wire.extend_from_slice(b"\x03ip6\x04arpa\0");
            }
        }
        NameBuf(wire)
    }

    /// The name in these bytes, which are one, in any letter case.
    pub(crate) fn from_wire(mut wire: Vec<u8>) -> NameBuf {
        // Lengths are below the letters.
        wire.make_ascii_lowercase();
        NameBuf(wire)
    }

    pub(crate) fn into_wire(self) -> Vec<u8> {
        self.0
    }

    fn bounded(wire: Vec<u8>) -> Result<NameBuf, NameError> {
        if wire.len() > NAME_MAX {
            return Err(NameError::TooLong);
        }
        Ok(NameBuf(wire))
    }
}

fn push_label(wire: &mut Vec<u8>, label: &[u8]) -> Result<(), NameError> {
    match label.len() {
        0 => Err(NameError::EmptyLabel),
        1..=LABEL_MAX => {
            wire.push(label.len() as u8);
            wire.extend(label.iter().map(u8::to_ascii_lowercase));
            Ok(())
        }
        _ => Err(NameError::LabelTooLong),
    }
}

impl<'a> From<&'a NameBuf> for Name<'a> {
    fn from(name: &'a NameBuf) -> Name<'a> {
        name.as_name()
    }
}

impl From<Name<'_>> for NameBuf {
    fn from(name: Name<'_>) -> NameBuf {
        NameBuf(name.0.to_vec())
    }
}

impl PartialEq<Name<'_>> for NameBuf {
    fn eq(&self, other: &Name<'_>) -> bool {
        self.0 == other.0
    }
}

/// Lets a map keyed by [`NameBuf`] be queried with [`Name::as_wire`].
impl Borrow<[u8]> for NameBuf {
    fn borrow(&self) -> &[u8] {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> NameBuf {
        text.parse().unwrap()
    }

    #[test]
    fn suffixes_match_by_label() {
        let long = name("a.b.example.org");
        assert!(long.as_name().is_at_or_below(&name("example.org")));
        assert!(long.as_name().is_at_or_below(&long));
        assert!(long.as_name().is_at_or_below(Name::ROOT));
        assert!(
            !name("notexample.org")
                .as_name()
                .is_at_or_below(&name("example.org"))
        );
        assert!(!name("org").as_name().is_at_or_below(&name("example.org")));
        // The bytes of `\003org` end with those of `org`, but within a label.
        assert!(!name(r"x\003org").as_name().is_at_or_below(&name("org")));
        let front: Vec<_> = long
            .as_name()
            .strip_suffix(&name("example.org"))
            .unwrap()
            .collect();
        assert_eq!(front, [b"a", b"b"]);
        let parents: Vec<_> = long.as_name().ancestors().map(|name| name.to_string()).collect();
        assert_eq!(
            parents,
            ["a.b.example.org.", "b.example.org.", "example.org.", "org.", "."]
        );
    }

    #[test]
    fn the_host_is_not_trusted_with_wire_format() {
        for wire in [&b""[..], b"\x03ab\0", b"\x01a", b"\xc0\x0c", b"\0\0", &[1; 300]] {
            assert_eq!(Name::from_host(wire), None, "{wire:?}");
        }
        assert_eq!(Name::from_host(b"\x01a\0").unwrap().to_string(), "a.");
    }

    #[test]
    fn addresses_have_reverse_names() {
        assert_eq!(
            NameBuf::reverse([127, 0, 0, 53].into()),
            name("53.0.0.127.in-addr.arpa")
        );
        let v6 = NameBuf::reverse("2001:db8::567:89ab".parse().unwrap());
        let nibbles = "b.a.9.8.7.6.5.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.8.b.d.0.1.0.0.2.ip6.arpa";
        assert_eq!(v6, name(nibbles));
        for address in [[127, 0, 0, 53].into(), "2001:db8::567:89ab".parse().unwrap()] {
            let reverse = NameBuf::reverse(address);
            assert_eq!(reverse.as_name().reverse_address(), Some(address));
        }
        for text in [
            "0.0.127.in-addr.arpa",
            "256.0.0.127.in-addr.arpa",
            "01.0.0.127.in-addr.arpa",
            r"1\.2.0.127.in-addr.arpa",
            "b.a.ip6.arpa",
            "a.b.c.d.example",
            ".",
        ] {
            assert_eq!(name(text).as_name().reverse_address(), None, "{text}");
        }
        let wrong = nibbles.replacen("b.", "g.", 1);
        assert_eq!(name(&wrong).as_name().reverse_address(), None);
    }
}
