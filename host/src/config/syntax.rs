//! From text to a KDL document.
//!
//! The parser recurses: once for each block and comment inside another, and once for each place
//! where it picks up again after an error. So that no file can overflow the stack, nesting is
//! bounded by a scan before it, and it runs on a thread whose stack is sized for the worst that a
//! text of this length can ask for. The scan also tells strings, comments and blocks that never
//! end, and points at where they begin, which the parser cannot.

use std::thread;

use kdl::KdlDocument;

use super::error::{Diagnostic, Span};

/// The longest text that is read, in bytes: what a Kubernetes ConfigMap can hold.
pub(super) const MAX_TEXT: usize = 1024 * 1024;

/// Blocks and comments inside each other.
const MAX_DEPTH: usize = 32;

/// Errors that are looked for: after so many, this is not a configuration.
const MOST_ERRORS: usize = 20;

/// Stack that any text gets, in bytes.
const STACK: usize = 8 * 1024 * 1024;

/// Stack for each byte that may open a block or a comment, and for each other byte. Measured with
/// kdl 6.7.1 on x86-64: 6.8 KiB for a block, 2.4 KiB for a comment, 0.6 KiB for an error in an
/// optimised build, five times that in another. It is address space: only a text that recurses
/// makes memory of it.
const STACK_PER_BYTE: (usize, usize) = if cfg!(debug_assertions) {
    (40 * 1024, 5 * 1024)
} else {
    (8 * 1024, 1024)
};

/// Parses `text` as KDL 2.
pub(super) fn document(text: &str) -> Result<KdlDocument, Vec<Diagnostic>> {
    if text.len() > MAX_TEXT {
        let problem = format!(
            "the text has {} bytes, and at most {MAX_TEXT} are read",
            text.len()
        );
        return Err(vec![Diagnostic::new(Span::default(), problem)]);
    }
    scan(text)?;

    let openings = text.bytes().filter(|byte| matches!(byte, b'{' | b'/')).count();
    let stack = STACK + openings * STACK_PER_BYTE.0 + (text.len() - openings) * STACK_PER_BYTE.1;
    let parsed = thread::scope(|scope| {
        let parser = thread::Builder::new().name("kdl".into()).stack_size(stack);
        parser
            .spawn_scoped(scope, || KdlDocument::parse_v2(text))
            .map(|thread| thread.join())
    });
    match parsed {
        Ok(Ok(Ok(document))) => Ok(document),
        Ok(Ok(Err(error))) => Err(translate(text, &error)),
        // A panic in the parser is its bug, not a reason to end the proxy.
        Ok(Err(_)) => Err(vec![Diagnostic::new(
            Span::default(),
            "the KDL parser failed on this text",
        )]),
        Err(error) => {
            let problem = format!("cannot start a thread with {stack} bytes of stack to parse this: {error}");
            Err(vec![Diagnostic::new(Span::default(), problem)])
        }
    }
}

/// What is open, and where it began.
enum Open {
    Block,
    Comment,
}

/// Finds strings, comments and blocks that do not end, or lie too deep.
fn scan(text: &str) -> Result<(), Vec<Diagnostic>> {
    let bytes = text.as_bytes();
    let mut open: Vec<(Open, usize)> = Vec::new();
    let mut strings = Vec::new();
    let mut blocks = Vec::new();
    let mut at = 0;
    while at < bytes.len() && strings.len() + blocks.len() < MOST_ERRORS {
        let rest = &bytes[at..];
        let in_comment = matches!(open.last(), Some((Open::Comment, _)));
        if rest.starts_with(b"/*") {
            open.push((Open::Comment, at));
            at += 2;
        } else if in_comment {
            if rest.starts_with(b"*/") {
                open.pop();
                at += 2;
            } else {
                at += 1;
            }
        } else if rest.starts_with(b"//") {
            at += (0..rest.len())
                .find(|&end| newline(&rest[end..]))
                .unwrap_or(rest.len());
        } else if let Some(string) = quoted(rest) {
            if !string.ends {
                let span = Span {
                    start: at,
                    length: string.length,
                };
                strings.push(Diagnostic::new(span, "this text has no end").label("opened here").help(
                    if string.multiline {
                        "end it with the quotes and hashes it begins with"
                    } else {
                        "end it with a quote on the same line; a text of several lines begins and ends with \"\"\""
                    },
                ));
            }
            at += string.length;
        } else {
            match rest[0] {
                b'{' => open.push((Open::Block, at)),
                b'}' if open.pop().is_none() => {
                    let span = Span { start: at, length: 1 };
                    let stray = Diagnostic::new(span, "this `}` closes nothing");
                    blocks.push(stray.help("remove it, or open the block with `{`"));
                }
                _ => {}
            }
            at += 1;
        }
        if open.len() > MAX_DEPTH {
            let span = Span {
                start: at - 1,
                length: 1,
            };
            let deep = Diagnostic::new(span, format!("more than {MAX_DEPTH} levels inside each other"));
            return Err(vec![deep]);
        }
    }
    // What is open where the scan gave up may well be closed later.
    let unclosed = if at >= bytes.len() { open } else { Vec::new() };
    for (what, start) in unclosed {
        blocks.push(match what {
            Open::Block => Diagnostic::new(Span { start, length: 1 }, "this `{` is never closed")
                .label("opened here")
                .help("close it with `}`"),
            Open::Comment => Diagnostic::new(Span { start, length: 2 }, "this comment has no end")
                .label("opened here")
                .help("close it with `*/`"),
        });
    }
    // Where a string does not end, braces are anyone's guess.
    match (strings.is_empty(), blocks.is_empty()) {
        (true, true) => Ok(()),
        (true, false) => Err(blocks),
        (false, _) => Err(strings),
    }
}

