//! Lines that are printed by the million, assembled without a loop where possible.
//!
//! `core::fmt` takes several times as long for a number, and a `Vec` checks its capacity for each piece.
//! Here, a short piece is written as a fixed number of bytes, of which only its own count: a store or two.

use std::borrow::Cow;

use crate::Name;

/// The size of the line buffer in bytes. What does not fit is lost.
const ROOM: usize = 64 << 10;

/// The maximum size in bytes of a piece written at once.
const PIECE: usize = 16;

/// A buffer of lines. Its size is constant, so that indices need no bounds checks.
pub(crate) struct Lines {
    octets: Box<[u8; ROOM + PIECE]>,
    end: usize,
}

impl Lines {
    #[expect(clippy::expect_used, reason = "both lengths are one constant")]
    pub(crate) fn new() -> Lines {
        let octets = vec![0; ROOM + PIECE].into_boxed_slice();
        Lines {
            octets: octets.try_into().expect("the length is the array's"),
            end: 0,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.end
    }

    pub(crate) fn clear(&mut self) {
        self.end = 0;
    }

    pub(crate) fn as_text(&self) -> Cow<'_, str> {
        let octets = &self.octets[..self.end];
        // `from_utf8_lossy` checks byte by byte, this eight bytes at a time.
        std::str::from_utf8(octets).map_or_else(|_| String::from_utf8_lossy(octets), Cow::Borrowed)
    }

    /// Adds a line.
    #[inline(always)]
    pub(crate) fn add(&mut self, write: impl FnOnce(&mut Line<'_>)) {
        // A separate local value that does not escape: so its end stays in a register, instead of in memory
        // that each byte of the text might alias.
        let mut line = Line {
            octets: &mut self.octets,
            end: self.end,
        };
        write(&mut line);
        line.cut([b'\n'], 1);
        self.end = line.end;
    }
}

/// A line that [`print_with`](crate::print_with) prints. It holds at least 32 KiB; what is written beyond may
/// be lost.
///
/// ```
/// use dnsweir_filter::{NameBuf, Word, print_with};
/// # fn main() -> Result<(), dnsweir_filter::NameError> {
/// let name: NameBuf = "www.example.org".parse()?;
/// const ASKED: Word = Word::new(" asked ").unwrap();
/// print_with(|line| {
///     line.name(name.as_name());
///     line.word(ASKED);
///     line.number(42);
///     line.text(" times");
/// });
/// # Ok(()) }
/// ```
pub struct Line<'a> {
    octets: &'a mut [u8; ROOM + PIECE],
    end: usize,
}

impl Line<'_> {
    /// Appends the first `count` of these bytes, at most sixteen; they should be UTF-8.
    #[inline(always)]
    pub fn cut<const N: usize>(&mut self, octets: [u8; N], count: usize) {
        const { assert!(N <= PIECE, "a piece is too long") };
        let at = self.end.min(ROOM);
        self.octets[at..at + N].copy_from_slice(&octets);
        self.end = at + count.min(N);
    }

    /// Appends a short text.
    #[inline(always)]
    pub fn word(&mut self, word: Word) {
        self.cut(word.octets, word.length.into());
    }

    /// Appends any text.
    #[inline(always)]
    pub fn text(&mut self, text: &str) {
        self.end = write_text(self.octets, self.end, text);
    }

    /// Appends a name in presentation format (RFC 1035 section 5.1), as `Display` writes it.
    #[inline(always)]
    pub fn name(&mut self, name: Name<'_>) {
        self.end = write_name(self.octets, self.end, name);
    }

    /// Appends a number in decimal.
    #[inline(always)]
    pub fn number(&mut self, number: u32) {
        // Nearly all numbers are small.
        if number < 10_000 {
            let digits = four_digits(number);
            // The last digit is always written.
            let zeros = (digits.trailing_zeros() / 8).min(3);
            let text = (digits + ZEROS as u32) >> (8 * zeros);
            self.cut(text.to_le_bytes(), 4 - zeros as usize);
        } else if number < 100_000_000 {
            let digits = eight_digits(number);
            let zeros = digits.trailing_zeros() / 8;
            let text = (digits + ZEROS) >> (8 * zeros);
            self.cut(text.to_le_bytes(), 8 - zeros as usize);
        } else {
            let (high, low) = (number / 100_000_000, number % 100_000_000);
            let text = (four_digits(high) + ZEROS as u32).to_le_bytes();
            if high > 9 {
                self.cut([text[2]], 1);
            }
            self.cut([text[3]], 1);
            self.digits(low, 8);
        }
    }

    /// Appends the last `width` digits of a number, at most eight, padded with zeros.
    #[inline(always)]
    pub fn digits(&mut self, number: u32, width: usize) {
        let width = width.min(8);
        let text = eight_digits(number % 100_000_000) + ZEROS;
        let text = text.checked_shr(8 * (8 - width as u32)).unwrap_or(0);
        self.cut(text.to_le_bytes(), width);
    }

    /// Appends the same digits without trailing zeros, as after a decimal point; nothing for 0.
    #[inline(always)]
    pub fn fraction(&mut self, number: u32, width: usize) {
        let width = width.min(8);
        let digits = eight_digits(number % 100_000_000).checked_shr(8 * (8 - width as u32));
        let digits = digits.unwrap_or(0);
        let count = 8 - digits.leading_zeros() as usize / 8;
        self.cut((digits + ZEROS).to_le_bytes(), count);
    }

    /// Appends a value with `core::fmt`, which is slow: for rare cases.
    #[inline(always)]
    pub fn display(&mut self, value: impl std::fmt::Display) {
        self.text(&value.to_string());
    }
}

