//! A query in the form sent upstream, and the checks that a reply must pass.
//!
//! Only what forwarding needs is parsed; relayed records are checked by form ([`records::check_data`]):
//! unknown types and classes pass untouched (RFC 5625 section 4.3).

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;

use crate::config::Protocol;
use crate::dns::edns::{self, UDP_DEFAULT};
use crate::dns::padding::{QUERY_BLOCK, pad};
use crate::dns::records::{Record, Section, Walk, check_data, counts};
use crate::dns::{HEADER, MESSAGE_MAXIMUM, QUESTION_TAIL, Transport, flag, name, rcode, rtype, u16_at};
use crate::dnstap::{Exchange, Tap};

/// Why a message cannot be sent as a query.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NotAQuery {
    /// Lacks a header or one complete, uncompressed question.
    #[error("it does not have a header and one complete question")]
    Malformed,
    /// TCP's length prefix has 16 bits.
    #[error("it is longer than the 65535 bytes that a DNS message may have")]
    TooLong,
}

/// A message with exactly one question, checked by [`Query::new`].
#[derive(Debug)]
pub(super) struct Query {
    message: Vec<u8>,
    /// The end of the question's name; type and class are the four bytes from here.
    name_end: usize,
    /// The OPT record, if it is the last record: only then can it be cut off without moving others.
    last_opt: Option<Record>,
    /// Whether it ends in a TSIG record; then the reply may as well (RFC 8945 section 5.1).
    signed: bool,
    /// Whether an OPT record was cut off.
    stripped: bool,
    /// The dnstap output that records its exchanges, if any.
    pub tap: Option<Arc<Tap>>,
}

impl Query {
    pub fn new(message: Vec<u8>) -> Result<Self, NotAQuery> {
        if message.len() > MESSAGE_MAXIMUM {
            return Err(NotAQuery::TooLong);
        }
        let is_query =
            message.len() >= HEADER && u16_at(&message, 2) & flag::QR == 0 && u16_at(&message, 4) == 1;
        // Nothing precedes a question that a compression pointer could lead to.
        let name_end = Some(&message)
            .filter(|_| is_query)
            .and_then(|message| name::skip_plain(message, HEADER).ok())
            .filter(|end| end + QUESTION_TAIL <= message.len())
            .ok_or(NotAQuery::Malformed)?;
        let last = Walk::new(&message, name_end + QUESTION_TAIL, counts(&message)).last();
        let last = last
            .and_then(Result::ok)
            .filter(|last| last.data.end == message.len());
        let is = |wanted| last.as_ref().is_some_and(|last| last.rtype == wanted);
        let signed = is(rtype::TSIG);
        let opt = is(rtype::OPT);
        Ok(Self {
            message,
            name_end,
            last_opt: last.filter(|_| opt),
            signed,
            stripped: false,
            tap: None,
        })
    }

    /// The same query, recorded by `tap`.
    pub(crate) fn tapped(self, tap: Option<Arc<Tap>>) -> Self {
        Self { tap, ..self }
    }

    /// Appends the message to `octets`, under another ID.
    pub fn write(&self, id: u16, octets: &mut Vec<u8>) {
        octets.extend_from_slice(&id.to_be_bytes());
        octets.extend_from_slice(&self.message[2..]);
    }

    pub fn id(&self) -> u16 {
        u16_at(&self.message, 0)
    }

    /// Records in dnstap the query, sent `took` ago, and its reply.
    #[cold]
    pub fn tell(
        &self,
        tap: &Tap,
        upstream: SocketAddr,
        transport: Transport,
        took: Duration,
        reply: Option<&Reply>,
    ) {
        let mut query = self.message.clone();
        if let Some(reply) = reply {
            // Uses the ID that it was sent with.
            query[..2].copy_from_slice(&reply.message[..2]);
        }
        tap.tell_upstream(&Exchange {
            client: None,
            server: Some(upstream),
            pod: None,
            transport,
            query: &query,
            took,
            response: reply.map(|reply| &reply.message[..]),
        });
    }

    /// The question: name, type and class.
    pub fn question(&self) -> &[u8] {
        &self.message[HEADER..self.name_end + QUESTION_TAIL]
    }

    pub fn len(&self) -> usize {
        self.message.len()
    }

    /// Whether it may go out over UDP at all: IP fragments can be forged and lost (RFC 9715).
    pub(crate) fn fits_datagram(&self) -> bool {
        self.message.len() <= usize::from(UDP_DEFAULT)
    }

    /// The same query padded to whole blocks, against eavesdroppers that see only lengths (RFC 8467 section
    /// 4.1). None if it has no OPT record to pad (RFC 7830 section 3), or one that a MAC covers.
    pub fn padded(&self) -> Option<Self> {
        let mut message = self.message.clone();
        let padding = pad(&mut message, QUERY_BLOCK);
        message.extend_from_slice(&padding);
        let padded = (!padding.is_empty()).then(|| Self::new(message).ok())??;
        Some(padded.tapped(self.tap.clone()))
    }

    /// The same question for a server that predates EDNS. None if it has no OPT record, or one with something
    /// after it: that would be a TSIG record, whose MAC covers the OPT record (RFC 8945 section 4.3).
    pub(crate) fn without_edns(&self) -> Option<Self> {
        let opt = self.last_opt.as_ref()?;
        let mut message = self.message[..opt.start].to_vec();
        let additional = u16_at(&message, 10).checked_sub(1)?;
        message[10..12].copy_from_slice(&additional.to_be_bytes());
        Some(Self {
            message,
            name_end: self.name_end,
            last_opt: None,
            signed: false,
            stripped: true,
            tap: self.tap.clone(),
        })
    }

