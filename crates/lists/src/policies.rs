//! Parses response policy zones line by line (draft-vixie-dnsop-dns-rpz-00): a record says what to answer for
//! its owner name.
//!
//! | record | answer |
//! |---|---|
//! | `CNAME .`, `CNAME rpz-drop.` | as the list is configured to |
//! | `CNAME *.` | no records |
//! | `CNAME rpz-passthru.` | let through to the next source |
//! | `A`, `AAAA` | this address |
//!
//! Names are relative to the zone, and `*.` covers all names below one. Triggers on addresses or name
//! servers, and other targets, are not supported.

use smallvec::SmallVec;

use super::hash::Hash;
use super::line::{LONGEST, Rule, Unusable};
use super::table::Reach;

/// The most words of a record that matter: owner, TTL, class, type, and data.
const WORDS: usize = 5;

/// Record types that occur in every zone and are no policies.
const OF_ZONES: [&str; 3] = ["SOA", "NS", "TXT"];

/// The parser's state within a zone.
#[derive(Debug, Default)]
pub(crate) struct Policies {
    /// The suffix of absolute names, without its last dot.
    origin: Vec<u8>,
    /// The owner of the last record, in lowercase.
    owner: Vec<u8>,
    /// How many parentheses are open: lines within them continue the record before.
    open: usize,
}

impl Policies {
    /// Parses a line, and calls `say` with the hash, reach and rule of its name.
    ///
    /// # Errors
    /// Those of `say`. The inner result says why the line cannot be used.
    pub fn read<E>(
        &mut self,
        line: &[u8],
        say: impl FnOnce(Hash, Reach, Rule) -> Result<(), E>,
    ) -> Result<Result<(), Unusable>, E> {
        if line.len() > LONGEST {
            return Ok(Err(Unusable::Long));
        }
        let goes_on = self.open > 0;
        let words = self.words(line);
        let Some(first) = words.first().filter(|_| !goes_on) else {
            return Ok(Ok(()));
        };
        if let Some(directive) = first.strip_prefix(b"$") {
            return Ok(self.obey(directive, words.get(1).copied()));
        }
        let indented = line.first().is_some_and(u8::is_ascii_whitespace);
        if !indented {
            self.owner = first.to_ascii_lowercase();
        }
        match self.record(&words[usize::from(!indented)..]) {
            Ok(Some((hash, reach, rule))) => say(hash, reach, rule).map(Ok),
            Ok(None) => Ok(Ok(())),
            Err(unusable) => Ok(Err(unusable)),
        }
    }

