//! `dnsweir import`: a Corefile in our words.

use std::fs;
use std::path::Path;

use crate::config;
use crate::corefile::{self, Options};
use crate::filter;

use super::Stop;

/// Translates a Corefile, and writes the configuration to `out` if there is one. Returns what to print. Without a Corefile that
/// is what becomes of each plugin and option of CoreDNS, in Markdown.
///
/// # Errors
/// For everything in it that cannot be said in our configuration, or when a file cannot be read or written.
pub fn run(path: Option<&Path>, out: Option<&Path>) -> Result<String, Stop> {
    let Some(path) = path else {
        return Ok(corefile::table());
    };
    let options = Options {
        port: 53,
        ..Options::default()
    };
    let text = corefile::import(path, &options)?.text;
    let name = format!("{}, translated", path.display());
    config::parse(&name, &text, Path::new("/"), filter::BUILTINS)?;
    let Some(out) = out else { return Ok(text) };
    fs::write(out, text)
        .map_err(|error| Stop::Machine(format!("cannot write {}: {error}", out.display())))?;
    Ok(String::new())
}
