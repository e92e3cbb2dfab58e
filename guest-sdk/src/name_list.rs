//! Lists of names, in the forms that people publish them: hosts files, domains, rules of Adblock for names.

use std::collections::VecDeque;
use std::fmt;
use std::iter::Enumerate;
use std::net::IpAddr;
use std::str::Lines;

use crate::NameBuf;

/// What hosts files list beside the names that they are about.
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

/// What a list says of a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Listed {
    /// It is listed, and nothing is said of those below it: `0.0.0.0 NAME`.
    Exact(NameBuf),
    /// It is listed with all below it: `NAME`, `*.NAME` or `||NAME^`.
    Below(NameBuf),
    /// It is not to be listed, nor what is below it, whatever else is said: `@@||NAME^`.
    Except(NameBuf),
}

/// A line of a list that is of none of its forms.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NameListError {
    /// Counted from 1.
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

/// What a list says, one name after the other, whatever its form. A line that cannot be read is an error, and does not
/// end the list.
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
    /// What is left of the last line.
    read: VecDeque<Result<Listed, NameListError>>,
}

impl<'t> NameList<'t> {
    /// Reads from the beginning.
    pub fn new(text: &'t str) -> NameList<'t> {
        NameList {
            lines: text.lines().enumerate(),
            read: VecDeque::new(),
        }
    }

    fn read_line(&mut self, line: &str) -> Result<(), String> {
        // A list that was saved on Windows may begin with a byte order mark.
        let line = without_comment(line.trim_start_matches('\u{feff}')).trim();
        // Adblock's comments and its header.
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
            return Err(format!(
                "what stands in front of a name is an address, not {found}"
            ));
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
            false => Err("there is no name behind the address".to_owned()),
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

/// A line without what a `#` in front or behind a space begins.
fn without_comment(line: &str) -> &str {
    let comment = line
        .match_indices('#')
        .map(|(at, _)| at)
        .find(|&at| line[..at].chars().next_back().is_none_or(char::is_whitespace));
    &line[..comment.unwrap_or(line.len())]
}

/// An address, which may have a zone: `fe80::1%lo0`.
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
        return Err(format!("{} is no name of a host", shown(text)));
    }
    text.parse()
        .map_err(|reason| format!("{} is not a domain name: {reason}", shown(text)))
}

/// A word of a list in a message: lists come from anywhere.
fn shown(word: &str) -> String {
    let short: String = word.chars().take(60).collect();
    format!("{short:?}")
}
