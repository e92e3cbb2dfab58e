//! Text with placeholders for parts of the question.

use std::net::IpAddr;

use regex_lite::{Captures, Regex};

/// A text, in parts.
pub struct Pattern(Vec<Part>);

/// A part of a text.
enum Part {
    Literal(String),
    Name,
    Zone,
    Type,
    Client,
    Group(usize),
}

/// The values of the placeholders.
pub struct Filling<'q> {
    /// The name asked for, as text with a final dot.
    pub name: &'q str,
    pub zone: &'q str,
    pub qtype: &'q str,
    pub client: IpAddr,
    pub groups: Option<&'q Captures<'q>>,
}

impl Pattern {
    /// Parses a text: `{name}`, `{zone}`, `{type}`, `{client}`, `{1}` and `{GROUP}` are placeholders, `{{`
    /// and `}}` are braces.
    ///
    /// # Errors
    /// The mistake, as text.
    pub fn read(text: &str, expression: Option<&Regex>) -> Result<Pattern, String> {
        let (mut parts, mut literal) = (Vec::new(), String::new());
        let mut rest = text;
        while let Some(at) = rest.find(['{', '}']) {
            literal.push_str(&rest[..at]);
            rest = &rest[at..];
            if rest.starts_with("{{") || rest.starts_with("}}") {
                literal.push_str(&rest[..1]);
                rest = &rest[2..];
                continue;
            }
            let place = rest.strip_prefix('{').and_then(|rest| rest.split_once('}'));
            let Some((place, behind)) = place else {
                return Err("write {{ or }} for a brace".to_owned());
            };
            rest = behind;
            parts.push(Part::Literal(std::mem::take(&mut literal)));
            parts.push(part(place, expression)?);
        }
        literal.push_str(rest);
        parts.push(Part::Literal(literal));
        Ok(Pattern(parts))
    }

    /// The text with all placeholders filled in.
    pub fn fill(&self, filling: &Filling<'_>) -> String {
        let mut text = String::new();
        for part in &self.0 {
            match part {
                Part::Literal(literal) => text.push_str(literal),
                Part::Name => text.push_str(filling.name),
                Part::Zone => text.push_str(filling.zone),
                Part::Type => text.push_str(filling.qtype),
                Part::Client => text.push_str(&filling.client.to_string()),
                Part::Group(number) => {
                    let group = filling.groups.and_then(|groups| groups.get(*number));
                    text.push_str(group.map_or("", |group| group.as_str()));
                }
            }
        }
        text
    }

    /// Whether the text includes the client's address.
    pub fn names_client(&self) -> bool {
        self.0.iter().any(|part| matches!(part, Part::Client))
    }
}

fn part(place: &str, expression: Option<&Regex>) -> Result<Part, String> {
    let groups = expression.map_or(0, Regex::captures_len);
    if let Ok(number) = place.parse::<usize>() {
        return match number < groups {
            true => Ok(Part::Group(number)),
            false => Err(format!("there is no group {number} in `match`")),
        };
    }
    Ok(match place {
        "name" => Part::Name,
        "zone" => Part::Zone,
        "type" => Part::Type,
        "client" => Part::Client,
        _ => {
            let named = expression
                .and_then(|expression| expression.capture_names().position(|name| name == Some(place)));
            let known = "{name}, {zone}, {type}, {client}, {1} and groups of `match` by name";
            Part::Group(named.ok_or_else(|| format!("{{{place}}} is unknown: there are {known}"))?)
        }
    })
}
