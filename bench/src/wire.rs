//! The few DNS messages of the benchmark, as bytes (RFC 1035 section 4.1).
//!
//! The upstream and the floor build whole answers; the load generator builds questions and checks that
//! replies answer them.

/// Bytes in a message header.
pub const HEADER: usize = 12;

/// Type A.
pub const A: u16 = 1;
/// Type AAAA (RFC 3596).
pub const AAAA: u16 = 28;

/// Response code: no error.
pub const NOERROR: u8 = 0;
/// Response code: the name does not exist.
pub const NXDOMAIN: u8 = 3;

/// The TTL of every record in seconds: longer than a run.
pub const TTL: u32 = 3600;

const TYPE_SOA: u16 = 6;
const TYPE_OPT: u16 = 41;
const CLASS_IN: u16 = 1;

/// The suffix of names that exist. No resolver treats it specially, as some do `test.`.
const EXISTING: &[u8] = b"\x05bench\x07example\x03net\0";
/// The suffix of names that do not exist.
const MISSING: &[u8] = b"\x02nx\x05bench\x07example\x03net\0";
/// The labels in [`MISSING`] by which the upstream recognizes them.
const MISSING_LABEL: &[u8] = b"\x02nx\x05bench";
/// The zone of both, owner of the SOA record in denials.
const ZONE: &[u8] = b"\x07example\x03net\0";

/// A question for `hNNNNNNNNNN.bench.example.net`, with a letter for the workload and a number for the name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Question {
    /// The first letter of the first label.
    pub letter: u8,
    /// The rest of the first label, in ten digits.
    pub number: u32,
    /// [`A`] or [`AAAA`].
    pub qtype: u16,
    /// Whether the name exists.
    pub exists: bool,
}

impl Question {
    /// Writes the query, and returns its length. `buffer` must have at least 64 bytes.
    pub fn write(&self, id: u16, buffer: &mut [u8]) -> usize {
        buffer[..2].copy_from_slice(&id.to_be_bytes());
        // A standard query with recursion desired and no EDNS, as a stub resolver sends it.
        buffer[2..HEADER].copy_from_slice(&[1, 0, 0, 1, 0, 0, 0, 0, 0, 0]);
        buffer[HEADER] = 11;
        buffer[HEADER + 1] = self.letter;
        let mut rest = self.number;
        for digit in buffer[HEADER + 2..HEADER + 12].iter_mut().rev() {
            *digit = b'0' + (rest % 10) as u8;
            rest /= 10;
        }
        let suffix = if self.exists { EXISTING } else { MISSING };
        let end = HEADER + 12 + suffix.len();
        buffer[HEADER + 12..end].copy_from_slice(suffix);
        buffer[end..end + 2].copy_from_slice(&self.qtype.to_be_bytes());
        buffer[end + 2..end + 4].copy_from_slice(&CLASS_IN.to_be_bytes());
        end + 4
    }

    /// Whether `reply` answers this question: the same question, the expected rcode, and a record.
    pub fn is_answered_by(&self, reply: &[u8]) -> bool {
        let mut query = [0; 64];
        let length = self.write(0, &mut query);
        let rcode = if self.exists { NOERROR } else { NXDOMAIN };
        reply.len() > length
            && reply[2] & 0x80 != 0
            && reply[3] & 0x0f == rcode
            && reply[4..6] == [0, 1]
            && (!self.exists || reply[6..8] != [0, 0])
            && reply[HEADER..length] == query[HEADER..length]
    }
}

/// Returns the end of the only question of `message`, if there is exactly one.
pub fn question_end(message: &[u8]) -> Option<usize> {
    if message.get(4..6)? != [0, 1] {
        return None;
    }
    let mut at = HEADER;
    loop {
        let length = usize::from(*message.get(at)?);
        at += 1 + length;
        match length {
            0 => break,
            1..64 => {}
            // A pointer in a question has nothing to point to.
            _ => return None,
        }
    }
    (at + 4 <= message.len()).then_some(at + 4)
}

