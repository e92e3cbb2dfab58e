//! Hexadecimal text.

/// Returns two lowercase digits per byte.
pub fn digits(octets: &[u8]) -> String {
    octets.iter().map(|octet| format!("{octet:02x}")).collect()
}

/// Parses hexadecimal digits of either case; `None` if the text is anything else.
pub fn octets(digits: &str) -> Option<Vec<u8>> {
    let digits: Option<Vec<u8>> = digits
        .chars()
        .map(|c| c.to_digit(16).and_then(|digit| u8::try_from(digit).ok()))
        .collect();
    let digits = digits.filter(|digits| digits.len() % 2 == 0)?;
    let pairs = digits.chunks_exact(2);
    Some(pairs.map(|pair| pair[0] << 4 | pair[1]).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn octets_are_what_their_digits_say() {
        for known in [&[][..], &[0], &[0x0f, 0xf0, 0xab]] {
            assert_eq!(octets(&digits(known)).as_deref(), Some(known));
        }
        assert_eq!(octets("AbcD").as_deref(), Some(&[0xab, 0xcd][..]));
        for other in ["a", "+1", "0x", " 1", "1é"] {
            assert_eq!(octets(other), None, "{other}");
        }
    }
}
