//! Records as text in the master file format (RFC 1035 section 5), as in zone files.

mod data;

use std::fmt;
use std::iter::Enumerate;
use std::str::Lines;
use std::time::Duration;

use crate::{NameBuf, Rdata, Record, Type};

/// A line of a master file that cannot be parsed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MasterFileError {
    /// The line number, counted from 1.
    pub line: usize,
    /// What is wrong with it.
    pub message: String,
}

impl fmt::Display for MasterFileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.message)
    }
}

impl std::error::Error for MasterFileError {}

/// An iterator over the records of a master file. Supports `$ORIGIN` and `$TTL`, but not `$INCLUDE`, since it
/// reads no files. Names without a final dot are relative to the origin.
///
/// It reads data of the types A, AAAA, CAA, CDNSKEY, CDS, CERT, CNAME, CSYNC, DNAME, DNSKEY, DS, HINFO, HTTPS, MX, NAPTR,
/// NS, OPENPGPKEY, PTR, SMIMEA, SOA, SPF, SRV, SSHFP, SVCB, TLSA, TXT and URI, and of the oldest ones: AFSDB, MB, MD, MF,
/// MG, MINFO, MR, PX, RP and RT. Data of any type may be written in hexadecimal (RFC 3597 section 5): `\# 2 c0de`.
///
/// ```
/// use std::time::Duration;
/// use dnsweir_filter::MasterFile;
///
/// let text = "$TTL 300\n@ SOA ns root 1 2 3 4 5\nwww A 192.0.2.1\n    60 IN AAAA 2001:db8::1 ; dual\n";
/// let records: Result<Vec<_>, _> = MasterFile::new(text, &"example.org".parse().unwrap()).collect();
/// let last = records.unwrap().pop().unwrap();
/// assert_eq!(last.name().to_string(), "www.example.org.");
/// assert_eq!(last.ttl(), Duration::from_secs(60));
/// assert_eq!(last.address(), "2001:db8::1".parse().ok());
/// ```
#[derive(Debug)]
pub struct MasterFile<'t> {
    entries: Entries<'t>,
    origin: NameBuf,
    owner: NameBuf,
    ttl: Option<Duration>,
}

impl<'t> MasterFile<'t> {
    /// A reader at the start of this text.
    pub fn new(text: &'t str, origin: &NameBuf) -> MasterFile<'t> {
        MasterFile {
            entries: Entries(text.lines().enumerate()),
            origin: origin.clone(),
            owner: origin.clone(),
            ttl: None,
        }
    }
}

impl Iterator for MasterFile<'_> {
    type Item = Result<Record, MasterFileError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let (line, entry) = self.entries.next()?;
            match self.read(&entry) {
                Ok(Some(record)) => return Some(Ok(record)),
                Ok(None) => {}
                Err(message) => return Some(Err(MasterFileError { line, message })),
            }
        }
    }
}

impl MasterFile<'_> {
    /// Parses an entry. Returns its record; none for directives and empty entries.
    fn read(&mut self, entry: &str) -> Result<Option<Record>, String> {
        let mut words = Words(entry);
        if !entry.starts_with([' ', '\t']) {
            match words.next() {
                None => return Ok(None),
                Some("$ORIGIN") => {
                    self.origin = absolute(words.next().unwrap_or_default(), &self.origin)?;
                    return Ok(None);
                }
                Some("$TTL") => {
                    let seconds = words.next().and_then(seconds).ok_or("this is not a TTL")?;
                    self.ttl = Some(Duration::from_secs(seconds.into()));
                    return Ok(None);
                }
                Some(directive) if directive.starts_with('$') => {
                    return Err(format!("{directive} is not known here"));
                }
                Some(owner) => self.owner = absolute(owner, &self.origin)?,
            }
        } else if entry.trim().is_empty() {
            return Ok(None);
        }
        let mut own_ttl = None;
        let word = loop {
            let word = words.next().unwrap_or_default();
            match seconds(word) {
                Some(seconds) => own_ttl = Some(Duration::from_secs(seconds.into())),
                None if word.eq_ignore_ascii_case("IN") => {}
                None => break word,
            }
        };
        let rtype = word.parse::<Type>().ok().filter(|rtype| !rtype.is_meta());
        let rtype = rtype.ok_or_else(|| format!("{word:?} is not a record type"))?;
        let ttl = own_ttl
            .or(self.ttl)
            .ok_or("the record has no TTL, and there is no $TTL")?;
        let data = data::read(rtype, words, &self.origin)?;
        Ok(Some(Record::new(&self.owner, ttl, Rdata::Other(rtype, data))))
    }
}

