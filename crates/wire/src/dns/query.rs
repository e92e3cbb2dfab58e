//! A client's message: a borrowed view, checked once.

use super::edns::Edns;
use super::signature::{self, Signature};
use super::{HEADER, QUERY_MAXIMUM, QUERY_RECORDS, QUESTION_TAIL, flag, name, rcode, records, rtype, u16_at};

/// A query with one question and at most one OPT record.
#[derive(Debug, Clone, Copy)]
pub struct Query<'a> {
    /// The whole datagram.
    pub message: &'a [u8],
    /// The message ID.
    pub id: u16,
    /// The second 16 bits of the header.
    pub flags: u16,
    /// The type asked for.
    pub qtype: u16,
    /// The class asked for.
    pub qclass: u16,
    /// The OPT record, if there is one.
    pub edns: Option<Edns>,
    /// Whether the message is signed (TSIG, RFC 8945; SIG(0), RFC 2931), so that only a verbatim
    /// relay keeps it valid (RFC 5625 section 4.5).
    pub signed: bool,
    question_end: usize,
}

/// Why a message cannot be served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unanswerable {
    /// No reply: the message is a response (RFC 5625 section 4.1 notwithstanding, answering one starts
    /// loops), or too short to hold an ID.
    Silence,
    /// A header with this rcode, and the question and OPT as far as they could be read.
    Error {
        /// The rcode, 12 bits.
        rcode: u16,
        /// Where the question ends; 12 if it could not be read.
        question_end: usize,
        /// The OPT record, if one was seen, so that the reply carries one (RFC 6891 section 6.1.1).
        edns: Option<Edns>,
    },
}

impl<'a> Query<'a> {
    /// Checks a message from the network.
    pub fn parse(message: &'a [u8]) -> Result<Query<'a>, Unanswerable> {
        if message.len() < HEADER || u16_at(message, 2) & flag::QR != 0 {
            return Err(Unanswerable::Silence);
        }
        let flags = u16_at(message, 2);
        if flags & flag::OPCODE != 0 {
            return Err(unread(message, rcode::NOTIMP));
        }
        if message.len() > QUERY_MAXIMUM {
            return Err(header_only(rcode::FORMERR));
        }
        // RFC 9619 section 4: a query has exactly one question.
        if u16_at(message, 4) != 1 {
            return Err(unread(message, rcode::FORMERR));
        }
        let name_end = name::skip_plain(message, HEADER).map_err(|_| header_only(rcode::FORMERR))?;
        let question_end = name_end + QUESTION_TAIL;
        if message.len() < question_end {
            return Err(header_only(rcode::FORMERR));
        }
        let mut query = Query {
            message,
            id: u16_at(message, 0),
            flags,
            qtype: u16_at(message, name_end),
            qclass: u16_at(message, name_end + 2),
            edns: None,
            signed: false,
            question_end,
        };
        let counts = records::counts(message);
        if counts != [0; 3] {
            query.read_records(counts)?;
        }
        if query.qtype == rtype::OPT {
            return Err(query.error(rcode::FORMERR));
        }
        if query.edns.is_some_and(|edns| edns.version != 0) {
            return Err(query.error(rcode::BADVERS));
        }
        Ok(query)
    }

    /// The name as the client wrote it.
    pub fn name(&self) -> &'a [u8] {
        &self.message[HEADER..self.question_end - QUESTION_TAIL]
    }

