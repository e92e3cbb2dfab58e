//! A reply to a client: written into the caller's buffer, in place, without allocating.

use super::edns::Opt;
use super::name::{self, Name};
use super::query::{Query, Unanswerable};
use super::records::{self, Section, Walk};
use super::{HEADER, MESSAGE_MAXIMUM, QUESTION_TAIL, flag, rcode, rtype, u16_at, u32_at};

/// The client's side of a reply: what the message must repeat and may not exceed.
#[derive(Debug, Clone, Copy)]
pub struct Head<'a> {
    /// The ID of the query.
    pub id: u16,
    /// The second 16 bits of the query's header.
    pub flags: u16,
    /// The question with the letter case the client sent.
    pub question: &'a [u8],
    /// Our OPT record; none if the query had none (RFC 6891 section 6.1.1).
    pub opt: Option<Opt>,
    /// The most bytes that the client accepts.
    pub limit: usize,
}

/// The content of a reply.
#[derive(Debug, Clone, Copy)]
pub struct Body<'a, Offsets> {
    /// A response without OPT whose question is as long as the client's.
    pub message: &'a [u8],
    /// The offsets of its TTLs, in ascending order.
    pub ttl_offsets: Offsets,
    /// How the TTLs change.
    pub ttl: Ttl,
    /// The rcode, all 12 bits.
    pub rcode: u16,
    /// Whether AA is set.
    pub authoritative: bool,
    /// The EXTRA-TEXT of the extended error, if there is one; may be empty.
    pub error_text: &'a str,
}

/// How TTLs are written.
#[derive(Debug, Clone, Copy)]
pub enum Ttl {
    /// Each reduced by the seconds since it was stored, never below 0, then bounded.
    Aged {
        /// Seconds since the answer was stored.
        by: u32,
        /// No TTL is lower.
        min: u32,
        /// No TTL is higher.
        max: u32,
    },
    /// All the same: a stale answer (RFC 8767 section 4).
    Fixed(u32),
}

impl Ttl {
    /// Unchanged TTLs.
    pub const AS_IS: Ttl = Ttl::Aged {
        by: 0,
        min: 0,
        max: u32::MAX,
    };
}

/// Writes the reply to the start of `out` and returns its length, at most `head.limit`.
///
/// A message that does not fit is cut after the last record that does, and TC is set if anything but
/// additional data is missing (RFC 2181 section 9), or the glue of a referral (RFC 9471 section 3.1):
/// resolvers that do not retry over TCP still get what fits. Before any record, the extended error is left
/// out, its text first (RFC 8914 section 3). That alone does not set TC: the answer is complete, and a retry
/// over TCP would be a waste. A message that was truncated upstream keeps TC whatever its size. `out` must
/// hold `head.limit` bytes or the whole reply.
pub fn write(out: &mut [u8], head: &Head<'_>, body: Body<'_, impl Iterator<Item = usize>>) -> usize {
    let message = body.message;
    let mut opt = head.opt;
    let limit = head.limit.min(out.len());
    let room = |opt: Option<Opt>| limit.saturating_sub(opt.map_or(0, |opt| opt.length()));
    let mut flags = self::flags(head, u16_at(message, 2), body.authoritative);
    let mut counts = records::counts(message);
    let mut end = message.len();
    let mut error_text = match opt {
        Some(Opt { error: Some(_), .. }) => body.error_text,
        _ => "",
    };
    if end + error_text.len() > room(opt) {
        error_text = "";
    }
    if end > room(opt) {
        opt = opt.map(|opt| Opt { error: None, ..opt });
        if end > room(opt) {
            let truncated;
            (end, counts, truncated) = cut(message, HEADER + head.question.len(), counts, room(opt));
            if truncated {
                flags |= flag::TC;
            }
        }
    }

    // Without OPT there is no place for the upper bits, and the lower ones alone would mean something else
    // (RFC 6891 section 6.1.3).
    let rcode = if body.rcode > 15 && head.opt.is_none() {
        rcode::SERVFAIL
    } else {
        body.rcode
    };
    flags |= rcode & flag::RCODE;
    let question_end = HEADER + head.question.len();
    out[question_end..end].copy_from_slice(&message[question_end..end]);
    write_header(out, head.id, flags, counts);
    out[HEADER..question_end].copy_from_slice(head.question);
    for at in body.ttl_offsets {
        if at + 4 > end {
            break;
        }
        let ttl = match body.ttl {
            Ttl::Aged { by, min, max } => u32_at(out, at).saturating_sub(by).max(min).min(max),
            Ttl::Fixed(ttl) => ttl,
        };
        out[at..at + 4].copy_from_slice(&ttl.to_be_bytes());
    }
    finish_opt(out, end, opt, error_text, counts[2], rcode)
}

