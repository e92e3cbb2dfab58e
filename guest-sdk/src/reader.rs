//! Reads names and data in wire format (RFC 1035 sections 3 and 4).
//!
//! What a message says about its own parts is never believed: lengths are compared with what is there, and pointers
//! are followed only backwards, and only so often.

use crate::Type;
use crate::form::{Field, form};
use crate::name::{LABEL_MAX, NAME_MAX};

/// The most compression pointers to follow in a name: as many as it can have labels.
const POINTERS: usize = NAME_MAX / 2;

/// Keys of parameters with addresses (RFC 9460 section 14.3.2).
pub(crate) const IPV4_HINT: u16 = 4;
pub(crate) const IPV6_HINT: u16 = 6;

/// A place in a message, or in uncompressed data.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reader<'m> {
    message: &'m [u8],
    at: usize,
}

impl<'m> Reader<'m> {
    /// A reader at the start.
    pub fn new(message: &'m [u8]) -> Reader<'m> {
        Reader { message, at: 0 }
    }

    /// The number of bytes before this place.
    pub fn at(&self) -> usize {
        self.at
    }

    /// What follows.
    fn rest(&self) -> &'m [u8] {
        self.message.get(self.at..).unwrap_or_default()
    }

    /// The next bytes.
    pub fn take(&mut self, count: usize) -> Option<&'m [u8]> {
        let taken = self.rest().get(..count)?;
        self.at += count;
        Some(taken)
    }

    /// The next two bytes, as a number.
    pub fn number(&mut self) -> Option<u16> {
        let octets = self.take(2)?.first_chunk()?;
        Some(u16::from_be_bytes(*octets))
    }

    /// Appends the next name to `octets`, uncompressed (RFC 1035 section 4.1.4), and in its letter case.
    pub fn name(&mut self, octets: &mut Vec<u8>) -> Option<()> {
        let (mut name, mut used) = ([0; NAME_MAX], 0);
        let (mut message, mut at, mut end) = (self.message, self.at, None);
        // Where the part of the name begins that is being read, and how many pointers led there.
        let (mut part, mut pointers) = (at, 0);
        loop {
            let length = usize::from(*message.get(at)?);
            match length {
                0..=LABEL_MAX => {
                    let label = message.get(at..=at + length)?;
                    name.get_mut(used..=used + length)?.copy_from_slice(label);
                    (at, used) = (at + label.len(), used + label.len());
                    if length == 0 {
                        break;
                    }
                }
                0xc0.. if pointers < POINTERS => {
                    let target = (length & 0x3f) << 8 | usize::from(*message.get(at + 1)?);
                    end.get_or_insert(at + 2);
                    // What a pointer leads to ends before the part with the pointer begins.
                    message = message.get(..part)?;
                    (at, part, pointers) = (target, target, pointers + 1);
                }
                _ => return None,
            }
        }
        octets.extend_from_slice(&name[..used]);
        self.at = end.unwrap_or(at);
        Some(())
    }

    /// Appends the next field to `octets`.
    pub fn field(&mut self, field: Field, octets: &mut Vec<u8>) -> Option<()> {
        let rest = self.rest();
        let length = match field {
            Field::Name => return self.name(octets),
            Field::Number(length) | Field::Octets(length) => length,
            Field::Seconds | Field::Ipv4 => 4,
            Field::Ipv6 => 16,
            Field::String => 1 + usize::from(*rest.first()?),
            Field::Strings => self.strings()?,
            Field::Parameters => self.parameters()?,
            Field::Text | Field::Hex | Field::Base64 | Field::Types | Field::Opaque => rest.len(),
        };
        octets.extend_from_slice(self.take(length)?);
        Some(())
    }

    /// The length of the strings that follow, up to the end.
    fn strings(mut self) -> Option<usize> {
        let begins = self.at;
        while let Some(&length) = self.rest().first() {
            self.take(1 + usize::from(length))?;
        }
        Some(self.at - begins)
    }

    /// The length of the parameters that follow, up to the end: each once, in the order of their keys (RFC 9460 section
    /// 2.2), and hints with whole addresses.
    fn parameters(mut self) -> Option<usize> {
        let (begins, mut last) = (self.at, None);
        while !self.rest().is_empty() {
            let (key, value) = self.parameter()?;
            let part = match key {
                IPV4_HINT => 4,
                IPV6_HINT => 16,
                _ => 1,
            };
            if last.replace(key) >= Some(key) || !value.len().is_multiple_of(part) {
                return None;
            }
        }
        Some(self.at - begins)
    }

    /// The key and value of the next parameter.
    pub fn parameter(&mut self) -> Option<(u16, &'m [u8])> {
        let (key, length) = (self.number()?, self.number()?);
        Some((key, self.take(usize::from(length))?))
    }

    /// The next bytes as data of this type, with uncompressed names; none if they have another form.
    pub fn data(&mut self, rtype: Type, length: usize) -> Option<Vec<u8>> {
        let end = self.at + length;
        let mut fields = Reader {
            message: self.message.get(..end)?,
            at: self.at,
        };
        let mut data = Vec::with_capacity(length);
        for field in form(rtype) {
            fields.field(*field, &mut data)?;
        }
        self.at = end;
        (fields.at == end).then_some(data)
    }
}
