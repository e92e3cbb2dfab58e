//! Whole messages, off the cache-hit path: answers built from records, and answers changed.
//!
//! Appending records needs no parser. Renaming does, since other records may point into what changes: the
//! message is taken apart and rewritten.

use std::rc::Rc;

use super::edns::ClientSubnet;
use super::parts::{self, Part};
use super::records;
use super::{HEADER, MESSAGE_MAXIMUM, QUESTION_TAIL, flag, rtype, u16_at};

/// A pointer to the question's name (RFC 1035 section 4.1.4).
const QUESTION_NAME: [u8; 2] = [0xc0, HEADER as u8];

/// A response to `question` without records. The caller must keep the upper bits of `rcode`.
pub fn empty(question: &[u8], rcode: u16) -> Vec<u8> {
    let mut message = Vec::with_capacity(HEADER + question.len() + 64);
    message.extend([0, 0]);
    message.extend((flag::QR | flag::RA | rcode & flag::RCODE).to_be_bytes());
    message.extend([0, 1, 0, 0, 0, 0, 0, 0]);
    message.extend(question);
    message
}

/// Appends a record and counts it at `count_at`: 6, 8 or 10 for the three sections, which must be filled in
/// that order. Returns false, with nothing changed, if the message would get too large.
pub fn push_record(
    message: &mut Vec<u8>,
    count_at: usize,
    owner: &[u8],
    rtype: u16,
    class: u16,
    ttl: u32,
    data: &[u8],
) -> bool {
    let is_question = message
        .get(HEADER..HEADER + owner.len())
        .is_some_and(|q| q.eq_ignore_ascii_case(owner));
    let owner = if is_question { &QUESTION_NAME } else { owner };
    let count = u16_at(message, count_at);
    let length = message.len() + owner.len() + 10 + data.len();
    let (Ok(data_length), Some(count)) = (u16::try_from(data.len()), count.checked_add(1)) else {
        return false;
    };
    if length > MESSAGE_MAXIMUM {
        return false;
    }
    message.extend(owner);
    message.extend(rtype.to_be_bytes());
    message.extend(class.to_be_bytes());
    message.extend(ttl.to_be_bytes());
    message.extend(data_length.to_be_bytes());
    message.extend(data);
    message[count_at..count_at + 2].copy_from_slice(&count.to_be_bytes());
    true
}

/// A query, ready for an upstream. AD is set to learn whether data is authentic (RFC 6840 section 5.7). Our
/// OPT advertises our own payload size, with the client's DO bit.
///
/// `flags` are the client's: its RD and CD are kept (RFC 4035 section 3.2.2). The options of the client's OPT
/// are not; a subnet is sent only if a filter sets it (RFC 7871 section 11.1).
pub fn upstream_query(
    name: &[u8],
    qtype: u16,
    qclass: u16,
    flags: u16,
    dnssec_ok: bool,
    subnet: Option<ClientSubnet>,
) -> Vec<u8> {
    let mut message = Vec::with_capacity(HEADER + name.len() + QUESTION_TAIL + super::edns::OPT_LENGTH);
    message.extend([0, 0]);
    message.extend((flags & (flag::RD | flag::CD) | flag::AD).to_be_bytes());
    message.extend([0, 1, 0, 0, 0, 0, 0, 1]);
    message.extend(name);
    message.extend(qtype.to_be_bytes());
    message.extend(qclass.to_be_bytes());
    let opt = super::edns::Opt {
        dnssec_ok,
        ..Default::default()
    };
    let start = message.len();
    message.resize(start + opt.length(), 0);
    opt.write(&mut message[start..], "");
    if let Some(subnet) = subnet {
        let option = subnet.option();
        let length_at = message.len() - 2;
        message[length_at..].copy_from_slice(&(option.len() as u16).to_be_bytes());
        message.extend(option);
    }
    message
}

/// The same response under the client's name and question. With `owners`, records owned by `from` become
/// owned by the question's name, without their signatures, which are for the other name. AD is cleared: what
/// was found authentic is another name's data (RFC 4035 section 3.2.3). None if it cannot be parsed.
pub fn renamed(message: &[u8], from: &[u8], question: &[u8], owners: bool) -> Option<Vec<u8>> {
    let to: Rc<[u8]> = question.get(..question.len().checked_sub(QUESTION_TAIL)?)?.into();
    let mut parts = of_one_question(message)?;
    if owners {
        let is_renamed = |part: &Part<'_>| part.owner.eq_ignore_ascii_case(from);
        parts.retain(|part| !is_renamed(part) || part.rtype != rtype::RRSIG);
        for part in parts.iter_mut().filter(|part| is_renamed(part)) {
            part.owner = Rc::clone(&to);
        }
    }
    let mut message = under(message, question, &parts);
    let flags = u16_at(&message, 2) & !flag::AD;
    message[2..4].copy_from_slice(&flags.to_be_bytes());
    Some(message)
}

