//! What a filter did not like, underlined in the operator's file.

use super::configure::ConfigError;
use super::load_error::LoadError;
use crate::config::{self, Diagnostic};

impl LoadError {
    /// What is wrong, at the places of the `filter` block that it is about.
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
    /// What is wrong, at its place in the `config` block.
    pub fn diagnostic(&self, filter: &config::Filter) -> Diagnostic {
        let span = filter.config_place(self.node, self.place);
        let problem = format!("filter {:?}: {}", filter.name, self.message);
        Diagnostic::new(span, problem).help(self.help.clone())
    }
}
