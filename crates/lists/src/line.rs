//! Parses a line of a list. The syntax is detected per line, since people mix them.
//!
//! | line | what it is |
//! |---|---|
//! | `example.com` | a name |
//! | `*.example.com`, `.example.com` | a name and all below it |
//! | `0.0.0.0 example.com example.net` | names, as in `/etc/hosts`; a real address becomes their answer |
//! | <code>\|\|example.com^</code> | a name and all below it, as in AdGuard lists |
//! | <code>@@\|\|example.com^</code> | an exception |
//! | `# …`, `! …`, `[Adblock Plus]` | ignored |

use std::net::IpAddr;

use super::hash::Hash;
use super::table::Reach;

/// The longest line that is parsed, in bytes. The longest name with its address has fewer; a line of several
/// names can have many.
pub(crate) const LONGEST: usize = 4096;

/// What a line says about a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rule {
    /// Answered as the list is configured to.
    Block,
    /// Let through to the next source.
    Allow,
    /// Answered without records, whatever the list is configured to.
    Empty,
    /// Answered with this address.
    Address(IpAddr),
}

/// Why a line cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unusable {
    /// It is too long.
    Long,
    /// It is about parts of pages, or about requests of browsers.
    Browser,
    /// It has options that limit it to some clients or requests, which are not supported.
    Options,
    /// It is a pattern or a regular expression.
    Pattern,
    /// It is an unsupported policy or directive.
    Policy,
    /// It has no valid name.
    Name,
}

impl Unusable {
    /// Describes the reason for an operator.
    pub fn why(self) -> &'static str {
        match self {
            Unusable::Long => "it is too long",
            Unusable::Browser => "it is for browsers",
            Unusable::Options => "its options are for browsers",
            Unusable::Pattern => "it is a pattern",
            Unusable::Policy => "its policy is not known here",
            Unusable::Name => "there is no name of a host in it",
        }
    }
}

/// Names in every hosts file for the local machine, which are ignored.
const OWN: [&[u8]; 12] = [
    b"localhost",
    b"localhost.localdomain",
    b"local",
    b"broadcasthost",
    b"ip6-localhost",
    b"ip6-loopback",
    b"ip6-localnet",
    b"ip6-mcastprefix",
    b"ip6-allnodes",
    b"ip6-allrouters",
    b"ip6-allhosts",
    b"0.0.0.0",
];

/// Options that do not narrow a rule here: it covers all requests, or overrides others.
const OPTIONS: [&[u8]; 3] = [b"all", b"important", b"document"];

/// Markers of a rule for parts of pages.
const OF_PAGES: [&[u8]; 4] = [b"##", b"#@#", b"#?#", b"#$#"];

/// Parses a line, and calls `say` with the hash, reach and rule of each of its names.
///
/// # Errors
/// Those of `say`. The inner result says why the line cannot be used.
pub(crate) fn read<E>(
    line: &[u8],
    mut say: impl FnMut(Hash, Reach, Rule) -> Result<(), E>,
) -> Result<Result<(), Unusable>, E> {
    let line = line.trim_ascii();
    if matches!(line, [] | [b'#' | b'!', ..]) || (line.starts_with(b"[") && line.ends_with(b"]")) {
        return Ok(Ok(()));
    }
    if line.len() > LONGEST {
        return Ok(Err(Unusable::Long));
    }
    let exception = line.strip_prefix(b"@@");
    if let Some(rule) = exception.or(line.starts_with(b"|").then_some(line)) {
        let becomes = match exception {
            Some(_) => Rule::Allow,
            None => Rule::Block,
        };
        return match adblock(rule) {
            Ok(hash) => say(hash, Reach::Both, becomes).map(Ok),
            Err(unusable) => Ok(Err(unusable)),
        };
    }
    if OF_PAGES
        .iter()
        .any(|mark| line.windows(mark.len()).any(|part| part == *mark))
    {
        return Ok(Err(Unusable::Browser));
    }
    let comment = line
        .windows(2)
        .position(|two| two[0].is_ascii_whitespace() && two[1] == b'#');
    let mut words = line[..comment.unwrap_or(line.len())]
        .split(u8::is_ascii_whitespace)
        .filter(|word| !word.is_empty());
    let first = words.next().unwrap_or_default();
    match address(first) {
        Some(address) => hosts(address, words, say),
        None if words.next().is_some() => Ok(Err(Unusable::Name)),
        None => domain(first, say),
    }
}

/// Parses the names of a hosts-file line with this address.
fn hosts<'l, E>(
    address: IpAddr,
    names: impl Iterator<Item = &'l [u8]>,
    mut say: impl FnMut(Hash, Reach, Rule) -> Result<(), E>,
) -> Result<Result<(), Unusable>, E> {
    // Unspecified and loopback addresses are meant to lead nowhere.
    let nowhere = address.is_unspecified() || address.is_loopback();
    let rule = if nowhere {
        Rule::Block
    } else {
        Rule::Address(address)
    };
    let (mut any, mut wrong) = (false, false);
    for name in names {
        any = true;
        if OWN.iter().any(|own| own.eq_ignore_ascii_case(name)) {
            continue;
        }
        match Hash::parse(name) {
            Some(hash) => say(hash, Reach::Itself, rule)?,
            None => wrong = true,
        }
    }
    Ok(if any && !wrong {
        Ok(())
    } else {
        Err(Unusable::Name)
    })
}

