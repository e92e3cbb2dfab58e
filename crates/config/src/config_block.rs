//! The `config` block of a filter, passed on as written in a form that needs no KDL.

use std::sync::Arc;

use kdl::{KdlEntry, KdlNode, KdlValue};

use super::data::Data;
use super::decode::{Decoder, Wrong, arguments, block, head, text};
use super::error::Span;
use super::files::{Files, TEXT_HELP};

/// A node of a `config` block.
#[derive(Debug, Clone)]
pub struct ConfigNode {
    /// Its name.
    pub name: String,
    /// The arguments, in order.
    pub arguments: Vec<ConfigValue>,
    /// The properties, in order; names are unique.
    pub properties: Vec<(String, ConfigValue)>,
    /// Index of the parent node.
    pub parent: Option<usize>,
    /// Its span, without its block.
    pub span: Span,
    /// The span of each of `arguments`.
    pub argument_spans: Vec<Span>,
    /// The span of each of `properties`.
    pub property_spans: Vec<Span>,
}

/// Where a node is written does not count.
impl PartialEq for ConfigNode {
    fn eq(&self, other: &ConfigNode) -> bool {
        self.name == other.name
            && self.parent == other.parent
            && self.arguments == other.arguments
            && self.properties == other.properties
    }
}

/// A part of a [`ConfigNode`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// The whole node.
    Node,
    /// The argument with this index.
    Argument(usize),
    /// The property with this index among the node's properties.
    Property(usize),
}

/// A value of a `config` block.
#[derive(Debug, Clone, PartialEq)]
pub enum ConfigValue {
    /// `#null`
    Null,
    /// `#true`, `#false`
    Boolean(bool),
    /// A number without a fraction.
    Integer(i64),
    /// A number with a fraction or an exponent; finite.
    Decimal(f64),
    /// A string, or the content of a text file: `(file)"PATH"`. Shared, because files may be large.
    Text(Arc<str>),
    /// A file shared with the filter instead of being copied into it: `(data)"PATH"`.
    Data(Arc<Data>),
}

/// Decodes `config`: every node in its block, in document order.
pub fn decode(decoder: &mut Decoder, node: &KdlNode) -> Vec<ConfigNode> {
    refuse_anything_but_a_block(decoder, node);
    nodes(decoder, block(node))
}

/// Decodes the nodes of a block, in document order.
pub fn nodes(decoder: &mut Decoder, nodes: &[KdlNode]) -> Vec<ConfigNode> {
    let mut flat = Vec::new();
    flatten(decoder, nodes, None, &mut flat);
    flat
}

/// Reports annotations, arguments and properties: everything for the filter belongs in the block.
fn refuse_anything_but_a_block(decoder: &mut Decoder, node: &KdlNode) {
    decoder.refuse_annotations(node, node.entries());
    if let (Some(first), Some(last)) = (node.entries().first(), node.entries().last()) {
        let span = Span::from(first).start..Span::from(last).end();
        decoder.report(span, "`config` takes nothing but a block", "write: config { … }");
    }
}

/// Appends `nodes` and their descendants to `flat`, in document order. The parser limits the depth.
fn flatten(decoder: &mut Decoder, nodes: &[KdlNode], parent: Option<usize>, flat: &mut Vec<ConfigNode>) {
    for node in nodes {
        let others = node.entries().iter().filter(|entry| !names_file(entry));
        decoder.refuse_annotations(node, others);
        let mut decoded = ConfigNode {
            name: node.name().value().to_owned(),
            arguments: Vec::new(),
            properties: Vec::new(),
            parent,
            span: head(node),
            argument_spans: Vec::new(),
            property_spans: Vec::new(),
        };
        for entry in arguments(node) {
            if let Some(value) = value(decoder, node.name().value(), entry) {
                decoded.arguments.push(value);
                decoded.argument_spans.push(entry.into());
            }
        }
        for entry in decoder.refuse_repeated_properties(node) {
            let name = entry.name().map(|name| name.value()).unwrap_or_default();
            if let Some(value) = value(decoder, name, entry) {
                decoded.properties.push((name.to_owned(), value));
                decoded.property_spans.push(entry.into());
            }
        }
        flat.push(decoded);
        let own = flat.len() - 1;
        flatten(decoder, block(node), Some(own), flat);
    }
}

/// Whether a value names a file: `(file)"PATH"`, or `(data)"PATH"`.
fn names_file(entry: &KdlEntry) -> bool {
    entry
        .ty()
        .is_some_and(|kind| ["file", "data"].contains(&kind.value()))
}

/// The value of `entry`, an argument or property; `name` is shown in the error.
fn value(decoder: &mut Decoder, name: &str, entry: &KdlEntry) -> Option<ConfigValue> {
    if !names_file(entry) {
        return decoder.value(name, entry, config_value);
    }
    let written = decoder.value(name, entry, text)?;
    let path = decoder.files.at(written);
    if entry.ty().is_some_and(|kind| kind.value() == "data") {
        let help = "name a file for which `limits data=` leaves room; a relative path begins at the configuration's folder";
        let data = decoder.file("file", &path, entry, Files::data, help);
        return data.map(ConfigValue::Data);
    }
    let content = decoder.file("file", &path, entry, Files::text, TEXT_HELP)?;
    Some(ConfigValue::Text(content.into()))
}

