//! A query as it is sent upstream, and what a datagram must look like to count as its reply.
//!
//! What forwarding needs is read, and what would be relayed is checked by form
//! ([`records::check_data`]): types and classes that nobody has heard of pass untouched (RFC 5625 section 4.3).

use std::ops::Range;
use std::time::Duration;

use crate::config::Protocol;
use crate::dns::records::{Section, Walk, check_data};
use crate::dns::{HEADER, QUESTION_TAIL, flag, name, rtype};

/// RFC 7828 section 3.1.
const OPTION_TCP_KEEPALIVE: u16 = 11;
/// The bits of the opcode in a header's third octet.
const OPCODE: u8 = (flag::OPCODE >> 8) as u8;
/// The largest UDP payload that no sane path fragments (RFC 9715, appendix A).
const LARGEST_DATAGRAM: usize = 1232;

pub(super) const FORMERR: u16 = 1;
pub(super) const SERVFAIL: u16 = 2;
pub(super) const NOTIMP: u16 = 4;
pub(super) const REFUSED: u16 = 5;
/// Its upper bits travel in the OPT record (RFC 6891 section 6.1.3).
pub(super) const BADVERS: u16 = 16;

/// Why bytes cannot be sent as a query.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NotAQuery {
    /// Not even a header and one whole, uncompressed question.
    #[error("it is not a header with one whole question")]
    Malformed,
    /// TCP's length prefix has 16 bits.
    #[error("it is longer than the 65535 bytes that a DNS message may have")]
    TooLong,
}

/// A message with exactly one question that went through [`Query::new`].
#[derive(Debug)]
pub(super) struct Query {
    message: Vec<u8>,
    /// One past the question's name; type and class are the four bytes after it.
    name_end: usize,
    /// The OPT record, if it is the last record: only then can it be cut off without moving others.
    last_opt: Option<Range<usize>>,
    /// Whether it ends in a TSIG record, so that the reply may, too (RFC 8945 section 5.1).
    signed: bool,
    /// Whether an OPT record was cut off.
    stripped: bool,
}

impl Query {
    pub fn new(message: &[u8]) -> Result<Self, NotAQuery> {
        if message.len() > usize::from(u16::MAX) {
            return Err(NotAQuery::TooLong);
        }
        let is_query = message.len() >= HEADER && message[2] & 0x80 == 0 && u16_at(message, 4) == Some(1);
        // Nothing precedes a question that a compression pointer could lead to.
        let name_end = Some(message)
            .filter(|_| is_query)
            .and_then(|message| name::skip_plain(message, HEADER).ok())
            .filter(|end| end + QUESTION_TAIL <= message.len())
            .ok_or(NotAQuery::Malformed)?;
        let last = Walk::new(message, name_end + QUESTION_TAIL, counts(message)).last();
        let last = last
            .and_then(Result::ok)
            .filter(|last| last.data.end == message.len());
        let is = |wanted| last.as_ref().is_some_and(|last| last.rtype == wanted);
        let signed = is(rtype::TSIG);
        let opt = is(rtype::OPT);
        Ok(Self {
            message: message.to_vec(),
            name_end,
            last_opt: last.filter(|_| opt).map(|last| last.start..last.data.end),
            signed,
            stripped: false,
        })
    }

    /// Writes the message under another ID to the start of `buffer`, which has room for it; gives its
    /// length.
    pub fn write(&self, id: u16, buffer: &mut [u8]) -> usize {
        let length = self.message.len();
        buffer[..length].copy_from_slice(&self.message);
        buffer[..2].copy_from_slice(&id.to_be_bytes());
        length
    }

    pub fn id(&self) -> u16 {
        u16::from_be_bytes([self.message[0], self.message[1]])
    }

    pub fn len(&self) -> usize {
        self.message.len()
    }

    /// Whether it may go out over UDP at all: IP fragments can be forged and lost (RFC 9715).
    pub fn fits_datagram(&self) -> bool {
        self.message.len() <= LARGEST_DATAGRAM
    }

    /// The same question to a server that predates EDNS. None if it carries no OPT, or one with
    /// something after it: that would be a TSIG, whose MAC covers the OPT (RFC 8945 section 4.3).
    pub fn without_edns(&self) -> Option<Self> {
        let opt = self.last_opt.clone()?;
        let mut message = self.message[..opt.start].to_vec();
        let additional = u16_at(&message, 10)?.checked_sub(1)?;
        message[10..12].copy_from_slice(&additional.to_be_bytes());
        Some(Self {
            message,
            name_end: self.name_end,
            last_opt: None,
            signed: false,
            stripped: true,
        })
    }

    /// The same without EDNS, where nobody would miss it: DO asks for what only an OPT record can say
    /// (RFC 3225 section 3).
    pub fn without_idle_edns(&self) -> Option<Self> {
        const DO: u8 = 0x80;
        // Root name, type, size, extended RCODE, version: seven octets before the flags.
        let flags_at = self.last_opt.as_ref()?.start + 7;
        (self.message.get(flags_at)? & DO == 0).then(|| self.without_edns())?
    }

    /// Whether it carries an OPT record that could be left away; none: it never had one.
    pub fn has_edns(&self) -> Option<bool> {
        (self.last_opt.is_some() || self.stripped).then_some(!self.stripped)
    }

