//! Padding of encrypted messages, so that their length reveals less (RFC 7830, RFC 8467).

use super::records::{Walk, counts};
use super::{HEADER, MESSAGE_MAXIMUM, QUESTION_TAIL, edns, name, rtype, u16_at};

/// Queries are padded to multiples of this many bytes (RFC 8467 section 4.1).
pub const QUERY_BLOCK: usize = 128;

/// Replies are padded to multiples of this many bytes (RFC 8467 section 4.1).
pub const REPLY_BLOCK: usize = 468;

/// Returns the option that pads a message to whole blocks if its last record is an OPT record, after
/// correcting that record's length in the message. Empty if it ends in another record, such as a TSIG whose
/// MAC covers the rest, or if there is no room.
///
/// A peer that sends an OPT record may be sent padding (RFC 7830 section 4).
pub fn pad(message: &mut [u8], block: usize) -> Vec<u8> {
    let Some(length_at) = length_of_last_opt(message) else {
        return Vec::new();
    };
    let before = message.len() + edns::OPTION_HEADER;
    let padding = before
        .next_multiple_of(block)
        .min(MESSAGE_MAXIMUM)
        .checked_sub(before);
    let Some(padding) = padding else {
        return Vec::new();
    };
    let length = usize::from(u16_at(message, length_at)) + edns::OPTION_HEADER + padding;
    let Ok(length) = u16::try_from(length) else {
        return Vec::new();
    };
    message[length_at..length_at + 2].copy_from_slice(&length.to_be_bytes());
    let mut option = Vec::with_capacity(edns::OPTION_HEADER + padding);
    edns::pad(&mut option, padding);
    option
}

/// A copy of a message, padded if possible, with little more memory than that takes.
pub fn padded(message: &[u8], block: usize) -> Vec<u8> {
    let mut padded = Vec::with_capacity(message.len() + edns::OPTION_HEADER + block);
    padded.extend_from_slice(message);
    let padding = pad(&mut padded, block);
    padded.extend(padding);
    padded
}

/// The offset of the OPT record's data length, if the message ends with that record.
fn length_of_last_opt(message: &[u8]) -> Option<usize> {
    if message.len() < HEADER {
        return None;
    }
    let body = match u16_at(message, 4) {
        0 => HEADER,
        1 => name::skip_plain(message, HEADER).ok()? + QUESTION_TAIL,
        _ => return None,
    };
    let last = Walk::new(message, body, counts(message)).last()?.ok()?;
    (last.rtype == rtype::OPT && last.data.end == message.len()).then(|| last.data.start - 2)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dns::build::upstream_query;

    #[test]
    fn messages_with_an_opt_record_fill_blocks() {
        for length in 1..60_u8 {
            let name = [&[length][..], &vec![b'a'; length.into()], &[0]].concat();
            let mut query = upstream_query(&name, rtype::NS, 1, 0, false, None);
            let option = pad(&mut query, QUERY_BLOCK);
            query.extend(option);
            assert_eq!(query.len() % QUERY_BLOCK, 0);
            let options = length_of_last_opt(&query).unwrap() + 2;
            let found: Vec<_> = edns::options(&query[options..]).collect();
            assert_eq!(found.len(), 1);
            assert_eq!(
                (found[0].0, found[0].1.iter().all(|&octet| octet == 0)),
                (12, true)
            );
        }
    }

    #[test]
    fn others_stay_as_they_are() {
        let mut query = upstream_query(&[0], rtype::NS, 1, 0, false, None);
        query.truncate(query.len() - edns::OPT_LENGTH);
        query[11] = 0;
        for message in [&query[..], &[], &[0; 11], &query[..14]] {
            let mut padded = message.to_vec();
            assert_eq!(pad(&mut padded, REPLY_BLOCK), [0; 0]);
            assert_eq!(padded, message);
        }
    }

    #[test]
    fn the_longest_message_stays_one() {
        let mut query = upstream_query(&[0], rtype::NS, 1, 0, false, None);
        let length_at = query.len() - 2;
        // As many bytes of another option as leave less than a block.
        let content = MESSAGE_MAXIMUM - query.len() - 4 - 10;
        query[length_at..].copy_from_slice(&(content as u16 + 4).to_be_bytes());
        query.extend([0, 99]);
        query.extend((content as u16).to_be_bytes());
        query.resize(query.len() + content, 1);
        let option = pad(&mut query, REPLY_BLOCK);
        assert_eq!(query.len() + option.len(), MESSAGE_MAXIMUM);
        query.extend(option);
        assert_eq!(pad(&mut query, REPLY_BLOCK), [0; 0]);
    }
}
