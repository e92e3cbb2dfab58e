//! Splits a stream into messages, each after its two-byte length (RFC 7766 section 8, RFC 1035 section
//! 4.2.2), however the network cut them.
//!
//! Bytes are read into a buffer that all connections of a worker share. A connection keeps only an incomplete
//! message, or what it must not process yet, so a silent one keeps nothing.

use crate::dns::MESSAGE_MAXIMUM;

/// Bytes of the length before a message.
pub(crate) const PREFIX: usize = 2;

/// Bytes of the longest message with its length.
pub const FRAME_MAXIMUM: usize = PREFIX + MESSAGE_MAXIMUM;

/// Bytes read at a time. This holds some hundred queries, after which other connections get their turn.
pub const READ: usize = 16 << 10;

/// The most bytes a connection keeps of what it has read.
pub const KEPT_MAXIMUM: usize = FRAME_MAXIMUM + READ;

/// The read buffer, with room before the new bytes for those that were kept.
pub struct Scratch(Box<[u8]>);

impl Default for Scratch {
    /// Creates it with room for what may be kept and one read.
    fn default() -> Scratch {
        Scratch(vec![0; FRAME_MAXIMUM + READ].into())
    }
}

impl Scratch {
    /// Returns where the next bytes are to be read.
    pub fn read(&mut self) -> &mut [u8] {
        &mut self.0[FRAME_MAXIMUM..]
    }

    /// Returns the kept bytes followed by those just read. While a connection is read, what it keeps is less
    /// than a message.
    pub fn join(&mut self, kept: &[u8], read: usize) -> &[u8] {
        let start = FRAME_MAXIMUM - kept.len();
        self.0[start..FRAME_MAXIMUM].copy_from_slice(kept);
        &self.0[start..FRAME_MAXIMUM + read]
    }
}

/// Returns how many bytes the first message lacks, as far as its length is known.
pub fn missing(octets: &[u8]) -> usize {
    let length = match octets.first_chunk::<PREFIX>() {
        Some(prefix) => PREFIX + usize::from(u16::from_be_bytes(*prefix)),
        None => PREFIX,
    };
    length.saturating_sub(octets.len())
}

/// Iterates over the complete messages at the start of a buffer.
pub struct Frames<'o>(&'o [u8]);

impl<'o> Frames<'o> {
    /// Iterates over those of `octets`.
    pub fn of(octets: &'o [u8]) -> Frames<'o> {
        Frames(octets)
    }

    /// Returns what follows the messages that were taken.
    pub fn rest(&self) -> &'o [u8] {
        self.0
    }

    /// Returns whether there is a complete message.
    pub fn is_due(&self) -> bool {
        Frames(self.0).next().is_some()
    }
}

impl<'o> Iterator for Frames<'o> {
    type Item = &'o [u8];

    fn next(&mut self) -> Option<&'o [u8]> {
        let (prefix, rest) = self.0.split_first_chunk::<PREFIX>()?;
        let (message, rest) = rest.split_at_checked(usize::from(u16::from_be_bytes(*prefix)))?;
        self.0 = rest;
        Some(message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_taken_whole_and_in_order() {
        let octets = [0, 1, 7, 0, 0, 0, 2, 8, 9, 0, 3, 1];
        let mut frames = Frames::of(&octets);
        assert_eq!(frames.by_ref().collect::<Vec<_>>(), [&[7][..], &[], &[8, 9]]);
        assert_eq!(frames.rest(), [0, 3, 1]);
        assert!(!frames.is_due());
    }

    #[test]
    fn what_is_missing_is_known_from_the_length() {
        let lacks = [
            (&[][..], 2),
            (&[0], 1),
            (&[0, 3], 3),
            (&[0, 3, 1], 2),
            (&[0, 1, 1, 0], 0),
        ];
        for (octets, count) in lacks {
            assert_eq!(missing(octets), count, "{octets:?}");
        }
    }

    #[test]
    fn the_longest_message_fits_beside_a_read() {
        let mut scratch = Scratch::default();
        let read = scratch.read().len();
        let kept = [&[255, 255][..], &vec![1; MESSAGE_MAXIMUM - 1]].concat();
        let mut frames = Frames::of(scratch.join(&kept, read));
        assert_eq!(frames.next().map(<[u8]>::len), Some(MESSAGE_MAXIMUM));
        assert!(frames.rest().len() < KEPT_MAXIMUM);
    }
}
