//! Blocks the names on a list of any size, of which the proxy keeps one copy for all workers.
//!
//! The list is never read as a whole: a name and the names above it are found by binary search.

use std::time::Duration;

use dnsweir_filter::{Data, ExtendedError, Filter, Invalid, Manifest, Query, Rcode, Setup, Verdict};

/// How long the host may remember a verdict. Bounded, so that it forgets names that are no longer asked for.
const REMEMBER: Duration = Duration::from_secs(3600);

/// The separator between a name and the reason to block it.
const SEPARATOR: u8 = b' ';

/// Blocked (RFC 8914 section 4.16).
const BLOCKED: u16 = 15;

/// The number of places at which a new list is checked.
const SAMPLES: u64 = 256;

/// The filter.
pub struct BigBlockList(Data);

impl Filter for BigBlockList {
    fn configure(setup: Setup<'_>) -> Result<(BigBlockList, Manifest), Invalid> {
        let config = setup.config();
        let list: Data = config.setting("list")?;
        // A failed download must not unblock everything: the host keeps the previous list.
        if list.size() == 0 {
            return Err(config.mistake("the list is empty").report());
        }
        let mut samples = (0..SAMPLES).map(|sample| sample * list.size() / SAMPLES);
        if let Some(lost) =
            samples.find_map(|offset| line_after(&list, offset).filter(|line| !finds(&list, line)))
        {
            let mistake = config.mistake(format!(
                "the list is not sorted, or no list: {lost:?} would not be found"
            ));
            return Err(mistake.help("sort it with `LC_ALL=C sort -u`").report());
        }
        Ok((BigBlockList(list), Manifest::new().queries()))
    }

    fn query(&mut self, query: &Query<'_>) -> Verdict {
        let blocked = |name: String| self.0.find_line(name.trim_end_matches('.'), SEPARATOR);
        let mut names = query.name().ancestors().filter(|name| !name.is_root());
        let verdict = match names.find_map(|name| blocked(name.to_string())) {
            Some(line) => {
                let line = String::from_utf8_lossy(&line);
                let reason = line
                    .split_once(char::from(SEPARATOR))
                    .map_or("", |(_, reason)| reason);
                Verdict::refuse(Rcode::NXDOMAIN).error(ExtendedError::new(BLOCKED).text(reason))
            }
            None => Verdict::pass(),
        };
        verdict.remember(REMEMBER)
    }
}

/// The first line that starts after `offset`, or at 0 for an offset of 0.
fn line_after(list: &Data, offset: u64) -> Option<String> {
    let mut octets = [0; 2048];
    let count = list.read_at(offset, &mut octets);
    let mut lines = octets[..count].split(|&octet| octet == b'\n');
    if count == octets.len() {
        // The last line may be incomplete.
        lines.next_back();
    }
    let line = lines.nth(usize::from(offset > 0))?;
    (!line.is_empty()).then(|| String::from_utf8_lossy(line).into_owned())
}

/// Whether a line starts with a name, and is found by it.
fn finds(list: &Data, line: &str) -> bool {
    let name = line.split(char::from(SEPARATOR)).next().unwrap_or_default();
    let octet = |octet: u8| octet.is_ascii_lowercase() || octet.is_ascii_digit() || b"-_.".contains(&octet);
    name.bytes().all(octet) && list.find_line(name, SEPARATOR).is_some()
}

dnsweir_filter::export!(BigBlockList);
