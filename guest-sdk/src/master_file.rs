//! Records as text in the master file format (RFC 1035 section 5), as in zone files. hickory-proto parses
//! their data.

use std::fmt;
use std::iter::Enumerate;
use std::str::Lines;
use std::time::Duration;

use hickory_proto::rr::{Name, RData, Record, RecordType};

use crate::NameBuf;

/// A line of a master file that cannot be parsed. Needs the feature `messages`.
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
/// reads no files. Names without a final dot are relative to the origin. Needs the feature `messages`.
///
/// ```
/// use dnsweir_filter::MasterFile;
///
/// let text = "$TTL 300\n@ SOA ns root 1 2 3 4 5\nwww A 192.0.2.1\n    60 IN AAAA 2001:db8::1 ; dual\n";
/// let records: Result<Vec<_>, _> = MasterFile::new(text, &"example.org".parse().unwrap()).collect();
/// let last = records.unwrap().pop().unwrap();
/// assert_eq!((last.name.to_string().as_str(), last.ttl), ("www.example.org.", 60));
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
        let begins_with_space = entry.starts_with([' ', '\t']);
        let mut rest = entry.trim();
        let mut next = || {
            let (word, behind) = rest.split_once([' ', '\t']).unwrap_or((rest, ""));
            rest = behind.trim_start();
            word
        };
        let mut word = if begins_with_space { "" } else { next() };
        match word {
            "" if entry.trim().is_empty() => return Ok(None),
            "" => {}
            "$ORIGIN" => {
                self.origin = self.absolute(next())?;
                return Ok(None);
            }
            "$TTL" => {
                self.ttl = Some(ttl(next()).ok_or("this is not a TTL")?);
                return Ok(None);
            }
            directive if directive.starts_with('$') => return Err(format!("{directive} is not known here")),
            owner => self.owner = self.absolute(owner)?,
        }
        let mut own_ttl = None;
        let rtype = loop {
            word = next();
            if word.eq_ignore_ascii_case("IN") {
                continue;
            }
            match ttl(word) {
                Some(time) => own_ttl = Some(time),
                None => break word.to_ascii_uppercase().parse::<RecordType>(),
            }
        };
        let rtype = rtype.map_err(|_| format!("{word:?} is not a record type"))?;
        let ttl = own_ttl
            .or(self.ttl)
            .ok_or("the record has no TTL, and there is no $TTL")?;
        let data = RData::try_from_str(rtype, &self.with_absolute_names(rtype, rest)?);
        let data = data.map_err(|error| error.to_string())?;
        let ttl = u32::try_from(ttl.as_secs()).unwrap_or(u32::MAX);
        Ok(Some(Record::from_rdata(
            Name::from(self.owner.as_name()),
            ttl,
            data,
        )))
    }

    /// Makes a name absolute: without a final dot, it is relative to the origin.
    fn absolute(&self, text: &str) -> Result<NameBuf, String> {
        let name = || match text {
            "@" => Ok(self.origin.clone()),
            absolute if absolute.ends_with('.') && !absolute.ends_with("\\.") => absolute.parse(),
            relative => NameBuf::join(relative.parse::<NameBuf>()?.as_name().labels(), &self.origin),
        };
        name().map_err(|reason| format!("{text:?} is not a name: {reason}"))
    }

    /// Makes the names in record data absolute, for the types of RFC 1035 and others with names.
    fn with_absolute_names(&self, rtype: RecordType, data: &str) -> Result<String, String> {
        let names: &[usize] = match rtype {
            RecordType::CNAME | RecordType::NS | RecordType::PTR | RecordType::ANAME => &[0],
            RecordType::MX | RecordType::SVCB | RecordType::HTTPS => &[1],
            RecordType::SRV => &[3],
            RecordType::SOA => &[0, 1],
            RecordType::NAPTR => &[5],
            _ => return Ok(data.to_owned()),
        };
        let words = data
            .split_whitespace()
            .enumerate()
            .map(|(index, word)| match names.contains(&index) {
                true => self.absolute(word).map(|name| name.to_string()),
                false => Ok(word.to_owned()),
            });
        Ok(words.collect::<Result<Vec<_>, _>>()?.join(" "))
    }
}

/// Parses a TTL in seconds, or with BIND's units: `1h30m`.
fn ttl(text: &str) -> Option<Duration> {
    let starts_with_digit = text.starts_with(|first: char| first.is_ascii_digit());
    let seconds = hickory_proto::serialize::txt::parse_ttl(text)
        .ok()
        .filter(|_| starts_with_digit)?;
    Some(Duration::from_secs(seconds.into()))
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
                match letter {
                    _ if escaped => escaped = false,
                    '\\' => escaped = true,
                    '"' => quoted = !quoted,
                    ';' if !quoted => break,
                    '(' if !quoted => depth += 1,
                    ')' if !quoted => depth = depth.saturating_sub(1),
                    _ => {}
                }
                entry.push(if quoted || !['(', ')'].contains(&letter) {
                    letter
                } else {
                    ' '
                });
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
    use super::*;

    fn read(text: &str) -> Result<Vec<String>, String> {
        let records = MasterFile::new(text, &"example.".parse().unwrap());
        let records = records.map(|record| record.map(|record| record.to_string()));
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
        let text = "$TTL 1\na CNAME .\n*.b CNAME *.\nc\\.d PTR e\\.\n";
        let records = MasterFile::new(text, &"example.".parse().unwrap());
        let records: Vec<Record> = records.map(Result::unwrap).collect();
        assert!(matches!(&records[0].data, RData::CNAME(target) if target.0.is_root()));
        assert_eq!(records[1].name.to_string(), "*.b.example.");
        assert_eq!(records[2].name.num_labels(), 2);
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
