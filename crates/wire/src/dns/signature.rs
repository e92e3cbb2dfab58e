//! Signatures of whole messages: TSIG (RFC 8945) and SIG(0) (RFC 2931).
//!
//! The proxy has no keys and verifies none. It must recognize signed queries, since only a verbatim relay
//! keeps them valid (RFC 5625 section 4.5); as they bypass the cache and cannot be rewritten, a query that
//! merely claims to be signed must not get this treatment.

use super::records::{Record, Section};
use super::{name, rtype, u16_at};

/// The class of records that are about the message (RFC 8945 section 4.2, RFC 2931 section 3).
const CLASS_ANY: u16 = 255;

/// The shortest MAC allowed, in bytes (RFC 8945 section 5.2.2.1).
const SHORTEST_MAC: usize = 10;

/// The role of a record in a query.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signature {
    /// It signs the message, as far as can be judged without the key.
    Signed,
    /// An ordinary record that does not sign the message.
    Other,
    /// A misplaced or malformed TSIG (RFC 8945 sections 5.1 and 5.2: FORMERR).
    Malformed,
}

/// The role of `record` in `message`; `last` means that it is the last record.
pub fn of(message: &[u8], record: &Record, last: bool) -> Signature {
    let placed = last
        && record.section == Section::Additional
        && record.class == CLASS_ANY
        && record.ttl == 0
        && record.data.end == message.len();
    match record.rtype {
        rtype::TSIG if placed && is_tsig(message, record) => Signature::Signed,
        rtype::TSIG => Signature::Malformed,
        rtype::SIG if placed && is_sig0(message, record) => Signature::Signed,
        _ => Signature::Other,
    }
}

/// RFC 8945 section 4.2: algorithm, time (6), fudge (2), MAC size (2), MAC, original ID (2), error (2), other
/// length (2), other data; and nothing more.
fn is_tsig(message: &[u8], record: &Record) -> bool {
    let Ok(mac_size_at) = name::skip_plain(message, record.data.start).map(|end| end + 8) else {
        return false;
    };
    let Some(mac) = number(message, mac_size_at) else {
        return false;
    };
    let other_at = mac_size_at + 2 + mac + 4;
    let other = number(message, other_at);
    mac >= SHORTEST_MAC && other.is_some_and(|other| other_at + 2 + other == record.data.end)
}

/// RFC 2931 section 3: owner is the root; type covered, labels and original TTL are 0. RFC 2535 section 4.1:
/// type covered (2), algorithm (1), labels (1), original TTL (4), expiration (4), inception (4), key tag (2),
/// signer, signature.
fn is_sig0(message: &[u8], record: &Record) -> bool {
    const SIGNER: usize = 18;
    let data = &message[record.data.clone()];
    message[record.start] == 0
        && data.len() > SIGNER
        && data[..2] == [0; 2]
        && data[3..8] == [0; 5]
        && name::skip_plain(message, record.data.start + SIGNER).is_ok_and(|end| end < record.data.end)
}

