//! Generates shell completions and manual pages from the command line's description.

use std::path::Path;

use clap::Command;
use clap::builder::PossibleValuesParser;
use clap_complete::Shell;

use super::Stop;
use crate::config::known_words;

/// Returns a shell's completion script for `command`, which also completes words of the configuration.
pub fn completions(command: Command, shell: Shell) -> String {
    let mut command = command.mut_subcommand("words", |words| {
        words.mut_arg("word", |word| {
            word.value_parser(PossibleValuesParser::new(known_words()))
        })
    });
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut command, "dnsweir", &mut script);
    String::from_utf8_lossy(&script).into_owned()
}

/// Writes a manual page for `command` and each subcommand: `dnsweir.1`, `dnsweir-check.1` and so on.
///
/// # Errors
/// When the folder or a file in it cannot be written.
pub fn man(command: Command, folder: &Path) -> Result<String, Stop> {
    let written = std::fs::create_dir_all(folder).and_then(|()| clap_mangen::generate_to(command, folder));
    written.map_err(|error| {
        Stop::Machine(format!(
            "cannot write manual pages into {}: {error}",
            folder.display()
        ))
    })?;
    Ok(String::new())
}