/// Appends the records `found` for an alias's target to `so_far`, an answer that ends in the alias. AD is
/// cleared: that one part is authentic says nothing about the other (RFC 4035 section 3.2.3). Records that do
/// not fit are left out, and TC is set. None if either message cannot be parsed.
pub fn continued(so_far: &[u8], found: &[u8]) -> Option<Vec<u8>> {
    let mut parts = of_one_question(so_far)?;
    parts.extend(of_one_question(found)?);
    let question_end = records::question_end(so_far).ok()?;
    let mut message = under(so_far, &so_far[HEADER..question_end], &parts);
    let flags = u16_at(found, 2) & !flag::AD | u16_at(&message, 2) & flag::TC;
    message[2..4].copy_from_slice(&flags.to_be_bytes());
    Some(message)
}

/// The records of a message with one question.
fn of_one_question(message: &[u8]) -> Option<Vec<Part<'_>>> {
    let question_end = records::question_end(message).ok().filter(|&end| end > HEADER)?;
    parts::take_apart(message, question_end - HEADER).ok()
}

/// The message with this question and these records instead. Records that do not fit are left out, with TC
/// set.
fn under(message: &[u8], question: &[u8], parts: &[Part<'_>]) -> Vec<u8> {
    let head = [&message[..HEADER], question].concat();
    parts::put_together(&head, question.len(), MESSAGE_MAXIMUM, parts.iter())
}

#[cfg(test)]
mod tests {
    use hickory_proto::op::Message;

    use super::super::records::Answer;
    use super::*;

    const QUESTION: &[u8] = b"\x01a\x04test\0\0\x01\0\x01";

    fn response() -> Vec<u8> {
        let mut message = empty(QUESTION, 0);
        assert!(push_record(
            &mut message,
            6,
            b"\x01A\x04test\0",
            1,
            1,
            60,
            &[127, 0, 0, 1]
        ));
        assert!(push_record(
            &mut message,
            10,
            b"\x01b\0",
            1,
            1,
            30,
            &[127, 0, 0, 2]
        ));
        message
    }

    #[test]
    fn records_are_appended() {
        let parsed = Message::from_vec(&response()).unwrap();
        assert_eq!((parsed.answers.len(), parsed.additionals.len()), (1, 1));
        assert_eq!(parsed.answers[0].name.to_string(), "a.test.");
        assert_eq!(Answer::read(response()).unwrap().ttl, 30);
    }

    #[test]
    fn a_message_never_gets_too_large() {
        let mut message = response();
        let mut pushed = 0;
        while push_record(&mut message, 10, b"\0", 16, 1, 0, &[0; 1000]) {
            pushed += 1;
        }
        assert_eq!(pushed, 64);
        assert!(message.len() <= MESSAGE_MAXIMUM);
    }

    #[test]
    fn names_are_put_back() {
        let question = b"\x05other\x07example\0\0\x01\0\x01";
        let mut signed = response();
        signed[3] |= flag::AD as u8;
        assert!(push_record(
            &mut signed,
            10,
            b"\x01a\x04test\0",
            rtype::RRSIG,
            1,
            60,
            &[0, 1, 8, 2, 0, 0, 0, 60, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]
        ));
        let renamed = renamed(&signed, b"\x01a\x04test\0", question, true).unwrap();
        assert_eq!(u16_at(&renamed, 2) & flag::AD, 0, "RFC 4035 section 3.2.3");
        let parsed = Message::from_vec(&renamed).unwrap();
        assert_eq!(parsed.queries[0].name().to_string(), "other.example.");
        assert_eq!(parsed.answers[0].name.to_string(), "other.example.");
        assert_eq!(parsed.additionals.len(), 1, "no signature");
        assert_eq!(parsed.additionals[0].name.to_string(), "b.");
        assert_eq!(super::renamed(b"short", b"\0", question, true), None);
    }

    /// A message full of addresses whose name becomes the longest possible.
    #[test]
    fn the_largest_answer_is_renamed() {
        let mut message = empty(QUESTION, 0);
        while push_record(&mut message, 6, b"\x01a\x04test\0", 1, 1, 60, &[127, 0, 0, 1]) {}
        let label = [&[63][..], &[b'a'; 63]].concat();
        let name = [&label[..], &label, &label, b"\0"].concat();
        let question = [&name[..], b"\0\x01\0\x01"].concat();
        let renamed = renamed(&message, b"\x01a\x04test\0", &question, true).unwrap();
        // The longer question leaves room for fewer records.
        let counts = [&message, &renamed].map(|message| u16_at(message, 6));
        assert_eq!(counts, [4094, 4082]);
        assert_eq!(u16_at(&renamed, 2) & flag::TC, flag::TC);
        assert!(Answer::read(renamed).is_ok());
    }

    #[test]
    fn aliases_lead_to_the_target() {
        let question = b"\x05other\0\0\x01\0\x01";
        let mut so_far = empty(question, 0);
        assert!(push_record(
            &mut so_far,
            6,
            &question[..7],
            5,
            1,
            5,
            b"\x01a\x04test\0"
        ));
        let mut found = response();
        found[3] |= flag::AD as u8 | 3;
        let aliased = continued(&so_far, &found).unwrap();
        let parsed = Message::from_vec(&aliased).unwrap();
        assert_eq!(parsed.answers[0].to_string(), "other. 5 IN CNAME a.test.");
        assert_eq!(parsed.answers[1].name.to_lowercase().to_string(), "a.test.");
        assert_eq!(parsed.additionals.len(), 1);
        assert_eq!(
            u16_at(&aliased, 2) & (flag::AD | flag::RCODE),
            3,
            "RFC 4035 section 3.2.3"
        );
    }
}
