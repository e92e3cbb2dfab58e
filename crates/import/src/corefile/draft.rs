//! State shared by all zones while a configuration is drafted: the mistakes and the filters.

use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use crate::config::{Diagnostic, Span, spell_duration};

use super::blocks::PluginOption;
use super::document::Node;
use super::key;
use super::tokens::Token;

/// State shared by all zones.
#[derive(Default)]
pub struct Draft {
    pub mistakes: Vec<Diagnostic>,
    pub filters: Filters,
    /// Where relative paths start.
    pub folder: PathBuf,
    /// Where relative paths start in a block with `root`.
    pub root: PathBuf,
    /// The files that are left out until they appear; `None`: one that is not there is a mistake.
    pub awaited: Option<Vec<PathBuf>>,
}

impl Draft {
    pub fn mistake(&mut self, span: Span, problem: impl Into<String>, help: impl Into<String>) {
        self.mistakes.push(Diagnostic::new(span, problem).help(help));
    }

    /// Resolves a path in a block against its `root`.
    pub fn path(&self, text: &str) -> String {
        whole(&self.root, text)
    }

    /// Parses words as zones, and reports those that are invalid.
    pub fn zones(&mut self, words: &[Token]) -> Vec<String> {
        let mut found = Vec::new();
        for word in words {
            match key::zones(&word.text) {
                Ok(zones) => found.extend(zones),
                Err((problem, help)) => self.mistake(word.span, problem, help),
            }
        }
        found
    }

    /// Parses the only argument of an option, or reports that it needs `what`.
    pub fn argument<T>(
        &mut self,
        option: &PluginOption,
        what: &str,
        read: impl Fn(&str) -> Option<T>,
    ) -> Option<T> {
        let value = match &option.arguments[..] {
            [argument] => read(&argument.text),
            _ => None,
        };
        if value.is_none() {
            let problem = format!("`{}` needs {what}", option.name.text);
            self.mistake(option.span(), problem, "");
        }
        value
    }
}

/// Makes a relative path start at a folder, and removes `.` from it.
pub fn whole(folder: &Path, text: &str) -> String {
    let path = folder.join(text);
    let parts = path.components().filter(|part| *part != Component::CurDir);
    parts.collect::<PathBuf>().display().to_string()
}

/// Writes a duration as in our configuration: a whole number with one unit.
pub fn spelled(time: Duration) -> String {
    spell_duration(Duration::from_millis(time.as_millis() as u64))
}

/// The filters that zones use, without duplicates.
#[derive(Default)]
pub struct Filters {
    known: Vec<(String, Node)>,
    /// The plugin being translated.
    pub origin: Span,
}

impl Filters {
    /// Returns the stage that uses a filter with this configuration.
    pub fn stage(&mut self, name: &str, module: &str, config: Vec<Node>) -> Node {
        let of = |name: &str| {
            let node = Node::new("filter")
                .text(name)
                .child(Node::new("module").text(&format!("builtin:{module}")))
                .from(self.origin);
            match config.is_empty() {
                true => node,
                false => node.child(Node::new("config").children(config.clone())),
            }
        };
        if let Some((known, _)) = self.known.iter().find(|(known, node)| *node == of(known)) {
            return Node::new("use").text(known);
        }
        let taken = |name: &str| self.known.iter().any(|(known, _)| known == name);
        let mut unique = name.to_owned();
        for number in 2.. {
            if !taken(&unique) {
                break;
            }
            unique = format!("{name}-{number}");
        }
        let node = of(&unique);
        self.known.push((unique.clone(), node));
        Node::new("use").text(&unique)
    }

    /// The definitions of the filters.
    pub fn nodes(&self) -> impl Iterator<Item = Node> {
        self.known.iter().map(|(_, node)| node.clone())
    }
}
