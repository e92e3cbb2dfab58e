//! Parses text into a KDL document.
//!
//! The parser recurses once for each nested block and comment, and once for each point where it resumes after
//! an error. So that no file can overflow the stack, a scan limits the nesting first, and the parser then
//! runs on a thread whose stack suits the worst text of this length. The scan also reports strings, comments
//! and blocks without an end, and points at their start, which the parser cannot do.

use std::thread;

use kdl::KdlDocument;

use super::error::{Diagnostic, Span};

/// Size limit of a text in bytes: that of a Kubernetes ConfigMap.
pub(super) const MAX_TEXT: usize = 1024 * 1024;

/// The deepest nesting of blocks and comments.
const MAX_DEPTH: usize = 32;

/// The most errors reported: a text with more is not a configuration.
const MOST_ERRORS: usize = 20;

/// The smallest stack, in bytes.
const STACK: usize = 8 * 1024 * 1024;

/// Stack for each byte that may open a block or comment, and for each other byte. With kdl 6.7.1 on x86-64,
/// an optimised build needs 6.8 KiB for a block, 2.4 KiB for a comment and 0.6 KiB for an error; a debug
/// build needs five times as much. This is only address space until a text makes the parser recurse.
const STACK_PER_BYTE: (usize, usize) = if cfg!(debug_assertions) {
    (40 * 1024, 5 * 1024)
} else {
    (8 * 1024, 1024)
};