/// Whether `bytes` begin with what ends a line in KDL: CR, LF, NEL, VT, FF, LS or PS.
fn newline(bytes: &[u8]) -> bool {
    matches!(
        bytes,
        [b'\n' | b'\r' | 0x0b | 0x0c, ..] | [0xc2, 0x85, ..] | [0xe2, 0x80, 0xa8 | 0xa9, ..]
    )
}

/// A string literal at the beginning of a text.
struct Quoted {
    length: usize,
    multiline: bool,
    ends: bool,
}

/// The string that `bytes` begin with: `"…"`, `"""…"""`, and either between hashes.
fn quoted(bytes: &[u8]) -> Option<Quoted> {
    let hashes = bytes.iter().take_while(|&&byte| byte == b'#').count();
    let quotes = match &bytes[hashes..] {
        [b'"', b'"', b'"', ..] => 3,
        [b'"', ..] => 1,
        _ => return None,
    };
    let multiline = quotes == 3;
    let mut at = hashes + quotes;
    while at < bytes.len() {
        let rest = &bytes[at..];
        let closes = rest.iter().take_while(|&&byte| byte == b'"').count() >= quotes
            && rest[quotes..].iter().take_while(|&&byte| byte == b'#').count() >= hashes;
        match rest[0] {
            _ if closes => {
                return Some(Quoted {
                    length: at + quotes + hashes,
                    multiline,
                    ends: true,
                });
            }
            _ if !multiline && newline(rest) => {
                return Some(Quoted {
                    length: at,
                    multiline,
                    ends: false,
                });
            }
            // An escape, but for raw strings; an escaped line break is whitespace and may stand
            // in a string of one line.
            b'\\' if hashes == 0 => at += 2,
            _ => at += 1,
        }
    }
    Some(Quoted {
        length: bytes.len(),
        multiline,
        ends: false,
    })
}

/// The parser's errors in the words of this proxy, the first of each line: what follows on a line
/// is the parser finding its feet.
fn translate(text: &str, error: &kdl::KdlError) -> Vec<Diagnostic> {
    let mut found: Vec<Diagnostic> = error
        .diagnostics
        .iter()
        .map(|diagnostic| explain(text, diagnostic))
        .collect();
    found.sort_by_key(|diagnostic| diagnostic.span);
    let same_line = |a: &Diagnostic, b: &Diagnostic| {
        let between = text.as_bytes().get(a.span.start..b.span.start);
        between.is_some_and(|between| !between.contains(&b'\n'))
    };
    found.dedup_by(|later, earlier| same_line(earlier, later));
    found.truncate(MOST_ERRORS);
    if found.is_empty() {
        found.push(Diagnostic::new(Span::default(), "this is not KDL"));
    }
    found
}

