//! The rules of the configuration.

use std::cell::OnceCell;
use std::time::Duration;

use dnsweir_filter::{Class, FromValue, Invalid, NameBuf, Node, Rcode, ResponseEdit, Ttl, Type, Value};

use crate::pattern::{Pattern, Replacement};

/// One rule.
pub struct Rule {
    /// What the rule matches, and what it does then.
    pub action: Action,
    /// Whether no further rule is tried after it has matched.
    pub stop: bool,
}

/// What a rule matches, and what it does then.
pub enum Action {
    /// `name`
    Name {
        pattern: Pattern,
        replacement: Replacement,
        /// Whether to keep the new name in answers.
        keep: bool,
        /// Changes of names in the data of answers.
        values: Vec<Change>,
    },
    /// `type`
    Type { from: Type, to: Type },
    /// `class`
    Class { from: Class, to: Class },
    /// `ttl`
    Ttl { pattern: Pattern, bounds: Bounds },
    /// `rcode`
    Rcode {
        pattern: Pattern,
        from: Rcode,
        to: Rcode,
    },
    /// `cname`
    Cname { pattern: Pattern, target: NameBuf },
    /// `target`
    Target(Change),
}

/// A change of a name.
pub struct Change {
    pattern: Pattern,
    replacement: Replacement,
}

impl Change {
    fn read(node: Node<'_>) -> Result<Change, Invalid> {
        let pattern = Pattern::read(node)?;
        let replacement = pattern.read_replacement(node)?;
        Ok(Change { pattern, replacement })
    }

    /// The changed name; `None` if it does not match, or the result is not a name.
    pub fn of(&self, name: &NameBuf) -> Option<NameBuf> {
        let name = name.as_name();
        let matches = self.pattern.matches(name, &OnceCell::new());
        matches.then(|| self.pattern.replace(name, &self.replacement).ok())?
    }
}

impl Action {
    /// The pattern for the name, if the action has one.
    pub fn pattern(&self) -> Option<&Pattern> {
        match self {
            Action::Name { pattern, .. }
            | Action::Ttl { pattern, .. }
            | Action::Rcode { pattern, .. }
            | Action::Cname { pattern, .. } => Some(pattern),
            Action::Type { .. } | Action::Class { .. } | Action::Target(_) => None,
        }
    }

    /// Whether the pattern applies to the name as the client asked it. Rules about responses refer to what
    /// the client sees; rules about questions build on each other.
    pub fn looks_at_asked(&self) -> bool {
        matches!(self, Action::Ttl { .. } | Action::Rcode { .. })
    }

    /// Whether the action needs the content of answers.
    pub fn needs_answers(&self) -> bool {
        match self {
            Action::Target(_) => true,
            Action::Name { values, .. } => !values.is_empty(),
            _ => false,
        }
    }
}

/// Bounds of a TTL; at least one is set.
#[derive(Clone, Copy)]
pub struct Bounds {
    min: Option<Ttl>,
    max: Option<Ttl>,
}

impl Bounds {
    /// Reads the third argument, which sets both, or the properties.
    fn read(node: Node<'_>) -> Result<Bounds, Invalid> {
        let exact = node.optional_argument::<Ttl>(2);
        let (min, max) = (node.property::<Ttl>("min"), node.property::<Ttl>("max"));
        let (exact, min, max) = (exact?, min?, max?);
        match (exact, min, max) {
            (Some(ttl), None, None) => Ok(Bounds {
                min: Some(ttl),
                max: Some(ttl),
            }),
            (Some(_), ..) => {
                let help = "either the TTL as third argument, or min= and max=";
                Err(node.mistake("`ttl` sets the TTL twice").help(help).report())
            }
            (None, None, None) => {
                let help = "a TTL as third argument, or min= or max=";
                Err(node.mistake("`ttl` sets no TTL").help(help).report())
            }
            (None, Some(min), Some(max)) if min > max => Err(node
                .mistake("`min=` is more than `max=`")
                .property("min")
                .report()),
            (None, min, max) => Ok(Bounds { min, max }),
        }
    }

    /// Adds the bounds to an edit. They replace those of earlier rules.
    pub fn put_into(self, mut edit: ResponseEdit) -> ResponseEdit {
        if let Some(min) = self.min {
            edit = edit.ttl_min(Duration::from(min));
        }
        if let Some(max) = self.max {
            edit = edit.ttl_max(Duration::from(max));
        }
        edit
    }
}

/// `then="stop" | "continue"`
#[derive(PartialEq)]
enum Then {
    Stop,
    Continue,
}

impl FromValue for Then {
    const EXPECTED: &'static str = "what to do next";

    fn from_value(value: Value<'_>) -> Result<Then, String> {
        match value {
            Value::Text("stop") => Ok(Then::Stop),
            Value::Text("continue") => Ok(Then::Continue),
            _ => Err("\"stop\" or \"continue\"".to_owned()),
        }
    }
}

/// `answers="revert" | "keep"`
#[derive(PartialEq)]
enum Answers {
    Revert,
    Keep,
}

impl FromValue for Answers {
    const EXPECTED: &'static str = "what becomes of the names in answers";

    fn from_value(value: Value<'_>) -> Result<Answers, String> {
        match value {
            Value::Text("revert") => Ok(Answers::Revert),
            Value::Text("keep") => Ok(Answers::Keep),
            _ => Err("\"revert\" or \"keep\"".to_owned()),
        }
    }
}

impl Rule {
    /// Reads a rule, and records every mistake in it.
    pub fn read(node: Node<'_>) -> Result<Rule, Invalid> {
        // An alias ends the rules: there is nothing to continue with.
        let then = if node.name() == "cname" {
            Ok(None)
        } else {
            node.property("then")
        };
        let action = Action::read(node);
        Ok(Rule {
            stop: then? != Some(Then::Continue),
            action: action?,
        })
    }
}

impl Action {
    fn read(node: Node<'_>) -> Result<Action, Invalid> {
        match node.name() {
            "type" => {
                let (from, to) = (node.argument(0), node.argument(1));
                Ok(Action::Type { from: from?, to: to? })
            }
            "class" => {
                let (from, to) = (node.argument(0), node.argument(1));
                Ok(Action::Class { from: from?, to: to? })
            }
            "ttl" => {
                let (pattern, bounds) = (Pattern::read(node), Bounds::read(node));
                Ok(Action::Ttl {
                    pattern: pattern?,
                    bounds: bounds?,
                })
            }
            "rcode" => {
                let (pattern, from, to) = (Pattern::read(node), node.argument(2), node.argument(3));
                Ok(Action::Rcode {
                    pattern: pattern?,
                    from: from?,
                    to: to?,
                })
            }
            "cname" => {
                let (pattern, target) = (Pattern::read(node), node.argument(2));
                Ok(Action::Cname {
                    pattern: pattern?,
                    target: target?,
                })
            }
            "target" => Change::read(node).map(Action::Target),
            _ => {
                let keep = node.property("answers");
                let values: Result<Vec<Change>, Invalid> =
                    node.nodes(&["value"]).into_iter().map(Change::read).collect();
                let Change { pattern, replacement } = Change::read(node)?;
                Ok(Action::Name {
                    pattern,
                    replacement,
                    keep: keep? == Some(Answers::Keep),
                    values: values?,
                })
            }
        }
    }
}