/// Parses `text` as KDL 2.
pub(super) fn document(text: &str) -> Result<KdlDocument, Vec<Diagnostic>> {
    if text.len() > MAX_TEXT {
        let problem = format!("the file is too large: at most {MAX_TEXT} bytes are read");
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
        // A panic is a bug in the parser, and must not end the proxy.
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

/// An unclosed block or comment.
enum Open<'a> {
    /// With the name of the node that the block belongs to.
    Block(&'a str),
    Comment,
}

/// Reports strings, comments and blocks without an end or nested too deeply, and misplaced properties.
fn scan(text: &str) -> Result<(), Vec<Diagnostic>> {
    let mut scan = Scan {
        text,
        at: 0,
        place: Place::Beginning,
        node: "",
        open: Vec::new(),
        strings: Vec::new(),
        blocks: Vec::new(),
    };
    while scan.at < text.len() && scan.strings.len() + scan.blocks.len() < MOST_ERRORS {
        scan.step();
        if scan.open.len() > MAX_DEPTH {
            let span = Span::from(scan.at - 1..scan.at);
            let problem = format!("blocks and comments are nested more than {MAX_DEPTH} deep");
            return Err(vec![Diagnostic::new(span, problem)]);
        }
    }
    scan.finish()
}

/// The position of a scan within a node.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    /// A node may start here.
    Beginning,
    Node,
    /// After a backslash: the end of the line does not end the node.
    Continued,
}

/// A text that is being scanned.
struct Scan<'a> {
    text: &'a str,
    /// Offset of the next byte.
    at: usize,
    place: Place,
    /// The name of the last node.
    node: &'a str,
    /// What is open, and the offset of its start.
    open: Vec<(Open<'a>, usize)>,
    /// Mistakes in strings.
    strings: Vec<Diagnostic>,
    /// Mistakes in blocks, comments and properties.
    blocks: Vec<Diagnostic>,
}

impl Scan<'_> {
    /// Skips a string, a line comment, the name of a node, or a byte or two.
    fn step(&mut self) {
        let rest = &self.text.as_bytes()[self.at..];
        let in_comment = matches!(self.open.last(), Some((Open::Comment, _)));
        self.at += if rest.starts_with(b"/*") {
            self.open.push((Open::Comment, self.at));
            2
        } else if in_comment && rest.starts_with(b"*/") {
            self.open.pop();
            2
        } else if in_comment {
            1
        } else if rest.starts_with(b"//") {
            let end = (0..rest.len()).find(|&end| newline(&rest[end..]));
            end.unwrap_or(rest.len())
        } else if rest.starts_with(b"/-") {
            2
        } else if let Some(string) = quoted(rest) {
            self.place = Place::Node;
            self.string(&string);
            string.length
        } else if self.place == Place::Beginning && word(rest) > 0 {
            self.begin(word(rest))
        } else {
            self.mark(rest);
            self.text[self.at..].chars().next().map_or(1, char::len_utf8)
        };
    }

    /// Starts a node with a name of `length` bytes, or reports a property. Returns how many bytes to skip.
    fn begin(&mut self, length: usize) -> usize {
        self.place = Place::Node;
        let text = &self.text[self.at..];
        let (name, behind) = text.split_at(length);
        let blank = |c: char| c == ' ' || c == '\t';
        let Some(value) = behind.trim_start_matches(blank).strip_prefix('=') else {
            self.node = name;
            return length;
        };
        let value = value.trim_start_matches(blank);
        let end = match quoted(value.as_bytes()) {
            Some(string) => string.length,
            None => value
                .find(|c: char| c.is_whitespace() || "{};".contains(c))
                .unwrap_or(value.len()),
        };
        let passed = text.len() - value.len() + end;
        let value = &value[..end];
        let span = self.next(passed);
        let problem = format!("`{name}` is written as a property, and a node has to begin here");
        let help = match self.open.last() {
            Some((Open::Block(owner), _)) if !["", "config"].contains(owner) => {
                format!("write {owner} {name}={value} in front of the block, or {name} {value} in it")
            }
            _ => format!("write {name} {value}"),
        };
        self.blocks.push(Diagnostic::new(span, problem).help(help));
        passed
    }

    /// The span of the next `length` bytes.
    fn next(&self, length: usize) -> Span {
        let start = self.at;
        Span { start, length }
    }

    fn string(&mut self, string: &Quoted) {
        if string.ends {
            return;
        }
        let help = if string.multiline {
            "close it with the quotes and hashes that it begins with"
        } else {
            "close it with a quote on the same line; a string of several lines begins and ends with \"\"\""
        };
        let span = self.next(string.length);
        let unterminated = Diagnostic::new(span, "unterminated string").label("opened here");
        self.strings.push(unterminated.help(help));
    }

    /// Handles the characters that end or start a node or block.
    fn mark(&mut self, rest: &[u8]) {
        let octet = rest[0];
        let blank = octet == b' ' || octet == b'\t';
        self.place = match (self.place, octet) {
            (place, _) if blank => place,
            (_, b'{' | b'}' | b';') => Place::Beginning,
            (_, b'\\') => Place::Continued,
            (Place::Continued, _) => Place::Node,
            (Place::Beginning, b'(' | b')') => Place::Beginning,
            _ if newline(rest) => Place::Beginning,
            _ => Place::Node,
        };
        match octet {
            b'{' => self.open.push((Open::Block(self.node), self.at)),
            b'}' if self.open.pop().is_none() => {
                let stray = Diagnostic::new(self.next(1), "unmatched `}`");
                self.blocks
                    .push(stray.help("remove it, or open the block with `{`"));
            }
            _ => {}
        }
    }

    /// Reports what is still open.
    fn finish(mut self) -> Result<(), Vec<Diagnostic>> {
        // If the scan gave up early, the rest of the text may close it.
        if self.at < self.text.len() {
            self.open.clear();
        }
        for (what, start) in self.open {
            let (length, problem, help) = match what {
                Open::Block(_) => (1, "unclosed `{`", "close it with `}`"),
                Open::Comment => (2, "unterminated comment", "close it with `*/`"),
            };
            let unclosed = Diagnostic::new(Span { start, length }, problem).label("opened here");
            self.blocks.push(unclosed.help(help));
        }
        // After a string without an end, braces prove nothing.
        match (self.strings.is_empty(), self.blocks.is_empty()) {
            (true, true) => Ok(()),
            (true, false) => Err(self.blocks),
            (false, _) => Err(self.strings),
        }
    }
}

/// Whether `bytes` start with a KDL line break: CR, LF, NEL, VT, FF, LS or PS.
fn newline(bytes: &[u8]) -> bool {
    matches!(
        bytes,
        [b'\n' | b'\r' | 0x0b | 0x0c, ..] | [0xc2, 0x85, ..] | [0xe2, 0x80, 0xa8 | 0xa9, ..]
    )
}

/// The length of the plain name at the start of `bytes`.
fn word(bytes: &[u8]) -> usize {
    let ends = |at: &usize| {
        let rest = &bytes[*at..];
        newline(rest) || b" \t(){}[]/\\\"#;=".contains(&rest[0])
    };
    (0..bytes.len()).find(ends).unwrap_or(bytes.len())
}

/// A string literal at the start of a text.
struct Quoted {
    length: usize,
    multiline: bool,
    ends: bool,
}

