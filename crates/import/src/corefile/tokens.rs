//! Splits a Corefile into words, separated by whitespace or quoted.
//!
//! The rules are those of CoreDNS's parser (caddyfile): `#` starts a comment anywhere outside quotes; in
//! quotes, a backslash escapes only a quote; a quoted word may span lines.

use crate::config::Span;

/// A word and its position.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Token {
    /// The text without quotes, with environment variables replaced.
    pub text: String,
    /// The span, including quotes.
    pub span: Span,
    /// Whether it is the first on its line.
    pub begins_line: bool,
    /// Whether it is quoted; then it is never a brace, comma or `import`.
    pub quoted: bool,
}

impl Token {
    /// Whether it is this brace.
    pub fn is(&self, brace: &str) -> bool {
        self.text == brace && !self.quoted
    }
}

/// Splits a text at offset `start` in its source. As in CoreDNS, an unclosed quote ends with the text.
pub fn tokens(text: &str, start: usize) -> Vec<Token> {
    let mut found = Vec::new();
    let (bom, text) = match text.strip_prefix('\u{feff}') {
        Some(rest) => ('\u{feff}'.len_utf8(), rest),
        None => (0, text),
    };
    let start = start + bom;
    let mut begins_line = true;
    let mut rest = text.char_indices().peekable();
    while let Some((at, character)) = rest.next() {
        match character {
            '\n' => begins_line = true,
            _ if character.is_whitespace() => {}
            '#' => while rest.next_if(|(_, character)| *character != '\n').is_some() {},
            _ => {
                let quoted = character == '"';
                let word = match quoted {
                    true => quoted_word(&mut rest),
                    false => plain_word(character, &mut rest),
                };
                let end = rest.peek().map_or(text.len(), |(at, _)| *at);
                found.push(Token {
                    text: word,
                    span: (start + at..start + end).into(),
                    begins_line,
                    quoted,
                });
                begins_line = false;
            }
        }
    }
    found
}

type Characters<'a> = std::iter::Peekable<std::str::CharIndices<'a>>;

fn plain_word(first: char, rest: &mut Characters<'_>) -> String {
    let mut word = String::from(first);
    // A carriage return is dropped, but does not end the word.
    while let Some((_, character)) =
        rest.next_if(|(_, character)| *character == '\r' || !character.is_whitespace() && *character != '#')
    {
        if character != '\r' {
            word.push(character);
        }
    }
    word
}

fn quoted_word(rest: &mut Characters<'_>) -> String {
    let mut word = String::new();
    while let Some((_, character)) = rest.next() {
        match character {
            '"' => break,
            '\\' => match rest.next() {
                Some((_, '"')) => word.push('"'),
                Some((_, other)) => word.extend(['\\', other]),
                None => word.push('\\'),
            },
            _ => word.push(character),
        }
    }
    word
}

/// Replaces `{$NAME}` and `{%NAME%}` by environment variables; missing ones become empty.
pub(crate) fn replace_variables(text: &str, variable: &dyn Fn(&str) -> Option<String>) -> String {
    let mut text = text.to_owned();
    for (opening, closing) in [("{%", "%}"), ("{$", "}")] {
        let mut done = String::new();
        let mut rest = text.as_str();
        while let Some((before, after)) = rest.split_once(opening)
            && let Some((name, after)) = after.split_once(closing)
            && !name.is_empty()
        {
            done.push_str(before);
            done.push_str(&variable(name).unwrap_or_default());
            rest = after;
        }
        done.push_str(rest);
        text = done;
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<(String, bool)> {
        tokens(text, 0)
            .into_iter()
            .map(|token| (token.text, token.begins_line))
            .collect()
    }

    #[test]
    fn words_are_split_as_coredns_splits_them() {
        for (text, expected) in [
            ("a b\n c", &[("a", true), ("b", false), ("c", true)][..]),
            ("a#b\nc # d", &[("a", true), ("c", true)]),
            (
                r#"a "b c" "d\"e" "f\n""#,
                &[("a", true), ("b c", false), ("d\"e", false), ("f\\n", false)],
            ),
            ("\"a\nb\" c", &[("a\nb", true), ("c", false)]),
            ("a\r\nb{ }", &[("a", true), ("b{", true), ("}", false)]),
            ("\u{feff}a", &[("a", true)]),
            ("a \"b", &[("a", true), ("b", false)]),
            ("", &[]),
        ] {
            let expected: Vec<_> = expected
                .iter()
                .map(|(word, first)| ((*word).to_owned(), *first))
                .collect();
            assert_eq!(words(text), expected, "{text:?}");
        }
    }

    #[test]
    fn each_word_knows_its_place() {
        let text = "\u{feff}ab \"c d\"\né";
        let tokens = tokens(text, 100);
        let spans: Vec<&str> = tokens
            .iter()
            .map(|token| &text[token.span.start - 100..token.span.end() - 100])
            .collect();
        assert_eq!(spans, ["ab", "\"c d\"", "é"]);
    }

    #[test]
    fn variables_are_replaced() {
        let variable = |name: &str| (name == "A").then(|| "x".to_owned());
        for (text, expected) in [
            ("{$A}", "x"),
            ("a{%A%}b{$A}", "axbx"),
            ("{$B}c", "c"),
            ("{$}", "{$}"),
            ("{$A", "{$A"),
            ("{A}", "{A}"),
        ] {
            assert_eq!(replace_variables(text, &variable), expected, "{text}");
        }
    }
}
