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
//! A policy is for the part of its owner's name below the zone, and `*.` covers all names below one. Triggers
//! on addresses or name servers, and other targets, are not supported.

use smallvec::SmallVec;

use super::hash::Hash;
use super::line::{LONGEST, Rule, Unusable};
use super::table::Reach;
use crate::dns::name::NAME_MAXIMUM;

/// The most words of a record that matter: owner, TTL, class, type, and data.
const WORDS: usize = 5;

/// Record types that occur in every zone and are no policies.
const OF_ZONES: [&str; 3] = ["SOA", "NS", "TXT"];

/// The parser's state within a zone. Names are in lowercase; one that does not end with a dot is relative to
/// the zone, whose own name need not be known then.
#[derive(Debug, Default)]
pub(crate) struct Policies {
    /// The zone's name without its last dot, as its SOA record says.
    apex: Option<Vec<u8>>,
    /// The first absolute `$ORIGIN` without its last dot: the zone's name, unless the SOA record says
    /// another.
    first: Option<Vec<u8>>,
    /// What relative names end in.
    origin: Vec<u8>,
    /// Whether the last `$ORIGIN` cannot be used, and relative names neither.
    is_lost: bool,
    /// The owner of the last record; `None` if it cannot be used.
    owner: Option<Vec<u8>>,
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
            self.owner = self.complete(first);
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
        match &directive.to_ascii_uppercase()[..] {
            b"TTL" => Ok(()),
            b"ORIGIN" => {
                // A relative one is below the last one.
                let origin = value.and_then(|value| self.complete(value));
                self.is_lost = origin.is_none();
                self.origin = origin.ok_or(Unusable::Name)?;
                // The root is the origin of whole names, and not a zone of policies.
                let names_zone = self.first.as_ref().is_none_or(Vec::is_empty);
                if let Some(absolute) = self.origin.strip_suffix(b".").filter(|_| names_zone) {
                    self.first = Some(absolute.to_vec());
                }
                Ok(())
            }
            _ => Err(Unusable::Policy),
        }
    }

    /// Completes a name with the origin, if it is relative (RFC 1035 section 5.1). `None` if it is too long.
    fn complete(&self, name: &[u8]) -> Option<Vec<u8>> {
        let mut whole = name.to_ascii_lowercase();
        if !whole.ends_with(b".") {
            if self.is_lost {
                return None;
            }
            match (&whole[..], &self.origin[..]) {
                (b"@", origin) => whole = origin.to_vec(),
                (_, b"") => {}
                (_, b".") => whole.push(b'.'),
                (_, origin) => {
                    whole.push(b'.');
                    whole.extend_from_slice(origin);
                }
            }
        }
        (whole.len() <= NAME_MAXIMUM).then_some(whole)
    }

    /// Parses a record of the last owner; `None` if it is no policy.
    fn record(&mut self, words: &[&[u8]]) -> Result<Option<(Hash, Reach, Rule)>, Unusable> {
        let is_type = |word: &&&[u8]| {
            !word.first().is_some_and(u8::is_ascii_digit) && !word.eq_ignore_ascii_case(b"IN")
        };
        let mut words = words.iter().skip_while(|word| !is_type(word));
        let (rtype, data) = (words.next().ok_or(Unusable::Policy)?, words.next());
        let rtype = rtype.to_ascii_uppercase();
        if rtype == b"SOA" && self.apex.is_none() {
            let owner = self.owner.as_deref();
            let absolute = owner.and_then(|owner| owner.strip_suffix(b"."));
            self.apex = absolute.map(<[u8]>::to_vec);
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
        let own = self.below_zone().ok_or(Unusable::Name)?;
        let (name, reach) = match own.strip_prefix(b"*.") {
            Some(below) => (below, Reach::Below),
            None => (own, Reach::Itself),
        };
        let top = name.rsplit(|octet| *octet == b'.').next().unwrap_or_default();
        if top.starts_with(b"rpz-") {
            return Err(Unusable::Policy);
        }
        Ok((Hash::parse(name).ok_or(Unusable::Name)?, reach))
    }

    /// Returns the last owner without the zone's name; `None` if it is not in the zone, or not known to be.
    fn below_zone(&self) -> Option<&[u8]> {
        let owner = self.owner.as_deref()?;
        let Some(absolute) = owner.strip_suffix(b".") else {
            return Some(owner);
        };
        match self.apex.as_deref().or(self.first.as_deref())? {
            b"" => Some(absolute),
            zone => absolute.strip_suffix(zone)?.strip_suffix(b"."),
        }
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

    const SOA: &str = "rpz.example. SOA ns. admin. 1 2 3 4 5\n";

    /// After the SOA record or without one: a text, its names with `*.` for those below, and the number of
    /// unusable lines.
    const ORIGINS: &[(&str, &str, &[&str], usize)] = &[
        (SOA, "$ORIGIN com.rpz.example.\nads CNAME .\n", &["ads.com"], 0),
        (
            SOA,
            "$ORIGIN evil.example.rpz.example.\n*.com CNAME .\n",
            &["*.com.evil.example"],
            0,
        ),
        (
            SOA,
            "$origin com\nads CNAME .\n$ORIGIN ads\na CNAME .\n",
            &["ads.com", "a.ads.com"],
            0,
        ),
        (
            SOA,
            "$ORIGIN com.RPZ.example.\n@ CNAME .\nnet.rpz.example. CNAME .\n",
            &["com", "net"],
            0,
        ),
        // Outside of the zone.
        (
            SOA,
            "$ORIGIN com.\nads CNAME .\nads.org. CNAME .\nrpz.example. CNAME .\n",
            &[],
            3,
        ),
        // The owner of the last record stays.
        (
            SOA,
            "ads.com CNAME .\n$ORIGIN net.rpz.example.\n CNAME .\n",
            &["ads.com", "ads.com"],
            0,
        ),
        (
            "",
            "$ORIGIN .\nrpz.example SOA a. b. 1\nads.com.rpz.example CNAME .\n",
            &["ads.com"],
            0,
        ),
        (
            "",
            "$ORIGIN example.\nrpz SOA a. b. 1\nads.com.rpz CNAME .\nads CNAME .\n",
            &["ads.com"],
            1,
        ),
        (
            "",
            "$ORIGIN rpz.example.\nads CNAME .\n$ORIGIN com\nads CNAME .\n",
            &["ads", "ads.com"],
            0,
        ),
        (
            "",
            "$ORIGIN .\nads.com CNAME .\n$ORIGIN rpz.example.\nads.net CNAME .\n",
            &["ads.com", "ads.net"],
            0,
        ),
        // Nothing says what zone it is.
        (
            "",
            "@ SOA a. b. 1\nads.com CNAME .\nads.net. CNAME .\n$ORIGIN org\nads CNAME .\n",
            &["ads.com", "ads.org"],
            1,
        ),
    ];

    /// RFC 1035 section 5.1.
    #[test]
    fn names_end_in_the_origin_and_policies_are_for_what_is_below_the_zone() {
        for &(soa, text, names, wrong) in ORIGINS {
            let (said, unusable) = read(&[soa, text].concat());
            let rule = |name: &&str| match name.strip_prefix("*.") {
                Some(below) => (Hash::parse(below.as_bytes()).unwrap(), Reach::Below, Rule::Block),
                None => (Hash::parse(name.as_bytes()).unwrap(), Reach::Itself, Rule::Block),
            };
            assert_eq!(said, names.iter().map(rule).collect::<Said>(), "{text}");
            assert_eq!(unusable.len(), wrong, "{text}");
        }
    }

    /// Names relative to an origin that cannot be used are not those meant. Nor do origins grow without end.
    #[test]
    fn what_ends_in_an_unusable_origin_is_left_out() {
        let long = "a".repeat(300);
        let text = format!(
            "rpz.example. SOA a. b. 1\n$ORIGIN {long}\nads CNAME .\n  CNAME .\n$ORIGIN\nads CNAME .\n\
             $ORIGIN com.rpz.example.\nads CNAME .\n"
        );
        let (said, unusable) = read(&text);
        assert_eq!(
            said,
            [(Hash::parse(b"ads.com").unwrap(), Reach::Itself, Rule::Block)]
        );
        let lines: Vec<usize> = unusable.iter().map(|(line, _)| *line).collect();
        assert_eq!(lines, (2..=6).collect::<Vec<_>>());
        let (_, unusable) = read(&"$ORIGIN label\n".repeat(1000));
        assert_eq!(
            unusable.len(),
            1000 - 42,
            "42 labels with their dots have 251 characters"
        );
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
