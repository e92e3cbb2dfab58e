//! Exports the configuration language as a KDL Schema for editors:
//! <https://github.com/kdl-org/kdl/blob/main/SCHEMA-SPEC.md>.
//!
//! Generated from the [tables](super::words) that decode a configuration, so both allow the same words. KDL
//! Schema has no bounds for numbers with a unit; descriptions contain those, and defaults.

use std::fmt::Write as _;

use super::decode::Takes;
use super::glossary;
use super::spell::quoted;
use super::whole::FILE;
use super::words::{Form, Word};

/// Returns the schema as a KDL document.
pub fn schema() -> String {
    let mut text = String::from(
        "document {\n    info {\n        title \"dnsweir's configuration\" lang=\"en\"\n        \
         link \"https://github.com/kdl-org/kdl/blob/main/SCHEMA-SPEC.md\" rel=\"documentation\"\n    }\n",
    );
    for word in FILE.words {
        node(&mut text, 1, word);
    }
    text.push_str("}\n");
    text
}

/// Writes a node.
fn node(text: &mut String, depth: usize, word: &Word) {
    let indent = "    ".repeat(depth);
    let (name, description) = (word.name, described(word));
    // Infallible for String, here and below.
    let _ = writeln!(text, "{indent}node {name:?} description={description} {{");
    if !matches!(word.form, Form::Repeated | Form::Stage) {
        let _ = writeln!(text, "{indent}    max 1");
    }
    values(text, depth + 1, word);
    for property in word.words.iter().filter(|word| word.form == Form::Property) {
        let (name, description) = (property.name, described(property));
        let _ = writeln!(text, "{indent}    prop {name:?} description={description} {{");
        kind(text, depth + 2, &property.takes());
        let _ = writeln!(text, "{indent}    }}");
    }
    // The filter decides what its block may contain.
    let is_open = word.name == "config";
    if is_open || word.words.iter().any(Word::is_node) {
        let _ = writeln!(text, "{indent}    children {{");
        if is_open {
            let _ = writeln!(text, "{indent}        other-nodes-allowed #true");
        }
        for inner in word.words.iter().filter(|word| word.is_node()) {
            node(text, depth + 2, inner);
        }
        let _ = writeln!(text, "{indent}    }}");
    }
    let _ = writeln!(text, "{indent}}}");
}

/// The description that an editor shows.
fn described(word: &Word) -> String {
    let mut text = glossary::plain(&glossary::meaning(word));
    for (what, said) in [
        ("default", glossary::default(word)),
        ("bounds", glossary::bounds(word)),
    ] {
        if !said.is_empty() {
            let _ = write!(text, "; {what}: {}", glossary::plain(&said));
        }
    }
    if !word.shape.example.is_empty() {
        let _ = write!(text, "; for example: {}", word.shape.example);
    }
    quoted(&text)
}

/// Writes the number of values of a node, and their kind.
fn values(text: &mut String, depth: usize, word: &Word) {
    let (least, most) = (word.shape.arguments.start(), word.shape.arguments.end());
    if *most == 0 {
        return;
    }
    let indent = "    ".repeat(depth);
    let _ = writeln!(
        text,
        "{indent}value {{\n{indent}    min {least}\n{indent}    max {most}"
    );
    let own = word.words.iter().find(|word| word.form == Form::Values);
    let takes = match word.form {
        Form::Switch => Takes::Boolean,
        _ => own.unwrap_or(word).takes(),
    };
    // Values read by hand may not all be strings.
    if own.unwrap_or(word).kind.is_some() || takes != Takes::Text {
        kind(text, depth + 1, &takes);
    }
    let _ = writeln!(text, "{indent}}}");
}

/// Writes the kind of a value.
fn kind(text: &mut String, depth: usize, takes: &Takes) {
    let indent = "    ".repeat(depth);
    let with_unit = |units: &str| {
        format!(
            "type string\n{indent}pattern {}",
            quoted(&format!("^[0-9]+({units})$"))
        )
    };
    let said = match takes {
        Takes::Text => "type string".to_owned(),
        Takes::Boolean => "type boolean".to_owned(),
        Takes::Words(words) => {
            let words: Vec<String> = words.iter().map(|word| quoted(word)).collect();
            format!("type string\n{indent}enum {}", words.join(" "))
        }
        Takes::Whole(least, most) => {
            format!("type number\n{indent}% 1\n{indent}\">=\" {least}\n{indent}\"<=\" {most}")
        }
        Takes::Duration(..) => with_unit("ms|s|m|h|d"),
        Takes::Size(..) => with_unit("B|KiB|MiB|GiB"),
    };
    let _ = writeln!(text, "{indent}{said}");
}

#[cfg(test)]
mod tests {
    use kdl::{KdlDocument, KdlEntry, KdlNode, KdlValue};

    use super::super::tests::each_word;
    use super::*;

