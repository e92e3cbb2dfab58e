//! Writes the fields of a line.

use std::net::IpAddr;
use std::time::Duration;

use dnsweir_filter::{Line, Name, Word};

/// A constant word.
#[expect(
    clippy::expect_used,
    reason = "called for constants only, so that it would not compile"
)]
pub const fn word(text: &str) -> Word {
    Word::new(text).expect("it is short")
}

/// The decimal digits of a byte, followed by a dot.
const OCTETS: [[u8; 4]; 256] = {
    let (mut octets, mut octet) = ([[b'.'; 4]; 256], 0);
    while octet < 256 {
        let digits = [octet / 100, octet / 10 % 10, octet % 10];
        let zeros = 3 - digits_of(octet as u8);
        let mut digit = zeros;
        while digit < 3 {
            octets[octet][digit - zeros] = b'0' + digits[digit] as u8;
            digit += 1;
        }
        octet += 1;
    }
    octets
};

const fn digits_of(octet: u8) -> usize {
    1 + (octet > 9) as usize + (octet > 99) as usize
}

/// Appends an address; an IPv6 address between `before` and `after`.
#[inline(always)]
pub fn address(address: IpAddr, [before, after]: [&str; 2], line: &mut Line<'_>) {
    match address {
        IpAddr::V4(address) => {
            let [a, b, c, d] = address.octets();
            for octet in [a, b, c] {
                line.cut(OCTETS[usize::from(octet)], digits_of(octet) + 1);
            }
            line.cut(OCTETS[usize::from(d)], digits_of(d));
        }
        IpAddr::V6(address) => {
            line.text(before);
            line.display(address);
            line.text(after);
        }
    }
}

/// Appends a registered name, or else the prefix and the number.
#[inline(always)]
pub fn code(name: Option<Word>, prefix: Word, code: u16, line: &mut Line<'_>) {
    match name {
        Some(name) => line.word(name),
        None => {
            line.word(prefix);
            line.number(code.into());
        }
    }
}

/// Appends seconds as a decimal, to the microsecond and without trailing zeros: `0.00042`.
#[inline(always)]
pub fn seconds(duration: Duration, line: &mut Line<'_>) {
    line.number(u32::try_from(duration.as_secs()).unwrap_or(u32::MAX));
    let micros = duration.subsec_micros();
    if micros > 0 {
        line.cut([b'.'], 1);
        line.fraction(micros, 6);
    }
}

/// Appends UTC to the millisecond: `2026-08-21T09:30:00.250Z` (RFC 3339 section 5.6).
pub fn time(since_epoch: Duration, line: &mut Line<'_>) {
    let seconds = since_epoch.as_secs();
    let (year, month, day) = date(seconds / 86_400);
    let second = (seconds % 86_400) as u32;
    line.digits(year, 4);
    for (before, value, width) in [
        (b'-', month, 2),
        (b'-', day, 2),
        (b'T', second / 3600, 2),
        (b':', second / 60 % 60, 2),
        (b':', second % 60, 2),
        (b'.', since_epoch.subsec_millis(), 3),
    ] {
        line.cut([before], 1);
        line.digits(value, width);
    }
    line.cut([b'Z'], 1);
}

/// Converts days since 1970-01-01 to year, month and day of the Gregorian calendar. Counts in eras of 400
/// years that start in March, so that the leap day is the last of its year.
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

/// Appends the names of the flags that are set (RFC 1035 section 4.1.1, RFC 4035 section 3).
#[inline(always)]
pub fn flags(header: u16, separator: Word, line: &mut Line<'_>) {
    let mut first = true;
    for (bit, name) in FLAGS {
        if header & bit != 0 {
            if !first {
                line.word(separator);
            }
            first = false;
            line.word(name);
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

/// Appends a Kubernetes name, which has letters, digits, hyphens and dots; a name with anything else becomes
/// `?`.
pub fn plain(name: &str, line: &mut Line<'_>) {
    let is_plain = |octet: u8| octet.is_ascii_alphanumeric() || octet == b'-' || octet == b'.';
    match name.bytes().all(is_plain) {
        true => line.text(name),
        false => line.text("?"),
    }
}

/// Appends a name as a JSON string. Presentation format is printable ASCII; JSON needs only backslashes and
/// quotes escaped in it.
pub fn quoted_name(name: Name<'_>, line: &mut Line<'_>) {
    let mut text = name.to_string();
    if text.contains('\\') {
        text = text.replace('\\', "\\\\").replace('"', "\\\"");
    }
    line.cut([b'"'], 1);
    line.text(&text);
    line.cut([b'"'], 1);
}

#[cfg(test)]
mod tests {
    use dnsweir_filter::test::line as written;

    use super::*;

    #[test]
    fn addresses() {
        for text in ["0.0.0.0", "9.10.99.100", "192.0.2.1", "255.255.255.255"] {
            let parsed = text.parse().unwrap();
            assert_eq!(written(|line| address(parsed, ["[", "]"], line)), text);
        }
        let parsed = "2001:db8::1".parse().unwrap();
        assert_eq!(written(|line| address(parsed, ["[", "]"], line)), "[2001:db8::1]");
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
