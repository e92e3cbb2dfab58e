//! Writes the fields of a line. By hand, since a busy server feels it: `core::fmt` takes several times as
//! long for a number.
//!
//! Short texts and numbers are written as a fixed count of octets, then cut to length. That is a store or two,
//! where copying the right count is a loop or, in WebAssembly, a call out of the sandbox.

use std::io::Write as _;
use std::net::IpAddr;
use std::time::Duration;

use dnsweir_filter::Name;

/// A text of at most sixteen octets.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Word {
    octets: [u8; 16],
    length: u8,
}

impl Word {
    /// None if the text is longer.
    pub const fn new(text: &str) -> Option<Word> {
        let (text, mut octets, mut at) = (text.as_bytes(), [0; 16], 0);
        if text.len() > octets.len() {
            return None;
        }
        while at < text.len() {
            octets[at] = text[at];
            at += 1;
        }
        let length = at as u8;
        Some(Word { octets, length })
    }

    /// Appends it.
    #[inline(always)]
    pub fn write(&self, line: &mut Vec<u8>) {
        append(self.octets, self.length.into(), line);
    }
}

/// Appends the first octets of some.
#[inline(always)]
fn append<const N: usize>(octets: [u8; N], count: usize, line: &mut Vec<u8>) {
    let end = line.len() + count;
    line.extend_from_slice(&octets);
    line.truncate(end);
}

/// The eight decimal digits of a number below 10⁸, the first in the lowest octet. Halves, then quarters, then
/// digits are divided next to each other in one word; the factors stand for divisions by 100 and by 10.
fn digits(number: u32) -> u64 {
    let halves = u64::from(number / 10_000) | (u64::from(number % 10_000) << 32);
    let hundreds = ((halves * 10_486) >> 20) & 0x0000_007f_0000_007f;
    let quarters = hundreds | ((halves - 100 * hundreds) << 16);
    let tens = ((quarters * 103) >> 10) & 0x000f_000f_000f_000f;
    tens | ((quarters - 10 * tens) << 8)
}

/// The same for the four digits of a number below 10 000.
fn four_digits(number: u32) -> u32 {
    let hundreds = (number * 5_243) >> 19;
    let quarters = hundreds | ((number - 100 * hundreds) << 16);
    let tens = ((quarters * 103) >> 10) & 0x000f_000f;
    tens | ((quarters - 10 * tens) << 8)
}

const ZEROS: u64 = u64::from_le_bytes([b'0'; 8]);

/// Decimal digits.
pub fn number(number: u32, line: &mut Vec<u8>) {
    // Nearly all numbers are small.
    if number < 10_000 {
        let digits = four_digits(number);
        // At least the last digit counts.
        let zeros = (digits.trailing_zeros() / 8).min(3);
        let text = (digits + ZEROS as u32) >> (8 * zeros);
        return append(text.to_le_bytes(), 4 - zeros as usize, line);
    }
    if number >= 100_000_000 {
        self::number(number / 100_000_000, line);
        return padded(number % 100_000_000, 8, line);
    }
    let digits = digits(number);
    let zeros = digits.trailing_zeros() / 8;
    let text = (digits + ZEROS) >> (8 * zeros);
    append(text.to_le_bytes(), 8 - zeros as usize, line);
}

/// The last `width` of eight digits, zeros in front.
fn padded(number: u32, width: usize, line: &mut Vec<u8>) {
    let text = (digits(number) + ZEROS) >> (8 * (8 - width));
    append(text.to_le_bytes(), width, line);
}

/// An address without brackets.
pub fn address(address: IpAddr, line: &mut Vec<u8>) {
    match address {
        IpAddr::V4(address) => {
            for (index, octet) in address.octets().into_iter().enumerate() {
                if index > 0 {
                    line.push(b'.');
                }
                number(octet.into(), line);
            }
        }
        // Writing to a Vec cannot fail.
        IpAddr::V6(address) => drop(write!(line, "{address}")),
    }
}

/// A registered name, or the prefix and the number.
pub fn code(name: Option<&str>, prefix: &str, code: u16, line: &mut Vec<u8>) {
    match name {
        Some(name) => line.extend_from_slice(name.as_bytes()),
        None => {
            line.extend_from_slice(prefix.as_bytes());
            number(code.into(), line);
        }
    }
}