    fn named<'k>(nodes: &'k KdlDocument, kind: &str, name: &str) -> Option<&'k KdlNode> {
        let mut all = nodes.nodes().iter().filter(|node| node.name().value() == kind);
        all.find(|node| node.get(0).and_then(|value| value.as_string()) == Some(name))
    }

    /// Collects what an editor would underline with the schema.
    fn underlined(document: &KdlDocument, schema: Option<&KdlDocument>, found: &mut Vec<String>) {
        for node in document.nodes() {
            let name = node.name().value();
            let Some(known) = schema.and_then(|schema| named(schema, "node", name)) else {
                found.push(name.to_owned());
                continue;
            };
            let inside = known.children();
            let of_values = inside.and_then(|inside| inside.get("value")?.children());
            let mut values = 0;
            for entry in node.entries() {
                let kind = match entry.name() {
                    Some(property) => {
                        inside.and_then(|inside| named(inside, "prop", property.value())?.children())
                    }
                    None => of_values,
                };
                values += i128::from(entry.name().is_none());
                if kind.is_none_or(|kind| !allows(kind, entry)) {
                    found.push(entry.to_string().trim().to_owned());
                }
            }
            let bound = |which| of_values.and_then(|kind| kind.get_arg(which)?.as_integer());
            if values < bound("min").unwrap_or(0) || values > bound("max").unwrap_or(0) {
                found.push(format!("{name} with {values} values"));
            }
            let children = inside.and_then(|inside| inside.get("children")?.children());
            let open = children.is_some_and(|children| children.get("other-nodes-allowed").is_some());
            if let (Some(block), false) = (node.children(), open) {
                underlined(block, children, found);
            }
        }
    }

    /// Whether a value is of a kind.
    fn allows(kind: &KdlDocument, entry: &KdlEntry) -> bool {
        // The value that the annotation stands for is not in the file.
        if entry.ty().is_some() {
            return true;
        }
        let value = entry.value();
        let rule = |name| kind.get_arg(name);
        let of_type = match rule("type").and_then(KdlValue::as_string) {
            Some("string") => value.is_string(),
            Some("number") => value.is_integer(),
            Some("boolean") => value.is_bool(),
            _ => true,
        };
        let text = value.as_string().unwrap_or_default();
        let unit = text.trim_start_matches(|c: char| c.is_ascii_digit());
        let pattern = rule("pattern").and_then(KdlValue::as_string);
        let has_unit = pattern.is_none_or(|pattern| {
            let units = pattern.strip_prefix("^[0-9]+(").unwrap();
            let mut units = units.strip_suffix(")$").unwrap().split('|');
            unit.len() < text.len() && units.any(|known| known == unit)
        });
        let is_word = kind.get("enum").is_none_or(|words| {
            let words = words.entries().iter();
            words.map(KdlEntry::value).any(|word| word == value)
        });
        let bound = |name| rule(name).and_then(KdlValue::as_integer);
        let number = value.as_integer().unwrap_or_default();
        let within =
            bound(">=").is_none_or(|least| least <= number) && bound("<=").is_none_or(|most| number <= most);
        of_type && has_unit && is_word && within
    }

    /// The schema allows every example in the configuration's tables at its place.
    #[test]
    fn mistakes_are_underlined_and_examples_are_not() {
        let schema: KdlDocument = schema().parse().unwrap();
        let top = schema.get("document").unwrap().children();
        let check = |owners: &[&str], text: &str| {
            let mut inside = top;
            for owner in owners {
                let node = inside.and_then(|inside| named(inside, "node", owner));
                inside = node.and_then(|node| node.children()?.get("children")?.children());
            }
            let mut found = Vec::new();
            underlined(&text.parse().unwrap(), inside, &mut found);
            found
        };
        assert_eq!(check(&[], include_str!("../../run/src/default.kdl")), [""; 0]);
        each_word(&mut |around, word| {
            let owners: Vec<&str> = around.iter().map(|word| word.name).collect();
            // The example of `refuse` is that of `allow`.
            if word.is_node() && word.shape.example.starts_with(word.name) && word.name != "config" {
                assert_eq!(check(&owners, word.shape.example), [""; 0], "{owners:?}");
            }
        });
        for (text, expected) in [
            ("listen \"::1\" { udp-sise 1 }", "udp-sise"),
            ("listen", "listen with 0 values"),
            ("listen \"::1\" { udp-size 511 }", "511"),
            ("workers 1 2", "workers with 2 values"),
            ("workers \"two\"", "\"two\""),
            ("local-zones a=1", "a=1"),
            ("local-zones \"yes\"", "\"yes\""),
            ("zone \".\" { cache { failure \"5min\" } }", "\"5min\""),
            ("zone \".\" { cache { prefetch hits=0 } }", "hits=0"),
            ("zone \".\" { forward \"::1\" { policy \"rond\" } }", "\"rond\""),
            (
                "zone \".\" { forward \"::1\" { next \"NXDOMAIN\" \"NOERROR\" } }",
                "\"NOERROR\"",
            ),
            ("filter \"a\" { limits { time \"5ms\" } }", "time"),
        ] {
            assert_eq!(check(&[], text), [expected], "{text}");
        }
    }
}
