//! Modules that are tried without a configuration around them.

use std::fs;
use std::path::Path;

use super::Stop;
use crate::config::{self, ConfigNode, Diagnostic, Limits, Module, OnError, Report, Source, Span};
use crate::filter::{self, LoadError, MODULE_MAXIMUM};

/// The module that `builtin:NAME` or a path names.
pub fn module(file: &str) -> Result<Module, Stop> {
    if let Some(name) = file.strip_prefix("builtin:") {
        return match filter::builtin(name) {
            Some(_) => Ok(Module::Builtin(name.to_owned())),
            None => Err(Stop::Refused(
                LoadError::NoBuiltin {
                    name: name.to_owned(),
                }
                .to_string(),
            )),
        };
    }
    let refused = |error: String| Stop::Refused(format!("{file} cannot be read: {error}"));
    let metadata = fs::metadata(file).map_err(|error| refused(error.to_string()))?;
    if !metadata.is_file() {
        return Err(refused("it is not a file".into()));
    }
    if metadata.len() > MODULE_MAXIMUM as u64 {
        return Err(refused(LoadError::TooLarge(metadata.len() as usize).to_string()));
    }
    let bytes = fs::read(file).map_err(|error| refused(error.to_string()))?;
    Ok(Module::File {
        path: Path::new(file).to_owned(),
        bytes: bytes.into(),
    })
}

/// A `filter` block with this module and this configuration, and defaults for the rest.
pub fn configured(module: Module, config: Vec<ConfigNode>) -> config::Filter {
    let name = match &module {
        Module::Builtin(name) => name.clone(),
        Module::File { path, .. } => path
            .file_stem()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned(),
    };
    config::Filter {
        name,
        module,
        on_error: OnError::default(),
        limits: Limits::default(),
        config,
        questions: None,
        span: Span::default(),
        module_span: Span::default(),
        config_span: Span::default(),
    }
}

/// Why a filter did not start, in words; what it says of its configuration is underlined in `source`.
pub fn refusal(source: &Source, block: &config::Filter, error: &LoadError) -> String {
    let LoadError::Rejected(errors) = error else {
        return error.to_string();
    };
    let diagnostics = errors.iter().map(|error| {
        let found = Diagnostic::new(
            block.config_place(error.node, place(error, block)),
            error.message.clone(),
        );
        if error.help.is_empty() {
            found
        } else {
            found.help(error.help.clone())
        }
    });
    Report::about(source.clone(), diagnostics.collect()).to_string()
}

fn place<'a>(error: &filter::ConfigError, block: &'a config::Filter) -> config::Place<'a> {
    match error.place {
        filter::Place::Node => config::Place::Node,
        filter::Place::Argument(index) => config::Place::Argument(index),
        filter::Place::Property(index) => {
            let node = error.node.and_then(|node| block.config.get(node));
            let name = node
                .and_then(|node| node.properties.get(index))
                .map(|(name, _)| name.as_str());
            name.map_or(config::Place::Node, config::Place::Property)
        }
    }
}