    /// The question as the client wrote it: name, type, class.
    pub fn question(&self) -> &'a [u8] {
        &self.message[HEADER..self.question_end]
    }

    /// The options of its OPT record, located again on each call: few callers need them.
    #[cold]
    pub fn options(&self) -> &'a [u8] {
        let mut walk = records::Walk::new(self.message, self.question_end, records::counts(self.message));
        let opt = walk.find_map(|record| record.ok().filter(|record| record.rtype == rtype::OPT));
        opt.map_or(&[], |opt| &self.message[opt.data])
    }

    /// An error reply to this query.
    pub fn error(&self, rcode: u16) -> Unanswerable {
        Unanswerable::Error {
            rcode,
            question_end: self.question_end,
            edns: self.edns,
        }
    }

    /// Reads the records after the question. OPT and signatures matter; the rest is ignored if it is
    /// well-formed (RFC 5625 section 4.1: unexpected records are no reason to refuse). The owners do not
    /// matter: no pointer is followed.
    fn read_records(&mut self, counts: [u16; 3]) -> Result<(), Unanswerable> {
        let total: usize = counts.iter().map(|&count| usize::from(count)).sum();
        if total > QUERY_RECORDS {
            return Err(self.error(rcode::FORMERR));
        }
        let mut walk = records::Walk::new(self.message, self.question_end, counts);
        for index in 1..=total {
            let record = walk
                .next()
                .and_then(Result::ok)
                .ok_or_else(|| self.error(rcode::FORMERR))?;
            match record.rtype {
                rtype::OPT => {
                    let again = self.edns.is_some();
                    let misplaced =
                        record.section != records::Section::Additional || self.message[record.start] != 0;
                    let options = &self.message[record.data.clone()];
                    match Edns::read(record.class, record.ttl, options) {
                        // RFC 6891 section 6.1.1: more than one OPT is FORMERR; the owner is the root.
                        Ok(edns) if !again && !misplaced => self.edns = Some(edns),
                        _ => {
                            self.edns.get_or_insert(Edns {
                                udp_size: super::edns::UDP_CLASSIC,
                                flags: 0,
                                version: 0,
                                keepalive: false,
                            });
                            return Err(self.error(rcode::FORMERR));
                        }
                    }
                }
                rtype::TSIG | rtype::SIG => match signature::of(self.message, &record, index == total) {
                    Signature::Signed => self.signed = true,
                    Signature::Other => {}
                    // RFC 8945 sections 5.1 and 5.2.
                    Signature::Malformed => return Err(self.error(rcode::FORMERR)),
                },
                _ => {}
            }
        }
        Ok(())
    }
}

/// An error reply to a message whose questions are ignored, with an OPT record if the message has one (RFC
/// 6891 section 6.1.1).
#[cold]
fn unread(message: &[u8], rcode: u16) -> Unanswerable {
    let counts = records::counts(message);
    let questions = usize::from(u16_at(message, 4));
    let total = counts.iter().map(|&count| usize::from(count)).sum::<usize>();
    if message.len() > QUERY_MAXIMUM || questions + total > QUERY_RECORDS {
        return header_only(rcode);
    }
    let skip = |at: usize, _| Some(name::skip_compressed(message, at).ok()? + QUESTION_TAIL);
    let start = (0..questions).try_fold(HEADER, skip);
    let mut records =
        records::Walk::new(message, start.unwrap_or(message.len()), counts).map_while(Result::ok);
    let opt =
        records.find(|record| record.rtype == rtype::OPT && record.section == records::Section::Additional);
    Unanswerable::Error {
        rcode,
        question_end: HEADER,
        edns: opt.and_then(|opt| Edns::read(opt.class, opt.ttl, &message[opt.data]).ok()),
    }
}

