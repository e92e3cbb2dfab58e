//! Passes the operator's `config` block to a filter, and the filter's errors back.

use std::ops::RangeFrom;

use super::bindings::dnsweir::filter::types;
use super::text;
use crate::config::{self, ConfigNode, ConfigValue, Place};

/// Maximum bytes of a message or a hint.
const MESSAGE: usize = 1024;

/// Maximum mistakes reported.
const MISTAKES: usize = 100;

/// A mistake that a filter found in its configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigError {
    /// Index into the filter's `config` nodes; none: the block as a whole.
    pub node: Option<usize>,
    /// The part of the node that is wrong; it exists there.
    pub place: Place,
    /// One line.
    pub message: String,
    /// A hint at what would be right, in one line; may be empty.
    pub help: String,
}

/// The filter's setup. `zones` are those that use it, in presentation format. Data is passed as its index in
/// [`config::Filter::data`].
pub(super) fn setup(filter: &config::Filter, zones: &[String]) -> types::Setup {
    let mut data = 0..;
    types::Setup {
        name: filter.name.clone(),
        config: filter.config.iter().map(|given| node(given, &mut data)).collect(),
        zones: zones.to_vec(),
    }
}

fn node(node: &ConfigNode, data: &mut RangeFrom<u32>) -> types::Node {
    let arguments = node.arguments.iter().map(|given| value(given, data)).collect();
    let properties = node.properties.iter();
    types::Node {
        name: node.name.clone(),
        arguments,
        properties: properties
            .map(|(name, given)| (name.clone(), value(given, data)))
            .collect(),
        parent: node.parent.and_then(|parent| u32::try_from(parent).ok()),
    }
}

fn value(given: &ConfigValue, data: &mut RangeFrom<u32>) -> types::Value {
    match given {
        ConfigValue::Null => types::Value::Null,
        ConfigValue::Boolean(value) => types::Value::Boolean(*value),
        ConfigValue::Integer(value) => types::Value::Integer(*value),
        ConfigValue::Decimal(value) => types::Value::Decimal(*value),
        ConfigValue::Text(value) => types::Value::Text(value.to_string()),
        // A configuration cannot have that many.
        ConfigValue::Data(_) => types::Value::Data(data.next().unwrap_or(u32::MAX)),
    }
}

/// The filter's errors, each at a place that exists: an error about a missing part moves to its node, one
/// about a missing node to the block.
pub(super) fn rejections(given: Vec<types::ConfigError>, nodes: &[ConfigNode]) -> Vec<ConfigError> {
    if given.is_empty() {
        return vec![ConfigError {
            node: None,
            place: Place::Node,
            message: "the filter rejects its configuration without a reason".into(),
            help: String::new(),
        }];
    }
    given
        .into_iter()
        .take(MISTAKES)
        .map(|error| rejection(error, nodes))
        .collect()
}

fn rejection(given: types::ConfigError, nodes: &[ConfigNode]) -> ConfigError {
    let index = given
        .node
        .map(|node| node as usize)
        .filter(|&node| node < nodes.len());
    let place = match (index.map(|index| &nodes[index]), given.place) {
        (Some(node), types::Place::Argument(argument)) if (argument as usize) < node.arguments.len() => {
            Place::Argument(argument as usize)
        }
        (Some(node), types::Place::Property(name)) => node
            .properties
            .iter()
            .position(|(other, _)| *other == name)
            .map_or(Place::Node, Place::Property),
        _ => Place::Node,
    };
    ConfigError {
        node: index,
        place,
        message: text::one_line(&given.message, MESSAGE),
        help: text::one_line(&given.help, MESSAGE),
    }
}
