//! Reads KDL nodes and collects the mistakes in them.
//!
//! A [`Shape`] next to the code that decodes a node lists what the node may hold. [`Decoder::check`] reports
//! everything that the shape does not list, so that nothing written is silently ignored; the code then reads
//! what the shape does list. Values are read by a [`Kind`].

use std::collections::HashMap;
use std::io;
use std::ops::RangeInclusive;
use std::path::Path;

use kdl::{KdlDocument, KdlEntry, KdlNode, KdlValue};

use super::error::{Diagnostic, Report, Source, Span};
use super::files::{Files, unreadable_help};
use super::surroundings::Surroundings;
use super::{environment, syntax};

pub use super::kind::{Kind, Takes, Wrong, boolean, nearest, text, whole, word};
pub(crate) use super::kind::{fitting, parsed, path, suggestion};

/// The arguments, properties and children that a node may have.
pub struct Shape {
    /// A correct node, shown as help.
    pub example: &'static str,
    /// The number of arguments.
    pub arguments: RangeInclusive<usize>,
    /// The properties that the node may have.
    pub properties: &'static [&'static str],
    /// The nodes allowed in its block; if empty, the node has no block.
    pub children: &'static [&'static str],
    /// The subset of `children` that may be repeated.
    pub repeated: &'static [&'static str],
}

impl Shape {
    /// A node that takes only `arguments`.
    pub const fn plain(arguments: RangeInclusive<usize>, example: &'static str) -> Shape {
        Shape {
            example,
            arguments,
            properties: &[],
            children: &[],
            repeated: &[],
        }
    }

    /// The help that shows a correct node.
    pub(crate) fn help(&self) -> String {
        format!("write: {}", self.example)
    }
}

/// Decodes nodes, and collects the mistakes in them.
pub struct Decoder {
    /// Reads the files that they name.
    pub files: Files,
    /// What was read before, to check other words against.
    pub(super) around: Surroundings,
    found: Vec<Diagnostic>,
    /// Whether one of them is a node that is not allowed where it is.
    unknown: bool,
}

impl Decoder {
    /// Makes one for a configuration in `folder`, where relative paths start.
    pub(super) fn new(folder: &Path) -> Decoder {
        Decoder {
            files: Files::new(folder),
            around: Surroundings::default(),
            found: Vec::new(),
            unknown: false,
        }
    }

    /// Adds a mistake.
    pub fn push(&mut self, diagnostic: Diagnostic) {
        self.found.push(diagnostic);
    }

    /// Adds a mistake at a node, a value or another place; `help` says what would be right.
    pub fn report(&mut self, place: impl Into<Span>, problem: impl Into<String>, help: impl Into<String>) {
        self.push(Diagnostic::new(place.into(), problem).help(help));
    }

    /// Adds a mistake that repeats what is written at `first`.
    pub(crate) fn report_again(
        &mut self,
        place: impl Into<Span>,
        first: impl Into<Span>,
        problem: impl Into<String>,
        help: impl Into<String>,
    ) {
        let again = Diagnostic::new(place.into(), problem).label("again");
        self.push(again.other(first.into(), "first here").help(help));
    }

    /// Adds `value`, written at `place`, to those that were `met`, and returns whether it is new. If not, adds a
    /// mistake.
    pub(crate) fn meet<T: PartialEq>(
        &mut self,
        met: &mut Vec<(T, Span)>,
        value: T,
        place: impl Into<Span>,
        problem: String,
        help: &str,
    ) -> bool {
        let known = met.iter().find(|(known, _)| *known == value);
        let first = known.map(|(_, first)| *first);
        match first {
            Some(first) => self.report_again(place, first, problem, help),
            None => met.push((value, place.into())),
        }
        first.is_none()
    }

    /// Whether there are no mistakes so far.
    pub fn is_empty(&self) -> bool {
        self.found.is_empty()
    }

    /// Whether a node is not allowed where it is: perhaps a misspelled one, so that what should follow from it
    /// is missing elsewhere.
    pub(crate) fn has_unknown_nodes(&self) -> bool {
        self.unknown
    }

    /// Reports everything in `node` that `shape` does not list, and missing arguments.
    pub fn check(&mut self, node: &KdlNode, shape: &Shape) {
        let name = node.name().value();
        self.refuse_annotations(node, node.entries());

        let arguments = arguments(node).count();
        if arguments < *shape.arguments.start() {
            self.report(name_span(node), format!("`{name}` needs a value"), shape.help());
        }
        for entry in self::arguments(node).skip(*shape.arguments.end()) {
            let problem = match shape.arguments.end() {
                0 => format!("`{name}` takes no values"),
                1 => format!("`{name}` takes one value"),
                most => format!("`{name}` takes at most {most} values"),
            };
            let surplus = Diagnostic::new(entry.span().into(), problem).label("one too many");
            self.push(surplus.help(shape.help()));
        }

        for entry in self.refuse_repeated_properties(node) {
            let Some(key) = entry.name() else { continue };
            if !shape.properties.contains(&key.value()) {
                let problem = format!("`{name}` has no property `{}`", key.value());
                let help = suggestion(key.value(), shape.properties, shape.example);
                self.report(key.span(), problem, help);
            }
        }

        match node.children() {
            Some(block) if shape.children.is_empty() => {
                // The first node in it, or for an empty block its owner.
                let refused = block.nodes().first().unwrap_or(node);
                self.report(refused, format!("`{name}` takes no block"), shape.help());
            }
            Some(block) => self.check_block(block.nodes(), Some(name), shape.children, shape.repeated),
            None => {}
        }
    }