/// A text of at most sixteen bytes, which is appended without a loop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Word {
    octets: [u8; PIECE],
    length: u8,
}

impl Word {
    /// Returns `None` if the text is longer.
    pub const fn new(text: &str) -> Option<Word> {
        let (text, mut octets, mut at) = (text.as_bytes(), [0; PIECE], 0);
        if text.len() > PIECE {
            return None;
        }
        while at < text.len() {
            octets[at] = text[at];
            at += 1;
        }
        let length = at as u8;
        Some(Word { octets, length })
    }
}

/// Functions too large to inline get the parts of the line, not the line itself, which thus stays in
/// registers in their callers. They return the new end.
#[inline(never)]
fn write_text(octets: &mut [u8; ROOM + PIECE], end: usize, text: &str) -> usize {
    let at = end.min(ROOM);
    let text = &text.as_bytes()[..text.floor_char_boundary(ROOM - at)];
    octets[at..at + text.len()].copy_from_slice(text);
    at + text.len()
}

#[inline(never)]
fn write_name(octets: &mut [u8; ROOM + PIECE], end: usize, name: Name<'_>) -> usize {
    let wire = name.as_wire();
    // A name of 255 bytes has at most four times as many in presentation format.
    if name.is_root() || end >= ROOM - 4 * 255 {
        octets[end.min(ROOM)] = b'.';
        return end.min(ROOM) + 1;
    }
    // Nearly every name is plain. Then its text is the wire format shifted by one byte, with dots for
    // lengths; the root's length becomes the final dot.
    let text = &wire[1..];
    let new_end = end + text.len();
    octets[new_end..new_end + 8].fill(b'a');
    match text.last_chunk::<8>() {
        // The last eight bytes again, so that no remainder is left.
        Some(last) => {
            for (index, eight) in text.as_chunks::<8>().0.iter().enumerate() {
                octets[end + 8 * index..][..8].copy_from_slice(eight);
            }
            octets[new_end - 8..new_end].copy_from_slice(last);
        }
        None => octets[end..new_end].copy_from_slice(text),
    }
    let (mut dot, mut labels) = (end + usize::from(wire[0]), 0);
    while dot < new_end {
        let length = usize::from(octets[dot]);
        octets[dot] = b'.';
        labels += 1;
        dot += 1 + length;
    }
    let (mut odd, mut dots) = (0, 0);
    for at in (end..new_end).step_by(8) {
        let eight = eight_at(octets, at);
        odd |= not_plain(eight);
        dots += (!other_than(eight, b'.') & HIGH).count_ones();
    }
    // A dot within a label makes one too many.
    if odd == 0 && dots == labels {
        return new_end;
    }
    let mut escaped = Vec::with_capacity(4 * wire.len());
    name.write_text(&mut escaped);
    octets[end..end + escaped.len()].copy_from_slice(&escaped);
    end + escaped.len()
}

#[inline(always)]
#[expect(clippy::expect_used, reason = "the range is eight octets long")]
fn eight_at(octets: &[u8; ROOM + PIECE], at: usize) -> u64 {
    let at = at.min(ROOM);
    u64::from_le_bytes(octets[at..at + 8].try_into().expect("eight octets"))
}

const ONES: u64 = u64::from_le_bytes([1; 8]);
const HIGH: u64 = ONES * 0x80;

/// The bytes, of eight, that may need an escape in a name: their high bits are set. Safe are `*` to `:`, and
/// `]` to `~`; the caller must check for dots.
#[inline(always)]
fn not_plain(octets: u64) -> u64 {
    // With the high bits off, sums do not carry into the next byte; a sum's high bit is set from `least`
    // upwards.
    let seven = octets & !HIGH;
    let from = |least: u8| seven + ONES * u64::from(0x80 - least);
    let low = from(b'*') & !from(b':' + 1);
    let high = from(b']') & !from(b'~' + 1);
    (octets | !(low | high)) & HIGH
}

