//! Names as text: presentation format (RFC 1035 section 5.1).

use std::fmt;
use std::str::FromStr;

use super::{Name, NameBuf, push_label};

impl Name<'_> {
    /// Appends the presentation format (RFC 1035 section 5.1), with a final dot. Everything but letters,
    /// digits and plain punctuation is escaped, so the text is ASCII, without any space, control character or
    /// unescaped quote.
    pub fn write_text(self, text: &mut Vec<u8>) {
        if self.is_root() {
            text.push(b'.');
        }
        for label in self.labels() {
            for &octet in label {
                match octet {
                    _ if is_plain(octet) => text.push(octet),
                    b'!'..=b'~' => text.extend_from_slice(&[b'\\', octet]),
                    _ => {
                        let digits = [octet / 100, octet / 10 % 10, octet % 10].map(|digit| b'0' + digit);
                        text.push(b'\\');
                        text.extend_from_slice(&digits);
                    }
                }
            }
            text.push(b'.');
        }
    }
}

impl fmt::Display for Name<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = Vec::with_capacity(self.0.len());
        self.write_text(&mut text);
        f.write_str(&String::from_utf8_lossy(&text))
    }
}

impl fmt::Debug for Name<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for NameBuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.as_name(), f)
    }
}

impl fmt::Debug for NameBuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Whether a byte needs no escape in presentation format.
fn is_plain(octet: u8) -> bool {
    const PLAIN: [bool; 256] = {
        let mut plain = [false; 256];
        let mut octet = b'!';
        while octet <= b'~' {
            plain[octet as usize] = !matches!(octet, b'.' | b'\\' | b'"' | b';' | b'(' | b')' | b'@' | b'$');
            octet += 1;
        }
        plain
    };
    PLAIN[usize::from(octet)]
}

impl FromStr for NameBuf {
    type Err = NameError;

    fn from_str(text: &str) -> Result<NameBuf, NameError> {
        if text == "." {
            return Ok(NameBuf::root());
        }
        if text.is_empty() {
            return Err(NameError::Empty);
        }
        let mut wire = Vec::with_capacity(text.len() + 2);
        let mut label = Vec::new();
        let mut octets = text.bytes();
        while let Some(octet) = octets.next() {
            match octet {
                b'.' => {
                    push_label(&mut wire, &label)?;
                    label.clear();
                }
                b'\\' => label.push(unescape(&mut octets)?),
                b'!'..=b'~' => label.push(octet),
                0x80.. => return Err(NameError::NotAscii),
                _ => return Err(NameError::Blank),
            }
        }
        if !label.is_empty() {
            push_label(&mut wire, &label)?;
        }
        wire.push(0);
        NameBuf::bounded(wire)
    }
}

/// Parses an escape after its backslash: three decimal digits, or the character itself.
fn unescape(octets: &mut std::str::Bytes<'_>) -> Result<u8, NameError> {
    let first = octets.next().ok_or(NameError::BadEscape)?;
    if !first.is_ascii_digit() {
        return if first.is_ascii_graphic() {
            Ok(first)
        } else {
            Err(NameError::BadEscape)
        };
    }
    let mut value = u16::from(first - b'0');
    for _ in 0..2 {
        match octets.next() {
            Some(digit @ b'0'..=b'9') => value = value * 10 + u16::from(digit - b'0'),
            _ => return Err(NameError::BadEscape),
        }
    }
    u8::try_from(value).map_err(|_| NameError::BadEscape)
}

/// Why a text is not a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum NameError {
    /// The text is empty.
    Empty,
    /// Two dots in a row, or a leading dot.
    EmptyLabel,
    /// A label of more than 63 bytes.
    LabelTooLong,
    /// More than 255 bytes in all.
    TooLong,
    /// A backslash that neither a character nor three digits up to 255 follow.
    BadEscape,
    /// A character outside ASCII.
    NotAscii,
    /// An unescaped space or control character.
    Blank,
}

impl fmt::Display for NameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            NameError::Empty => "the text is empty; the root is written \".\"",
            NameError::EmptyLabel => "there is nothing between two dots, or before the first",
            NameError::LabelTooLong => "a label may have 63 octets at most",
            NameError::TooLong => "a name may have 255 octets at most",
            NameError::BadEscape => "a backslash stands before a character or three digits up to 255",
            NameError::NotAscii => "write labels outside ASCII in their xn-- form",
            NameError::Blank => "a space is written \\032 in a name",
        })
    }
}

impl std::error::Error for NameError {}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> NameBuf {
        text.parse().unwrap()
    }

    #[test]
    fn text_and_wire_form_agree() {
        assert_eq!(
            name("WWW.Example.org").as_name().as_wire(),
            b"\x03www\x07example\x03org\0"
        );
        assert_eq!(name("www.example.org."), name("www.example.org"));
        assert_eq!(name(".").as_name(), Name::ROOT);
        for text in [
            ".",
            "a.",
            r"a\.b.c.",
            r#"sp\032ace.\"q\"."#,
            r"\000\255.test.",
            "_srv._tcp.x-1.test.",
        ] {
            assert_eq!(name(text).to_string(), text);
        }
    }

    #[test]
    fn what_is_no_name_says_why() {
        let long = format!("{}.test", "a".repeat(64));
        let longer = vec!["a".repeat(63); 4].join(".");
        for (text, error) in [
            ("", NameError::Empty),
            ("a..b", NameError::EmptyLabel),
            (".a", NameError::EmptyLabel),
            ("..", NameError::EmptyLabel),
            (&long, NameError::LabelTooLong),
            (&longer, NameError::TooLong),
            ("a\\", NameError::BadEscape),
            ("a\\25", NameError::BadEscape),
            ("a\\256", NameError::BadEscape),
            ("bücher.test", NameError::NotAscii),
            ("a b", NameError::Blank),
        ] {
            assert_eq!(text.parse::<NameBuf>(), Err(error), "{text:?}");
        }
        // 63 + 63 + 63 + 61 bytes and five lengths make 255: just short enough.
        let full = [63, 63, 63, 61].map(|length| "a".repeat(length)).join(".");
        assert_eq!(name(&full).as_name().as_wire().len(), 255);
        assert_eq!(name(&full).as_name().child("b"), Err(NameError::TooLong));
    }
}
