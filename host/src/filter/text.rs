//! Text that a guest wrote, made fit for terminals and log collectors.

use std::fmt::{self, Write};

/// Octets of a log line.
pub(super) const LOG_LINE: usize = 1024;

/// Appends `text` with every control character but those in `keep` escaped, so that a filter cannot move the
/// cursor, recolour the terminal or forge another line.
pub(super) fn escape_into(out: &mut impl Write, text: &str, keep: &[char]) {
    // Log lines by the million are printable ASCII. Without a way out of the loop, it is done sixteen octets
    // at a time.
    let keep_newlines = keep.contains(&'\n');
    let plain = |octet: u8| matches!(octet, b' '..=b'~') | (keep_newlines & (octet == b'\n'));
    if text.bytes().fold(true, |all, octet| all & plain(octet)) {
        // Whatever it is appended to here takes everything.
        let _ = out.write_str(text);
        return;
    }
    for character in text.chars() {
        let _ = if character.is_control() && !keep.contains(&character) {
            write!(out, "{}", character.escape_default())
        } else {
            out.write_char(character)
        };
    }
}

/// One line of at most `limit` octets before escaping; a longer one ends in an ellipsis.
pub fn one_line(text: &str, limit: usize) -> String {
    let text = text.trim_end();
    let cut = &text[..text.floor_char_boundary(limit)];
    let mut line = String::with_capacity(cut.len());
    escape_into(&mut line, cut, &[]);
    if cut.len() < text.len() {
        line.push('…');
    }
    line
}

/// An error's text, which may quote names that the module chose.
pub(super) fn in_words(error: &impl fmt::Display) -> String {
    one_line(&format!("{error:#}"), 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_spelt_out() {
        assert_eq!(
            one_line("a\x1b[31mb\nc\u{9b}\t\u{7f}", 100),
            "a\\u{1b}[31mb\\nc\\u{9b}\\t\\u{7f}"
        );
    }

    #[test]
    fn cuts_between_characters() {
        assert_eq!(one_line("ααα", 3), "α…");
        assert_eq!(one_line("ααα", 6), "ααα");
    }
}
