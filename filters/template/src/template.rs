//! A template: which questions it applies to, and the answer it builds.

use dnsweir_filter::{
    Answer, Ask, Class, ExtendedError, FromValue, Invalid, MasterFile, NameBuf, Node, Query, Rcode, Record,
    Section, Type, Value,
};
use regex_lite::Regex;

use crate::FOLLOWED;
use crate::pattern::{Filling, Pattern};

/// The default TTL of records is an hour.
const TTL: &str = "$TTL 3600\n";

/// A template.
pub struct Template {
    /// The types it applies to; empty for all.
    types: Vec<Type>,
    zones: Vec<NameBuf>,
    /// Expressions for names, each with its records; one without a regex matches every name.
    expressions: Vec<Expression>,
    rcode: Rcode,
    error: Option<ExtendedError>,
    /// Whether names that match no expression get SERVFAIL instead of passing.
    fails_otherwise: bool,
}

/// An expression for names, and the records for matching names.
struct Expression {
    regex: Option<Regex>,
    /// Whether the expression sees the final dot of a name.
    final_dot: bool,
    answer: Vec<Pattern>,
    authority: Vec<Pattern>,
    additional: Vec<Pattern>,
}

/// What a template does with a question.
pub enum Outcome {
    Answer(Answer),
    /// The answer is an alias, and the question is about its target.
    Alias(Alias),
    /// No expression matches, and nothing else may answer.
    Unmatched,
    /// A text is not a record once filled in.
    Unreadable,
}

/// An alias whose target has not been resolved yet.
pub struct Alias {
    pub answer: Answer,
    target: NameBuf,
}

impl Alias {
    /// The lookup of the target.
    pub fn ask(&self, qtype: Type) -> Ask {
        Ask::new().lookup(&self.target, qtype)
    }
}

/// Whether names that match nothing get SERVFAIL.
struct Otherwise(bool);

impl FromValue for Otherwise {
    const EXPECTED: &'static str = "\"pass\" or \"servfail\"";

    fn from_value(value: Value<'_>) -> Result<Otherwise, String> {
        value
            .one_of(&[("pass", false), ("servfail", true)])
            .map(Otherwise)
    }
}

