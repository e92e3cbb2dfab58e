//! Binary search for a line of a sorted text by its key.

use std::cmp::Ordering;
use std::ops::Range;

/// Maximum bytes of a line. A longer one ends the search, so that no search takes long.
const LINE: usize = 4096;

/// The first line with this key, without its end; `wit/data.wit` defines which.
pub(super) fn find<'a>(text: &'a [u8], key: &[u8], separator: u8) -> Option<&'a [u8]> {
    // Lines before `low` have lower keys, lines from `high` on do not. Both are starts of lines.
    let (mut low, mut high) = (0, text.len());
    while low < high {
        let line = line_at(&text[low..high], (high - low) / 2)?;
        let start = low + line.start;
        match key_of(&text[low..][line.clone()], separator).cmp(key) {
            Ordering::Less => low = (low + line.end + 1).min(high),
            Ordering::Equal | Ordering::Greater => high = start,
        }
    }
    let line = &text[low..][line_at(&text[low..], 0)?];
    (key_of(line, separator) == key).then_some(line)
}

/// The range of the line with the byte at this index or ending there; none: the line is too long, or there is
/// no such byte.
fn line_at(text: &[u8], octet: usize) -> Option<Range<usize>> {
    let (before, after) = text.split_at_checked(octet)?;
    let nearest = &before[before.len().saturating_sub(LINE)..];
    let start = match nearest.iter().rposition(|&octet| octet == b'\n') {
        Some(end) => octet - nearest.len() + end + 1,
        None if nearest.len() == before.len() => 0,
        None => return None,
    };
    let next = &after[..after.len().min(LINE + 1)];
    let end = match next.iter().position(|&octet| octet == b'\n') {
        Some(end) => octet + end,
        None if next.len() == after.len() => text.len(),
        None => return None,
    };
    (start < text.len() && end - start <= LINE).then_some(start..end)
}

/// The part before the first separator.
fn key_of(line: &[u8], separator: u8) -> &[u8] {
    line.split(|&octet| octet == separator).next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    fn found<'a>(text: &'a str, key: &str) -> Option<&'a str> {
        find(text.as_bytes(), key.as_bytes(), b' ').map(|line| std::str::from_utf8(line).unwrap())
    }

    #[test]
    fn lines_are_found_by_their_key() {
        let text = "\na 1\nab 2\nb\nc 3 4\nc 5";
        for (key, line) in [
            ("", Some("")),
            ("a", Some("a 1")),
            ("ab", Some("ab 2")),
            ("b", Some("b")),
            ("c", Some("c 3 4")),
            ("aa", None),
            ("abc", None),
            ("d", None),
            ("c 3", None),
            ("a 1\nab", None),
        ] {
            assert_eq!(found(text, key), line, "{key:?}");
        }
        assert_eq!(found("", ""), None);
        assert_eq!(found("\n", ""), Some(""));
        assert_eq!(found("a", "a"), Some("a"));
        assert_eq!(found("a\n", "a"), Some("a"));
        assert_eq!(found("a\n", ""), None);
    }

    #[test]
    fn long_lines_end_the_search() {
        let longest = format!("b {}", "x".repeat(LINE - 2));
        let text = format!("a 1\n{longest}\nc 1\n");
        assert_eq!(found(&text, "b"), Some(longest.as_str()));
        assert_eq!(found(&text, "c"), Some("c 1"));
        let text = text.replace("b x", "b xx");
        assert_eq!(found(&text, "b"), None);
        // Whatever it contains and however large it is.
        let giant = vec![b'x'; 1 << 20];
        assert_eq!(find(&giant, b"x", b' '), None);
    }

    proptest! {
        /// Same result as a linear search.
        #[test]
        fn every_line_of_a_sorted_text_is_found(
            lines in proptest::collection::btree_map("[a-c.-]{0,6}", "[a-c ]{0,3}", 0..40),
            others in proptest::collection::vec("[a-c.-]{0,6}", 0..10),
            end in any::<bool>(),
        ) {
            let lines: BTreeMap<String, String> = lines;
            let line = |(key, rest): (&String, &String)| format!("{key} {rest}");
            let mut text = lines.iter().map(line).collect::<Vec<_>>().join("\n");
            // A lone line end is an empty line.
            if end && !lines.is_empty() {
                text.push('\n');
            }
            for key in lines.keys().chain(&others) {
                let expected = lines.get_key_value(key).map(line);
                prop_assert_eq!(found(&text, key).map(str::to_owned), expected);
            }
        }

        #[test]
        fn nothing_else_is_found_and_nothing_panics(
            text in proptest::collection::vec(prop_oneof![Just(b'\n'), Just(b' '), any::<u8>()], 0..200),
            key in proptest::collection::vec(any::<u8>(), 0..4),
        ) {
            if let Some(line) = find(&text, &key, b' ') {
                prop_assert_eq!(key_of(line, b' '), &key[..]);
                prop_assert!(!line.contains(&b'\n'));
            }
        }
    }
}
