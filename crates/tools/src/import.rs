//! `dnsweir import`: translates a Corefile.

use std::fs;
use std::path::Path;

use crate::config::Report;
use crate::corefile::{self, Options, Translation};
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
    let name = format!("{}, translated", path.display());
    let translation = checked(&name, corefile::import(path, &options)?, &options)?;
    let text = translation.noted();
    let refused = translation.refused;
    let Some(out) = out else {
        return Ok(Imported { text, refused });
    };
    fs::write(out, text)
        .map_err(|error| Stop::Machine(format!("cannot write {}: {error}", out.display())))?;
    let text = String::new();
    Ok(Imported { text, refused })
}

/// Checks a translation like `dnsweir check`. Mistakes are reported at the words of the user's Corefile; with
/// `partly`, their blocks refuse all queries instead.
fn checked(name: &str, mut translation: Translation, options: &Options) -> Result<Translation, Stop> {
    loop {
        let report = match run::check_text(name, &translation.checked) {
            Ok(_) => return Ok(translation),
            Err(run::Stop::Configuration(report)) => report,
            Err(stop) => return Err(stop.into()),
        };
        if translation.set_aside(&report) {
            continue;
        }
        let report = translation.retold(&report);
        // One mistake may hide another: filters are only configured if everything else is right.
        translation = match translation.without(&report, options) {
            Some(next) => next?,
            None => return Err(Stop::File(report)),
        };
    }
}