/// Parses a name alone, or with a prefix that includes all names below it.
fn domain<E>(
    word: &[u8],
    mut say: impl FnMut(Hash, Reach, Rule) -> Result<(), E>,
) -> Result<Result<(), Unusable>, E> {
    let below = word.strip_prefix(b"*.").or_else(|| word.strip_prefix(b"."));
    let name = below.unwrap_or(word);
    // Browser lists may also end a name this way.
    let name = name.strip_suffix(b"^").unwrap_or(name);
    match Hash::parse(name) {
        Some(hash) => {
            let reach = if below.is_some() {
                Reach::Both
            } else {
                Reach::Itself
            };
            say(hash, reach, Rule::Block).map(Ok)
        }
        None if word.iter().any(|octet| b"*/?$^|".contains(octet)) => Ok(Err(Unusable::Pattern)),
        None => Ok(Err(Unusable::Name)),
    }
}

/// Parses a rule that covers a name entirely.
fn adblock(rule: &[u8]) -> Result<Hash, Unusable> {
    let at = rule.iter().position(|octet| *octet == b'$');
    let (pattern, options) = match at {
        Some(at) => (&rule[..at], &rule[at + 1..]),
        None => (rule, &b""[..]),
    };
    let is_known = |option: &[u8]| option.is_empty() || OPTIONS.contains(&option);
    if !options.split(|octet| *octet == b',').all(is_known) {
        return Err(Unusable::Options);
    }
    let pattern = pattern.strip_prefix(b"||").ok_or(Unusable::Pattern)?;
    let pattern = pattern.strip_prefix(b"*.").unwrap_or(pattern);
    let pattern = pattern.strip_suffix(b"|").unwrap_or(pattern);
    let name = pattern.strip_suffix(b"^").ok_or(Unusable::Pattern)?;
    Hash::parse(name).ok_or(Unusable::Pattern)
}

/// Parses a word as an address, if it is one.
fn address(word: &[u8]) -> Option<IpAddr> {
    let text = std::str::from_utf8(word).ok()?;
    // A link-local address has a zone after it.
    text.split('%').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the hash, reach and rule of each name on a line.
    fn said(line: &str) -> Result<Vec<(Hash, Reach, Rule)>, Unusable> {
        let mut said = Vec::new();
        let read = read::<()>(line.as_bytes(), |hash, reach, rule| {
            said.push((hash, reach, rule));
            Ok(())
        });
        read.unwrap().map(|()| said)
    }

    #[test]
    fn each_line_tells_what_it_is() {
        let (block, allow) = (Rule::Block, Rule::Allow);
        let nas = |address: &str| Rule::Address(address.parse().unwrap());
        for (line, expected) in [
            ("", &[][..]),
            ("   \t", &[]),
            ("# Title: a list", &[]),
            ("##.banner", &[]),
            ("! Expires: 1 day", &[]),
            ("[Adblock Plus 2.0]", &[]),
            ("example.com", &[("example.com", block)]),
            ("  Example.COM.  \r", &[("example.com", block)]),
            ("example.com # why", &[("example.com", block)]),
            ("*.example.com", &[(".example.com", block)]),
            (".example.com", &[(".example.com", block)]),
            ("xn--e1afmkfd.xn--p1ai", &[("xn--e1afmkfd.xn--p1ai", block)]),
            ("b\u{fc}cher.example", &[("b\u{fc}cher.example", block)]),
            ("_dmarc.example.com", &[("_dmarc.example.com", block)]),
            ("0.0.0.0 ads.example", &[("ads.example", block)]),
            (
                "127.0.0.1\tads.example  a.example # two",
                &[("ads.example", block), ("a.example", block)],
            ),
            ("::1 localhost ip6-localhost ip6-loopback", &[]),
            ("0.0.0.0 0.0.0.0", &[]),
            (":: ads.example", &[("ads.example", block)]),
            ("fe80::1%lo0 localhost", &[]),
            ("192.0.2.7 nas.lan", &[("nas.lan", nas("192.0.2.7"))]),
            ("2001:db8::7 nas.lan", &[("nas.lan", nas("2001:db8::7"))]),
            ("||ads.example^", &[(".ads.example", block)]),
            ("||ads.example^$important", &[(".ads.example", block)]),
            ("||ads.example^|", &[(".ads.example", block)]),
            ("||*.ads.example^", &[(".ads.example", block)]),
            ("@@||good.ads.example^", &[(".good.ads.example", allow)]),
        ] {
            let expected = expected.iter().map(|(name, rule)| match name.strip_prefix('.') {
                Some(name) => (Hash::parse(name.as_bytes()).unwrap(), Reach::Both, *rule),
                None => (Hash::parse(name.as_bytes()).unwrap(), Reach::Itself, *rule),
            });
            assert_eq!(said(line), Ok(expected.collect()), "{line:?}");
        }
    }

    #[test]
    fn what_cannot_be_used_is_told_apart() {
        for (line, why) in [
            ("example.com##.banner", Unusable::Browser),
            ("example.com#@#.banner", Unusable::Browser),
            ("||ads.example^$third-party", Unusable::Options),
            ("||ads.example^$important,client=kids", Unusable::Options),
            ("||ads.*^", Unusable::Pattern),
            ("||ads.example/track", Unusable::Pattern),
            ("||ads.example", Unusable::Pattern),
            ("|https://ads.example^", Unusable::Pattern),
            ("@@/banner/", Unusable::Pattern),
            ("/^ad[0-9]/", Unusable::Pattern),
            ("ad*.example.com", Unusable::Pattern),
            ("two words", Unusable::Name),
            ("0.0.0.0", Unusable::Name),
            ("0.0.0.0 a..b", Unusable::Name),
            ("192.0.2.1.", Unusable::Name),
            ("a,b", Unusable::Name),
        ] {
            assert_eq!(said(line), Err(why), "{line:?}");
        }
        assert_eq!(said(&"a".repeat(LONGEST + 1)), Err(Unusable::Long));
    }
}