    /// Whether `bytes` answer this query when it was sent under `id` (RFC 5452 section 9.1: same ID, name,
    /// class and type; addresses and ports are the socket's business).
    pub fn accept(&self, id: u16, over: Protocol, bytes: &[u8]) -> Result<Reply, Rejection> {
        if bytes.len() < HEADER || bytes[..2] != id.to_be_bytes() || bytes[2] & 0x80 == 0 {
            return Err(Rejection::Stray);
        }
        let question = &self.message[HEADER..self.name_end + QUESTION_TAIL];
        let body = match u16_at(bytes, 4).unwrap_or(0) {
            1 => {
                let theirs = bytes
                    .get(HEADER..self.name_end + QUESTION_TAIL)
                    .ok_or(Rejection::Stray)?;
                // Length octets are below b'A', so comparing without regard to case leaves them exact; type
                // and class are not letters.
                let name = question.len() - QUESTION_TAIL;
                let same = theirs[..name].eq_ignore_ascii_case(&question[..name])
                    && theirs[name..] == question[name..];
                if !same {
                    return Err(Rejection::Stray);
                }
                self.name_end + QUESTION_TAIL
            }
            0 if is_bare_error(bytes, over) => HEADER,
            _ => return Err(Rejection::Stray),
        };
        if (bytes[2] ^ self.message[2]) & OPCODE != 0 {
            return Err(Rejection::Malformed);
        }
        let truncated = bytes[2] & 0x02 != 0;
        let opt = self.opt_of(bytes, body, truncated)?;
        let extended = opt.as_ref().map_or(0, |(ttl, _)| (ttl >> 24 << 4) as u16);
        let keepalive = opt.and_then(|(_, data)| keepalive(&bytes[data]));
        let rcode = extended | u16::from(bytes[3] & 0x0f);
        Ok(Reply {
            message: bytes.to_vec(),
            rcode,
            truncated,
            keepalive,
        })
    }

    /// Checks the records from `body` on, and gives the TTL field and the data of the OPT record.
    fn opt_of(
        &self,
        bytes: &[u8],
        body: usize,
        truncated: bool,
    ) -> Result<Option<(u32, Range<usize>)>, Rejection> {
        let mut opt = None;
        for record in Walk::new(bytes, body, counts(bytes)) {
            let record = match record {
                Ok(record) => record,
                // A truncated message may end anywhere (RFC 2181 section 9). Bytes after the last record are
                // tolerated (RFC 5625 section 4.1).
                Err(_) if truncated => break,
                Err(_) => return Err(Rejection::Malformed),
            };
            let misplaced = match record.rtype {
                // One, in the additional section (RFC 6891 section 6.1.1).
                rtype::OPT => opt.is_some() || record.section != Section::Additional,
                rtype::TSIG => !self.signed,
                _ => false,
            };
            if misplaced || check_data(bytes, &record).is_err() {
                return Err(Rejection::Malformed);
            }
            if record.rtype == rtype::OPT {
                opt = Some((record.ttl, record.data));
            }
        }
        Ok(opt)
    }
}

/// Whether `bytes` are an error without its question, as servers send it that could not read the question. Nothing
/// but the error is taken from it. In a datagram, this is all that an ID is left to vouch for: there, only what
/// says just that is taken, and not a failure that a client would be told (RFC 5452 section 9.1).
fn is_bare_error(bytes: &[u8], over: Protocol) -> bool {
    let expected = match u16::from(bytes[3] & 0x0f) {
        FORMERR | NOTIMP => true,
        SERVFAIL | REFUSED => over == Protocol::Tcp,
        _ => false,
    };
    expected && counts(bytes)[..2] == [0, 0]
}

/// What is wrong with bytes that were received while a reply was awaited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rejection {
    /// Not for this query: forged, late or for someone else. To be dropped, and the wait goes on.
    Stray,
    /// For this query, and no message that one may hand on: its records do not fit into it or have not the form
    /// of their type, or it does not answer what it seems to.
    Malformed,
}

/// A message that answers the query it was checked against.
#[derive(Debug)]
pub(super) struct Reply {
    message: Vec<u8>,
    /// All twelve bits.
    pub rcode: u16,
    pub truncated: bool,
    /// How long the server lets this connection idle, if it said so (RFC 7828).
    pub keepalive: Option<Duration>,
}

impl Reply {
    /// The message under the ID that the client chose.
    pub fn into_message(mut self, id: u16) -> Vec<u8> {
        self.message[..2].copy_from_slice(&id.to_be_bytes());
        self.message
    }
}

/// RFC 7828 section 3.1: units of 100 ms.
fn keepalive(mut options: &[u8]) -> Option<Duration> {
    loop {
        let (code, length) = (u16_at(options, 0)?, usize::from(u16_at(options, 2)?));
        if code == OPTION_TCP_KEEPALIVE && length == 2 {
            return Some(Duration::from_millis(u64::from(u16_at(options, 4)?) * 100));
        }
        options = options.get(4 + length..)?;
    }
}

/// Records of each section, by the header.
fn counts(message: &[u8]) -> [u16; 3] {
    [6, 8, 10].map(|at| u16_at(message, at).unwrap_or(0))
}

fn u16_at(message: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(message.get(at..at + 2)?.try_into().ok()?))
}