/// Finds the string at the start of `bytes`: `"…"`, `"""…"""`, or either between hashes.
fn quoted(bytes: &[u8]) -> Option<Quoted> {
    let hashes = bytes.iter().take_while(|&&byte| byte == b'#').count();
    let quotes = match &bytes[hashes..] {
        [b'"', b'"', b'"', ..] => 3,
        [b'"', ..] => 1,
        _ => return None,
    };
    let multiline = quotes == 3;
    let found = |length, ends| {
        Some(Quoted {
            length,
            multiline,
            ends,
        })
    };
    let mut at = hashes + quotes;
    while at < bytes.len() {
        let rest = &bytes[at..];
        let closes = rest.iter().take_while(|&&byte| byte == b'"').count() >= quotes
            && rest[quotes..].iter().take_while(|&&byte| byte == b'#').count() >= hashes;
        match rest[0] {
            _ if closes => return found(at + quotes + hashes, true),
            _ if !multiline && newline(rest) => return found(at, false),
            // An escape, except in raw strings. An escaped line break is allowed even in a single-line
            // string.
            b'\\' if hashes == 0 => at += 2,
            _ => at += 1,
        }
    }
    found(bytes.len(), false)
}

/// Translates the parser's errors, and keeps the first on each line: the others usually follow from it.
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
        found.push(Diagnostic::new(Span::default(), "this is not valid KDL"));
    }
    found
}

/// Translates one parser error, or keeps its wording if there is no better one.
fn explain(text: &str, diagnostic: &kdl::KdlDiagnostic) -> Diagnostic {
    let span = Span::from(diagnostic.span);
    let rest = text.get(span.start..).unwrap_or_default();
    let word = rest
        .split(|c: char| c.is_whitespace() || "{}();=\"".contains(c))
        .next()
        .unwrap_or_default();
    let word_span = Span {
        length: word.len(),
        ..span
    };
    let unsigned = word.trim_start_matches(['+', '-']);
    if matches!(unsigned, "true" | "false" | "null" | "inf" | "nan") {
        return Diagnostic::new(word_span, format!("`{word}` needs a `#` or quotes in KDL 2"))
            .help(format!("write #{word}, or \"{word}\" if you mean the string"));
    }
    if unsigned.starts_with(|c: char| c.is_ascii_digit()) {
        return Diagnostic::new(
            word_span,
            format!("`{word}` is not a number, and a string that begins with a digit needs quotes"),
        )
        .help(format!("write \"{word}\""));
    }
    if diagnostic.message.as_deref() == Some("Expected end of document") {
        return Diagnostic::new(span, "this is not allowed here")
            .label("the node ends before this")
            .help(
                "start a new node on a new line or after `;`; a string with special characters needs quotes",
            );
    }
    let message = diagnostic.message.as_deref().unwrap_or("this is not valid KDL");
    let help = diagnostic.help.as_deref().unwrap_or_default();
    Diagnostic::new(span, format!("syntax: {message}")).help(help)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The number of mistakes in `text`.
    fn mistakes(text: &str) -> usize {
        document(text).expect_err(text).len()
    }

    /// Braces in texts and comments, and properties in their own places.
    #[test]
    fn what_looks_like_a_mistake_is_none() {
        for text in [
            r##"a "{" #"}}"}"# /* { /* { */ */ b=1 // {"##,
            "a \"\"\"\n  {{ \"\n  \"\"\"",
            "a #\"\"\"\n  \"#{\n  \"\"\"#",
            r#"a "\"{" "\\""#,
            "/- a { b }\nc { /- d \"{\" }",
            "a \\\n  b=1",
            "a \\ // so\n  b=1 { c }",
            "(u8)a b=1",
            "/- a b=1\n\"a\" b=1; c /* d */ e=\"=\" f=#true",
        ] {
            document(text).unwrap_or_else(|found| panic!("{text}: {found:?}"));
        }
    }

    #[test]
    fn a_flood_of_errors_is_cut() {
        assert_eq!(mistakes(&format!("a {{ {}", "}\n".repeat(1000))), MOST_ERRORS);
        assert_eq!(mistakes(&"a =\n".repeat(1000)), MOST_ERRORS);
    }

    #[test]
    fn nesting_and_errors_without_end_do_not_overflow_the_stack() {
        let n = 20_000;
        for text in [
            "{", "a {\n", "/*", "a/-{", "}", "=", "a =\n", "a{}x", "\"", "(", "/-", "\"\\q {",
        ] {
            document(&text.repeat(n)).expect_err(text);
        }
        // Braces inside what only the scan takes for a string.
        document(&format!("\"\\q {}\"", "{".repeat(n))).unwrap_err();
        let deep = |n: usize| format!("{}{}", "a {\n".repeat(n), "}\n".repeat(n));
        document(&deep(MAX_DEPTH)).unwrap();
        assert_eq!(mistakes(&deep(MAX_DEPTH + 1)), 1);
    }

    #[test]
    fn a_text_that_is_too_long_is_not_parsed() {
        assert_eq!(mistakes(&"\n".repeat(MAX_TEXT + 1)), 1);
        document(&"\n".repeat(MAX_TEXT)).unwrap();
    }
}
