//! The entries of a zone file and their words (RFC 1035 section 5.1).

use super::mistake::Wrong;

/// A word of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Word<'t> {
    /// As written, escapes included, without its quotes.
    pub text: &'t [u8],
    /// Whether it was in quotes.
    pub quoted: bool,
    /// Whether it follows the previous word without a space: `key="value"`.
    pub joined: bool,
}

impl Word<'_> {
    /// Whether it is `text`, unquoted and in any letter case.
    pub fn is(&self, text: &str) -> bool {
        !self.quoted && self.text.eq_ignore_ascii_case(text.as_bytes())
    }

    /// The word for messages.
    pub fn shown(&self) -> String {
        String::from_utf8_lossy(self.text).into_owned()
    }
}

/// The words of a line, or of several lines in parentheses.
#[derive(Debug, PartialEq, Eq)]
pub struct Entry<'t> {
    /// The line on which it begins, counted from 1.
    pub line: usize,
    /// Whether it begins with a blank: then its owner is that of the previous record.
    pub indented: bool,
    /// At least one.
    pub words: Vec<Word<'t>>,
}

/// Iterates over the entries of a text. After a mistake it continues with the next line.
pub struct Entries<'t> {
    text: &'t [u8],
    at: usize,
    line: usize,
}

impl<'t> Entries<'t> {
    /// Starts at the beginning.
    pub fn new(text: &'t [u8]) -> Entries<'t> {
        Entries {
            // A byte order mark, which some editors write.
            text: text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text),
            at: 0,
            line: 1,
        }
    }

    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    fn skip_comment(&mut self) {
        while self.peek().is_some_and(|octet| octet != b'\n') {
            self.at += 1;
        }
    }

    /// Moves past the end of the line.
    fn skip_line(&mut self) {
        self.skip_comment();
        if self.peek().is_some() {
            self.at += 1;
            self.line += 1;
        }
    }

    fn read(&mut self) -> Result<Option<Entry<'t>>, Wrong> {
        let mut entry = Entry {
            line: self.line,
            indented: matches!(self.peek(), Some(b' ' | b'\t')),
            words: Vec::new(),
        };
        let mut open = 0_usize;
        let mut joined = false;
        while let Some(octet) = self.peek() {
            let was_joined = std::mem::replace(&mut joined, false);
            match octet {
                b' ' | b'\t' | b'\r' => self.at += 1,
                b';' => self.skip_comment(),
                b'\n' if open == 0 => break,
                b'\n' => self.skip_line(),
                b'(' => {
                    open += 1;
                    self.at += 1;
                }
                b')' => {
                    open = open
                        .checked_sub(1)
                        .ok_or_else(|| Wrong::new("`)` has no `(` before it", "remove it"))?;
                    self.at += 1;
                }
                _ => {
                    let (text, quoted) = match octet {
                        b'"' => (self.quoted()?, true),
                        _ => (self.plain(), false),
                    };
                    entry.words.push(Word {
                        text,
                        quoted,
                        joined: was_joined,
                    });
                    joined = true;
                }
            }
        }
        if open > 0 {
            return Err(Wrong::new("`(` is never closed", "write the missing `)`"));
        }
        self.skip_line();
        Ok((!entry.words.is_empty()).then_some(entry))
    }

    /// Reads a word up to a blank or another character that cannot be part of it.
    fn plain(&mut self) -> &'t [u8] {
        let start = self.at;
        while let Some(octet) = self.peek() {
            match octet {
                b' ' | b'\t' | b'\r' | b'\n' | b'(' | b')' | b';' | b'"' => break,
                b'\\' if self.text.get(self.at + 1).is_some_and(|next| *next != b'\n') => self.at += 2,
                _ => self.at += 1,
            }
        }
        &self.text[start..self.at]
    }

    /// Reads a quoted string, which may span lines.
    fn quoted(&mut self) -> Result<&'t [u8], Wrong> {
        self.at += 1;
        let start = self.at;
        while let Some(octet) = self.peek() {
            match octet {
                b'"' => {
                    self.at += 1;
                    return Ok(&self.text[start..self.at - 1]);
                }
                b'\\' => self.at += 1,
                _ => {}
            }
            if self.peek() == Some(b'\n') {
                self.line += 1;
            }
            self.at = (self.at + 1).min(self.text.len());
        }
        Err(Wrong::new("a quote is never closed", "write the missing `\"`"))
    }
}

impl<'t> Iterator for Entries<'t> {
    /// A mistake comes with its line.
    type Item = Result<Entry<'t>, (usize, Wrong)>;

    fn next(&mut self) -> Option<Self::Item> {
        while self.at < self.text.len() {
            let line = self.line;
            match self.read() {
                Ok(Some(entry)) => return Some(Ok(entry)),
                Ok(None) => {}
                Err(wrong) => {
                    self.skip_line();
                    return Some(Err((line, wrong)));
                }
            }
        }
        None
    }
}