    /// Reports nodes that are not allowed in a block, or are repeated without permission. `owner` is the node
    /// with the block; `None` for the file itself.
    pub fn check_block(
        &mut self,
        nodes: &[KdlNode],
        owner: Option<&str>,
        allowed: &[&str],
        repeated: &[&str],
    ) {
        for (index, node) in nodes.iter().enumerate() {
            let name = node.name().value();
            if !allowed.contains(&name) {
                let problem = match owner {
                    Some(owner) => format!("`{name}` is not allowed in `{owner}`"),
                    None => format!("unknown section `{name}`"),
                };
                self.report(name_span(node), problem, suggestion(name, allowed, ""));
                self.unknown = true;
            } else if !repeated.contains(&name)
                && let Some(first) = nodes[..index]
                    .iter()
                    .find(|earlier| earlier.name().value() == name)
            {
                let problem = format!("`{name}` is written twice");
                self.report_again(node, first, problem, "keep one of them");
            }
        }
    }

    /// Reports type annotations on `node` and on the given entries of it, where none are supported.
    pub(crate) fn refuse_annotations<'k>(
        &mut self,
        node: &'k KdlNode,
        entries: impl IntoIterator<Item = &'k KdlEntry>,
    ) {
        let types = entries.into_iter().map(KdlEntry::ty).chain([node.ty()]);
        for annotation in types.flatten() {
            let problem = format!("the type annotation `({})` is not supported", annotation.value());
            self.report(annotation.span(), problem, "remove it");
        }
    }

    /// Reports repeated properties (KDL itself lets the last one win), and returns the other entries.
    pub(crate) fn refuse_repeated_properties<'k>(&mut self, node: &'k KdlNode) -> Vec<&'k KdlEntry> {
        let mut first: HashMap<&str, &KdlEntry> = HashMap::new();
        let mut once = Vec::new();
        for entry in node.entries() {
            let Some(name) = entry.name().map(|name| name.value()) else {
                continue;
            };
            if let Some(first) = first.get(name) {
                let problem = format!("`{name}` is written twice");
                self.report_again(entry, *first, problem, "keep one of them");
                continue;
            }
            first.insert(name, entry);
            once.push(entry);
        }
        once
    }

    /// Reads the value of `entry`, an argument or property; `name` is shown in the error.
    pub fn value<T>(&mut self, name: &str, entry: &KdlEntry, kind: impl Kind<T>) -> Option<T> {
        match kind(entry.value()) {
            Ok(value) => Some(value),
            Err(wrong) => {
                let problem = format!("`{name}`: {} {}", shown(entry.value()), wrong.problem);
                self.report(entry, problem, wrong.help);
                None
            }
        }
    }

    /// Reads each argument of `node`. Returns those that are right.
    pub(crate) fn values<T>(&mut self, node: &KdlNode, kind: impl Kind<T>) -> Vec<T> {
        let values = self.values_at(node, kind).into_iter();
        values.map(|(value, _)| value).collect()
    }

    /// Like [`values`](Self::values), with their spans.
    pub(crate) fn values_at<T>(&mut self, node: &KdlNode, kind: impl Kind<T>) -> Vec<(T, Span)> {
        let values = arguments(node)
            .filter_map(|entry| Some((self.value(node.name().value(), entry, &kind)?, Span::from(entry))));
        values.collect()
    }

    /// Reads the first argument of `node`, if it has one.
    pub fn argument<T>(&mut self, node: &KdlNode, kind: impl Kind<T>) -> Option<T> {
        let entry = arguments(node).next()?;
        self.value(node.name().value(), entry, kind)
    }

    /// Reads the property `name` of `node`, if it has one.
    pub fn property<T>(&mut self, node: &KdlNode, name: &str, kind: impl Kind<T>) -> Option<T> {
        let entry = property(node, name)?;
        self.value(name, entry, kind)
    }

    /// Reads the value of a node with exactly one value. Its name is the first word of `example`.
    pub fn scalar<T>(&mut self, nodes: &[KdlNode], example: &'static str, kind: impl Kind<T>) -> Option<T> {
        let name = example.split(' ').next().unwrap_or_default();
        let node = child(nodes, name)?;
        self.check(node, &Shape::plain(1..=1, example));
        self.argument(node, kind)
    }

    /// Reads the values of the node `name`; `None` if the node is missing.
    pub fn list<T>(
        &mut self,
        nodes: &[KdlNode],
        name: &str,
        shape: &Shape,
        kind: impl Kind<T>,
    ) -> Option<Vec<T>> {
        let node = child(nodes, name)?;
        self.check(node, shape);
        Some(self.values(node, kind))
    }

    /// Whether the switch `name` is on: its node is there and not followed by `#false`.
    pub fn switch(&mut self, nodes: &[KdlNode], name: &'static str) -> bool {
        let Some(node) = child(nodes, name) else {
            return false;
        };
        self.check(node, &Shape::plain(0..=1, name));
        self.argument(node, boolean).unwrap_or(true)
    }

    /// Reads the file at `path` by `read`. If it cannot be read, reports that at `place`, where it is named as a
    /// `what`; `usual` is the help for anything but a URL or a folder.
    pub(super) fn file<T>(
        &mut self,
        what: &str,
        path: &Path,
        place: impl Into<Span>,
        read: impl FnOnce(&mut Files, &Path) -> io::Result<T>,
        usual: &str,
    ) -> Option<T> {
        let content = read(&mut self.files, path);
        let problem = |error| format!("the {what} {} cannot be read: {error}", path.display());
        content
            .map_err(|error| self.report(place, problem(error), unreadable_help(path, usual)))
            .ok()
    }
}

