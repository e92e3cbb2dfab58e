//! Writes replies in wire format.

use std::net::IpAddr;
use std::sync::Arc;

use crate::dns::records::{Answer, Meaning, TtlOffsets};
use crate::dns::{CLASS_IN, HEADER, build, flag, rcode, rtype, u16_at};

/// Offsets of the section counts in a header.
pub const ANSWER: usize = 6;
pub(crate) const AUTHORITY: usize = 8;
pub(crate) const ADDITIONAL: usize = 10;

/// The largest offset that a pointer can name (RFC 1035 section 4.1.4).
const POINTED: usize = 0x3fff;

/// A reply being written. Sections must be filled in order.
pub struct Message {
    octets: Vec<u8>,
    ttl_offsets: TtlOffsets,
    /// The most bytes it may have.
    limit: usize,
    ttl: u32,
    lowest_ttl: Option<u32>,
    /// Whether something did not fit.
    is_full: bool,
}

/// The owner name of a record.
#[derive(Clone, Copy)]
pub enum Owner<'a> {
    /// The name at this offset of the message.
    At(usize),
    /// This name.
    Name(&'a [u8]),
}

impl Owner<'_> {
    /// The name in the question.
    pub const QUESTION: Owner<'static> = Owner::At(HEADER);
}

impl Message {
    /// A message without records, of at most `limit` bytes; its records have this TTL in seconds by default.
    pub fn new(question: &[u8], limit: usize, ttl: u32) -> Message {
        Message {
            octets: build::empty(question, rcode::NOERROR),
            ttl_offsets: TtlOffsets::new(),
            limit,
            ttl,
            lowest_ttl: None,
            is_full: false,
        }
    }

    /// Returns whether a record did not fit; none is written after that.
    pub fn is_full(&self) -> bool {
        self.is_full
    }

    /// Sets TC: something is missing.
    pub fn truncate(&mut self) {
        let flags = u16_at(&self.octets, 2) | flag::TC;
        self.octets[2..4].copy_from_slice(&flags.to_be_bytes());
    }

    /// Appends a record. One that does not fit is left out and sets TC, unless it is of the additional
    /// section (RFC 2181 section 9).
    pub fn push(&mut self, section: usize, owner: Owner<'_>, rtype: u16, data: &[u8]) {
        self.push_with_ttl(section, owner, rtype, self.ttl, data);
    }

    /// Like `push`, with another TTL.
    pub fn push_with_ttl(&mut self, section: usize, owner: Owner<'_>, rtype: u16, ttl: u32, data: &[u8]) {
        if self.is_full {
            return;
        }
        let pointer;
        let owner = match owner {
            Owner::At(offset) => {
                pointer = pointer_to(offset);
                &pointer
            }
            Owner::Name(name) => name,
        };
        let has_room = self.octets.len() + owner.len() + 10 + data.len() <= self.limit;
        if has_room && build::push_record(&mut self.octets, section, owner, rtype, CLASS_IN, ttl, data) {
            let ttl_at = self.octets.len() - data.len() - 6;
            self.ttl_offsets.push(ttl_at as u16);
            self.lowest_ttl = Some(self.lowest_ttl.map_or(ttl, |lowest| lowest.min(ttl)));
        } else {
            self.is_full = true;
            if section != ADDITIONAL {
                self.truncate();
            }
        }
    }

    /// Appends an A or AAAA record.
    pub(crate) fn push_address(&mut self, section: usize, owner: Owner<'_>, address: IpAddr) {
        match address {
            IpAddr::V4(four) => self.push(section, owner, rtype::A, &four.octets()),
            IpAddr::V6(six) => self.push(section, owner, rtype::AAAA, &six.octets()),
        }
    }

    /// The offset, if a pointer can reach it, of a name `before` bytes into the next record's data.
    pub(crate) fn next_name(&self, owner: Owner<'_>, before: usize) -> Option<usize> {
        let owner = match owner {
            Owner::At(_) => 2,
            Owner::Name(name) => name.len(),
        };
        let at = self.octets.len() + owner + 10 + before;
        (at <= POINTED).then_some(at)
    }

    /// How many records a section has.
    pub fn count(&self, section: usize) -> u16 {
        u16_at(&self.octets, section)
    }

    /// Finishes the message with this rcode.
    pub fn finish(mut self, rcode: u16) -> Arc<Answer> {
        self.octets[3] = self.octets[3] & 0xf0 | (rcode & flag::RCODE) as u8;
        let meaning = match self.count(ANSWER) {
            _ if u16_at(&self.octets, 2) & flag::TC != 0 => Meaning::Unkept,
            0 => Meaning::Denial,
            _ => Meaning::Success,
        };
        Arc::new(Answer {
            message: self.octets,
            ttl: self.lowest_ttl.unwrap_or(0),
            ttl_offsets: self.ttl_offsets,
            rcode,
            meaning,
            error: None,
            error_text: Box::default(),
        })
    }
}

/// A compression pointer to an offset (RFC 1035 section 4.1.4).
pub fn pointer_to(offset: usize) -> [u8; 2] {
    (0xc000 | (offset & POINTED) as u16).to_be_bytes()
}
