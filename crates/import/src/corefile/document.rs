//! Writes KDL with comments, and records which word of a Corefile each line comes from.

use std::ops::Range;

use crate::config::Span;

/// A node with its comments.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Node {
    head: String,
    comments: Vec<String>,
    children: Vec<Node>,
    origin: Origin,
}

/// The span that a node was translated from. Ignored in comparisons of nodes.
#[derive(Debug, Clone, Copy, Default)]
struct Origin(Option<Span>);

impl PartialEq for Origin {
    fn eq(&self, _: &Origin) -> bool {
        true
    }
}

impl Eq for Origin {}

/// A KDL text.
#[derive(Debug, Default)]
pub struct Document {
    /// The text.
    pub text: String,
    /// Ranges of the text and the spans they come from, ordered by their ends: inner ranges come first.
    pub origins: Vec<(Range<usize>, Span)>,
}

/// Columns of a comment line.
const WIDTH: usize = 100;

impl Node {
    /// Makes an empty node of this name.
    pub fn new(name: &str) -> Node {
        Node {
            head: name.to_owned(),
            ..Node::default()
        }
    }

    /// Adds a string.
    pub fn text(self, text: &str) -> Node {
        self.raw(&quoted(text))
    }

    /// Adds strings.
    pub fn texts<'t>(self, texts: impl IntoIterator<Item = &'t str>) -> Node {
        texts.into_iter().fold(self, Node::text)
    }

    /// Adds a value verbatim.
    pub fn raw(mut self, value: &str) -> Node {
        self.head.push(' ');
        self.head.push_str(value);
        self
    }

    /// Adds a number.
    pub fn number(self, number: u64) -> Node {
        self.raw(&number.to_string())
    }

    /// Adds `NAME="TEXT"`.
    pub fn property(self, name: &str, text: &str) -> Node {
        self.raw(&format!("{name}={}", quoted(text)))
    }

    /// Adds a node to its block.
    pub fn child(mut self, child: Node) -> Node {
        self.children.push(child);
        self
    }

    /// Adds nodes to its block.
    pub fn children(mut self, children: impl IntoIterator<Item = Node>) -> Node {
        self.children.extend(children);
        self
    }

    /// Removes the nodes of this name from its block.
    pub fn without(mut self, name: &str) -> Node {
        self.children.retain(|child| !child.is(name));
        self
    }

    /// Sets the span it comes from, unless already set.
    pub fn from(mut self, span: Span) -> Node {
        self.origin.0.get_or_insert(span);
        self
    }

    /// Adds a comment before it.
    pub fn comment(mut self, text: impl Into<String>) -> Node {
        self.comments.push(text.into());
        self
    }

    /// Whether it has this name.
    pub fn is(&self, name: &str) -> bool {
        self.head.split(' ').next() == Some(name)
    }

    /// Whether its first value is a string that starts with `text`.
    pub(crate) fn begins_with(&self, text: &str) -> bool {
        let value = self.head.split_once(" \"").map(|(_, value)| value);
        value.is_some_and(|value| value.starts_with(text))
    }

    /// A copy without comments, to compare meanings.
    pub fn bare(&self) -> Node {
        Node {
            head: self.head.clone(),
            children: self.children.iter().map(Node::bare).collect(),
            ..Node::default()
        }
    }

    /// Appends it to a text, after its comments.
    pub fn write(&self, depth: usize, out: &mut Document) {
        let indent = "    ".repeat(depth);
        for comment in &self.comments {
            write_comment(&indent, comment, &mut out.text);
        }
        let start = out.text.len();
        out.text.push_str(&indent);
        out.text.push_str(&self.head);
        if !self.children.is_empty() {
            out.text.push_str(" {\n");
            for child in &self.children {
                child.write(depth + 1, out);
            }
            out.text.push_str(&indent);
            out.text.push('}');
        }
        if let Some(origin) = self.origin.0 {
            out.origins.push((start..out.text.len(), origin));
        }
        out.text.push('\n');
    }
}

/// Appends a comment, wrapped.
pub(crate) fn write_comment(indent: &str, text: &str, out: &mut String) {
    let replaced = |character| match is_special(character) {
        true => char::REPLACEMENT_CHARACTER,
        false => character,
    };
    let mut line = String::new();
    for word in text.split_whitespace() {
        let word: String = word.chars().map(replaced).collect();
        if !line.is_empty() && indent.len() + line.len() + word.len() > WIDTH {
            out.push_str(&format!("{indent}//{line}\n"));
            line.clear();
        }
        line.push(' ');
        line.push_str(&word);
    }
    out.push_str(&format!("{indent}//{line}\n"));
}

/// Writes a KDL string.
pub fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for character in text.chars() {
        match character {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            '\n' => quoted.push_str("\\n"),
            '\t' => quoted.push_str("\\t"),
            _ if is_special(character) => {
                quoted.push_str(&format!("\\u{{{:x}}}", u32::from(character)));
            }
            _ => quoted.push(character),
        }
    }
    quoted.push('"');
    quoted
}

/// Whether KDL forbids a character in strings and comments, or treats it as a line break.
fn is_special(character: char) -> bool {
    let moves_text =
        matches!(character, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    character.is_control() || moves_text || character == '\u{feff}'
}
