//! Patterns that match names, and their replacements.
//!
//! Exact names and suffixes are compared by label. The other patterns match the text of a name: lowercase,
//! with escapes (RFC 1035 section 5.1), without the final dot unless a rule asks for it.

use std::cell::OnceCell;

use dnsweir_filter::{FromValue, Invalid, Name, NameBuf, NameError, Node, Value};
use regex_lite::{Regex, RegexBuilder};

/// The kind of a pattern, the first argument of most rules.
#[derive(Clone, Copy, PartialEq)]
pub enum Kind {
    /// Exactly this name.
    Exact,
    /// Names whose text starts with this.
    Prefix,
    /// Names at or below this one.
    Suffix,
    /// Names whose text contains this.
    Substring,
    /// Names whose text the regular expression matches anywhere.
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

/// A pattern for names.
pub enum Pattern {
    /// Exactly this name.
    Exact(NameBuf),
    /// This name, and those below it.
    Suffix(NameBuf),
    /// Names below this one: a suffix written with a leading dot.
    Below(NameBuf),
    /// A pattern for a name's text.
    Text(TextPattern),
}

/// A pattern for a name's text.
pub struct TextPattern {
    how: TextMatch,
    /// Whether the text includes the final dot.
    final_dot: bool,
}

/// How the text matches.
enum TextMatch {
    /// By its start.
    Prefix(String),
    /// By any part.
    Substring(String),
    /// By a regular expression.
    Regex(Regex),
}

/// A replacement.
pub enum Replacement {
    /// For the whole name, or its suffix.
    Name(NameBuf),
    /// For the prefix, or every occurrence of the substring.
    Text(String),
    /// For the whole name.
    Template(Vec<Part>),
}

/// A part of a template.
pub enum Part {
    Literal(String),
    /// The text that a group of the expression matched; 0 is the whole match.
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
        let how = match kind {
            Kind::Exact => return node.argument(1).map(Pattern::Exact),
            Kind::Suffix => {
                return match text.strip_prefix('.') {
                    Some(name) if !name.is_empty() => name_at(node, 1, name).map(Pattern::Below),
                    _ => node.argument(1).map(Pattern::Suffix),
                };
            }
            // Names are lowercase. Expressions must keep their case: `\D` is not `\d`.
            Kind::Prefix => TextMatch::Prefix(text.to_ascii_lowercase()),
            Kind::Substring => TextMatch::Substring(text.to_ascii_lowercase()),
            Kind::Regex => {
                let regex = RegexBuilder::new(&text).case_insensitive(true).build();
                TextMatch::Regex(regex.map_err(|reason| {
                    let wrong = node.mistake("this is not a valid regular expression");
                    wrong.argument(1).help(reason.to_string()).report()
                })?)
            }
        };
        let final_dot = node.property("final-dot")?.unwrap_or(false);
        Ok(Pattern::Text(TextPattern { how, final_dot }))
    }

    /// Whether the pattern matches a name. Its text is computed only for the first pattern that needs it.
    pub fn matches(&self, name: Name<'_>, text: &OnceCell<String>) -> bool {
        match self {
            Pattern::Exact(exact) => name == *exact,
            Pattern::Suffix(suffix) => name.is_at_or_below(suffix),
            Pattern::Below(suffix) => name != *suffix && name.is_at_or_below(suffix),
            Pattern::Text(pattern) => pattern.matches(text.get_or_init(|| name.to_string())),
        }
    }

    /// Reads the replacement, the third argument.
    pub fn read_replacement(&self, node: Node<'_>) -> Result<Replacement, Invalid> {
        match self {
            Pattern::Exact(_) | Pattern::Suffix(_) => node.argument(2).map(Replacement::Name),
            Pattern::Below(_) => {
                let text: String = node.argument(2)?;
                name_at(node, 2, text.strip_prefix('.').unwrap_or(&text)).map(Replacement::Name)
            }
            Pattern::Text(TextPattern {
                how: TextMatch::Regex(regex),
                ..
            }) => {
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
            Pattern::Text(_) => node.argument(2).map(Replacement::Text),
        }
    }

    /// Replaces what the pattern matches in a name. A name that does not match stays unchanged.
    ///
    /// # Errors
    /// If the result is not a name.
    pub fn replace(&self, name: Name<'_>, replacement: &Replacement) -> Result<NameBuf, NameError> {
        match (self, replacement) {
            (Pattern::Suffix(suffix) | Pattern::Below(suffix), Replacement::Name(new)) => {
                match name.strip_suffix(suffix) {
                    Some(labels) => NameBuf::join(labels, new),
                    None => Ok(name.into()),
                }
            }
            (_, Replacement::Name(new)) => Ok(new.clone()),
            (Pattern::Text(pattern), replacement) => match pattern.replaced(&name.to_string(), replacement) {
                Some(text) => text.parse(),
                None => Ok(name.into()),
            },
            // A pattern reads only its own kind of replacement.
            _ => Ok(name.into()),
        }
    }
}

impl TextPattern {
    #[cfg(test)]
    pub fn substring(part: &str) -> TextPattern {
        TextPattern {
            how: TextMatch::Substring(part.to_owned()),
            final_dot: false,
        }
    }

    /// The part of a name's text that the pattern sees.
    fn seen<'t>(&self, text: &'t str) -> &'t str {
        match self.final_dot {
            true => text,
            false => text.strip_suffix('.').unwrap_or(text),
        }
    }

    fn matches(&self, text: &str) -> bool {
        let text = self.seen(text);
        match &self.how {
            TextMatch::Prefix(prefix) => text.starts_with(prefix),
            TextMatch::Substring(part) => text.contains(part),
            TextMatch::Regex(regex) => regex.is_match(text),
        }
    }

    /// The text of a name with the replacement; `None` if it does not match.
    fn replaced(&self, text: &str, replacement: &Replacement) -> Option<String> {
        let text = self.seen(text);
        match (&self.how, replacement) {
            (TextMatch::Prefix(prefix), Replacement::Text(new)) => {
                Some([new, text.strip_prefix(prefix.as_str())?].concat())
            }
            (TextMatch::Substring(part), Replacement::Text(new)) => Some(text.replace(part, new)),
            (TextMatch::Regex(regex), Replacement::Template(parts)) => {
                let groups = regex.captures(text)?;
                let part = |part: &Part| match part {
                    Part::Literal(text) => text.clone(),
                    // A group that did not take part in the match is empty.
                    Part::Group(number) => groups.get(*number).map_or("", |group| group.as_str()).to_owned(),
                };
                Some(parts.iter().map(part).collect())
            }
            _ => None,
        }
    }
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

/// Parses a template such as `{1}.svc.{2}`.
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