/// Writes a reply with no records: an error, or an empty NOERROR.
pub fn write_empty(out: &mut [u8], head: &Head<'_>, rcode: u16) -> usize {
    let rcode = if rcode > 15 && head.opt.is_none() {
        rcode::SERVFAIL
    } else {
        rcode
    };
    let flags = self::flags(head, 0, false) | rcode & flag::RCODE;
    let end = HEADER + head.question.len();
    write_header(out, head.id, flags, [0; 3]);
    out[HEADER..end].copy_from_slice(head.question);
    finish_opt(out, end, head.opt, "", 0, rcode)
}

/// Writes header and question with TC, so that the client retries over TCP.
pub fn write_truncated(out: &mut [u8], head: &Head<'_>) -> usize {
    let length = write_empty(out, head, rcode::NOERROR);
    out[2] |= (flag::TC >> 8) as u8;
    length
}

/// Writes an upstream's whole message with only its ID changed (RFC 5625 section 4.5); if it does not fit,
/// header and question with TC, so that the client retries over TCP.
pub fn write_verbatim(out: &mut [u8], head: &Head<'_>, message: &[u8]) -> usize {
    if message.len() > head.limit.min(out.len()) {
        return write_truncated(out, &Head { opt: None, ..*head });
    }
    out[..message.len()].copy_from_slice(message);
    out[..2].copy_from_slice(&head.id.to_be_bytes());
    message.len()
}

/// Writes the reply to a message that could not be read as a query; 0 for [`Unanswerable::Silence`].
///
/// RFC 8906 section 8 requires an answer to every probe; it repeats as much of the question as could be read.
pub fn write_unanswerable(out: &mut [u8], message: &[u8], error: Unanswerable) -> usize {
    let Unanswerable::Error {
        rcode,
        question_end,
        edns,
    } = error
    else {
        return 0;
    };
    let (id, flags) = (u16_at(message, 0), u16_at(message, 2));
    let has_question = question_end > HEADER;
    // RD, RA and CD are defined for QUERY alone (RFC 1035 section 4.1.1, RFC 4035 section 3.1.6): a reply
    // that rejects an unknown opcode and copies its flags would claim that they have a meaning.
    let kept = match flags & flag::OPCODE {
        0 => flag::RA | flags & (flag::RD | flag::CD),
        opcode => opcode,
    };
    // DO is copied, whatever else is wrong (RFC 3225 section 3).
    let opt = edns.map(|edns| Opt {
        dnssec_ok: edns.dnssec_ok(),
        ..Opt::default()
    });
    write_header(out, id, kept | flag::QR | rcode & flag::RCODE, [0; 3]);
    out[4..6].copy_from_slice(&u16::from(has_question).to_be_bytes());
    out[HEADER..question_end].copy_from_slice(&message[HEADER..question_end]);
    finish_opt(out, question_end, opt, "", 0, rcode)
}