/// One error of the parser. Its own wording stays where nothing better is known.
fn explain(text: &str, diagnostic: &kdl::KdlDiagnostic) -> Diagnostic {
    let span = Span::from(diagnostic.span);
    let rest = text.get(span.start..).unwrap_or_default();
    let word = rest
        .split(|c: char| c.is_whitespace() || "{}();=\"".contains(c))
        .next()
        .unwrap_or_default();
    let word_span = Span {
        start: span.start,
        length: word.len(),
    };
    let unsigned = word.trim_start_matches(['+', '-']);
    if matches!(unsigned, "true" | "false" | "null" | "inf" | "nan") {
        return Diagnostic::new(word_span, format!("`{word}` needs a hash or quotes in KDL 2"))
            .help(format!("write #{word}, or \"{word}\" if you mean the text"));
    }
    if unsigned.starts_with(|c: char| c.is_ascii_digit()) {
        return Diagnostic::new(
            word_span,
            format!("`{word}` is not a number, and a text that begins with a digit needs quotes"),
        )
        .help(format!("write \"{word}\""));
    }
    if diagnostic.message.as_deref() == Some("Expected end of document") {
        return Diagnostic::new(span, "this cannot stand here")
            .label("a node has ended before this")
            .help(
                "a new node begins on a new line or after `;`; a text with special characters needs quotes",
            );
    }
    let message = diagnostic.message.as_deref().unwrap_or("this is not KDL");
    let help = diagnostic.help.as_deref().unwrap_or_default();
    Diagnostic::new(span, format!("syntax: {message}")).help(help)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mistakes(text: &str) -> Vec<(usize, String)> {
        let found = document(text).expect_err(text);
        found
            .into_iter()
            .map(|diagnostic| (diagnostic.span.start, diagnostic.message))
            .collect()
    }

    #[test]
    fn braces_in_texts_and_comments_do_not_count() {
        for text in [
            r##"a "{" #"}}"}"# /* { /* { */ */ b=1 // {"##,
            "a \"\"\"\n  {{ \"\n  \"\"\"",
            "a #\"\"\"\n  \"#{\n  \"\"\"#",
            r#"a "\"{" "\\""#,
            "/- a { b }\nc { /- d \"{\" }",
        ] {
            document(text).unwrap_or_else(|found| panic!("{text}: {found:?}"));
        }
    }

    #[test]
    fn what_never_ends_is_pointed_at_where_it_begins() {
        assert_eq!(
            mistakes("a {\n b {\n }\n"),
            [(2, "this `{` is never closed".into())]
        );
        assert_eq!(
            mistakes("a }\n}"),
            [2, 4].map(|at| (at, "this `}` closes nothing".into()))
        );
        assert_eq!(mistakes("a \"b\nc {"), [(2, "this text has no end".into())]);
        assert_eq!(
            mistakes("a \"b\u{2028}\""),
            [2, 7].map(|at| (at, "this text has no end".into()))
        );
        assert_eq!(mistakes("a \"\"\"\nb"), [(2, "this text has no end".into())]);
        assert_eq!(mistakes("a /* b"), [(2, "this comment has no end".into())]);
    }

    #[test]
    fn a_flood_of_errors_is_cut() {
        assert_eq!(
            mistakes(&format!("a {{ {}", "}\n".repeat(1000))).len(),
            MOST_ERRORS
        );
        assert_eq!(mistakes(&"a =\n".repeat(1000)).len(), MOST_ERRORS);
    }

    #[test]
    fn what_people_write_by_habit_is_explained() {
        let found = document("a true\nb 10s\nc 1.2.3.4 5.6.7.8\n").unwrap_err();
        let helps: Vec<&str> = found.iter().map(|diagnostic| diagnostic.help.as_str()).collect();
        assert_eq!(
            helps,
            [
                "write #true, or \"true\" if you mean the text",
                "write \"10s\"",
                "write \"1.2.3.4\""
            ]
        );
    }

    #[test]
    fn nesting_and_errors_without_end_do_not_overflow_the_stack() {
        let n = 20_000;
        for text in [
            "{", "a {\n", "/*", "a/-{", "}", "=", "a =\n", "a{}x", "\"", "(", "/-", "\"\\q {",
        ] {
            document(&text.repeat(n)).expect_err(text);
        }
        // Braces that only the scan takes for part of a text.
        document(&format!("\"\\q {}\"", "{".repeat(n))).unwrap_err();
        let deep = |n: usize| format!("{}{}", "a {\n".repeat(n), "}\n".repeat(n));
        document(&deep(MAX_DEPTH)).unwrap();
        assert_eq!(mistakes(&deep(MAX_DEPTH + 1)).len(), 1);
    }

    #[test]
    fn a_text_that_is_too_long_is_not_parsed() {
        assert_eq!(mistakes(&"\n".repeat(MAX_TEXT + 1)).len(), 1);
        document(&"\n".repeat(MAX_TEXT)).unwrap();
    }
}
