//! Escapes text from others for terminals, log collectors and their readers.
//!
//! Such text must not move the cursor, forge another line, or be displayed in another order than it is
//! written in (U+202E and similar characters, as in CVE-2021-42574).

use std::fmt::{self, Write};

/// Appends `text`, with every character escaped that is neither plain nor in `keep`.
pub fn escape_into(out: &mut impl Write, text: &str, keep: &[char]) -> fmt::Result {
    // Most log lines are printable ASCII. A loop without early exit processes 16 bytes at a time.
    let keep_newlines = keep.contains(&'\n');
    let plain = |octet: u8| matches!(octet, b' '..=b'~') | (keep_newlines & (octet == b'\n'));
    if text.bytes().fold(true, |all, octet| all & plain(octet)) {
        return out.write_str(text);
    }
    // Copies the text between escapes in one piece.
    let mut rest = 0;
    for (at, character) in text.char_indices() {
        if !is_plain(character) && !keep.contains(&character) {
            out.write_str(&text[rest..at])?;
            for part in character.escape_default() {
                out.write_char(part)?;
            }
            rest = at + character.len_utf8();
        }
    }
    out.write_str(&text[rest..])
}

/// Like `escape_into`, for JSON, where a character has only one escape; its line feeds are formatting.
pub fn escape_json(out: &mut impl Write, json: &str) -> fmt::Result {
    for character in json.chars() {
        match is_plain(character) || character == '\n' {
            true => out.write_char(character)?,
            false => write!(out, "\\u{:04x}", u32::from(character))?,
        }
    }
    Ok(())
}

/// One line of at most `limit` bytes before escaping; a longer one ends in an ellipsis.
pub fn one_line(text: &str, limit: usize) -> String {
    let text = text.trim_end();
    let cut = &text[..text.floor_char_boundary(limit)];
    let mut line = String::with_capacity(cut.len());
    // Writing to a String cannot fail.
    let _ = escape_into(&mut line, cut, &[]);
    if cut.len() < text.len() {
        line.push('…');
    }
    line
}

/// An error with its causes, without repetition.
pub fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let more = error.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        cause = error.source();
    }
    text
}

/// Returns whether a character is displayed as itself and in its place.
pub fn is_plain(character: char) -> bool {
    !character.is_control() && !is_deceptive(character)
}

/// Line and paragraph separators, and direction changes (UAX #9 section 2). All have four hex digits.
fn is_deceptive(character: char) -> bool {
    matches!(
        character,
        '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}'
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_plain_is_spelt_out() {
        assert_eq!(
            one_line("a\x1b[31mb\nc\u{9b}\t\u{7f}", 100),
            "a\\u{1b}[31mb\\nc\\u{9b}\\t\\u{7f}"
        );
        assert_eq!(
            one_line("ä\u{2028}\u{2029}\u{202e}\u{2066}\u{200f}\u{61c}\u{feff}→", 100),
            "ä\\u{2028}\\u{2029}\\u{202e}\\u{2066}\\u{200f}\\u{61c}\\u{feff}→"
        );
        let mut kept = String::new();
        escape_into(&mut kept, "a\nb\u{2028}", &['\n']).unwrap();
        assert_eq!(kept, "a\nb\\u{2028}");
    }

    #[test]
    fn json_means_what_it_meant() {
        let text = "ä\u{2028}\u{202e}\u{9b}\u{feff}\"\n";
        let json = serde_json::to_string(text).unwrap();
        let mut plain = String::new();
        escape_json(&mut plain, &json).unwrap();
        assert_eq!(plain, r#""ä\u2028\u202e\u009b\ufeff\"\n""#);
        assert_eq!(serde_json::from_str::<String>(&plain).unwrap(), text);
    }

    #[test]
    fn cuts_between_characters() {
        assert_eq!(one_line("ααα", 3), "α…");
        assert_eq!(one_line("ααα", 6), "ααα");
    }
}