/// Seconds as a decimal, to the microsecond and no longer than necessary: `0.00042`.
pub fn seconds(duration: Duration, line: &mut Vec<u8>) {
    number(u32::try_from(duration.as_secs()).unwrap_or(u32::MAX), line);
    let micros = duration.subsec_micros();
    if micros > 0 {
        // Six digits, and as many as there are behind the last that is not zero.
        let fraction = digits(micros) >> 16;
        let zeros = fraction.leading_zeros() / 8 - 2;
        line.push(b'.');
        append((fraction + ZEROS).to_le_bytes(), 6 - zeros as usize, line);
    }
}

/// UTC to the millisecond: `2026-08-21T09:30:00.250Z` (RFC 3339 section 5.6).
pub fn time(since_epoch: Duration, line: &mut Vec<u8>) {
    let seconds = since_epoch.as_secs();
    let (year, month, day) = date(seconds / 86_400);
    let second = (seconds % 86_400) as u32;
    padded(year, 4, line);
    for (before, value, width) in [
        (b'-', month, 2),
        (b'-', day, 2),
        (b'T', second / 3600, 2),
        (b':', second / 60 % 60, 2),
        (b':', second % 60, 2),
        (b'.', since_epoch.subsec_millis(), 3),
    ] {
        line.push(before);
        padded(value, width, line);
    }
    line.push(b'Z');
}

/// Year, month and day of a day since 1970-01-01, in the Gregorian calendar. Counts in eras of 400 years
/// that begin in March, so that the leap day is the last of its year.
fn date(days: u64) -> (u32, u32, u32) {
    let shifted = days + 719_468; // from 0000-03-01 to 1970-01-01
    let day_of_era = shifted % 146_097;
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 {
        month_from_march + 3
    } else {
        month_from_march - 9
    };
    let year = year_of_era + shifted / 146_097 * 400 + u64::from(month <= 2);
    (year as u32, month as u32, day as u32)
}

/// The names of the flags that are set (RFC 1035 section 4.1.1, RFC 4035 section 3).
pub fn flags(header: u16, separator: Word, line: &mut Vec<u8>) {
    let mut first = true;
    for (bit, name) in FLAGS {
        if header & bit != 0 {
            if !first {
                separator.write(line);
            }
            first = false;
            name.write(line);
        }
    }
}

const FLAGS: [(u16, Word); 8] = [
    (0x8000, word("qr")),
    (0x0400, word("aa")),
    (0x0200, word("tc")),
    (0x0100, word("rd")),
    (0x0080, word("ra")),
    (0x0040, word("z")),
    (0x0020, word("ad")),
    (0x0010, word("cd")),
];

/// A word written here.
pub const fn word(text: &str) -> Word {
    Word::new(text).expect("it is short")
}

/// A name as a JSON string. Presentation format is printable ASCII; backslash and quote are what JSON
/// wants escaped in it.
pub fn quoted_name(name: Name<'_>, line: &mut Vec<u8>) {
    line.push(b'"');
    let start = line.len();
    name.write_text(line);
    if line[start..].contains(&b'\\') {
        for octet in line.split_off(start) {
            if matches!(octet, b'\\' | b'"') {
                line.push(b'\\');
            }
            line.push(octet);
        }
    }
    line.push(b'"');
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(write: impl FnOnce(&mut Vec<u8>)) -> String {
        let mut line = Vec::new();
        write(&mut line);
        String::from_utf8(line).unwrap()
    }

    #[test]
    fn numbers() {
        let edges = (0..10).flat_map(|digits| [10u32.pow(digits) - 1, 10u32.pow(digits)]);
        let spread = (0..u32::MAX).step_by(40_009);
        for value in edges.chain(spread).chain([u32::MAX]) {
            assert_eq!(written(|line| number(value, line)), value.to_string());
        }
        for value in (0..1_000_000).step_by(7) {
            assert_eq!(written(|line| padded(value, 6, line)), format!("{value:06}"));
        }
    }

    #[test]
    fn durations() {
        for (micros, text) in [
            (0, "0"),
            (1, "0.000001"),
            (420, "0.00042"),
            (1_000_000, "1"),
            (12_340_000, "12.34"),
        ] {
            assert_eq!(written(|line| seconds(Duration::from_micros(micros), line)), text);
        }
    }

    #[test]
    fn times() {
        for (millis, text) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z"),
            (951_868_799_999, "2000-02-29T23:59:59.999Z"),
            (1_767_225_599_001, "2025-12-31T23:59:59.001Z"),
            (4_107_542_400_000, "2100-03-01T00:00:00.000Z"),
        ] {
            assert_eq!(written(|line| time(Duration::from_millis(millis), line)), text);
        }
    }
}