impl Template {
    /// Reads `template`; without a `zone` of its own, it applies to these zones.
    pub fn read(node: Node<'_>, zones: &[NameBuf]) -> Result<Template, Invalid> {
        // All is read before a mistake ends this: what is not read counts as unknown.
        let types = node.optional_arguments(0);
        let own = node.node("zone");
        let own = own.and_then(|zone| zone.map(|zone| zone.arguments(0)).transpose());
        let (final_dot, regexes) = match node.node("match") {
            Ok(Some(matching)) => (matching.property("final-dot"), expressions(matching)),
            Ok(None) => (Ok(None), Ok(vec![None])),
            Err(twice) => (Err(twice), Err(twice)),
        };
        let rcode = node.setting_or("rcode", Rcode::NOERROR);
        let error = node.node("error");
        let error = error.and_then(|error| error.map(extended_error).transpose());
        let fails = node.setting_or("otherwise", Otherwise(false)).0;
        let [answer, authority, additional] =
            ["answer", "authority", "additional"].map(|name| section(node, name));
        let (answer, authority, additional) = (answer?, authority?, additional?);
        let final_dot = final_dot?.unwrap_or(false);
        let mut found = Vec::new();
        for regex in regexes? {
            let read = |section: &[Written<'_>]| patterns(section, regex.as_ref());
            let (answer, authority, additional) = (read(&answer), read(&authority), read(&additional));
            found.push(Expression {
                answer: answer?,
                authority: authority?,
                additional: additional?,
                regex,
                final_dot,
            });
        }
        Ok(Template {
            types: types?,
            zones: own?.unwrap_or_else(|| zones.to_vec()),
            expressions: found,
            rcode,
            error: error?,
            fails_otherwise: fails,
        })
    }

    /// Whether answers depend on the client's address.
    pub fn names_client(&self) -> bool {
        let mut patterns = self.expressions.iter().flat_map(|expression| {
            let sections = [&expression.answer, &expression.authority, &expression.additional];
            sections.into_iter().flatten()
        });
        patterns.any(Pattern::names_client)
    }

    /// The outcome for a question; `None` if the template does not apply, or passes.
    pub fn outcome(&self, query: &Query<'_>) -> Option<Outcome> {
        let qtype = query.qtype();
        let here = self.types.is_empty() || self.types.contains(&qtype) || qtype == Type::ANY;
        if query.class() != Class::IN || !here {
            return None;
        }
        let within = self
            .zones
            .iter()
            .filter(|zone| query.name().is_at_or_below(*zone));
        let zone = within.max_by_key(|zone| zone.as_name().as_wire().len())?;
        let name = query.name().to_string();
        for expression in &self.expressions {
            // Expressions see names without the final dot, as elsewhere in the configuration.
            let text = match expression.final_dot {
                true => &name,
                false => name.strip_suffix('.').unwrap_or(&name),
            };
            let groups = match &expression.regex {
                None => None,
                Some(regex) => match regex.captures(text) {
                    None => continue,
                    groups => groups,
                },
            };
            let filling = Filling {
                name: &name,
                zone: &zone.to_string(),
                qtype: &qtype.to_string(),
                client: query.client(),
                groups: groups.as_ref(),
            };
            return Some(
                self.made(query, expression, &filling)
                    .unwrap_or(Outcome::Unreadable),
            );
        }
        self.fails_otherwise.then_some(Outcome::Unmatched)
    }

    /// The answer; `None` if a filled-in text is not a record.
    fn made(&self, query: &Query<'_>, expression: &Expression, filling: &Filling<'_>) -> Option<Outcome> {
        let mut answer = Answer::new(self.rcode).authoritative();
        if let Some(error) = &self.error {
            answer = answer.error(error.clone());
        }
        let mut target = None;
        for (section, patterns) in [
            (Section::Answer, &expression.answer),
            (Section::Authority, &expression.authority),
            (Section::Additional, &expression.additional),
        ] {
            for pattern in patterns {
                let record = filled(pattern, filling)?;
                if section == Section::Answer && record.rtype() == Type::CNAME {
                    target = record.target();
                }
                answer = answer.append(section, record);
            }
        }
        Some(match target.filter(|_| FOLLOWED.contains(&query.qtype())) {
            Some(target) => Outcome::Alias(Alias { answer, target }),
            None => Outcome::Answer(answer),
        })
    }
}

/// The regular expressions in `match`.
fn expressions(node: Node<'_>) -> Result<Vec<Option<Regex>>, Invalid> {
    let texts = node.arguments::<String>(0)?;
    let read = texts.iter().enumerate().map(|(index, text)| {
        Regex::new(text).map(Some).map_err(|reason| {
            let wrong = node.mistake("this is not a valid regular expression");
            wrong.argument(index).help(reason.to_string()).report()
        })
    });
    read.collect()
}

/// A node with records, and their texts.
type Written<'a> = (Node<'a>, Vec<String>);

/// The nodes of a section; all are read, also after a mistake.
fn section<'a>(node: Node<'a>, name: &'static str) -> Result<Vec<Written<'a>>, Invalid> {
    let texts = |written: Node<'a>| written.arguments(0).map(|texts| (written, texts));
    let read: Vec<_> = node.nodes(&[name]).into_iter().map(texts).collect();
    read.into_iter().collect()
}

/// The records of a section, as templates.
fn patterns(section: &[Written<'_>], regex: Option<&Regex>) -> Result<Vec<Pattern>, Invalid> {
    let mut found = Vec::new();
    for (written, texts) in section {
        for (index, text) in texts.iter().enumerate() {
            let pattern = Pattern::read(text, regex).map_err(|help| {
                let wrong = written.mistake("this is not a record with places in it");
                wrong.argument(index).help(help).report()
            });
            found.push(pattern?);
        }
    }
    Ok(found)
}

fn extended_error(node: Node<'_>) -> Result<ExtendedError, Invalid> {
    let (code, text) = (node.argument(0), node.optional_argument::<String>(1));
    Ok(ExtendedError::new(code?).text(text?.unwrap_or_default()))
}

/// A record, filled in; `None` if it is not one.
fn filled(pattern: &Pattern, filling: &Filling<'_>) -> Option<Record> {
    let text = format!("{TTL}{}", pattern.fill(filling));
    let mut records = MasterFile::new(&text, &NameBuf::root());
    let record = records.next()?.ok()?;
    records.next().is_none().then_some(record)
}
