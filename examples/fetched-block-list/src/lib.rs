//! Blocks the names on lists that the proxy fetches and keeps up to date.
//!
//! A refresh merges all sources into one sorted list for queries. A source may be in any order, as a hosts
//! file or a plain list.

use std::time::Duration;

use dnsweir_filter::{
    Data, ExtendedError, Filter, Invalid, Manifest, Output, Query, Rcode, Setup, SourceFile, Verdict, count,
};

/// How long the host may remember a verdict. Newly published data clears it.
const REMEMBER: Duration = Duration::from_secs(3600);

/// The separator between a name and its source.
const SEPARATOR: u8 = b' ';

/// Blocked (RFC 8914 section 4.16).
const BLOCKED: u16 = 15;

/// Names of the machine itself in hosts files.
const OWN: [&str; 4] = ["localhost", "localhost.localdomain", "local", "broadcasthost"];

/// The filter.
pub struct FetchedBlockList {
    /// A line per name: the name, and the source that lists it.
    names: Data,
    /// A refresh with fewer names fails, since its sources are probably broken.
    at_least: usize,
}

impl Filter for FetchedBlockList {
    fn configure(setup: Setup<'_>) -> Result<(FetchedBlockList, Manifest), Invalid> {
        let at_least: u32 = setup.config().setting_or("at-least", 1);
        let filter = FetchedBlockList {
            names: setup.published("names"),
            at_least: at_least as usize,
        };
        Ok((filter, Manifest::new().queries()))
    }

    fn refresh(&mut self, sources: &[SourceFile], output: &mut Output) -> Result<(), String> {
        let mut lines = Vec::new();
        for source in sources {
            let names = source.data().lines().filter_map(|line| name_in(&line));
            lines.extend(names.map(|name| format!("{name} {}\n", source.name())));
        }
        // Sorted byte by byte, as lookups need it; of several sources with a name, the first is kept.
        lines.sort();
        lines.dedup_by(|line, before| key(line) == key(before));
        if lines.len() < self.at_least {
            return Err(format!("there are only {} names", lines.len()));
        }
        lines.iter().try_for_each(|line| output.append("names", line))
    }

    fn query(&mut self, query: &Query<'_>) -> Verdict {
        let mut names = query.name().ancestors().filter(|name| !name.is_root());
        let listed = |name: String| self.names.find_line(name.trim_end_matches('.'), SEPARATOR);
        let Some(line) = names.find_map(|name| listed(name.to_string())) else {
            return Verdict::pass().remember(REMEMBER);
        };
        count("blocked", 1);
        let line = String::from_utf8_lossy(&line);
        let source = line.split_once(' ').map_or("", |(_, source)| source);
        let error = ExtendedError::new(BLOCKED).text(source);
        Verdict::refuse(Rcode::NXDOMAIN).error(error).remember(REMEMBER)
    }
}

fn key(line: &str) -> &str {
    line.split(' ').next().unwrap_or_default()
}

/// The name that a line blocks: `ads.example`, or `0.0.0.0 ads.example`, with or without a comment.
fn name_in(line: &[u8]) -> Option<String> {
    let line = std::str::from_utf8(line).ok()?;
    let mut words = line.split('#').next()?.split_whitespace();
    let (first, second) = (words.next()?, words.next());
    let name = second.unwrap_or(first).trim_end_matches('.').to_ascii_lowercase();
    let is_name = name.contains('.')
        && name
            .bytes()
            .all(|octet| octet.is_ascii_alphanumeric() || b"-_.".contains(&octet));
    let is_address = name.parse::<std::net::IpAddr>().is_ok();
    (is_name && !is_address && !OWN.contains(&name.as_str())).then_some(name)
}

dnsweir_filter::export!(FetchedBlockList);