/// Sets the high bits of the bytes that differ from `octet`, if they are below 128.
#[inline(always)]
fn other_than(octets: u64, octet: u8) -> u64 {
    ((octets & !HIGH) ^ (ONES * u64::from(octet))) + ONES * 0x7f
}

const ZEROS: u64 = u64::from_le_bytes([b'0'; 8]);

/// The eight decimal digits of a number below 10⁸, the first in the lowest byte. Divides halves, then
/// quarters, then digits in parallel within one word; the factors replace divisions by 100 and by 10.
#[inline(always)]
fn eight_digits(number: u32) -> u64 {
    let halves = u64::from(number / 10_000) | (u64::from(number % 10_000) << 32);
    let hundreds = ((halves * 10_486) >> 20) & 0x0000_007f_0000_007f;
    let quarters = hundreds | ((halves - 100 * hundreds) << 16);
    let tens = ((quarters * 103) >> 10) & 0x000f_000f_000f_000f;
    tens | ((quarters - 10 * tens) << 8)
}

/// The four decimal digits of a number below 10 000.
#[inline(always)]
fn four_digits(number: u32) -> u32 {
    let hundreds = (number * 5_243) >> 19;
    let quarters = hundreds | ((number - 100 * hundreds) << 16);
    let tens = ((quarters * 103) >> 10) & 0x000f_000f;
    tens | ((quarters - 10 * tens) << 8)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test::line as written;

    #[test]
    fn numbers() {
        let edges = (0..10).flat_map(|digits| [10u32.pow(digits) - 1, 10u32.pow(digits)]);
        let spread = (0..u32::MAX).step_by(400_009);
        for value in edges.chain(spread).chain([u32::MAX]) {
            assert_eq!(written(|line| line.number(value)), value.to_string());
        }
        for value in (0..1_000_000).step_by(70) {
            assert_eq!(written(|line| line.digits(value, 6)), format!("{value:06}"));
        }
        assert_eq!(written(|line| line.digits(12_345, 3)), "345");
        assert_eq!(written(|line| line.digits(12_345, 0)), "");
        for (value, width, text) in [
            (420, 6, "00042"),
            (500_000, 6, "5"),
            (1, 8, "00000001"),
            (0, 6, ""),
            (7, 0, ""),
        ] {
            assert_eq!(written(|line| line.fraction(value, width)), text);
        }
    }

    #[test]
    fn names_are_as_they_are_displayed() {
        let label = "eighteen-is_longer";
        for text in [
            ".".to_owned(),
            "a.".to_owned(),
            "www.example.org.".to_owned(),
            r"a\.b.c.".to_owned(),
            r"\000\255.test.".to_owned(),
            "_srv._tcp.x-1.test.".to_owned(),
            "plain+but/rare.test.".to_owned(),
            format!("{label}.{label}.12345678.123456789."),
            format!("{0}.{0}.{0}.{1}.", "z".repeat(63), "y".repeat(61)),
        ] {
            let name: crate::NameBuf = text.parse().unwrap();
            assert_eq!(written(|line| line.name(name.as_name())), text);
        }
    }

    #[test]
    fn every_octet_is_written_as_it_is_displayed() {
        for octet in 0..=u8::MAX {
            for place in 0..10 {
                let mut wire = *b"\x0aabcdefghij\x03org\0";
                wire[1 + place] = octet;
                let name = Name::from_host(&wire).unwrap();
                assert_eq!(written(|line| line.name(name)), name.to_string());
                let plain = matches!(octet, b'*'..=b':' | b']'..=b'~');
                let eight = u64::from_le_bytes([octet; 8]);
                assert_eq!(not_plain(eight), if plain { 0 } else { HIGH });
            }
        }
    }

    #[test]
    fn what_does_not_fit_is_lost_and_no_more() {
        let long = "x".repeat(ROOM + 5);
        let name: crate::NameBuf = "example.org".parse().unwrap();
        let mut lines = Lines::new();
        lines.add(|line| {
            line.text(&long);
            line.number(1);
            line.name(name.as_name());
            line.word(Word::new("sixteen octets..").unwrap());
            line.text("ä");
        });
        assert!(lines.len() <= ROOM + PIECE);
        assert!(lines.as_text().starts_with(&long[..ROOM]));
        lines.clear();
        lines.add(|line| line.text("next"));
        assert_eq!(lines.as_text(), "next\n");
    }
}