/// A server's answer, appended to any question.
pub struct Tail {
    rcode: u8,
    /// Answers, authority and additional records.
    counts: [u8; 6],
    records: Vec<u8>,
}

impl Tail {
    /// One address record for the name in the question.
    pub fn address(qtype: u16, number: u32) -> Tail {
        // RFC 1035 section 4.1.4: a pointer to the question's name.
        let mut records = vec![0xc0, HEADER as u8];
        records.extend(qtype.to_be_bytes());
        records.extend(CLASS_IN.to_be_bytes());
        records.extend(TTL.to_be_bytes());
        let v4 = number.to_be_bytes();
        if qtype == AAAA {
            // RFC 3849: the documentation prefix.
            let prefix = [0x20, 0x01, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0];
            records.extend([0, 16]);
            records.extend(prefix);
            records.extend(v4);
        } else {
            records.extend([0, 4, 10, v4[1], v4[2], v4[3]]);
        }
        Tail {
            rcode: NOERROR,
            counts: [0, 1, 0, 0, 0, 0],
            records,
        }
    }

    /// NXDOMAIN or NODATA, with the SOA record that allows caching it (RFC 2308 section 3).
    pub fn denial(rcode: u8, question: &[u8]) -> Tail {
        let owner = if contains(question, ZONE) { ZONE } else { &[0] };
        let mut records = owner.to_vec();
        records.extend(TYPE_SOA.to_be_bytes());
        records.extend(CLASS_IN.to_be_bytes());
        records.extend(TTL.to_be_bytes());
        let mut data = Vec::new();
        data.extend(b"\x02ns\0\x04host\0");
        for number in [1, 3600, 600, 86_400, TTL] {
            data.extend(u32::to_be_bytes(number));
        }
        records.extend((data.len() as u16).to_be_bytes());
        records.extend(data);
        Tail {
            rcode,
            counts: [0, 0, 0, 1, 0, 0],
            records,
        }
    }

    /// Adds an OPT record, for queries that have one (RFC 6891 section 6.1.1).
    pub fn with_opt(mut self, dnssec_ok: bool) -> Tail {
        self.counts[5] = 1;
        self.records.push(0);
        self.records.extend(TYPE_OPT.to_be_bytes());
        self.records.extend(1232_u16.to_be_bytes());
        self.records
            .extend([0, 0, if dnssec_ok { 0x80 } else { 0 }, 0, 0, 0]);
        self
    }

    /// Turns the query in `buffer`, whose question ends at `end`, into its answer. Returns the length.
    pub fn answer(&self, buffer: &mut [u8], end: usize) -> usize {
        // QR, and RA; RD stays as it was.
        buffer[2] |= 0x80;
        buffer[3] = 0x80 | self.rcode;
        buffer[6..HEADER].copy_from_slice(&self.counts);
        let length = end + self.records.len();
        buffer[end..length].copy_from_slice(&self.records);
        length
    }
}

/// Returns the upstream's answer to `query`, whose question ends at `end`.
pub fn authoritative(query: &[u8], end: usize) -> Tail {
    let question = &query[HEADER..end];
    let qtype = u16::from_be_bytes([query[end - 4], query[end - 3]]);
    let tail = if contains(question, MISSING_LABEL) {
        Tail::denial(NXDOMAIN, question)
    } else if qtype == A || qtype == AAAA {
        let number = question.iter().fold(0_u32, |sum, octet| {
            let octet = octet.to_ascii_lowercase();
            sum.wrapping_mul(31).wrapping_add(octet.into())
        });
        Tail::address(qtype, number)
    } else {
        Tail::denial(NOERROR, question)
    };
    match opt(query, end) {
        Some(dnssec_ok) => tail.with_opt(dnssec_ok),
        None => tail,
    }
}

/// Whether `labels` occur in `question`, in any case: some resolvers randomize the case of their queries, to
/// make answers harder to forge.
fn contains(question: &[u8], labels: &[u8]) -> bool {
    question
        .windows(labels.len())
        .any(|part| part.eq_ignore_ascii_case(labels))
}

