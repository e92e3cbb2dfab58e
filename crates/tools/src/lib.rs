//! Tools for authors of filters and configurations, and for installation: `dnsweir filter …`, `explain`,
//! `dev`, `verify` and others.
//!
//! They run the proxy's own code to show what it does: [`explain`] sends a query through
//! [`serve`](dnsweir_serve); [`test`] and [`info`] load a module as the proxy would. Nothing here is on the
//! path of a query.

#![forbid(unsafe_code)]

pub mod artifacts;
pub mod command_line;
pub mod dev;
pub mod explain;
pub mod import;
pub mod info;
mod modules;
pub mod new;
pub mod record;
pub mod test;
pub mod verify;

use std::fmt;

use dnsweir_answer::dnstap;
use dnsweir_config as config;
use dnsweir_deliver::registry;
use dnsweir_engine::{cases, filter};
use dnsweir_import::corefile;
use dnsweir_os::{plain_text, watch};
use dnsweir_run::run;
use dnsweir_serve::serve;
use dnsweir_wire::dns;

use crate::config::Report;
use crate::config::decode::nearest;

/// Returns the schema of the configuration, in KDL Schema.
pub fn schema() -> String {
    config::schema()
}

/// Describes a word of the configuration wherever it is allowed; without one, returns an overview of all.
///
/// # Errors
/// When there is no such word.
pub fn words(word: Option<&str>) -> Result<String, Stop> {
    let text = config::glossary(word);
    let Some(unknown) = word.filter(|_| text.is_empty()) else {
        return Ok(text);
    };
    let help = match nearest(unknown, &config::known_words()) {
        Some(meant) => format!("did you mean `{meant}`?"),
        None => "`dnsweir words` lists them".to_owned(),
    };
    Err(Stop::Refused(format!(
        "a configuration has no word `{unknown}`: {help}"
    )))
}

/// Why a tool failed.
#[derive(Debug)]
pub enum Stop {
    /// A file of the user is invalid.
    File(Report),
    /// The request cannot be satisfied, or the answer is no.
    Refused(String),
    /// The machine refused something.
    Machine(String),
}

impl fmt::Display for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Stop::File(report) => report.fmt(f),
            Stop::Refused(text) | Stop::Machine(text) => f.write_str(text),
        }
    }
}

impl From<run::Stop> for Stop {
    fn from(stop: run::Stop) -> Stop {
        match stop {
            run::Stop::Configuration(report) => Stop::File(report),
            run::Stop::Machine(error) => Stop::Machine(error),
        }
    }
}

impl From<Report> for Stop {
    fn from(report: Report) -> Stop {
        Stop::File(report)
    }
}