fn config_value(value: &KdlValue) -> Result<ConfigValue, Wrong> {
    Ok(match value {
        KdlValue::Null => ConfigValue::Null,
        KdlValue::Bool(value) => ConfigValue::Boolean(*value),
        KdlValue::String(value) => ConfigValue::Text(value.as_str().into()),
        KdlValue::Integer(value) => match i64::try_from(*value) {
            Ok(value) => ConfigValue::Integer(value),
            Err(_) => {
                let help = "write a smaller number, or put it in quotes";
                return Err(Wrong::new("does not fit into 64 bits", help));
            }
        },
        // A literal that overflows to infinity is a mistake.
        KdlValue::Float(value) if value.is_finite() => ConfigValue::Decimal(*value),
        KdlValue::Float(_) => {
            return Err(Wrong::new(
                "is not a finite number",
                "write a finite number, or put it in quotes",
            ));
        }
    })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::super::error::Diagnostic;
    use super::super::tests::{config, folder_with, parse_in};
    use super::*;

    const USED: &str = "listen \"127.0.0.1\"\nzone \".\" { use \"f\"; forward \"192.0.2.1\" }\n";

    #[test]
    fn a_value_can_be_a_file() {
        let text = "ads.example\nb\u{fc}cher.example\n";
        let folder = folder_with(&[("list.txt", text), ("other.txt", "")]);
        let [path, absolute] = ["list.txt", "other.txt"].map(|name| folder.path().join(name));
        let content = ConfigValue::Text(text.into());
        let config = format!("a (file)\"list.txt\" 1 x=(file){absolute:?} {{ b (file)\"list.txt\" }}");
        let text = format!("{USED}filter \"f\" {{ module \"builtin:log\"; config {{ {config} }} }}");
        let config = parse_in(folder.path(), &text).unwrap();
        let [a, b] = &config.filters[0].config[..] else {
            panic!("{config:?}")
        };
        assert_eq!(a.arguments, [content.clone(), ConfigValue::Integer(1)]);
        assert_eq!(a.properties, [("x".to_owned(), ConfigValue::Text("".into()))]);
        assert_eq!(b.arguments, [content]);
        // Each file is watched, once.
        assert_eq!(config.files, [path.clone(), absolute]);
        // A mistake that the filter finds in the content is shown at the file's name.
        let span = config.filters[0].config_place(Some(0), Place::Argument(0));
        assert_eq!(&text[span.start..span.end()], "(file)\"list.txt\"");

        for (content, problem) in [
            (&b"ads.example\n\n\xff\n"[..], "line 3 is not UTF-8"),
            (&vec![b'x'; (16 << 20) + 1], "it is larger than 16MiB"),
        ] {
            fs::write(&path, content).unwrap();
            let report = parse_in(folder.path(), &text).unwrap_err();
            assert_eq!(report.diagnostics().len(), 2, "{report}");
            let expected = format!("the file {} cannot be read: {problem}", path.display());
            assert_eq!(report.diagnostics()[0].message, expected);
            assert_eq!(report.lines()[0], 3);
        }
    }

    #[test]
    fn a_value_can_be_data() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("list.bin");
        fs::write(&path, b"\xff\0").unwrap();
        let config = "a (data)\"list.bin\" x=(data)\"list.bin\"";
        let words = format!("module \"builtin:log\"; limits data=\"4B\"; config {{ {config} }}");
        let config = parse_in(folder.path(), &format!("{USED}filter \"f\" {{ {words} }}")).unwrap();
        let data: Vec<&[u8]> = config.filters[0].data().map(|data| &data[..]).collect();
        assert_eq!(data, [b"\xff\0", b"\xff\0"]);
        assert_eq!(config.data().len(), 1);
        assert_eq!(config.files, std::slice::from_ref(&path));
    }

    /// A reload loads a filter again only if something else is written.
    #[test]
    fn where_a_filter_is_written_makes_no_other() {
        let filter = |words: &str| {
            let text = format!("{USED}filter \"f\" {{ module \"builtin:log\"; {words} }}");
            config(&text).filters.remove(0)
        };
        let one = filter("config { a 1 x=2 { b } }");
        let same = filter("limits memory=\"16MiB\"\nconfig {\n a 1 x=2 {\n b\n }\n}");
        assert!(one.makes_the_same_as(&same));
        for other in [
            "config { a 1 x=3 { b } }",
            "config { a 1 x=2; b }",
            "on-error \"refuse\"; config { a 1 x=2 { b } }",
            "wasi { clock }; config { a 1 x=2 { b } }",
        ] {
            assert!(!one.makes_the_same_as(&filter(other)), "{other}");
        }
    }

    #[test]
    fn parts_of_the_config_block_are_found_again() {
        let text = format!("{USED}filter \"f\" {{ module \"builtin:log\"; config {{ a 1 2 x=3 {{ b }} }} }}");
        let config = config(&text);
        let at = |node, place| {
            let span = config.filters[0].config_place(node, place);
            text[span.start..span.end()].to_owned()
        };
        assert_eq!(at(Some(0), Place::Node), "a 1 2 x=3");
        assert_eq!(at(Some(0), Place::Argument(1)), "2");
        assert_eq!(at(Some(0), Place::Property(0)), "x=3");
        assert_eq!(at(Some(1), Place::Node), "b");
        assert_eq!(at(None, Place::Node), "config");
        // Nonexistent parts.
        assert_eq!(at(Some(0), Place::Argument(2)), "a 1 2 x=3");
        assert_eq!(at(Some(0), Place::Property(1)), "a 1 2 x=3");
        assert_eq!(at(Some(2), Place::Node), "config");

        let span = config.filters[0].config_place(Some(0), Place::Argument(0));
        let report = config.report(vec![Diagnostic::new(span, "not this")]);
        assert_eq!(report.lines(), [3]);
    }
}