fn header_only(rcode: u16) -> Unanswerable {
    Unanswerable::Error {
        rcode,
        question_end: HEADER,
        edns: None,
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A query for `name` with these records appended to its additional section.
    pub fn message(name: &str, qtype: u16, additional: &[&[u8]]) -> Vec<u8> {
        let mut message = vec![
            0x12,
            0x34,
            0x01,
            0x00,
            0,
            1,
            0,
            0,
            0,
            0,
            0,
            additional.len() as u8,
        ];
        message.extend(name::Name::parse(name).unwrap().as_bytes());
        message.extend(qtype.to_be_bytes());
        message.extend(1u16.to_be_bytes());
        for record in additional {
            message.extend(*record);
        }
        message
    }

    pub const OPT: &[u8] = b"\0\0\x29\x10\0\0\0\x80\0\0\0";

    fn rcode_of(message: &[u8]) -> Option<u16> {
        match Query::parse(message) {
            Ok(_) => None,
            Err(Unanswerable::Error { rcode, .. }) => Some(rcode),
            Err(Unanswerable::Silence) => Some(u16::MAX),
        }
    }

    #[test]
    fn a_plain_query() {
        let message = message("Example.org.", rtype::A, &[OPT]);
        let query = Query::parse(&message).unwrap();
        assert_eq!(query.name(), b"\x07example\x03org\0");
        assert_eq!((query.id, query.qtype, query.qclass), (0x1234, 1, 1));
        assert!(query.edns.is_some_and(|edns| edns.dnssec_ok()));
        assert_eq!(query.edns.unwrap().udp_size, 4096);
    }

    #[test]
    fn what_is_answered_with_an_error() {
        let good = message("a.", rtype::A, &[]);
        let with = |at: usize, value: u8| {
            let mut bad = good.clone();
            bad[at] = value;
            bad
        };
        assert_eq!(rcode_of(&good[..11]), Some(u16::MAX), "no header");
        assert_eq!(rcode_of(&with(2, 0x81)), Some(u16::MAX), "a response");
        assert_eq!(rcode_of(&with(2, 0x21)), Some(rcode::NOTIMP), "NOTIFY");
        assert_eq!(
            rcode_of(&with(2, 0x31)),
            Some(rcode::NOTIMP),
            "opcode 6, RFC 8490"
        );
        assert_eq!(rcode_of(&with(5, 0)), Some(rcode::FORMERR), "no question");
        assert_eq!(rcode_of(&with(5, 2)), Some(rcode::FORMERR), "two questions");
        assert_eq!(rcode_of(&with(12, 64)), Some(rcode::FORMERR), "label type 01");
        assert_eq!(
            rcode_of(&with(12, 0xc0)),
            Some(rcode::FORMERR),
            "pointer in the question"
        );
        assert_eq!(rcode_of(&good[..good.len() - 1]), Some(rcode::FORMERR), "cut off");
        assert_eq!(
            rcode_of(&with(11, 1)),
            Some(rcode::FORMERR),
            "a record that is not there"
        );
        assert_eq!(
            rcode_of(&message("a.", rtype::A, &[OPT, OPT])),
            Some(rcode::FORMERR),
            "two OPT"
        );
        assert_eq!(
            rcode_of(&message("a.", rtype::A, &[b"\x01x\0\0\x29\x10\0\0\0\0\0\0\0"])),
            Some(rcode::FORMERR),
            "OPT owned by a name"
        );
        assert_eq!(
            rcode_of(&message("a.", rtype::A, &[b"\0\0\x29\x10\0\0\x01\0\0\0\0"])),
            Some(rcode::BADVERS),
            "EDNS version 1"
        );
        assert_eq!(
            rcode_of(&message(
                "a.",
                rtype::A,
                &[b"\0\0\x29\x10\0\0\0\0\0\0\x04\0\x0a\0\x08"]
            )),
            Some(rcode::FORMERR),
            "an option that overruns the record"
        );
    }

    /// RFC 6891 section 6.1.1: a query with OPT gets a reply with OPT, whatever is wrong.
    #[test]
    fn errors_have_opt_where_the_message_has() {
        let edns_of = |message: &[u8]| match Query::parse(message) {
            Err(Unanswerable::Error { edns, .. }) => edns.map(|edns| edns.dnssec_ok()),
            other => panic!("{other:?}"),
        };
        let whole = message("a.", rtype::A, &[OPT]);
        let mut update = whole.clone();
        update[2] |= 0x28;
        assert_eq!(edns_of(&update), Some(true));
        let mut two = whole.clone();
        two[5] = 2;
        two.splice(HEADER..HEADER, *b"\x01b\0\0\x01\0\x01");
        assert_eq!(edns_of(&two), Some(true));
        let mut none = whole[..HEADER].to_vec();
        none[5] = 0;
        none.extend(OPT);
        assert_eq!(edns_of(&none), Some(true));
        none.truncate(HEADER);
        assert_eq!(edns_of(&none), None, "the record that is counted is not there");
        let mut many = whole;
        many[4] = 255;
        assert_eq!(edns_of(&many), None);
    }

    /// Bytes and records of a query are bounded.
    #[test]
    fn queries_are_bounded() {
        const OTHER: &[u8] = b"\xff\xff\0\x01\0\x01\0\0\0\0\0\0";
        let records = |count: usize| message("a.", rtype::A, &vec![OTHER; count]);
        assert_eq!(
            rcode_of(&records(QUERY_RECORDS)),
            None,
            "wherever their pointers lead"
        );
        assert_eq!(rcode_of(&records(QUERY_RECORDS + 1)), Some(rcode::FORMERR));
        let mut long = message("a.", rtype::A, &[]);
        long.resize(QUERY_MAXIMUM, 0);
        assert_eq!(rcode_of(&long), None);
        long.push(0);
        assert_eq!(rcode_of(&long), Some(rcode::FORMERR));
        long[2] |= 0x28;
        assert_eq!(rcode_of(&long), Some(rcode::NOTIMP), "UPDATE may be long");
    }

    #[test]
    fn small_sizes_are_512() {
        let message = message("a.", rtype::A, &[b"\0\0\x29\0\x10\0\0\0\0\0\0"]);
        assert_eq!(Query::parse(&message).unwrap().edns.unwrap().udp_size, 512);
    }

    proptest! {
        #[test]
        fn no_octets_make_it_panic(message in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = Query::parse(&message);
        }

        #[test]
        fn no_damage_makes_it_panic(at in 0usize..60, value: u8) {
            let mut message = message("www.example.org.", rtype::A, &[OPT]);
            if let Some(octet) = message.get_mut(at) {
                *octet = value;
            }
            if let Ok(query) = Query::parse(&message) {
                prop_assert!(query.question().len() >= 5);
            }
        }
    }
}
