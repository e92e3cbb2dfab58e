//! What a rule matches a name with, and what it puts in its place.
//!
//! Exact names and suffixes go by labels. The other patterns go by the text of a name: lowercase, with
//! escapes (RFC 1035 section 5.1), without the dot at the end.

use std::cell::OnceCell;

use dnsweir_filter::{FromValue, Invalid, Name, NameBuf, NameError, Node, Value};
use regex_lite::{Regex, RegexBuilder};

/// The first argument of most rules.
#[derive(Clone, Copy, PartialEq)]
pub enum Kind {
    /// This name.
    Exact,
    /// Names whose text begins so.
    Prefix,
    /// Names at or below.
    Suffix,
    /// Names whose text holds this.
    Substring,
    /// Names in whose text the expression is found.
    Regex,
}

impl FromValue for Kind {
    const EXPECTED: &'static str = "a kind of match";

    fn from_value(value: Value<'_>) -> Result<Kind, String> {
        Ok(match value {
            Value::Text("exact") => Kind::Exact,
            Value::Text("prefix") => Kind::Prefix,
            Value::Text("suffix") => Kind::Suffix,
            Value::Text("substring") => Kind::Substring,
            Value::Text("regex") => Kind::Regex,
            _ => return Err("\"exact\", \"prefix\", \"suffix\", \"substring\" or \"regex\"".to_owned()),
        })
    }
}

/// What a name must be like.
pub enum Pattern {
    /// This name.
    Exact(NameBuf),
    /// At or below this name.
    Suffix(NameBuf),
    /// Below this name: a suffix written with a dot in front.
    Below(NameBuf),
    /// Text at the front.
    Prefix(String),
    /// Text anywhere.
    Substring(String),
    /// Text the expression is found in.
    Regex(Regex),
}

/// What takes the place of what matched.
pub enum Replacement {
    /// Of the whole name, or of its suffix.
    Name(NameBuf),
    /// Of the prefix, or of every occurrence of the substring.
    Text(String),
    /// Of the whole name.
    Template(Vec<Part>),
}

/// A part of a template.
pub enum Part {
    Literal(String),
    /// What a group of the expression matched; 0 is all of it.
    Group(usize),
}

impl Pattern {
    /// Reads the first two arguments: a kind and a text.
    pub fn read(node: Node<'_>) -> Result<Pattern, Invalid> {
        let (kind, text) = (node.argument::<Kind>(0), node.argument::<String>(1));
        let (kind, text) = (kind?, text?);
        if text.is_empty() {
            return Err(node.mistake("the text to match is empty").argument(1).report());
        }
        match kind {
            Kind::Exact => node.argument(1).map(Pattern::Exact),
            Kind::Suffix => match text.strip_prefix('.') {
                Some(name) if !name.is_empty() => name_at(node, 1, name).map(Pattern::Below),
                _ => node.argument(1).map(Pattern::Suffix),
            },
            // Lowercase like the names. Not so expressions, where `\D` is not `\d`.
            Kind::Prefix => Ok(Pattern::Prefix(text.to_ascii_lowercase())),
            Kind::Substring => Ok(Pattern::Substring(text.to_ascii_lowercase())),
            Kind::Regex => RegexBuilder::new(&text)
                .case_insensitive(true)
                .build()
                .map(Pattern::Regex)
                .map_err(|reason| {
                    let message = "this is not a valid regular expression";
                    node.mistake(message)
                        .argument(1)
                        .help(reason.to_string())
                        .report()
                }),
        }
    }

    /// Whether a name is like this. Its text is made for the first pattern that goes by it, not for each.
    pub fn matches(&self, name: Name<'_>, text: &OnceCell<String>) -> bool {
        let text = || text.get_or_init(|| text_of(name));
        match self {
            Pattern::Exact(exact) => name == *exact,
            Pattern::Suffix(suffix) => name.is_at_or_below(suffix),
            Pattern::Below(suffix) => name != *suffix && name.is_at_or_below(suffix),
            Pattern::Prefix(prefix) => text().starts_with(prefix),
            Pattern::Substring(part) => text().contains(part),
            Pattern::Regex(regex) => regex.is_match(text()),
        }
    }

