//! Loads modules without a configuration.

use std::path::Path;

use bytes::Bytes;

use super::Stop;
use crate::config::{self, ConfigNode, Module, Reference, Report, Source};
use crate::filter::{BUILTINS, LoadError};
use crate::registry::Artifact;

/// Returns a `filter` with the module `file` (`builtin:NAME` or a path), this configuration, and defaults.
///
/// # Errors
/// When there is no such module, or it cannot be read.
pub fn configured(file: &str, config: Vec<ConfigNode>) -> Result<config::Filter, Stop> {
    let module =
        Module::parse(file, Path::new("")).map_err(|wrong| Stop::Refused(format!("{file:?} {wrong}")))?;
    let (name, code) = match &module {
        Module::Builtin(name) => (name.clone(), builtin(name)?.into()),
        Module::Artifact(_) => {
            let problem =
                format!("{file} is in a registry: pull it first, with `dnsweir filter pull {file}`");
            return Err(Stop::Refused(problem));
        }
        Module::File(path) => {
            let code = config::read_module(path).map_err(|error| {
                let help = config::unreadable_help(file, path);
                Stop::Refused(format!("{file} cannot be read: {error}\n{help}"))
            })?;
            let name = path.file_stem().unwrap_or_default();
            (name.to_string_lossy().into_owned(), code)
        }
    };
    Ok(block(name, module, code, config))
}

/// Returns a `filter` with a pulled module, this configuration, and defaults for the rest.
pub(crate) fn of_artifact(
    reference: &Reference,
    artifact: &Artifact,
    config: Vec<ConfigNode>,
) -> config::Filter {
    let name = reference.repository.rsplit('/').next().unwrap_or_default();
    block(
        name.to_owned(),
        Module::Artifact(reference.clone()),
        artifact.module.clone(),
        config,
    )
}

fn block(name: String, module: Module, code: Bytes, config: Vec<ConfigNode>) -> config::Filter {
    config::Filter {
        name,
        module,
        code,
        probation: 0,
        config,
        ..config::Filter::default()
    }
}

fn builtin(name: &str) -> Result<&'static [u8], Stop> {
    let found = BUILTINS.iter().find(|(known, _)| *known == name);
    found.map(|(_, code)| *code).ok_or_else(|| {
        let names: Vec<&str> = BUILTINS.iter().map(|(name, _)| *name).collect();
        let names = names.join(", ");
        Stop::Refused(format!("there is no built-in filter {name:?}; there are {names}"))
    })
}

/// Explains why a filter did not start; problems that it found in its configuration are shown in `source`.
pub fn refusal(source: &Source, block: &config::Filter, error: &LoadError) -> String {
    match error {
        LoadError::Rejected(_) => Report::new(source.clone(), error.diagnostics(block)).to_string(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_builtin_is_told_with_those_that_there_are() {
        let error = configured("builtin:no-such", Vec::new()).unwrap_err().to_string();
        assert!(
            error.contains("\"no-such\"") && error.contains("nodecache"),
            "{error}"
        );
    }
}
