//! Parses the text of a list into its names.

use std::fmt;

use super::line::{self, Unusable};
use super::policies::Policies;
use super::rules::{Reading, Rules};
use super::table::{Full, Reach};
use crate::config::{List, ListFormat, spell_size};

/// How many unusable lines are named.
const NAMED: usize = 3;

/// Lines of a list that cannot be used.
#[derive(Debug, Default)]
pub(crate) struct Skipped {
    /// How many there are.
    pub count: u64,
    /// The first of them, by line number.
    first: Vec<(usize, Unusable)>,
}

impl Skipped {
    fn add(&mut self, number: usize, why: Unusable) {
        self.count += 1;
        if self.first.len() < NAMED {
            self.first.push((number, why));
        }
    }
}

/// Formats the count, and what is wrong with the first lines.
impl fmt::Display for Skipped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines = if self.count == 1 { "line" } else { "lines" };
        write!(f, "{} {lines} cannot be used", self.count)?;
        for (number, why) in &self.first {
            write!(f, ", line {number}: {}", why.why())?;
        }
        Ok(())
    }
}

/// Parses a list; also returns which lines cannot be used.
///
/// # Errors
/// When it has too many names, or none, or is not a list.
pub(crate) fn read(text: &[u8], list: &List) -> Result<(Rules, Skipped), String> {
    let full = |Full| {
        let most = spell_size(list.memory);
        format!("its names take more than {most}: raise `memory`")
    };
    let text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text);
    if text.trim_ascii_start().starts_with(b"<") {
        return Err("it is a page (HTML or XML) and no list".into());
    }
    let mut reading = Reading::new(list.memory, list.format == ListFormat::Rpz);
    let (mut skipped, mut policies) = (Skipped::default(), Policies::default());
    for (number, line) in (1..).zip(text.split(|octet| *octet == b'\n')) {
        let say = |hash, reach, rule| {
            let reach = match reach {
                Reach::Itself if list.subdomains => Reach::Both,
                reach => reach,
            };
            reading.push(hash, reach, rule)
        };
        let read = match list.format {
            ListFormat::Lines => line::read(line, say),
            ListFormat::Rpz => policies.read(line, say),
        };
        if let Err(why) = read.map_err(full)? {
            skipped.add(number, why);
        }
    }
    let rules = reading.finish().map_err(full)?;
    // A file that is cut off, or put in its place by mistake, must not unblock everything.
    match (rules.names(), skipped.count) {
        (0, 0) => Err("it has no name".into()),
        (0, _) => Err(format!("it has no name: {skipped}")),
        _ => Ok((rules, skipped)),
    }
}