impl<'a> Head<'a> {
    /// The head of a reply to `query`, for a client that accepts `limit` bytes.
    pub fn of(query: &Query<'a>, limit: usize) -> Head<'a> {
        Head {
            id: query.id,
            flags: query.flags,
            question: query.question(),
            opt: query.edns.map(|edns| Opt {
                dnssec_ok: edns.dnssec_ok(),
                ..Opt::default()
            }),
            limit: limit.min(MESSAGE_MAXIMUM),
        }
    }
}

/// The flags of a reply, without the rcode, and TC only as it came from upstream.
///
/// RD and CD are the query's (RFC 1035 section 4.1.1, RFC 4035 section 3.2.2); RA is set because we recurse,
/// by asking upstream; AD is passed on to clients that set DO or AD (RFC 6840 section 5.8); TC comes from an
/// upstream that had no more to give over TCP either.
fn flags(head: &Head<'_>, response: u16, authoritative: bool) -> u16 {
    let mut passed_on = flag::TC;
    if head.flags & flag::AD != 0 || head.opt.is_some_and(|opt| opt.dnssec_ok) {
        passed_on |= flag::AD;
    }
    let mut flags = flag::QR | flag::RA | head.flags & (flag::RD | flag::CD) | response & passed_on;
    if authoritative {
        flags |= flag::AA;
    }
    flags
}

fn write_header(out: &mut [u8], id: u16, flags: u16, counts: [u16; 3]) {
    out[0..2].copy_from_slice(&id.to_be_bytes());
    out[2..4].copy_from_slice(&flags.to_be_bytes());
    out[4..6].copy_from_slice(&1u16.to_be_bytes());
    for (at, count) in [6, 8, 10].into_iter().zip(counts) {
        out[at..at + 2].copy_from_slice(&count.to_be_bytes());
    }
}

fn finish_opt(
    out: &mut [u8],
    end: usize,
    opt: Option<Opt>,
    error_text: &str,
    additional: u16,
    rcode: u16,
) -> usize {
    let Some(opt) = opt else { return end };
    out[10..12].copy_from_slice(&(additional + 1).to_be_bytes());
    let opt = Opt {
        rcode_high: (rcode >> 4) as u8,
        ..opt
    };
    end + opt.write(&mut out[end..], error_text)
}

/// Where to cut a message to at most `room` bytes: its end, the records left in each section, and whether
/// answers, authority records or the glue of a referral are missing.
fn cut(message: &[u8], question_end: usize, counts: [u16; 3], room: usize) -> (usize, [u16; 3], bool) {
    let mut walk = Walk::new(message, question_end, counts);
    let qtype = u16_at(message, question_end - QUESTION_TAIL);
    let mut kept = [0; 3];
    let mut end = question_end;
    let (mut target, mut is_final) = (None, false);
    // The owner of the last NS record as it is encoded, and whether those so far are a referral.
    let (mut zone, mut refers) = (None, false);
    while let Some(Ok(record)) = walk.next() {
        if walk.position() > room {
            // RFC 9471 section 3.1. Whether the missing addresses lie below the cut is not looked at: asking
            // again over TCP is never wrong.
            let refers = refers && !is_final;
            return (end, kept, refers || record.section != Section::Additional);
        }
        match (record.section, record.rtype) {
            (Section::Authority, rtype::NS) => {
                // Type and class are between the owner and the TTL.
                let owner = &message[record.start..record.ttl_at - 4];
                if zone.replace(owner) != Some(owner) {
                    refers |= leads_below(message, target, record.start);
                }
            }
            (Section::Authority, rtype::SOA) => is_final = true,
            (Section::Answer, of) if of == qtype || qtype == rtype::ANY => is_final = true,
            // An alias may lead to a referral.
            (Section::Answer, rtype::CNAME) => target = Some(record.data.start),
            (Section::Answer, rtype::DNAME | rtype::RRSIG) => {}
            (Section::Answer, _) => is_final = true,
            _ => {}
        }
        kept[record.section as usize] += 1;
        end = walk.position();
    }
    (end, kept, kept != counts)
}

/// Whether an alias to the name at `target` leads to or below the owner of the record at `zone`. NS records of
/// another zone, such as the alias's own, are no referral. Without an alias, they are one.
#[cold]
#[inline(never)]
fn leads_below(message: &[u8], target: Option<usize>, zone: usize) -> bool {
    let Some(target) = target else { return true };
    let (mut led_to, mut owner) = (Name::ROOT, Name::ROOT);
    name::expand(message, target, &mut led_to).is_ok()
        && name::expand(message, zone, &mut owner).is_ok()
        && name::is_at_or_below(led_to.as_bytes(), owner.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::super::query::tests::{OPT, message};
    use super::*;
    use proptest::prelude::*;

    /// A response to `name A` with `count` addresses, TTL 100, owners compressed.
    fn addresses(name: &str, count: u16) -> (Vec<u8>, Vec<u16>) {
        let mut response = message(name, rtype::A, &[]);
        response[2] |= 0x80;
        response[6..8].copy_from_slice(&count.to_be_bytes());
        let mut offsets = Vec::new();
        for _ in 0..count {
            response.extend(b"\xc0\x0c\0\x01\0\x01");
            offsets.push(response.len() as u16);
            response.extend(b"\0\0\0\x64\0\x04\x7f\0\0\x01");
        }
        (response, offsets)
    }

    fn reply(query: &[u8], count: u16, limit: usize, ttl: Ttl) -> Vec<u8> {
        let query = Query::parse(query).unwrap();
        let (stored, ttl_offsets) = addresses("www.example.org.", count);
        let mut out = vec![0xff; 4096];
        let body = Body {
            message: &stored,
            ttl_offsets: ttl_offsets.iter().map(|&at| usize::from(at)),
            ttl,
            rcode: 0,
            authoritative: false,
            error_text: "",
        };
        let length = write(&mut out, &Head::of(&query, limit), body);
        out.truncate(length);
        out
    }

    #[test]
    fn the_question_comes_back_as_it_was_sent() {
        let query = message("www.example.org.", rtype::A, &[]);
        let mut shouting = query.clone();
        shouting[13..16].copy_from_slice(b"WwW");
        let reply = reply(
            &shouting,
            1,
            512,
            Ttl::Aged {
                by: 40,
                min: 0,
                max: 600,
            },
        );
        assert_eq!(reply[12..33], shouting[12..33]);
        assert_eq!(reply[..4], [0x12, 0x34, 0x81, 0x80]);
        assert_eq!(u32_at(&reply, 33 + 6), 60);
    }

    #[test]
    fn ttls_age_and_stay_within_bounds() {
        let query = message("www.example.org.", rtype::A, &[]);
        for (ttl, expected) in [
            (
                Ttl::Aged {
                    by: 500,
                    min: 0,
                    max: 600,
                },
                0,
            ),
            (
                Ttl::Aged {
                    by: 90,
                    min: 30,
                    max: 600,
                },
                30,
            ),
            (
                Ttl::Aged {
                    by: 0,
                    min: 0,
                    max: 20,
                },
                20,
            ),
            (Ttl::Fixed(7), 7),
        ] {
            assert_eq!(u32_at(&reply(&query, 2, 512, ttl), 33 + 16 + 6), expected);
        }
    }

    /// RFC 2181 section 9.
    #[test]
    fn what_fits_is_sent_with_tc() {
        let query = message("www.example.org.", rtype::A, &[OPT]);
        let whole = reply(&query, 20, 512, Ttl::AS_IS);
        assert_eq!((whole.len(), whole[2] & 2), (33 + 20 * 16 + 11, 0));
        let cut = reply(&query, 100, 512, Ttl::AS_IS);
        assert!(cut.len() <= 512 && cut.len() > 512 - 16);
        assert_eq!(cut[2] & 2, 2);
        assert_eq!(usize::from(u16_at(&cut, 6)), (cut.len() - 33 - 11) / 16);
        let parsed = hickory_proto::op::Message::from_vec(&cut).unwrap();
        assert_eq!(parsed.answers.len(), (cut.len() - 33 - 11) / 16);
    }

    /// A record with TTL 100.
    fn record(owner: &[u8], of: u16, data: &[u8]) -> Vec<u8> {
        let length = (data.len() as u16).to_be_bytes();
        [owner, &of.to_be_bytes(), b"\0\x01\0\0\0\x64", &length, data].concat()
    }

    /// A reply to `www.example.org.` with these records in each section, for a client that accepts one byte
    /// less: whether TC is set, and how many additional records are left.
    fn short_of_one_byte(qtype: u16, sections: [&[&Vec<u8>]; 3]) -> (bool, u16) {
        let query = message("www.example.org.", qtype, &[]);
        let mut stored = query.clone();
        for (at, records) in [6, 8, 10].into_iter().zip(sections) {
            stored[at + 1] = records.len() as u8;
            records.iter().for_each(|record| stored.extend(*record));
        }
        let body = Body {
            message: &stored,
            ttl_offsets: std::iter::empty(),
            ttl: Ttl::AS_IS,
            rcode: 0,
            authoritative: false,
            error_text: "",
        };
        let mut out = [0; 512];
        let head = Head::of(&Query::parse(&query).unwrap(), stored.len() - 1);
        write(&mut out, &head, body);
        (u16_at(&out, 2) & flag::TC != 0, u16_at(&out, 10))
    }

    /// RFC 9471 section 3.1. Other additional records may be missing without TC (RFC 2181 section 9).
    #[test]
    fn a_referral_without_all_its_glue_is_truncated() {
        let record = |of, data: &[u8]| record(b"\xc0\x0c", of, data);
        let (servers, address) = (
            record(rtype::NS, b"\x02ns\xc0\x0c"),
            record(rtype::A, &[127, 0, 0, 1]),
        );
        let (alias, soa) = (record(rtype::CNAME, b"\xc0\x0c"), record(rtype::SOA, &[0; 22]));
        for (answers, authority, truncated) in [
            (&[&alias][..], &[&servers][..], true),
            (&[], &[&servers], true),
            (&[&address], &[&servers], false),
            (&[], &[&soa, &servers], false),
        ] {
            let got = short_of_one_byte(rtype::A, [answers, authority, &[&address]]);
            assert_eq!(got, (truncated, 0), "{answers:?} {authority:?}");
        }
    }

    /// The servers of the alias's own zone are extra information (RFC 2181 section 9).
    #[test]
    fn an_alias_beside_the_servers_of_its_zone_is_no_referral() {
        const ZONE: &[u8] = b"\xc0\x10";
        let servers = record(ZONE, rtype::NS, b"\x02ns\xc0\x10");
        let address = record(b"\x02ns\xc0\x10", rtype::A, &[127, 0, 0, 1]);
        for (qtype, target, truncated) in [
            (rtype::A, &b"\x03cdn\x04test\0"[..], false),
            (rtype::A, b"\xc0\x18", false),
            (rtype::A, ZONE, true),
            (rtype::A, b"\x01a\x01b\xc0\x10", true),
            // It is what was asked for.
            (rtype::CNAME, ZONE, false),
            (rtype::ANY, ZONE, false),
        ] {
            let alias = record(b"\xc0\x0c", rtype::CNAME, target);
            let got = short_of_one_byte(qtype, [&[&alias], &[&servers], &[&address]]);
            assert_eq!(got, (truncated, 0), "{target:?}");
        }
    }

    /// Whichever servers come first.
    #[test]
    fn an_alias_beside_servers_of_two_zones_may_be_a_referral() {
        let alias = record(b"\xc0\x0c", rtype::CNAME, b"\x03cdn\x04test\0");
        let own = record(b"\xc0\x10", rtype::NS, b"\x02ns\xc0\x10");
        let targets = record(b"\x04test\0", rtype::NS, b"\x02ns\x04test\0");
        let address = record(b"\x02ns\x04test\0", rtype::A, &[127, 0, 0, 1]);
        for (servers, truncated) in [
            ([&own, &own], false),
            ([&own, &targets], true),
            ([&targets, &own], true),
            ([&targets, &targets], true),
        ] {
            let got = short_of_one_byte(rtype::A, [&[&alias], &servers, &[&address]]);
            assert_eq!(got, (truncated, 0), "{servers:?}");
        }
    }

    /// RFC 8914 section 3: the explanation of an answer must not displace part of it.
    #[test]
    fn an_extended_error_gives_way_before_a_record_does() {
        let query = message("www.example.org.", rtype::A, &[OPT]);
        let query = Query::parse(&query).unwrap();
        let (stored, ttl_offsets) = addresses("www.example.org.", 10);
        let whole = stored.len() + crate::dns::edns::OPT_LENGTH;
        // (bytes that the client accepts, records it gets, whether it gets the error)
        for (limit, records, told) in [
            (whole + 6, 10, true),
            (whole + 5, 10, false),
            (whole, 10, false),
            (whole - 1, 9, false),
        ] {
            let (out, length) = written(&query, limit, (&stored, &ttl_offsets), (3, ""));
            assert!(length <= limit);
            let got = (
                u16_at(&out, 6),
                out[2] & 2 != 0,
                out[..length].ends_with(&[0, 15, 0, 2, 0, 3]),
            );
            assert_eq!(got, (records, records < 10, told), "{limit} octets");
        }
    }

    /// A reply with an extended error (code and text) within a limit: the buffer, and the reply's length.
    fn written(
        query: &Query<'_>,
        limit: usize,
        (message, ttl_offsets): (&[u8], &[u16]),
        (code, error_text): (u16, &str),
    ) -> (Vec<u8>, usize) {
        let mut head = Head::of(query, limit);
        head.opt = head.opt.map(|opt| Opt {
            error: Some(code),
            ..opt
        });
        let body = Body {
            message,
            ttl_offsets: ttl_offsets.iter().map(|&at| usize::from(at)),
            ttl: Ttl::AS_IS,
            rcode: 0,
            authoritative: false,
            error_text,
        };
        let mut out = vec![0xff; 4096];
        let length = write(&mut out, &head, body);
        (out, length)
    }

    /// The text is dropped first, then the code, then records.
    #[test]
    fn an_errors_text_gives_way_first() {
        let query = message("www.example.org.", rtype::A, &[OPT]);
        let query = Query::parse(&query).unwrap();
        let (stored, ttl_offsets) = addresses("www.example.org.", 10);
        let whole = stored.len() + 11 + 6 + 4;
        for (limit, end, records) in [
            (whole, &b"\0\x0f\0\x06\0\x11why!"[..], 10),
            (whole - 1, b"\0\x0f\0\x02\0\x11", 10),
            (whole - 5, b"\0\0\x80\0\0\0", 10),
            (whole - 11, b"\0\0\x80\0\0\0", 9),
        ] {
            let (out, length) = written(&query, limit, (&stored, &ttl_offsets), (17, "why!"));
            assert!(length <= limit && out[..length].ends_with(end), "{limit} octets");
            assert_eq!(u16_at(&out, 6), records, "{limit} octets");
        }
    }

    /// RFC 2181 section 9: what was truncated upstream is truncated here.
    #[test]
    fn tc_is_passed_on() {
        let query = message("www.example.org.", rtype::A, &[]);
        let query = Query::parse(&query).unwrap();
        let (mut stored, ttl_offsets) = addresses("www.example.org.", 2);
        stored[2] |= (flag::TC >> 8) as u8;
        let body = Body {
            message: &stored,
            ttl_offsets: ttl_offsets.iter().map(|&at| usize::from(at)),
            ttl: Ttl::AS_IS,
            rcode: 0,
            authoritative: false,
            error_text: "",
        };
        let mut out = [0; 512];
        write(&mut out, &Head::of(&query, 512), body);
        assert_eq!((u16_at(&out, 2) & flag::TC, u16_at(&out, 6)), (flag::TC, 2));
    }

    #[test]
    fn opt_is_in_the_reply_if_and_only_if_it_was_in_the_query() {
        let with = reply(&message("www.example.org.", rtype::A, &[OPT]), 1, 512, Ttl::AS_IS);
        assert_eq!(
            (u16_at(&with, 10), &with[with.len() - 11..][..3]),
            (1, &b"\0\0\x29"[..])
        );
        let without = reply(&message("www.example.org.", rtype::A, &[]), 1, 512, Ttl::AS_IS);
        assert_eq!(u16_at(&without, 10), 0);
    }

    #[test]
    fn an_extended_rcode_needs_opt() {
        for (records, expected) in [(&[][..], 2), (&[OPT][..], 7)] {
            let query = message("a.", rtype::A, records);
            let query = Query::parse(&query).unwrap();
            let mut out = [0; 512];
            let length = write_empty(&mut out, &Head::of(&query, 512), 23);
            assert_eq!(u16::from(out[3]) & flag::RCODE, expected);
            assert_eq!(length, HEADER + 7 + if records.is_empty() { 0 } else { 11 });
        }
    }

    proptest! {
        #[test]
        fn every_reply_fits_and_parses(count in 0u16..300, limit in 512usize..2000, edns: bool) {
            let opt = [OPT];
            let query = message("www.example.org.", rtype::A, if edns { &opt } else { &[] });
            let reply = reply(&query, count, limit, Ttl::AS_IS);
            prop_assert!(reply.len() <= limit);
            let parsed = hickory_proto::op::Message::from_vec(&reply).unwrap();
            prop_assert_eq!(parsed.metadata.truncation, parsed.answers.len() < usize::from(count));
        }

        #[test]
        fn anything_gets_a_reply_or_silence(mut message in prop::collection::vec(any::<u8>(), 0..120)) {
            if let Some(octet) = message.get_mut(2) { *octet &= 0x7f; }
            if let Err(error) = Query::parse(&message) {
                let mut out = [0; 512];
                let length = write_unanswerable(&mut out, &message, error);
                prop_assert!(length == 0 || length >= HEADER);
            }
        }

        #[test]
        fn names_of_any_length_do(labels in 1usize..60) {
            let name = "abc.".repeat(labels);
            prop_assume!(Name::parse(&name).is_ok());
            let query = message(&name, rtype::A, &[]);
            let query = Query::parse(&query).unwrap();
            let mut out = [0; 512];
            prop_assert!(write_empty(&mut out, &Head::of(&query, 512), 3) <= 512);
        }
    }
}
