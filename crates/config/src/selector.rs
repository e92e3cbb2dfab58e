//! Label selectors, written as for `kubectl -l`.

use std::collections::BTreeMap;

use kdl::KdlValue;

use super::decode::{Wrong, parsed};

/// How to write one.
pub(super) const HELP: &str = "write it as for `kubectl -l`: \"app=web,tier in (front, back)\"";

/// Requirements on the labels of an object, all of which must be met.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Selector(Vec<Requirement>);

/// A requirement on one label.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Requirement {
    /// The label's name.
    name: String,
    /// Its values; `None`: any.
    values: Option<Vec<String>>,
    /// Whether the label must be there with such a value, or else must not.
    wanted: bool,
}

impl Selector {
    /// Whether an object with these labels meets all requirements.
    pub fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        self.0.iter().all(|requirement| {
            let value = labels.get(&requirement.name);
            let values = requirement.values.as_ref();
            let has = value.is_some_and(|value| values.is_none_or(|values| values.contains(value)));
            has == requirement.wanted
        })
    }

    /// Parses a text; `None` if it is not a selector. `<` and `>` are not supported.
    fn parse(text: &str) -> Option<Selector> {
        let mut in_parentheses = false;
        let requirements = text.split(|letter: char| {
            match letter {
                '(' => in_parentheses = true,
                ')' => in_parentheses = false,
                _ => {}
            }
            letter == ',' && !in_parentheses
        });
        let requirements: Option<Vec<Requirement>> = requirements.map(Requirement::parse).collect();
        requirements.map(Selector)
    }
}

impl Requirement {
    fn parse(text: &str) -> Option<Requirement> {
        let text = text.trim();
        if let Some(set) = text.strip_suffix(')') {
            let (words, values) = set.split_once('(')?;
            let words: Vec<&str> = words.split_whitespace().collect();
            return match words[..] {
                [name, "in"] => Requirement::new(name, Some(values), true),
                [name, "notin"] => Requirement::new(name, Some(values), false),
                _ => None,
            };
        }
        if let Some((name, value)) = text.split_once("!=") {
            return Requirement::new(name, Some(value), false);
        }
        if let Some((name, value)) = text.split_once('=') {
            let value = value.strip_prefix('=').unwrap_or(value);
            return Requirement::new(name, Some(value), true);
        }
        match text.strip_prefix('!') {
            Some(name) => Requirement::new(name, None, false),
            None => Requirement::new(text, None, true),
        }
    }

    /// Makes one from a name and values that are separated by commas; `None` if they cannot be those of a label.
    fn new(name: &str, values: Option<&str>, wanted: bool) -> Option<Requirement> {
        let name = name.trim();
        let parts: Vec<&str> = name.split('/').collect();
        let is_name = parts.len() <= 2 && parts.iter().all(|part| !part.is_empty() && is_plain(part));
        let values: Option<Vec<&str>> = values.map(|values| values.split(',').map(str::trim).collect());
        let are_values = values.iter().flatten().all(|value| is_plain(value));
        (is_name && are_values).then(|| Requirement {
            name: name.to_owned(),
            values: values.map(|values| values.into_iter().map(str::to_owned).collect()),
            wanted,
        })
    }
}

/// Whether this may be a label's value, or a part of its name.
fn is_plain(text: &str) -> bool {
    let is_plain = |octet: u8| octet.is_ascii_alphanumeric() || matches!(octet, b'-' | b'_' | b'.');
    text.bytes().all(is_plain)
}

/// Reads a label selector that is evaluated here. Those that the API server evaluates stay texts.
pub(super) fn selector(value: &KdlValue) -> Result<Selector, Wrong> {
    parsed(value, Selector::parse, "is not a label selector", HELP)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As in the API server: "Labels and Selectors" of Kubernetes' documentation.
    #[test]
    fn objects_are_selected_by_their_labels() {
        let labels = [("tier", "web"), ("example.com/team", "shop"), ("old", "")];
        let labels = labels.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let labels = BTreeMap::from(labels);
        for (text, selected) in [
            ("tier=web", true),
            ("tier==web", true),
            ("tier = web , example.com/team = shop", true),
            ("tier=web,example.com/team=bank", false),
            ("tier!=web", false),
            ("tier!=api", true),
            ("none!=web", true),
            ("none=web", false),
            ("tier in (api, web)", true),
            ("tier in (api)", false),
            ("tier in(web),old", true),
            ("tier notin (api,web)", false),
            ("tier notin (api,db)", true),
            ("none notin (a)", true),
            ("old", true),
            ("old=", true),
            ("!old", false),
            ("!none", true),
            ("none", false),
        ] {
            let selector = Selector::parse(text).unwrap_or_else(|| panic!("{text} is one"));
            assert_eq!(selector.matches(&labels), selected, "{text}");
        }
    }
}