/// Parses a document and returns what `decode` makes of its nodes. Relative paths in it start at `folder`.
///
/// # Errors
/// Every mistake found, or a syntax error in the KDL.
pub fn document<T>(
    source: &Source,
    folder: &Path,
    decode: impl FnOnce(&mut Decoder, &[KdlNode]) -> T,
) -> Result<T, Report> {
    let document = syntax::document(source.text());
    let document = document.map_err(|diagnostics| Report::new(source.clone(), diagnostics))?;
    finish(source, document, Decoder::new(folder), decode)
}

/// Like [`document`], for a parsed document and the mistakes already found in it.
///
/// # Errors
/// Every mistake.
pub(super) fn finish<T>(
    source: &Source,
    mut document: KdlDocument,
    mut decoder: Decoder,
    decode: impl FnOnce(&mut Decoder, &[KdlNode]) -> T,
) -> Result<T, Report> {
    let absent = environment::replace(&mut document);
    let spans: Vec<Span> = absent.iter().map(|mistake| mistake.span).collect();
    decoder.found.extend(absent);
    let before = decoder.found.len();
    let decoded = decode(&mut decoder, document.nodes());
    // What else is wrong with a value that is absent follows from that.
    let follows = |mistake: &Diagnostic| spans.iter().any(|span| span.includes(mistake.span));
    let others = decoder.found.split_off(before);
    decoder
        .found
        .extend(others.into_iter().filter(|mistake| !follows(mistake)));
    match decoder.found.is_empty() {
        true => Ok(decoded),
        false => Err(Report::new(source.clone(), decoder.found).with_files(decoder.files.order())),
    }
}

/// Returns the nodes in the block of `node`.
pub fn block(node: &KdlNode) -> &[KdlNode] {
    node.children().map(KdlDocument::nodes).unwrap_or_default()
}

/// Returns the first of `nodes` that is named `name`.
pub fn child<'k>(nodes: &'k [KdlNode], name: &str) -> Option<&'k KdlNode> {
    nodes.iter().find(|node| node.name().value() == name)
}

/// Returns those of `nodes` that are named `name`, in order.
pub fn named_nodes<'k>(nodes: &'k [KdlNode], name: &str) -> impl Iterator<Item = &'k KdlNode> {
    nodes.iter().filter(move |node| node.name().value() == name)
}

/// Returns the arguments of `node`, in order.
pub fn arguments(node: &KdlNode) -> impl Iterator<Item = &KdlEntry> {
    node.entries().iter().filter(|entry| entry.name().is_none())
}

/// Returns the property `name` of `node`.
pub fn property<'k>(node: &'k KdlNode, name: &str) -> Option<&'k KdlEntry> {
    node.entries()
        .iter()
        .find(|entry| entry.name().is_some_and(|key| key.value() == name))
}

/// The span of the name of `node`.
fn name_span(node: &KdlNode) -> Span {
    node.name().span().into()
}

/// The span of `node` without its block.
pub fn head(node: &KdlNode) -> Span {
    let name = name_span(node);
    let end = node
        .entries()
        .iter()
        .map(|entry| Span::from(entry.span()).end())
        .max();
    (name.start..end.unwrap_or_default().max(name.end())).into()
}

/// The span of the first value of `node`, or of the node if it has none.
pub(crate) fn value_span(node: &KdlNode) -> Span {
    arguments(node).next().map_or(head(node), Span::from)
}

impl From<&KdlNode> for Span {
    /// The span of [`head`].
    fn from(node: &KdlNode) -> Span {
        head(node)
    }
}

impl From<&KdlEntry> for Span {
    fn from(entry: &KdlEntry) -> Span {
        entry.span().into()
    }
}

/// The value as messages quote it: short, on one line.
fn shown(value: &KdlValue) -> String {
    const LONGEST: usize = 60;
    let text = match value {
        KdlValue::String(text) => format!("{text:?}"),
        other => other.to_string(),
    };
    if text.chars().count() <= LONGEST {
        return text;
    }
    text.chars().take(LONGEST).chain(['…']).collect()
}