    /// Reads what to put in place of what this matches, the third argument.
    pub fn read_replacement(&self, node: Node<'_>) -> Result<Replacement, Invalid> {
        match self {
            Pattern::Exact(_) | Pattern::Suffix(_) => node.argument(2).map(Replacement::Name),
            Pattern::Below(_) => {
                let text: String = node.argument(2)?;
                name_at(node, 2, text.strip_prefix('.').unwrap_or(&text)).map(Replacement::Name)
            }
            Pattern::Prefix(_) | Pattern::Substring(_) => node.argument(2).map(Replacement::Text),
            Pattern::Regex(regex) => {
                let text: String = node.argument(2)?;
                template(&text, regex.captures_len())
                    .map(Replacement::Template)
                    .map_err(|help| {
                        node.mistake("this is not a valid replacement")
                            .argument(2)
                            .help(help)
                            .report()
                    })
            }
        }
    }

    /// The name with the replacement in it. A name that does not match stays.
    ///
    /// # Errors
    /// If what comes out is no name.
    pub fn replace(&self, name: Name<'_>, replacement: &Replacement) -> Result<NameBuf, NameError> {
        match (self, replacement) {
            (Pattern::Suffix(suffix) | Pattern::Below(suffix), Replacement::Name(new)) => {
                match name.strip_suffix(suffix) {
                    Some(labels) => NameBuf::join(labels, new),
                    None => Ok(name.into()),
                }
            }
            (_, Replacement::Name(new)) => Ok(new.clone()),
            (Pattern::Prefix(prefix), Replacement::Text(new)) => {
                let text = text_of(name);
                [new, text.strip_prefix(prefix.as_str()).unwrap_or(&text)]
                    .concat()
                    .parse()
            }
            (Pattern::Substring(part), Replacement::Text(new)) => text_of(name).replace(part, new).parse(),
            (Pattern::Regex(regex), Replacement::Template(parts)) => {
                let text = text_of(name);
                let Some(groups) = regex.captures(&text) else {
                    return Ok(name.into());
                };
                let mut new = String::new();
                for part in parts {
                    new.push_str(match part {
                        Part::Literal(text) => text,
                        // A group that took no part in the match is empty.
                        Part::Group(number) => groups.get(*number).map_or("", |group| group.as_str()),
                    });
                }
                new.parse()
            }
            // No pattern reads another's kind of replacement.
            _ => Ok(name.into()),
        }
    }
}

/// Text without the dot at the end.
fn text_of(name: Name<'_>) -> String {
    let mut text = name.to_string();
    text.pop();
    text
}

fn name_at(node: Node<'_>, argument: usize, text: &str) -> Result<NameBuf, Invalid> {
    text.parse().map_err(|reason: NameError| {
        let message = format!("\"{text}\" is not a domain name");
        node.mistake(message)
            .argument(argument)
            .help(reason.to_string())
            .report()
    })
}

/// Takes `{1}.svc.{2}` apart.
fn template(text: &str, groups: usize) -> Result<Vec<Part>, String> {
    let mut parts = Vec::new();
    let mut rest = text;
    while let Some((literal, after)) = rest.split_once('{') {
        parts.push(Part::Literal(literal.to_owned()));
        let (number, after) = after.split_once('}').ok_or("a { is not closed by }")?;
        let group = number
            .parse()
            .map_err(|_| "a group is written by its number: {1}")?;
        if group >= groups {
            return Err(format!(
                "the expression has no group {group}; its last is {}",
                groups - 1
            ));
        }
        parts.push(Part::Group(group));
        rest = after;
    }
    parts.push(Part::Literal(rest.to_owned()));
    Ok(parts)
}