/// Returns the DO bit of a query that consists of a question and an OPT record; `None` without OPT.
fn opt(query: &[u8], end: usize) -> Option<bool> {
    let record = query.get(end..end + 11)?;
    (record[0] == 0 && record[1..3] == TYPE_OPT.to_be_bytes()).then_some(record[7] & 0x80 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn query(question: &Question) -> Vec<u8> {
        let mut buffer = vec![0; 64];
        let length = question.write(0x1234, &mut buffer);
        buffer.truncate(length);
        buffer
    }

    fn answered(query: &[u8], tail: &Tail) -> Vec<u8> {
        let end = question_end(query).unwrap();
        let mut buffer = query.to_vec();
        buffer.resize(512, 0);
        let length = tail.answer(&mut buffer, end);
        buffer.truncate(length);
        buffer
    }

    const QUESTION: Question = Question {
        letter: b'h',
        number: 42,
        qtype: A,
        exists: true,
    };

    #[test]
    fn a_query_is_written_as_it_reads() {
        let query = query(&QUESTION);
        assert_eq!(&query[..6], b"\x12\x34\x01\0\0\x01");
        assert_eq!(
            &query[HEADER..],
            b"\x0bh0000000042\x05bench\x07example\x03net\0\0\x01\0\x01"
        );
        assert_eq!(question_end(&query), Some(query.len()));
        assert_eq!(question_end(&query[..query.len() - 1]), None);
    }

    #[test]
    fn the_upstream_answers_what_is_asked() {
        for exists in [true, false] {
            for qtype in [A, AAAA] {
                let question = Question {
                    exists,
                    qtype,
                    ..QUESTION
                };
                let query = query(&question);
                let reply = answered(&query, &authoritative(&query, query.len()));
                assert!(question.is_answered_by(&reply), "{question:?}");
                assert_eq!(reply[..2], query[..2]);
            }
        }
    }

    #[test]
    fn the_case_of_a_name_does_not_change_its_answer() {
        for exists in [true, false] {
            let lower = query(&Question { exists, ..QUESTION });
            let mut mixed = lower.clone();
            mixed[HEADER..]
                .iter_mut()
                .step_by(2)
                .for_each(u8::make_ascii_uppercase);
            let tail = |query: &[u8]| authoritative(query, query.len());
            let (lower, mixed) = (tail(&lower), tail(&mixed));
            assert_eq!((lower.rcode, lower.records), (mixed.rcode, mixed.records));
        }
    }

    #[test]
    fn other_answers_are_told_apart() {
        let query = query(&QUESTION);
        let reply = answered(&query, &Tail::address(A, 1));
        assert!(QUESTION.is_answered_by(&reply));
        assert!(!QUESTION.is_answered_by(&query), "no answer");
        let other = Question {
            number: 43,
            ..QUESTION
        };
        assert!(!other.is_answered_by(&reply), "another name");
        let mut failed = reply.clone();
        failed[3] |= 2;
        assert!(!QUESTION.is_answered_by(&failed), "SERVFAIL");
        let nodata = answered(&query, &Tail::denial(NOERROR, &query[HEADER..]));
        assert!(!QUESTION.is_answered_by(&nodata), "no record");
        assert!(!QUESTION.is_answered_by(&reply[..5]), "cut off");
    }

    #[test]
    fn an_opt_record_is_answered_with_one() {
        let mut query = query(&QUESTION);
        let end = query.len();
        query[11] = 1;
        query.extend(b"\0\0\x29\x04\xd0\0\0\x80\0\0\0");
        let reply = answered(&query, &authoritative(&query, end));
        assert_eq!(reply[11], 1);
        assert_eq!(&reply[reply.len() - 11..], b"\0\0\x29\x04\xd0\0\0\x80\0\0\0");
        assert!(QUESTION.is_answered_by(&reply));
    }
}
