//! Frame Streams (<https://farsightsec.github.io/fstrm/>): the framing, and the handshakes before the first
//! frame and after the last.

use std::io::{self, Read};

use prost::Message;

/// The content type of the frames.
const CONTENT: &[u8] = b"protobuf:dnstap.Dnstap";

/// The control frame field with the content type.
const CONTENT_FIELD: u32 = 1;

/// Size in bytes of the largest control frame that is read.
const MOST: u32 = 512;

/// Kinds of control frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Control {
    /// The reader accepts this content type.
    Accept = 1,
    /// Data frames follow.
    Start = 2,
    /// No more frames follow.
    Stop = 3,
    /// The writer offers this content type.
    Ready = 4,
    /// The reader has received the last frame.
    Finish = 5,
}

/// Encodes a data frame with this message.
pub(super) fn data(message: &impl Message) -> Vec<u8> {
    let size = message.encoded_len();
    let mut frame = Vec::with_capacity(4 + size);
    frame.extend((size as u32).to_be_bytes());
    // A vector always has room.
    let _ = message.encode(&mut frame);
    frame
}

/// Counts the frames in these bytes.
pub(super) fn count(mut frames: &[u8]) -> u64 {
    let mut count = 0;
    while let Some((size, rest)) = frames.split_first_chunk() {
        frames = rest.get(u32::from_be_bytes(*size) as usize..).unwrap_or_default();
        count += 1;
    }
    count
}

/// Encodes a control frame.
pub(super) fn control(kind: Control) -> Vec<u8> {
    let mut words = vec![kind as u32];
    let content = match kind {
        Control::Stop | Control::Finish => &b""[..],
        Control::Ready | Control::Accept | Control::Start => {
            words.extend([CONTENT_FIELD, CONTENT.len() as u32]);
            CONTENT
        }
    };
    let size = 4 * words.len() + content.len();
    // A length of zero announces a control frame.
    let head = [0, size as u32].into_iter().chain(words);
    let mut frame: Vec<u8> = head.flat_map(u32::to_be_bytes).collect();
    frame.extend_from_slice(content);
    frame
}

/// Reads a control frame of this kind. If it lists content types, ours must be among them.
///
/// # Errors
/// If another frame arrives, or none.
pub(super) fn read(kind: Control, from: &mut impl Read) -> io::Result<()> {
    let wrong = || io::Error::other("it does not answer as a reader of dnstap does");
    let mut head = [0; 8];
    from.read_exact(&mut head)?;
    let (zero, size) = (word(&head, 0), word(&head, 4));
    if zero != Some(0) || !size.is_some_and(|size| (4..=MOST).contains(&size)) {
        return Err(wrong());
    }
    let mut body = vec![0; size.unwrap_or_default() as usize];
    from.read_exact(&mut body)?;
    if word(&body, 0) != Some(kind as u32) {
        return Err(wrong());
    }
    let (mut named, mut ours, mut at) = (false, false, 4);
    while let (Some(field), Some(size)) = (word(&body, at), word(&body, at + 4)) {
        let end = at + 8 + size as usize;
        let content = body.get(at + 8..end).ok_or_else(wrong)?;
        named |= field == CONTENT_FIELD;
        ours |= field == CONTENT_FIELD && content == CONTENT;
        at = end;
    }
    match !named || ours {
        true => Ok(()),
        false => Err(io::Error::other("it reads something else than dnstap")),
    }
}

fn word(octets: &[u8], at: usize) -> Option<u32> {
    let word = octets.get(at..)?.first_chunk()?;
    Some(u32::from_be_bytes(*word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_frames_are_those_of_the_specification() {
        assert_eq!(control(Control::Stop), [0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 3]);
        let start = control(Control::Start);
        assert_eq!(start[..12], [0, 0, 0, 0, 0, 0, 0, 34, 0, 0, 0, 2]);
        assert_eq!(start[12..20], [0, 0, 0, 1, 0, 0, 0, 22]);
        assert_eq!(&start[20..], CONTENT);
    }

    #[test]
    fn readers_are_understood() {
        for kind in [Control::Accept, Control::Finish] {
            assert!(read(kind, &mut &control(kind)[..]).is_ok());
        }
        let mut other = control(Control::Accept);
        *other.last_mut().unwrap() = b'X';
        let endless = [0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff];
        let beyond = [
            0, 0, 0, 0, 0, 0, 0, 12, 0, 0, 0, 1, 0, 0, 0, 1, 0xff, 0xff, 0xff, 0xff,
        ];
        let others: [&[u8]; 6] = [
            &other,
            &control(Control::Finish),
            &endless,
            &beyond,
            &[0, 0, 0, 1, 0, 0, 0, 4],
            b"HTTP/1.1 400",
        ];
        for other in others {
            assert!(read(Control::Accept, &mut &other[..]).is_err(), "{other:?}");
        }
    }

    #[test]
    fn frames_are_counted() {
        assert_eq!(count(&[]), 0);
        assert_eq!(count(&[0, 0, 0, 1, 9, 0, 0, 0, 2, 9, 9]), 2);
    }
}
