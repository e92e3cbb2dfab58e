//! Writing KDL, with comments, and which word of a Corefile each line comes from.

use std::ops::Range;

use crate::config::Span;

/// A node, with what is said about it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Node {
    head: String,
    comments: Vec<String>,
    children: Vec<Node>,
    origin: Origin,
}

/// What a node comes from. It makes no difference between nodes that are the same otherwise.
#[derive(Debug, Clone, Copy, Default)]
struct Origin(Option<Span>);

impl PartialEq for Origin {
    fn eq(&self, _: &Origin) -> bool {
        true
    }
}

impl Eq for Origin {}

/// A text of nodes.
#[derive(Debug, Default)]
pub struct Document {
    /// In KDL.
    pub text: String,
    /// Parts of it and what they come from, in the order of where they end: what is inside of another comes first.
    pub origins: Vec<(Range<usize>, Span)>,
}

/// Columns of a comment.
const WIDTH: usize = 100;

impl Node {
    /// One of this name, with nothing in it.
    pub fn new(name: &str) -> Node {
        Node {
            head: name.to_owned(),
            ..Node::default()
        }
    }

    /// A string.
    pub fn text(self, text: &str) -> Node {
        self.raw(&quoted(text))
    }

    /// Strings.
    pub fn texts<'t>(self, texts: impl IntoIterator<Item = &'t str>) -> Node {
        texts.into_iter().fold(self, Node::text)
    }

    /// A value that is written as it is.
    pub fn raw(mut self, value: &str) -> Node {
        self.head.push(' ');
        self.head.push_str(value);
        self
    }

    /// A number.
    pub fn number(self, number: u64) -> Node {
        self.raw(&number.to_string())
    }

    /// `NAME="TEXT"`
    pub fn property(self, name: &str, text: &str) -> Node {
        self.raw(&format!("{name}={}", quoted(text)))
    }

    /// A node in its block.
    pub fn child(mut self, child: Node) -> Node {
        self.children.push(child);
        self
    }

    /// Nodes in its block.
    pub fn children(mut self, children: impl IntoIterator<Item = Node>) -> Node {
        self.children.extend(children);
        self
    }

    /// The same without nodes of this name in its block.
    pub fn without(mut self, name: &str) -> Node {
        self.children.retain(|child| !child.is(name));
        self
    }

    /// What it comes from, unless that is known already.
    pub fn from(mut self, span: Span) -> Node {
        self.origin.0.get_or_insert(span);
        self
    }

    /// A comment in front of it.
    pub fn comment(mut self, text: impl Into<String>) -> Node {
        self.comments.push(text.into());
        self
    }

    /// Whether this is its name.
    pub fn is(&self, name: &str) -> bool {
        self.head.split(' ').next() == Some(name)
    }

    /// Whether its first value is a string that begins so.
    pub(crate) fn begins_with(&self, text: &str) -> bool {
        let value = self.head.split_once(" \"").map(|(_, value)| value);
        value.is_some_and(|value| value.starts_with(text))
    }

    /// The same without comments, to see whether two nodes mean the same.
    pub fn bare(&self) -> Node {
        Node {
            head: self.head.clone(),
            children: self.children.iter().map(Node::bare).collect(),
            ..Node::default()
        }
    }

    /// Appends it to a text, with its comments in front of it.
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

/// Appends a comment, broken into lines.
pub(crate) fn write_comment(indent: &str, text: &str, out: &mut String) {
    let mut line = String::new();
    for word in text.split_whitespace() {
        if !line.is_empty() && indent.len() + line.len() + word.len() > WIDTH {
            out.push_str(&format!("{indent}//{line}\n"));
            line.clear();
        }
        line.push(' ');
        line.push_str(word);
    }
    out.push_str(&format!("{indent}//{line}\n"));
}

/// A string in KDL.
pub fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for character in text.chars() {
        match character {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            '\n' => quoted.push_str("\\n"),
            '\t' => quoted.push_str("\\t"),
            // What KDL does not allow in a text, or takes for the end of a line.
            _ if character.is_control()
                || ('\u{2028}'..='\u{202e}').contains(&character)
                || character == '\u{feff}' =>
            {
                quoted.push_str(&format!("\\u{{{:x}}}", u32::from(character)));
            }
            _ => quoted.push(character),
        }
    }
    quoted.push('"');
    quoted
}