    /// Splits a line into its first words, without its comment, and counts parentheses.
    fn words<'l>(&mut self, line: &'l [u8]) -> SmallVec<[&'l [u8]; WORDS]> {
        let (mut words, mut start, mut quoted) = (SmallVec::new(), None, false);
        for (at, octet) in line.iter().chain(b" ").enumerate() {
            let ends = !quoted && matches!(octet, b' ' | b'\t' | b'\r' | b'(' | b')' | b';');
            match (start, ends) {
                (None, false) => start = Some(at),
                (Some(from), true) => {
                    if words.len() < WORDS {
                        words.push(&line[from..at]);
                    }
                    start = None;
                }
                _ => {}
            }
            match octet {
                b'"' => quoted = !quoted,
                b'(' if ends => self.open += 1,
                b')' if ends => self.open = self.open.saturating_sub(1),
                b';' if ends => break,
                _ => {}
            }
        }
        words
    }

    fn obey(&mut self, directive: &[u8], value: Option<&[u8]>) -> Result<(), Unusable> {
        match (directive, value) {
            (b"TTL", _) => Ok(()),
            (b"ORIGIN", Some(origin)) => {
                self.origin = origin.strip_suffix(b".").unwrap_or(origin).to_ascii_lowercase();
                Ok(())
            }
            _ => Err(Unusable::Policy),
        }
    }

    /// Parses a record of the last owner; `None` if it is no policy.
    fn record(&mut self, words: &[&[u8]]) -> Result<Option<(Hash, Reach, Rule)>, Unusable> {
        let is_type = |word: &&&[u8]| {
            !word.first().is_some_and(u8::is_ascii_digit) && !word.eq_ignore_ascii_case(b"IN")
        };
        let mut words = words.iter().skip_while(|word| !is_type(word));
        let (rtype, data) = (words.next().ok_or(Unusable::Policy)?, words.next());
        let rtype = rtype.to_ascii_uppercase();
        if rtype == b"SOA" && self.origin.is_empty() {
            self.origin = self.owner.strip_suffix(b".").unwrap_or_default().to_vec();
        }
        if OF_ZONES.iter().any(|known| known.as_bytes() == rtype) {
            return Ok(None);
        }
        let (hash, reach) = self.name()?;
        let data = std::str::from_utf8(data.ok_or(Unusable::Policy)?).map_err(|_| Unusable::Policy)?;
        let rule = match (&rtype[..], &*data.to_ascii_lowercase()) {
            (b"CNAME", "." | "rpz-drop.") => Rule::Block,
            (b"CNAME", "*.") => Rule::Empty,
            (b"CNAME", "rpz-passthru.") => Rule::Allow,
            (b"A" | b"AAAA", address) if reach == Reach::Itself => {
                Rule::Address(address.parse().map_err(|_| Unusable::Policy)?)
            }
            _ => return Err(Unusable::Policy),
        };
        Ok(Some((hash, reach, rule)))
    }

    /// Returns the name that the last owner stands for.
    fn name(&self) -> Result<(Hash, Reach), Unusable> {
        let owner = match self.owner.strip_suffix(b".") {
            None => &self.owner[..],
            Some(absolute) => {
                let own = absolute.strip_suffix(&self.origin[..]);
                own.and_then(|own| own.strip_suffix(b".")).ok_or(Unusable::Name)?
            }
        };
        let (name, reach) = match owner.strip_prefix(b"*.") {
            Some(below) => (below, Reach::Below),
            None => (owner, Reach::Itself),
        };
        let top = name.rsplit(|octet| *octet == b'.').next().unwrap_or_default();
        if top.starts_with(b"rpz-") {
            return Err(Unusable::Policy);
        }
        Ok((Hash::parse(name).ok_or(Unusable::Name)?, reach))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The policies of a zone, in order.
    type Said = Vec<(Hash, Reach, Rule)>;

    fn read(text: &str) -> (Said, Vec<(usize, Unusable)>) {
        let (mut policies, mut said, mut unusable) = (Policies::default(), Vec::new(), Vec::new());
        for (number, line) in (1..).zip(text.split('\n')) {
            let read = policies.read::<()>(line.as_bytes(), |hash, reach, rule| {
                said.push((hash, reach, rule));
                Ok(())
            });
            unusable.extend(read.unwrap().err().map(|why| (number, why)));
        }
        (said, unusable)
    }

    #[test]
    fn records_say_what_becomes_of_names() {
        let text = "$TTL 300\n\
            rpz.example. IN SOA ns.example. admin.example. ( 1 3600 ; a comment (\n 600 86400\n 60 )\n\
            \tIN NS localhost.\n\
            ads.example.com CNAME . ; why\n\
            *.ads.example.com 60 IN CNAME .\n\
            empty.example.com\tIN\tCNAME\t*.\n\
            good.ads.example.com.rpz.example. cname rpz-passthru.\n\
            nas.lan A 192.0.2.7\n        AAAA 2001:db8::7\n\
            drop.example CNAME rpz-drop.\n\
            note.example TXT \"a ; b ( c\"\n";
        let (said, unusable) = read(text);
        let rule = |name: &str, reach, rule| (Hash::parse(name.as_bytes()).unwrap(), reach, rule);
        assert_eq!(
            said,
            [
                rule("ads.example.com", Reach::Itself, Rule::Block),
                rule("ads.example.com", Reach::Below, Rule::Block),
                rule("empty.example.com", Reach::Itself, Rule::Empty),
                rule("good.ads.example.com", Reach::Itself, Rule::Allow),
                rule("nas.lan", Reach::Itself, Rule::Address([192, 0, 2, 7].into())),
                rule(
                    "nas.lan",
                    Reach::Itself,
                    Rule::Address("2001:db8::7".parse().unwrap())
                ),
                rule("drop.example", Reach::Itself, Rule::Block),
            ]
        );
        assert_eq!(unusable, []);
    }

    #[test]
    fn what_is_not_known_is_left_out() {
        let text = "$ORIGIN rpz.example.\n$INCLUDE /etc/passwd\na CNAME b.example.\n32.1.2.0.192.rpz-ip CNAME .\n\
            ns.example.rpz-nsdname CNAME .\nx.other.example. CNAME .\n*.y A 192.0.2.1\nz A 300.0.0.1\nw MX 10 a.\nv\nu CNAME\n\
            t CNAME rpz-tcp-only.\n* CNAME .\n";
        let (said, unusable) = read(text);
        assert_eq!(said, []);
        let lines: Vec<usize> = unusable.iter().map(|(line, _)| *line).collect();
        assert_eq!(lines, (2..=13).collect::<Vec<_>>());
    }
}
