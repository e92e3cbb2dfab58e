//! Lists of names in the formats in which they are published: hosts files, plain domains, Adblock rules for
//! names.

use std::collections::VecDeque;
use std::fmt;
use std::iter::Enumerate;
use std::net::IpAddr;
use std::str::Lines;

use crate::NameBuf;

/// Names in hosts files that are not part of the list.
const LOCAL: [&str; 12] = [
    "0.0.0.0",
    "localhost",
    "localhost.localdomain",
    "local",
    "broadcasthost",
    "ip6-localhost",
    "ip6-loopback",
    "ip6-localnet",
    "ip6-mcastprefix",
    "ip6-allnodes",
    "ip6-allrouters",
    "ip6-allhosts",
];

/// An entry of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Listed {
    /// The name is listed, without the names below it: `0.0.0.0 NAME`.
    Exact(NameBuf),
    /// The name is listed with all names below it: `NAME`, `*.NAME` or `||NAME^`.
    Below(NameBuf),
    /// The name and those below it are exempt, whatever other entries say: `@@||NAME^`.
    Except(NameBuf),
}

/// A line of a list in none of the known formats.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NameListError {
    /// The line number, counted from 1.
    pub line: usize,
    /// What is wrong with it.
    pub message: String,
}

impl fmt::Display for NameListError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.message)
    }
}

impl std::error::Error for NameListError {}

/// An iterator over the entries of a list in any of the formats. A line that cannot be parsed is an error,
/// but does not end the iteration.
///
/// ```
/// use dnsweir_filter::{Listed, NameList};
///
/// let list = "# seen today\n0.0.0.0 ads.example\ntracker.example\n@@||good.tracker.example^\n";
/// let names: Result<Vec<Listed>, _> = NameList::new(list).collect();
/// assert_eq!(names.unwrap(), [
///     Listed::Exact("ads.example".parse().unwrap()),
///     Listed::Below("tracker.example".parse().unwrap()),
///     Listed::Except("good.tracker.example".parse().unwrap()),
/// ]);
/// ```
#[derive(Debug)]
pub struct NameList<'t> {
    lines: Enumerate<Lines<'t>>,
    /// Entries of the last line not yet returned.
    read: VecDeque<Result<Listed, NameListError>>,
}

impl<'t> NameList<'t> {
    /// A reader at the start of this text.
    pub fn new(text: &'t str) -> NameList<'t> {
        NameList {
            lines: text.lines().enumerate(),
            read: VecDeque::new(),
        }
    }

    fn read_line(&mut self, line: &str) -> Result<(), String> {
        // A list saved on Windows may start with a byte order mark.
        let line = without_comment(line.trim_start_matches('\u{feff}')).trim();
        // Adblock's comments and header.
        if line.is_empty() || line.starts_with(['!', '[']) {
            return Ok(());
        }
        let mut words = line.split_whitespace();
        let first = words.next().unwrap_or_default();
        let listed = if let Some(rule) = line.strip_prefix("@@") {
            Listed::Except(adblock(rule)?)
        } else if line.starts_with('|') {
            Listed::Below(adblock(line)?)
        } else if let Some(address) = address(first) {
            return self.read_hosts(first, address, words);
        } else if words.next().is_some() {
            let found = shown(first);
            return Err(format!("the text before a name must be an address, not {found}"));
        } else {
            Listed::Below(host(first.strip_prefix("*.").unwrap_or(first))?)
        };
        self.read.push_back(Ok(listed));
        Ok(())
    }

    /// `0.0.0.0 NAME…`
    fn read_hosts<'l>(
        &mut self,
        written: &str,
        address: IpAddr,
        names: impl Iterator<Item = &'l str>,
    ) -> Result<(), String> {
        let mut named = false;
        for name in names {
            named = true;
            if LOCAL.contains(&name) {
                continue;
            }
            if !(address.is_unspecified() || address.is_loopback()) {
                return Err(format!(
                    "a blocked name has the address 0.0.0.0, 127.0.0.1, :: or ::1, not {written}"
                ));
            }
            self.read.push_back(Ok(Listed::Exact(host(name)?)));
        }
        match named {
            true => Ok(()),
            false => Err("there is no name after the address".to_owned()),
        }
    }
}

impl Iterator for NameList<'_> {
    type Item = Result<Listed, NameListError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(listed) = self.read.pop_front() {
                return Some(listed);
            }
            let (index, line) = self.lines.next()?;
            if let Err(message) = self.read_line(line) {
                let line = index + 1;
                self.read.push_back(Err(NameListError { line, message }));
            }
        }
    }
}

/// Strips a comment: a `#` at the start of the line or after a space, and all that follows.
fn without_comment(line: &str) -> &str {
    let comment = line
        .match_indices('#')
        .map(|(at, _)| at)
        .find(|&at| line[..at].chars().next_back().is_none_or(char::is_whitespace));
    &line[..comment.unwrap_or(line.len())]
}

/// Parses an address, which may have a zone: `fe80::1%lo0`.
fn address(text: &str) -> Option<IpAddr> {
    text.split('%').next()?.parse().ok()
}

/// `||NAME^`
fn adblock(rule: &str) -> Result<NameBuf, String> {
    let name = rule.strip_prefix("||").and_then(|rest| rest.strip_suffix('^'));
    match name {
        Some(name) => host(name),
        None => Err(format!(
            "of Adblock's rules, those for names end in ^: ||NAME^, not {}",
            shown(rule)
        )),
    }
}

fn host(text: &str) -> Result<NameBuf, String> {
    let plain = text
        .bytes()
        .all(|octet| octet.is_ascii_alphanumeric() || b"-_.".contains(&octet));
    if !plain {
        return Err(format!("{} is not the name of a host", shown(text)));
    }
    text.parse()
        .map_err(|reason| format!("{} is not a domain name: {reason}", shown(text)))
}

/// A word of a list, shortened and quoted for a message: lists come from untrusted sources.
fn shown(word: &str) -> String {
    let short: String = word.chars().take(60).collect();
    format!("{short:?}")
}
