//! A query as it is sent upstream, and what a datagram must look like to count as its reply.
//!
//! Only what forwarding needs is read: header, question, the bounds of the records and the OPT record.
//! Names are not decompressed and RDATA is not looked into, so types and classes that nobody has heard of
//! pass untouched (RFC 5625 section 4.3).

use std::ops::Range;
use std::time::Duration;

const HEADER: usize = 12;
const TYPE_OPT: u16 = 41;
/// RFC 7828 section 3.1.
const OPTION_TCP_KEEPALIVE: u16 = 11;
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
}

impl Query {
    pub fn new(message: &[u8]) -> Result<Self, NotAQuery> {
        if message.len() > usize::from(u16::MAX) {
            return Err(NotAQuery::TooLong);
        }
        let is_query = message.len() >= HEADER && message[2] & 0x80 == 0 && u16_at(message, 4) == Some(1);
        let name_end = if is_query {
            name_end(message, HEADER, Pointer::Forbidden)
        } else {
            None
        };
        let name_end = name_end
            .filter(|end| end + 4 <= message.len())
            .ok_or(NotAQuery::Malformed)?;
        let last_opt = Records::new(message, name_end + 4)
            .last()
            .flatten()
            .filter(|last| last.rtype == TYPE_OPT && last.whole.end == message.len())
            .map(|last| last.whole);
        Ok(Self {
            message: message.to_vec(),
            name_end,
            last_opt,
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
        })
    }

    /// Whether `bytes` answer this query when it was sent under `id` (RFC 5452 section 9.1: same ID, name,
    /// class and type; addresses and ports are the socket's business).
    pub fn accept(&self, id: u16, bytes: &[u8]) -> Result<Reply, Rejection> {
        if bytes.len() < HEADER || bytes[..2] != id.to_be_bytes() || bytes[2] & 0x80 == 0 {
            return Err(Rejection::Stray);
        }
        let count = |at| u16_at(bytes, at).unwrap_or(0);
        let question = &self.message[HEADER..self.name_end + 4];
        let body = match count(4) {
            1 => {
                let theirs = bytes.get(HEADER..self.name_end + 4).ok_or(Rejection::Stray)?;
                // Length octets are below b'A', so comparing without regard to case leaves them exact; type
                // and class are not letters.
                let name = question.len() - 4;
                let same = theirs[..name].eq_ignore_ascii_case(&question[..name])
                    && theirs[name..] == question[name..];
                if !same {
                    return Err(Rejection::Stray);
                }
                self.name_end + 4
            }
            // Many servers leave the question out of an error. Nothing but the error is taken from it.
            0 if matches!(u16::from(bytes[3] & 0x0f), FORMERR | SERVFAIL | NOTIMP | REFUSED)
                && count(6) == 0
                && count(8) == 0 =>
            {
                HEADER
            }
            _ => return Err(Rejection::Stray),
        };
        // A truncated message may end anywhere (RFC 2181 section 9). Bytes after the last record are
        // tolerated (RFC 5625 section 4.1).
        let truncated = bytes[2] & 0x02 != 0;
        let mut opt = None;
        for record in Records::new(bytes, body) {
            match record {
                Some(record) if record.rtype == TYPE_OPT => opt = Some(record),
                Some(_) => {}
                None if truncated => break,
                None => return Err(Rejection::Malformed),
            }
        }
        let extended = opt.as_ref().map_or(0, |opt| u16::from(opt.ttl[0]) << 4);
        let keepalive = opt.and_then(|opt| keepalive(&bytes[opt.data]));
        let rcode = extended | u16::from(bytes[3] & 0x0f);
        Ok(Reply {
            message: bytes.to_vec(),
            rcode,
            truncated,
            keepalive,
        })
    }
}

/// What is wrong with bytes that were received while a reply was awaited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rejection {
    /// Not for this query: forged, late or for someone else. To be dropped, and the wait goes on.
    Stray,
    /// For this query, and its records do not fit into it.
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

/// A record's place in a message.
#[derive(Debug, Clone)]
struct Record {
    whole: Range<usize>,
    rtype: u16,
    ttl: [u8; 4],
    data: Range<usize>,
}

/// All records of a message in order; `None` for one that does not fit, which ends it.
struct Records<'m> {
    message: &'m [u8],
    at: usize,
    left: usize,
}

impl<'m> Records<'m> {
    fn new(message: &'m [u8], start: usize) -> Self {
        let left = [6, 8, 10]
            .iter()
            .map(|&at| usize::from(u16_at(message, at).unwrap_or(0)))
            .sum();
        Self {
            message,
            at: start,
            left,
        }
    }

    fn record(&self) -> Option<Record> {
        let fixed = name_end(self.message, self.at, Pointer::Allowed)?;
        let ttl = self.message.get(fixed + 4..fixed + 8)?.try_into().ok()?;
        let data = fixed + 10..fixed + 10 + usize::from(u16_at(self.message, fixed + 8)?);
        let rtype = u16_at(self.message, fixed)?;
        (data.end <= self.message.len()).then_some(Record {
            whole: self.at..data.end,
            rtype,
            ttl,
            data,
        })
    }
}

impl Iterator for Records<'_> {
    type Item = Option<Record>;

    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        let record = self.record();
        match &record {
            Some(record) => self.at = record.whole.end,
            None => self.left = 0,
        }
        Some(record)
    }
}

/// Whether a name may end in a compression pointer. Nothing precedes a question that one could point to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Pointer {
    Allowed,
    Forbidden,
}

/// One past the name at `start`. Pointers are not followed.
fn name_end(message: &[u8], start: usize, pointer: Pointer) -> Option<usize> {
    let mut at = start;
    // RFC 1035 section 3.1: at most 255 octets, the root's included.
    while at - start < 255 {
        let length = *message.get(at)?;
        match length & 0xc0 {
            0x00 if length == 0 => return Some(at + 1),
            0x00 => at += 1 + usize::from(length),
            0xc0 if pointer == Pointer::Allowed => return (at + 2 <= message.len()).then_some(at + 2),
            // RFC 1035 section 4.1.4: the other two combinations are reserved.
            _ => return None,
        }
    }
    None
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

fn u16_at(message: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(message.get(at..at + 2)?.try_into().ok()?))
}
