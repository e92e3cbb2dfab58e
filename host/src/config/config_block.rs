//! The `config` block of a filter: handed on as it is written, in a form that needs no KDL.

use kdl::{KdlNode, KdlValue};

use super::decode::{Mistakes, Wrong, arguments, block, head};
use super::error::{Diagnostic, Span};
use super::{ConfigNode, ConfigValue, Filter, Place};

/// Decodes `config`: every node in its block, in document order.
pub(super) fn decode(mistakes: &mut Mistakes, node: &KdlNode) -> Vec<ConfigNode> {
    refuse_anything_but_a_block(mistakes, node);
    nodes(mistakes, block(node))
}

/// Decodes nodes that stand in a block, in document order.
pub(super) fn nodes(mistakes: &mut Mistakes, nodes: &[KdlNode]) -> Vec<ConfigNode> {
    let mut flat = Vec::new();
    flatten(mistakes, nodes, None, &mut flat);
    flat
}

/// What a `config` node holds belongs to the filter, but all of it stands in its block.
fn refuse_anything_but_a_block(mistakes: &mut Mistakes, node: &KdlNode) {
    mistakes.refuse_annotations(node);
    if let (Some(first), Some(last)) = (node.entries().first(), node.entries().last()) {
        let span = Span::from(first.span()).start..Span::from(last.span()).end();
        let stray = Diagnostic::new(span.into(), "`config` takes nothing but a block");
        mistakes.push(stray.help("write: config { NODES OF THE FILTER }"));
    }
}

/// Puts `nodes` and all that is in them into `flat`, in document order. The depth is bounded by
/// what is parsed at all.
fn flatten(mistakes: &mut Mistakes, nodes: &[KdlNode], parent: Option<usize>, flat: &mut Vec<ConfigNode>) {
    for node in nodes {
        mistakes.refuse_annotations(node);
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
            if let Some(value) = mistakes.value(node.name().value(), entry, config_value) {
                decoded.arguments.push(value);
                decoded.argument_spans.push(entry.span().into());
            }
        }
        for entry in mistakes.refuse_repeated_properties(node) {
            let name = entry.name().map(|name| name.value()).unwrap_or_default();
            if let Some(value) = mistakes.value(name, entry, config_value) {
                decoded.properties.push((name.to_owned(), value));
                decoded.property_spans.push(entry.span().into());
            }
        }
        flat.push(decoded);
        let own = flat.len() - 1;
        flatten(mistakes, block(node), Some(own), flat);
    }
}

fn config_value(value: &KdlValue) -> Result<ConfigValue, Wrong> {
    Ok(match value {
        KdlValue::Null => ConfigValue::Null,
        KdlValue::Bool(value) => ConfigValue::Boolean(*value),
        KdlValue::String(value) => ConfigValue::Text(value.clone()),
        KdlValue::Integer(value) => match i64::try_from(*value) {
            Ok(value) => ConfigValue::Integer(value),
            Err(_) => {
                let help = "write a whole number of 64 bits, or put it into quotes";
                return Err(Wrong::new("is too large for a filter", help));
            }
        },
        // Whoever writes a number that overflows to infinity does not mean infinity.
        KdlValue::Float(value) if value.is_finite() => ConfigValue::Decimal(*value),
        KdlValue::Float(_) => {
            return Err(Wrong::new(
                "is not a finite number",
                "write a number, or put it into quotes",
            ));
        }
    })
}

impl Filter {
    /// Where in the file a part of the `config` block stands. `node` is an index into
    /// [`Filter::config`]; none, or one that does not exist, is the block as a whole, and a part
    /// that does not exist is its node: a filter may point anywhere.
    pub fn config_place(&self, node: Option<usize>, place: Place<'_>) -> Span {
        let Some(node) = node.and_then(|index| self.config.get(index)) else {
            return self.config_span;
        };
        let part = match place {
            Place::Node => None,
            Place::Argument(index) => node.argument_spans.get(index),
            Place::Property(name) => {
                let index = node.properties.iter().position(|(known, _)| known == name);
                index.and_then(|index| node.property_spans.get(index))
            }
        };
        part.copied().unwrap_or(node.span)
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{config, problems};
    use super::*;

    const USED: &str = "listen \"127.0.0.1\"\nzone \".\" { use \"f\"; forward \"192.0.2.1\" }\n";

    #[test]
    fn the_config_block_is_flattened_in_document_order() {
        let text = "module \"builtin:log\"\nconfig {\n a 1 -2.5 x=#true { b \"t\"; c { d y=#null } }\n e\n}";
        let filter = config(&format!("{USED}filter \"f\" {{ {text} }}"))
            .filters
            .remove(0);
        let nodes: Vec<(&str, Option<usize>)> = filter
            .config
            .iter()
            .map(|node| (node.name.as_str(), node.parent))
            .collect();
        assert_eq!(
            nodes,
            [
                ("a", None),
                ("b", Some(0)),
                ("c", Some(0)),
                ("d", Some(2)),
                ("e", None)
            ]
        );
        let a = &filter.config[0];
        assert_eq!(a.arguments, [ConfigValue::Integer(1), ConfigValue::Decimal(-2.5)]);
        assert_eq!(a.properties, [("x".to_owned(), ConfigValue::Boolean(true))]);
        assert_eq!(filter.config[1].arguments, [ConfigValue::Text("t".into())]);
        assert_eq!(filter.config[3].properties, [("y".to_owned(), ConfigValue::Null)]);
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
        assert_eq!(at(Some(0), Place::Property("x")), "x=3");
        assert_eq!(at(Some(1), Place::Node), "b");
        assert_eq!(at(None, Place::Node), "config");
        // What does not exist.
        assert_eq!(at(Some(0), Place::Argument(2)), "a 1 2 x=3");
        assert_eq!(at(Some(0), Place::Property("y")), "a 1 2 x=3");
        assert_eq!(at(Some(2), Place::Node), "config");

        let span = config.filters[0].config_place(Some(0), Place::Argument(0));
        let report = config.report(vec![Diagnostic::new(span, "not this")]);
        assert_eq!(report.lines(), [3]);
    }

    #[test]
    fn mistakes_are_found() {
        for (block, expected) in [
            ("config 1 {}", "`config` takes nothing but a block"),
            ("(u8)config {}", "the type annotation `(u8)` is not supported"),
            (
                "config { a (u8)1 }",
                "the type annotation `(u8)` is not supported",
            ),
            (
                "config { a { (u8)b } }",
                "the type annotation `(u8)` is not supported",
            ),
            ("config { a x=1 x=2 }", "`x` is written twice"),
            (
                "config { a 9223372036854775808 }",
                "`a`: 9223372036854775808 is too large for a filter",
            ),
            ("config { a #inf }", "`a`: #inf is not a finite number"),
        ] {
            let text = format!("{USED}filter \"f\" {{ module \"builtin:log\"; {block} }}");
            assert_eq!(problems(&text), [expected], "{block}");
        }
    }
}