    /// The same query without EDNS, if that loses nothing: DO needs an OPT record (RFC 3225 section 3), and so
    /// do options, such as the client subnet that the answer is cached for.
    pub(crate) fn without_idle_edns(&self) -> Option<Self> {
        let opt = self.last_opt.as_ref()?;
        // The lower half of the field that is the TTL in other records (RFC 6891 section 6.1.3).
        (opt.ttl as u16 & edns::DO == 0 && opt.data.is_empty()).then(|| self.without_edns())?
    }

    /// Whether it carries an OPT record that could be removed; none if it never had one.
    pub fn has_edns(&self) -> Option<bool> {
        (self.last_opt.is_some() || self.stripped).then_some(!self.stripped)
    }

    /// Checks whether `bytes` answer this query, sent under `id` (RFC 5452 section 9.1: same ID, name, class
    /// and type; the socket checks addresses and ports).
    pub fn accept(&self, id: u16, over: Protocol, bytes: &[u8]) -> Result<Reply, Rejection> {
        if bytes.len() < HEADER || u16_at(bytes, 0) != id || u16_at(bytes, 2) & flag::QR == 0 {
            return Err(Rejection::Stray);
        }
        let question = self.question();
        let body = match u16_at(bytes, 4) {
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
        let flags = u16_at(bytes, 2);
        if (flags ^ u16_at(&self.message, 2)) & flag::OPCODE != 0 {
            return Err(Rejection::Malformed);
        }
        let truncated = flags & flag::TC != 0;
        let opt = self.opt_of(bytes, body, truncated)?;
        // RFC 6891 section 6.1.3: the OPT record has the upper bits.
        let extended = opt.as_ref().map_or(0, |opt| (opt.ttl >> 24 << 4) as u16);
        let keepalive = opt.and_then(|opt| edns::keepalive(&bytes[opt.data]));
        Ok(Reply {
            message: bytes.to_vec(),
            rcode: extended | flags & flag::RCODE,
            truncated,
            keepalive: keepalive.map(|keepalive| Duration::from_millis(100) * u32::from(keepalive)),
        })
    }

    /// Checks the records from `body` on, and returns the OPT record.
    fn opt_of(&self, bytes: &[u8], body: usize, truncated: bool) -> Result<Option<Record>, Rejection> {
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
                // At most one, in the additional section (RFC 6891 section 6.1.1).
                rtype::OPT => opt.is_some() || record.section != Section::Additional,
                rtype::TSIG => !self.signed,
                _ => false,
            };
            if misplaced || check_data(bytes, &record).is_err() {
                return Err(Rejection::Malformed);
            }
            if record.rtype == rtype::OPT {
                opt = Some(record);
            }
        }
        Ok(opt)
    }
}

/// Whether `bytes` are an error without a question, as sent by servers that could not read the question. Only
/// the error is taken from it. In a datagram, only the ID vouches for such a reply; there, only the errors
/// that mean just that are accepted, not a failure that would reach a client (RFC 5452 section 9.1).
fn is_bare_error(bytes: &[u8], over: Protocol) -> bool {
    let expected = match u16_at(bytes, 2) & flag::RCODE {
        rcode::FORMERR | rcode::NOTIMP => true,
        rcode::SERVFAIL | rcode::REFUSED => over != Protocol::Udp,
        _ => false,
    };
    expected && counts(bytes)[..2] == [0, 0]
}

/// Why received bytes are not a reply to a query.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rejection {
    /// Not for this query: forged, late or for another query. It is dropped, and the wait continues.
    Stray,
    /// For this query, but not fit to be relayed: its records do not fit into it or violate the form of their
    /// type, or it does not answer what it seems to.
    Malformed,
}

/// A reply, checked against its query.
#[derive(Debug)]
pub(super) struct Reply {
    message: Vec<u8>,
    /// All twelve bits.
    pub rcode: u16,
    pub truncated: bool,
    /// How long the server lets this connection idle, if it says so (RFC 7828).
    pub keepalive: Option<Duration>,
}

impl Reply {
    /// Whether it is a referral instead of an answer (RFC 1034 section 4.3.1), though the query asked for
    /// recursion: the server does no recursion, and does not have the answer.
    pub(crate) fn is_referral(&self) -> bool {
        let flags = u16_at(&self.message, 2);
        let [answers, authority, _] = counts(&self.message);
        if answers > 0 || authority == 0 || flags & flag::RD == 0 || flags & (flag::AA | flag::TC) != 0 {
            return false;
        }
        let Ok(start) = name::skip_plain(&self.message, HEADER) else {
            return false;
        };
        let records = Walk::new(&self.message, start + QUESTION_TAIL, [0, authority, 0]);
        let types: SmallVec<[u16; 8]> = records.map_while(Result::ok).map(|record| record.rtype).collect();
        types.contains(&rtype::NS) && !types.contains(&rtype::SOA)
    }

    /// The message under the client's ID.
    pub(crate) fn into_message(mut self, id: u16) -> Vec<u8> {
        self.message[..2].copy_from_slice(&id.to_be_bytes());
        self.message
    }
}