/// The name that a word stands for: without a final dot, it is relative to the origin.
fn absolute(word: &str, origin: &NameBuf) -> Result<NameBuf, String> {
    let backslashes = |text: &str| text.len() - text.trim_end_matches('\\').len();
    let is_absolute = word
        .strip_suffix('.')
        .is_some_and(|text| backslashes(text).is_multiple_of(2));
    let name = || match word {
        "@" => Ok(origin.clone()),
        absolute if is_absolute => absolute.parse(),
        relative => NameBuf::join(relative.parse::<NameBuf>()?.as_name().labels(), origin),
    };
    name().map_err(|reason| format!("{word:?} is not a name: {reason}"))
}

/// The seconds that a word stands for, which may have BIND's units: `1h30m`.
fn seconds(word: &str) -> Option<u32> {
    let (mut seconds, mut rest) = (0u32, word);
    loop {
        let digits = rest
            .find(|letter: char| !letter.is_ascii_digit())
            .unwrap_or(rest.len());
        let (number, behind) = rest.split_at(digits);
        let mut units = behind.chars();
        let unit = match units.next().map(|unit| unit.to_ascii_lowercase()) {
            None | Some('s') => 1,
            Some('m') => 60,
            Some('h') => 3600,
            Some('d') => 86_400,
            Some('w') => 604_800,
            Some(_) => return None,
        };
        seconds = seconds.checked_add(number.parse::<u32>().ok()?.checked_mul(unit)?)?;
        rest = units.as_str();
        if rest.is_empty() {
            return Some(seconds);
        }
    }
}

/// The words of an entry, with their quotes and escapes.
#[derive(Debug, Clone)]
struct Words<'e>(&'e str);

impl<'e> Iterator for Words<'e> {
    type Item = &'e str;

    fn next(&mut self) -> Option<&'e str> {
        let text = self.0.trim_start();
        let (mut quoted, mut escaped, mut ended) = (false, false, false);
        let end = text.find(|letter: char| {
            match letter {
                _ if ended => return true,
                _ if escaped => escaped = false,
                '\\' => escaped = true,
                '"' => {
                    // What begins with a quote ends with the next.
                    ended = quoted && text.starts_with('"');
                    quoted = !quoted;
                }
                _ => return letter.is_whitespace() && !quoted,
            }
            false
        });
        let (word, rest) = text.split_at(end.unwrap_or(text.len()));
        self.0 = rest;
        (!word.is_empty()).then_some(word)
    }
}

/// Entries without comments, each with its first line's number. Parentheses continue an entry over several
/// lines.
#[derive(Debug)]
struct Entries<'t>(Enumerate<Lines<'t>>);

impl Iterator for Entries<'_> {
    type Item = (usize, String);

    fn next(&mut self) -> Option<(usize, String)> {
        let (mut first, mut entry, mut depth) = (None, String::new(), 0u32);
        for (index, line) in self.0.by_ref() {
            first.get_or_insert(index + 1);
            let (mut quoted, mut escaped) = (false, false);
            for letter in line.chars() {
                let mut kept = letter;
                match letter {
                    _ if escaped => escaped = false,
                    '\\' => escaped = true,
                    '"' => quoted = !quoted,
                    ';' if !quoted => break,
                    '(' if !quoted => (depth, kept) = (depth + 1, ' '),
                    ')' if !quoted => (depth, kept) = (depth.saturating_sub(1), ' '),
                    _ => {}
                }
                entry.push(kept);
            }
            if depth == 0 {
                break;
            }
            entry.push(' ');
        }
        Some((first?, entry))
    }
}