fn number(message: &[u8], at: usize) -> Option<usize> {
    (at + 2 <= message.len()).then(|| usize::from(u16_at(message, at)))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::super::query::tests::{OPT, message};
    use super::super::query::{Query, Unanswerable};
    use super::super::rcode;
    use super::*;

    /// A TSIG record with this MAC.
    pub fn tsig(mac: &[u8]) -> Vec<u8> {
        let mut data = b"\x0bhmac-sha256\0\0\0\x65\0\0\0\x01\x2c".to_vec();
        data.extend((mac.len() as u16).to_be_bytes());
        data.extend(mac);
        data.extend([0x12, 0x34, 0, 0, 0, 0]);
        record(b"\x03key\0", rtype::TSIG, CLASS_ANY, &data)
    }

    fn sig0() -> Vec<u8> {
        let mut data = vec![0, 0, 15, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 7];
        data.extend(b"\x03key\0");
        data.extend([0xab; 64]);
        record(b"\0", rtype::SIG, CLASS_ANY, &data)
    }

    fn record(owner: &[u8], rtype: u16, class: u16, data: &[u8]) -> Vec<u8> {
        let mut record = owner.to_vec();
        record.extend(rtype.to_be_bytes());
        record.extend(class.to_be_bytes());
        record.extend([0; 4]);
        record.extend((data.len() as u16).to_be_bytes());
        record.extend(data);
        record
    }

    /// Whether the query counts as signed, or its rcode.
    fn signed(message: &[u8]) -> Result<bool, u16> {
        match Query::parse(message) {
            Ok(query) => Ok(query.signed),
            Err(Unanswerable::Error { rcode, .. }) => Err(rcode),
            Err(Unanswerable::Silence) => panic!("no answer"),
        }
    }

    /// RFC 8945 section 5.1.
    #[test]
    fn tsig_is_the_last_additional_record_or_an_error() {
        let tsig = tsig(&[7; 32]);
        assert_eq!(signed(&message("a.", 1, &[OPT, &tsig])), Ok(true));
        assert_eq!(signed(&message("a.", 1, &[&tsig, OPT])), Err(rcode::FORMERR));
        assert_eq!(signed(&message("a.", 1, &[&tsig, &tsig])), Err(rcode::FORMERR));
        let mut in_answer = message("a.", 1, &[&tsig]);
        in_answer.swap(7, 11);
        assert_eq!(signed(&in_answer), Err(rcode::FORMERR));
        let mut more = message("a.", 1, &[&tsig]);
        more.push(0);
        assert_eq!(signed(&more), Err(rcode::FORMERR), "octets that it cannot cover");
    }

    /// RFC 8945 sections 4.2 and 5.2.
    #[test]
    fn tsig_that_cannot_be_understood_is_an_error() {
        let good = tsig(&[7; 32]);
        let data_at = b"\x03key\0".len() + 10;
        for (what, bad) in [
            ("a MAC that nobody may send", tsig(&[7; 9])),
            ("no MAC", tsig(&[])),
            ("no data", record(b"\x03key\0", rtype::TSIG, CLASS_ANY, b"")),
            (
                "another class",
                record(b"\x03key\0", rtype::TSIG, 1, &good[data_at..]),
            ),
            (
                "one octet too many",
                record(
                    b"\x03key\0",
                    rtype::TSIG,
                    CLASS_ANY,
                    &[&good[data_at..], &[0]].concat(),
                ),
            ),
            (
                "cut off",
                record(
                    b"\x03key\0",
                    rtype::TSIG,
                    CLASS_ANY,
                    &good[data_at..good.len() - 1],
                ),
            ),
        ] {
            assert_eq!(signed(&message("a.", 1, &[&bad])), Err(rcode::FORMERR), "{what}");
        }
    }

    /// RFC 2931 section 3.
    #[test]
    fn only_a_sig_that_covers_the_transaction_signs_it() {
        let good = sig0();
        assert_eq!(signed(&message("a.", 1, &[OPT, &good])), Ok(true));
        assert_eq!(
            signed(&message("a.", 1, &[&good, OPT])),
            Ok(false),
            "not the last"
        );
        let data_at = 11;
        for (what, at, value) in [
            ("covers a type", data_at + 1, 1),
            ("has labels", data_at + 3, 1),
            ("class IN", 4, 1),
        ] {
            let mut bad = good.clone();
            bad[at] = value;
            assert_eq!(signed(&message("a.", 1, &[&bad])), Ok(false), "{what}");
        }
        let junk = record(b"\0", rtype::SIG, CLASS_ANY, b"junk");
        assert_eq!(signed(&message("a.", 1, &[&junk])), Ok(false));
        let mut in_answer = message("a.", 1, &[&good]);
        in_answer.swap(7, 11);
        assert_eq!(signed(&in_answer), Ok(false));
    }
}
