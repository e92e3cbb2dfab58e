//! Where in the operator's file a filter found something wrong.

use crate::config::{self, Diagnostic};
use crate::filter::{ConfigError, LoadError, Place};

/// Underlines in the operator's file what a filter did not like.
pub fn diagnostics(filter: &config::Filter, error: LoadError) -> Vec<Diagnostic> {
    match error {
        LoadError::Rejected(errors) => errors.iter().map(|error| rejection(filter, error)).collect(),
        other => {
            let message = format!("filter {:?} cannot be loaded: {other}", filter.name);
            vec![Diagnostic::new(filter.module_span, message)]
        }
    }
}

fn rejection(filter: &config::Filter, error: &ConfigError) -> Diagnostic {
    let properties = error
        .node
        .and_then(|node| filter.config.get(node))
        .map(|node| &node.properties[..]);
    let place = match &error.place {
        Place::Node => config::Place::Node,
        Place::Argument(index) => config::Place::Argument(*index),
        Place::Property(index) => match properties.and_then(|properties| properties.get(*index)) {
            Some((name, _)) => config::Place::Property(name),
            None => config::Place::Node,
        },
    };
    let span = filter.config_place(error.node, place);
    let diagnostic = Diagnostic::new(span, format!("filter {:?}: {}", filter.name, error.message));
    if error.help.is_empty() {
        diagnostic
    } else {
        diagnostic.help(error.help.clone())
    }
}