#[cfg(test)]
mod tests {
    use hickory_proto::rr;
    use hickory_proto::serialize::binary::BinDecodable;

    use super::*;

    /// A record as text that hickory-proto writes.
    fn text(record: Record) -> String {
        let record = record.into_raw();
        let numbers = [record.rtype.to_be_bytes(), record.class.to_be_bytes()].concat();
        let length = (record.rdata.len() as u16).to_be_bytes();
        let ttl = record.ttl.to_be_bytes();
        let wire = [&record.name[..], &numbers, &ttl, &length, &record.rdata].concat();
        rr::Record::from_bytes(&wire).unwrap().to_string()
    }

    fn read(text: &str) -> Result<Vec<String>, String> {
        let records = MasterFile::new(text, &"example.".parse().unwrap());
        let records = records.map(|record| record.map(self::text));
        records
            .collect::<Result<_, _>>()
            .map_err(|error| error.to_string())
    }

    #[test]
    fn lines_inherit_owner_origin_and_ttl() {
        let text = "$TTL 1h\n@ 300 IN SOA ns root (\n  1 ; serial\n  2 3 4 5 )\n  NS ns.other.\n$ORIGIN sub\nwww IN 60 A 192.0.2.1\n\
                    \tTXT \"a ; b\" \"(c\"\nmail MX 10 @\n";
        assert_eq!(
            read(text).unwrap(),
            [
                "example. 300 IN SOA ns.example. root.example. 1 2 3 4 5",
                "example. 3600 IN NS ns.other.",
                "www.sub.example. 60 IN A 192.0.2.1",
                "www.sub.example. 3600 IN TXT a ; b(c",
                "mail.sub.example. 3600 IN MX 10 sub.example.",
            ]
        );
    }

    #[test]
    fn the_root_and_escaped_dots_are_names() {
        let text = "$TTL 1\na CNAME .\n*.b CNAME *.\nc\\.d PTR e\\.\nf PTR g\\\\.\n";
        let records = MasterFile::new(text, &"example.".parse().unwrap());
        let records: Vec<Record> = records.map(Result::unwrap).collect();
        assert_eq!(records[0].target(), Some(NameBuf::root()));
        assert_eq!(records[1].name().to_string(), "*.b.example.");
        assert_eq!(records[2].name().labels().count(), 2);
        let targets = records[2..].iter().filter_map(Record::target);
        let targets: Vec<String> = targets.map(|target| target.to_string()).collect();
        // The second ends in an escaped backslash and a dot.
        assert_eq!(targets, [r"e\..example.", r"g\\."]);
    }

    #[test]
    fn escaped_parentheses_are_letters() {
        let text = "$TTL 1\na\\(b A 192.0.2.1\nc TXT d\\)e (\nf )\n";
        let expected = [r"a\(b.example. 1 IN A 192.0.2.1", "c.example. 1 IN TXT d)ef"];
        assert_eq!(read(text).unwrap(), expected);
    }

    #[test]
    fn a_line_that_cannot_be_read_is_named() {
        for (text, error) in [
            (
                "a A 192.0.2.1",
                "line 1: the record has no TTL, and there is no $TTL",
            ),
            ("$TTL 1\n\na A", "line 3: "),
            ("$TTL 1\na NOSUCH x", "line 2: \"NOSUCH\" is not a record type"),
            ("$TTL x", "line 1: this is not a TTL"),
            ("$INCLUDE other", "line 1: $INCLUDE is not known here"),
            ("$TTL 1\na..b A 192.0.2.1", "line 2: \"a..b\" is not a name: "),
        ] {
            let found = read(text).unwrap_err();
            assert!(found.starts_with(error), "{found}");
        }
    }
}
