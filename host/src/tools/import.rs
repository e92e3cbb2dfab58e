//! `dnsweir import`: a Corefile in our words.

use std::fs;
use std::path::Path;

use crate::config::Report;
use crate::corefile::{self, Options};
use crate::run;
use crate::serve::interfaces;

use super::Stop;

/// What comes of a Corefile.
#[derive(Debug)]
pub struct Imported {
    /// What to print.
    pub text: String,
    /// What could not be translated, where the blocks with that refuse what they are asked.
    pub refused: Option<Report>,
}

/// Translates a Corefile, and writes the configuration to `out` if there is one. Returns what to print. Without a Corefile that
/// is what becomes of each plugin and option of CoreDNS, in Markdown. If `partly`, a block that cannot be translated refuses what it is
/// asked.
///
/// # Errors
/// For everything in it that cannot be said in our configuration, or when a file cannot be read or written.
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
    // What it becomes is checked as `dnsweir check` does it. What is wrong is said of the Corefile, which is what the reader wrote.
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
