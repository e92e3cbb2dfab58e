//! A template: for which questions it is, and what it makes of them.

use std::time::Duration;

use dnsweir_filter::hickory::rr::{self, RData};
use dnsweir_filter::{
    Answer, Ask, Class, ExtendedError, FromValue, Invalid, MasterFile, NameBuf, Node, Query, Rcode, Rdata,
    Type, Value,
};
use regex_lite::Regex;

use crate::FOLLOWED;
use crate::pattern::{Filling, Pattern};

/// A record that does not say for how long it holds does so for an hour.
const TTL: &str = "$TTL 3600\n";

/// For which questions an answer is made, and of what.
pub struct Template {
    /// None: for all.
    types: Vec<Type>,
    zones: Vec<NameBuf>,
    /// None: every name matches.
    expressions: Vec<Expression>,
    rcode: Rcode,
    error: Option<ExtendedError>,
    /// Whether names that match nothing are not passed on.
    fails_otherwise: bool,
}

/// What matches names, and the records for them.
struct Expression {
    regex: Option<Regex>,
    /// Whether the dot at the end of a name belongs to what is matched.
    final_dot: bool,
    answer: Vec<Pattern>,
    authority: Vec<Pattern>,
    additional: Vec<Pattern>,
}

/// What a template makes of a question.
pub enum Outcome {
    Answer(Answer),
    /// The answer is an alias, and the question is about what is behind it.
    Alias(Alias),
    /// Nothing, and nobody else is to answer.
    Unmatched,
    /// Text that is no record.
    Unreadable,
}

/// An alias, before what is behind it is known.
pub struct Alias {
    pub answer: Answer,
    target: NameBuf,
}

/// A record, as the SDK takes it.
type Record = (NameBuf, Duration, Rdata);

impl Alias {
    /// Asks what is behind it.
    pub fn ask(&self, qtype: Type) -> Ask {
        Ask::new().lookup(&self.target, qtype)
    }
}

/// What becomes of names that match nothing.
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
    /// Reads `template`, in one of these zones if it names none itself.
    pub fn read(node: Node<'_>, zones: &[NameBuf]) -> Result<Template, Invalid> {
        let types = node.optional_arguments(0);
        let own = node.node("zone")?.map(|zone| zone.arguments(0)).transpose();
        let matching = node.node("match")?;
        let final_dot = matching
            .map(|matching| matching.property("final-dot"))
            .transpose();
        let regexes = match matching {
            Some(matching) => expressions(matching),
            None => Ok(vec![None]),
        };
        let final_dot = final_dot?.flatten().unwrap_or(false);
        let rcode = node.setting_or("rcode", Rcode::NOERROR);
        let error = node.node("error")?.map(extended_error).transpose();
        let fails = node.setting_or("otherwise", Otherwise(false)).0;
        let mut found = Vec::new();
        for regex in regexes? {
            let read = |section| patterns(node, section, regex.as_ref());
            let (answer, authority, additional) = (read("answer"), read("authority"), read("additional"));
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

    /// Whether what it makes depends on who asks.
    pub fn names_client(&self) -> bool {
        let mut patterns = self.expressions.iter().flat_map(|expression| {
            let sections = [&expression.answer, &expression.authority, &expression.additional];
            sections.into_iter().flatten()
        });
        patterns.any(Pattern::names_client)
    }

    /// What it makes of a question; none: it is not for this one, or leaves it to others.
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
            // Of a name, the text without the dot at the end, as everywhere in the configuration.
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

    /// The answer; none: what came of it is no record.
    fn made(&self, query: &Query<'_>, expression: &Expression, filling: &Filling<'_>) -> Option<Outcome> {
        let mut answer = Answer::new(self.rcode).authoritative();
        if let Some(error) = &self.error {
            answer = answer.error(error.clone());
        }
        let mut target = None;
        for (owner, ttl, rdata) in filled(&expression.answer, filling)? {
            if let Rdata::Cname(name) = &rdata {
                target = Some(name.clone());
            }
            answer = answer.record(&owner, ttl, rdata);
        }
        for (owner, ttl, rdata) in filled(&expression.authority, filling)? {
            answer = answer.authority(&owner, ttl, rdata);
        }
        for (owner, ttl, rdata) in filled(&expression.additional, filling)? {
            answer = answer.additional(&owner, ttl, rdata);
        }
        Some(match target.filter(|_| FOLLOWED.contains(&query.qtype())) {
            Some(target) => Outcome::Alias(Alias { answer, target }),
            None => Outcome::Answer(answer),
        })
    }
}

/// The regular expressions in `match`, each by itself.
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

/// The records of a section, as they are written.
fn patterns(node: Node<'_>, section: &'static str, regex: Option<&Regex>) -> Result<Vec<Pattern>, Invalid> {
    let mut found = Vec::new();
    for written in node.nodes(&[section]) {
        for (index, text) in written.arguments::<String>(0)?.iter().enumerate() {
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

/// The records that a section's texts make; none: one is no record.
fn filled(patterns: &[Pattern], filling: &Filling<'_>) -> Option<Vec<Record>> {
    let mut made = Vec::new();
    for pattern in patterns {
        let text = format!("{TTL}{}", pattern.fill(filling));
        let read: Result<Vec<rr::Record>, _> = MasterFile::new(&text, &NameBuf::root()).collect();
        let read = read.ok().filter(|records| records.len() == 1)?;
        made.extend(records(&read));
    }
    Some(made)
}

/// Records as the SDK takes them.
pub fn records(records: &[rr::Record]) -> Vec<Record> {
    let made = records.iter().filter_map(|record| {
        let rdata = match &record.data {
            RData::CNAME(target) => Rdata::Cname(NameBuf::try_from(&target.0).ok()?),
            data => data.clone().into(),
        };
        let owner = NameBuf::try_from(&record.name).ok()?;
        Some((owner, Duration::from_secs(record.ttl.into()), rdata))
    });
    made.collect()
}
