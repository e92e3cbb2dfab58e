//! Diagnostics for errors of a filter, which point into the operator's file.

use super::configure::ConfigError;
use super::load_error::LoadError;
use crate::config::{self, Diagnostic};

impl LoadError {
    /// The errors, at their places in the `filter` block.
    pub fn diagnostics(&self, filter: &config::Filter) -> Vec<Diagnostic> {
        match self {
            LoadError::Rejected(errors) => errors.iter().map(|error| error.diagnostic(filter)).collect(),
            other => {
                let problem = format!("filter {:?} cannot be loaded: {other}", filter.name);
                vec![Diagnostic::new(filter.module_span, problem)]
            }
        }
    }
}

impl ConfigError {
    /// The error, at its place in the `config` block.
    pub fn diagnostic(&self, filter: &config::Filter) -> Diagnostic {
        let span = filter.config_place(self.node, self.place);
        let problem = format!("filter {:?}: {}", filter.name, self.message);
        Diagnostic::new(span, problem).help(self.help.clone())
    }
}
