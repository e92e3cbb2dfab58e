//! Names that are never forwarded: the special-use names of RFC 6761 and its successors.
//!
//! They act as zones of their own, so a zone of the configuration that lies at or below one of them
//! takes it over: the longest suffix wins, as everywhere.

use super::{CLASS_IN, rtype};

/// How a special-use name is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Special {
    /// `localhost.`: the loopback addresses, and no other data (RFC 6761 section 6.3).
    Loopback,
    /// Known not to exist in the DNS.
    Nonexistent,
}

/// The zones, in wire format.
pub const ZONES: [(&[u8], Special); 4] = [
    (b"\x09localhost\0", Special::Loopback),
    // RFC 6761 section 6.4.
    (b"\x07invalid\0", Special::Nonexistent),
    // RFC 7686 section 2.
    (b"\x05onion\0", Special::Nonexistent),
    // RFC 9476 section 2.
    (b"\x03alt\0", Special::Nonexistent),
];

/// How long such an answer may be kept, in seconds: it never changes.
const TTL: u32 = 86_400;

impl Special {
    /// The whole answer to `question` (name, type, class), without OPT.
    pub fn answer(self, question: &[u8]) -> Vec<u8> {
        let tail = question.len().saturating_sub(super::QUESTION_TAIL);
        let qtype = super::u16_at(question, tail);
        let data: Option<&[u8]> = match (self, qtype) {
            (Special::Loopback, rtype::A) => Some(&[127, 0, 0, 1]),
            (Special::Loopback, rtype::AAAA) => Some(&[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]),
            _ => None,
        };
        let rcode = match self {
            Special::Loopback => super::rcode::NOERROR,
            Special::Nonexistent => super::rcode::NXDOMAIN,
        };
        let mut message = super::build::empty(question, rcode);
        if let Some(data) = data {
            let owner = &question[..tail];
            super::build::push_record(&mut message, 6, owner, qtype, CLASS_IN, TTL, data);
        }
        message
    }
}
