//! Writes nodes as KDL text: the reverse of [`config_block`](super::config_block).

use std::fmt::Write as _;

use super::config_block::{ConfigNode, ConfigValue};

/// Writes nodes as KDL, one per line; blocks are indented by four spaces.
pub fn spell(nodes: &[ConfigNode]) -> Vec<String> {
    let mut lines = Vec::new();
    spell_below(nodes, None, 0, &mut lines);
    lines
}

fn spell_below(nodes: &[ConfigNode], parent: Option<usize>, depth: usize, lines: &mut Vec<String>) {
    for (index, node) in nodes.iter().enumerate().filter(|(_, node)| node.parent == parent) {
        let mut line = format!("{}{}", "    ".repeat(depth), spell_word(&node.name));
        for argument in &node.arguments {
            let _ = write!(line, " {}", spell_value(argument));
        }
        for (name, value) in &node.properties {
            let _ = write!(line, " {}={}", spell_word(name), spell_value(value));
        }
        let inner = nodes.iter().any(|other| other.parent == Some(index));
        if inner {
            line.push_str(" {");
        }
        lines.push(line);
        if inner {
            spell_below(nodes, Some(index), depth + 1, lines);
            lines.push(format!("{}}}", "    ".repeat(depth)));
        }
    }
}

/// Writes a name, in quotes unless it is a plain word.
fn spell_word(name: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    match name.starts_with(|c: char| c.is_ascii_alphabetic()) && name.chars().all(plain) {
        true => name.to_owned(),
        false => quoted(name),
    }
}

fn spell_value(value: &ConfigValue) -> String {
    match value {
        ConfigValue::Null => "#null".to_owned(),
        ConfigValue::Boolean(value) => format!("#{value}"),
        ConfigValue::Integer(value) => value.to_string(),
        // Debug output keeps the fraction; without one, it would parse as an integer.
        ConfigValue::Decimal(value) => format!("{value:?}"),
        ConfigValue::Text(text) => quoted(text),
        ConfigValue::Data(data) => format!("(data)\"{}\"", data.digest()),
    }
}

/// Writes a string in quotes.
pub(super) fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for character in text.chars() {
        match character {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            control if control.is_control() => {
                let _ = write!(out, "\\u{{{:x}}}", u32::from(control));
            }
            other => out.push(other),
        }
    }
    out.push('"');
    out
}
