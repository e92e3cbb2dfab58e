//! Finds the next matching rule without trying all of them.
//!
//! Rules for a name or a suffix are found by hash, however many there are. All others are tried one by one.
//! The order of rules counts as in a plain list.

use dnsweir_filter::{Manifest, Name, NameMap};

use crate::Question;
use crate::pattern::Pattern;
use crate::rule::{Action, Rule};

/// Indices of rules, by what they match.
#[derive(Default)]
pub struct Index {
    /// Rules that match the name as changed by earlier rules.
    current: Names,
    /// Rules that match the name as the client asked it.
    asked: Names,
    /// All other rules, in ascending order.
    others: Vec<usize>,
}

/// Indices of rules by name, in ascending order.
#[derive(Default)]
struct Names {
    exact: NameMap<Vec<usize>>,
    /// Names at or below the key.
    suffix: NameMap<Vec<usize>>,
    /// Names below the key.
    below: NameMap<Vec<usize>>,
}

impl Names {
    /// The first rule from an index on that matches the name.
    fn next(&self, from: usize, name: Name<'_>) -> Option<usize> {
        // Loops instead of iterator chains: this runs for every query, and in WebAssembly a chain costs twice
        // as much.
        let mut lowest = self.exact.get(name).and_then(|rules| first(rules, from));
        for (_, rules) in self.suffix.suffixes(name) {
            lowest = sooner(lowest, first(rules, from));
        }
        if let Some(parent) = name.parent().filter(|_| !self.below.is_empty()) {
            for (_, rules) in self.below.suffixes(parent) {
                lowest = sooner(lowest, first(rules, from));
            }
        }
        lowest
    }
}

fn sooner(one: Option<usize>, other: Option<usize>) -> Option<usize> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}

fn first(rules: &[usize], from: usize) -> Option<usize> {
    rules.get(rules.partition_point(|&rule| rule < from)).copied()
}

impl Index {
    /// Builds the index.
    pub fn new(rules: &[Rule]) -> Index {
        let mut index = Index::default();
        for (number, rule) in rules.iter().enumerate() {
            let names = if rule.action.looks_at_asked() {
                &mut index.asked
            } else {
                &mut index.current
            };
            match rule.action.pattern() {
                Some(Pattern::Exact(name)) => names.exact.entry(name.clone()).push(number),
                Some(Pattern::Suffix(name)) => names.suffix.entry(name.clone()).push(number),
                Some(Pattern::Below(name)) => names.below.entry(name.clone()).push(number),
                _ => index.others.push(number),
            }
        }
        index
    }

    /// The first matching rule from an index on.
    pub fn next<'r>(&self, rules: &'r [Rule], from: usize, now: &Question<'_>) -> Option<(usize, &'r Rule)> {
        let by_name = sooner(
            self.current.next(from, now.name()),
            self.asked.next(from, now.asked),
        );
        let start = self.others.partition_point(|&number| number < from);
        let mut other = None;
        for &number in self.others.get(start..)? {
            if by_name.is_some_and(|known| number > known) {
                break;
            }
            if rules.get(number)?.action.matches(now) {
                other = Some(number);
                break;
            }
        }
        let number = other.or(by_name)?;
        Some((number, rules.get(number)?))
    }

    /// Limits the manifest to names that some rule can match.
    pub fn narrow(&self, manifest: Manifest) -> Manifest {
        if !self.others.is_empty() {
            return manifest;
        }
        let maps = [&self.current, &self.asked]
            .into_iter()
            .flat_map(|names| [&names.exact, &names.suffix, &names.below]);
        manifest.at_or_below(maps.flat_map(|map| map.iter()).map(|(name, _)| name))
    }
}

impl Action {
    /// Whether a rule that is not found by name matches.
    fn matches(&self, now: &Question<'_>) -> bool {
        match self {
            Action::Type { from, .. } => now.qtype == *from,
            Action::Class { from, .. } => now.class == *from,
            Action::Name { pattern, .. } | Action::Cname { pattern, .. } => {
                pattern.matches(now.name(), now.text())
            }
            // The target of an alias is not known yet.
            Action::Target(_) => true,
            Action::Ttl { pattern, .. } | Action::Rcode { pattern, .. } => {
                pattern.matches(now.asked, &now.asked_text)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pattern::{Replacement, TextPattern};
    use dnsweir_filter::{Class, NameBuf, Type};

    fn name(text: &str) -> NameBuf {
        text.parse().unwrap()
    }

    /// The index must find exactly what a linear search finds.
    #[test]
    fn finds_what_a_list_would() {
        let names = ["a.test", "b.a.test", "test", "c.b.a.test", "example", "."].map(name);
        let mut rules = Vec::new();
        for round in 0..4 {
            for name in &names {
                let patterns = [
                    Pattern::Exact(name.clone()),
                    Pattern::Below(name.clone()),
                    Pattern::Text(TextPattern::substring("b.")),
                    Pattern::Suffix(name.clone()),
                ];
                let mut patterns: Vec<_> = patterns.into_iter().collect();
                patterns.rotate_left(round);
                for (number, pattern) in patterns.into_iter().enumerate() {
                    let replacement = Replacement::Name(NameBuf::root());
                    rules.push(Rule {
                        stop: false,
                        action: match number {
                            0 => Action::Rcode {
                                pattern,
                                from: dnsweir_filter::Rcode(0),
                                to: dnsweir_filter::Rcode(1),
                            },
                            _ => Action::Name {
                                pattern,
                                replacement,
                                keep: false,
                                values: Vec::new(),
                            },
                        },
                    });
                }
                rules.push(Rule {
                    stop: true,
                    action: Action::Type {
                        from: Type::TXT,
                        to: Type::A,
                    },
                });
            }
        }
        let index = Index::new(&rules);
        let mut matches = 0;
        for asked in &names {
            for current in &names {
                for qtype in [Type::A, Type::TXT] {
                    let mut now = Question::new(asked.as_name(), qtype, Class::IN);
                    now.rename(current.clone());
                    for from in 0..=rules.len() {
                        let listed = (from..rules.len()).find(|&at| rules[at].action.matches(&now));
                        let found = index.next(&rules, from, &now).map(|(number, _)| number);
                        assert_eq!(found, listed, "{asked} {current} {qtype} from {from}");
                        matches += usize::from(found.is_some());
                    }
                }
            }
        }
        assert!(matches > 5000, "{matches}");
    }
}
