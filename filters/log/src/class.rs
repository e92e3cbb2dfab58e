//! Selects the responses to log by CoreDNS's classes.

use dnsweir_filter::{FromValue, Node, Outcome, Value};

/// The outcomes that a value of `class` stands for; empty for all.
pub struct Class(Vec<Outcome>);

/// Joins all `class` nodes of the block. An empty result means all outcomes.
pub fn outcomes(config: Node<'_>) -> Vec<Outcome> {
    let nodes = config.nodes(&["class"]);
    let written: Vec<Class> = nodes
        .iter()
        .flat_map(|node| node.arguments(0).unwrap_or_default())
        .collect();
    if written.iter().any(|Class(outcomes)| outcomes.is_empty()) {
        return Vec::new();
    }
    written.into_iter().flat_map(|Class(outcomes)| outcomes).collect()
}

impl FromValue for Class {
    const EXPECTED: &'static str = "a class";

    fn from_value(value: Value<'_>) -> Result<Class, String> {
        Ok(Class(match value {
            Value::Text("all") => Vec::new(),
            Value::Text("success") => vec![Outcome::Success],
            Value::Text("denial") => vec![Outcome::Denial],
            Value::Text("error") => vec![Outcome::Error],
            _ => return Err("\"success\", \"denial\", \"error\" or \"all\"".to_owned()),
        }))
    }
}
