//! The lists: what their lines mean, and the table they are read into.

use std::net::IpAddr;

use dnsweir_filter::{Name, NameBuf, NameMap};

/// What hosts files list beside the blocked names.
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

/// Everything that was listed.
#[derive(Default)]
pub struct Table(NameMap<Marks>);

/// What is said of a name.
#[derive(Default)]
struct Marks {
    /// It is blocked.
    exact: bool,
    /// It is blocked, and so is what is below it.
    below: bool,
    /// It is not, nor is what is below it, whatever else is said.
    allowed: bool,
}

impl Table {
    /// Blocks a name and all below it.
    pub fn block_below(&mut self, name: NameBuf) {
        self.0.entry(name).below = true;
    }

    /// Allows a name and all below it.
    pub fn allow_below(&mut self, name: NameBuf) {
        self.0.entry(name).allowed = true;
    }

    /// Whether there is a name that is blocked.
    pub fn blocks_anything(&self) -> bool {
        self.0.iter().any(|(_, marks)| marks.exact || marks.below)
    }

    /// Whether a name is blocked. One lookup for each of its labels, however long the lists are.
    pub fn blocks(&self, name: Name<'_>) -> bool {
        let mut blocked = false;
        for (suffix, marks) in self.0.suffixes(name) {
            if marks.allowed {
                return false;
            }
            blocked |= marks.below || (marks.exact && suffix == name);
        }
        blocked
    }

    /// Takes in a list. Returns the lines that are none of any format, by number and with the reason.
    pub fn read(&mut self, list: &str) -> Vec<(usize, String)> {
        let mut wrong = Vec::new();
        for (number, line) in (1..).zip(list.lines()) {
            if let Err(problem) = self.read_line(line) {
                wrong.push((number, problem));
            }
        }
        wrong
    }

    fn read_line(&mut self, line: &str) -> Result<(), String> {
        // A list that was saved on Windows may begin with a byte order mark.
        let line = without_comment(line.trim_start_matches('\u{feff}')).trim();
        // Adblock's comments and its header.
        if line.is_empty() || line.starts_with(['!', '[']) {
            return Ok(());
        }
        if let Some(rule) = line.strip_prefix("@@") {
            self.allow_below(adblock(rule)?);
            return Ok(());
        }
        if line.starts_with('|') {
            self.block_below(adblock(line)?);
            return Ok(());
        }
        let mut words = line.split_whitespace();
        let first = words.next().unwrap_or_default();
        match address(first) {
            Some(address) => self.read_hosts(first, address, words),
            None if words.next().is_some() => Err(format!(
                "what stands in front of a name is an address, not {}",
                shown(first)
            )),
            None => {
                self.block_below(host(first.strip_prefix("*.").unwrap_or(first))?);
                Ok(())
            }
        }
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
            self.0.entry(host(name)?).exact = true;
        }
        if named {
            Ok(())
        } else {
            Err("there is no name behind the address".to_owned())
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
