//! `dnsweir import`: translates a Corefile.

use std::fs;
use std::path::Path;

use crate::config::Report;
use crate::corefile::{self, Options};
use crate::run;
use crate::serve::interfaces;

use super::Stop;

/// The result of an import.
#[derive(Debug)]
pub struct Imported {
    /// The text to print.
    pub text: String,
    /// What could not be translated; the blocks concerned refuse all queries.
    pub refused: Option<Report>,
}

/// Translates a Corefile, writes the configuration to `out` if given, and returns what to print. Without a
/// Corefile, that is the table of CoreDNS's plugins and options, in Markdown. With `partly`, blocks that
/// cannot be translated refuse all queries.
///
/// # Errors
/// Everything in it that cannot be translated, or when a file cannot be read or written.
pub fn run(path: Option<&Path>, out: Option<&Path>, partly: bool) -> Result<Imported, Stop> {
    let Some(path) = path else {
        return Ok(Imported {
            text: corefile::table(),
            refused: None,
        });
    };
    let options = Options {
        port: 53,
        folder: std::env::current_dir()
            .map_err(|error| Stop::Machine(format!("cannot find the working folder: {error}")))?,
        addresses_of: Some(interfaces::addresses_of),
        partly,
        ..Options::default()
    };
    let translation = corefile::import(path, &options)?;
    let name = format!("{}, translated", path.display());
    // Checks the result like `dnsweir check`. Mistakes are reported at the words of the user's Corefile.
    run::check_text(&name, &translation.text).map_err(|stop| match stop {
        run::Stop::Configuration(report) => Stop::File(translation.retold(&report)),
        stop => stop.into(),
    })?;
    let refused = translation.refused;
    let text = translation.text;
    let Some(out) = out else {
        return Ok(Imported { text, refused });
    };
    fs::write(out, text)
        .map_err(|error| Stop::Machine(format!("cannot write {}: {error}", out.display())))?;
    let text = String::new();
    Ok(Imported { text, refused })
}
