//! Policies by name: reading them, and finding those for a name.

use std::time::Duration;

use dnsweir_filter::{FromValue, Invalid, Name, NameBuf, NameMap, Node, ResponseEdit, Setup, Ttl, Value};

/// The policy for one name. Its aspects are independent of each other.
#[derive(Debug, Clone, Copy, Default)]
pub struct Policy {
    store: Option<bool>,
    ttl: Option<Bounds>,
    stale: Option<bool>,
}

#[derive(Debug, Clone, Copy)]
struct Bounds {
    min: Option<Ttl>,
    max: Option<Ttl>,
}

/// One aspect of a policy.
#[derive(Clone, Copy)]
enum Aspect {
    Store(bool),
    Ttl(Bounds),
    Stale(bool),
}

impl Policy {
    /// Sets an aspect. Returns false if it is set already.
    fn set(&mut self, aspect: Aspect) -> bool {
        match aspect {
            Aspect::Store(value) => self.store.replace(value).is_none(),
            Aspect::Ttl(value) => self.ttl.replace(value).is_none(),
            Aspect::Stale(value) => self.stale.replace(value).is_none(),
        }
    }

    /// Fills unset aspects from a more distant policy.
    fn fill(&mut self, farther: &Policy) {
        self.store = self.store.or(farther.store);
        self.stale = self.stale.or(farther.stale);
        if self.ttl.is_none() {
            self.ttl = farther.ttl;
        }
    }

    /// The edit of responses, if there is any.
    pub fn into_edit(self) -> Option<ResponseEdit> {
        let mut edit = ResponseEdit::new();
        if self.store == Some(false) {
            edit = edit.no_store();
        }
        if self.stale == Some(false) {
            edit = edit.no_stale();
        }
        if let Some(Bounds { min, max }) = self.ttl {
            if let Some(min) = min {
                edit = edit.ttl_min(Duration::from(min));
            }
            if let Some(max) = max {
                edit = edit.ttl_max(Duration::from(max));
            }
        }
        (edit != ResponseEdit::new()).then_some(edit)
    }
}

/// All policies.
#[derive(Debug, Default)]
pub struct Policies(NameMap<Under>);

/// The policies for exactly a name, and for it and the names below.
#[derive(Debug, Clone, Copy, Default)]
struct Under {
    exact: Policy,
    suffix: Policy,
}

impl Policies {
    /// Reads the block and records all its mistakes.
    pub fn read(setup: Setup<'_>) -> Result<Policies, Invalid> {
        let config = setup.config();
        let nodes = config.nodes(&["no-cache", "cache", "ttl", "stale"]);
        if nodes.is_empty() {
            let help = "such as: no-cache \"dev.svc.cluster.local\"";
            return Err(config.mistake("no policies are configured").help(help).report());
        }
        let mut policies = Policies::default();
        for node in nodes {
            let aspect = Aspect::read(node);
            let scope = Scope::read(node, setup.zones(), usize::from(node.name() == "stale"));
            if let (Ok(aspect), Ok(scope)) = (aspect, scope) {
                policies.put(node, aspect, &scope);
            }
        }
        Ok(policies)
    }

    fn put(&mut self, node: Node<'_>, aspect: Aspect, scope: &Scope) {
        for (number, name) in scope.names.iter().enumerate() {
            let under = self.0.entry(name.clone());
            let policy = if scope.exact {
                &mut under.exact
            } else {
                &mut under.suffix
            };
            if !policy.set(aspect) {
                let message = format!("this contradicts an earlier policy for {name}");
                let mistake = node.mistake(message).help("keep one of them");
                let _ = match scope.first_argument {
                    Some(first) => mistake.argument(first + number).report(),
                    None => mistake.property("namespace").report(),
                };
            }
        }
    }

    /// All names with a policy.
    pub fn names(&self) -> impl Iterator<Item = &NameBuf> {
        self.0.iter().map(|(name, _)| name)
    }

    /// The policy for a name: each aspect comes from the longest name that sets it.
    pub fn of(&self, name: Name<'_>) -> Policy {
        let mut policy = self.0.get(name).map_or(Policy::default(), |under| under.exact);
        for (_, under) in self.0.suffixes(name) {
            policy.fill(&under.suffix);
        }
        policy
    }
}

impl Aspect {
    fn read(node: Node<'_>) -> Result<Aspect, Invalid> {
        match node.name() {
            "no-cache" => Ok(Aspect::Store(false)),
            "cache" => Ok(Aspect::Store(true)),
            "stale" => node.argument(0).map(Aspect::Stale),
            _ => {
                let (min, max) = (node.property("min"), node.property("max"));
                match (min?, max?) {
                    (None, None) => {
                        let help = "min=, max= or both";
                        Err(node.mistake("`ttl` sets no TTL").help(help).report())
                    }
                    (Some(min), Some(max)) if min > max => Err(node
                        .mistake("`min=` is more than `max=`")
                        .property("min")
                        .report()),
                    (min, max) => Ok(Aspect::Ttl(Bounds { min, max })),
                }
            }
        }
    }
}

/// The names that a node applies to.
struct Scope {
    names: Vec<NameBuf>,
    /// Whether only the names themselves match.
    exact: bool,
    /// The index of the first name; none if they are derived from a namespace.
    first_argument: Option<usize>,
}

/// `match="suffix" | "exact"`
#[derive(PartialEq)]
enum Match {
    Suffix,
    Exact,
}

impl FromValue for Match {
    const EXPECTED: &'static str = "how names are matched";

    fn from_value(value: Value<'_>) -> Result<Match, String> {
        match value {
            Value::Text("suffix") => Ok(Match::Suffix),
            Value::Text("exact") => Ok(Match::Exact),
            _ => Err("\"suffix\" or \"exact\"".to_owned()),
        }
    }
}

impl Scope {
    /// Reads either names, from this argument on, or a namespace.
    fn read(node: Node<'_>, zones: &[NameBuf], first: usize) -> Result<Scope, Invalid> {
        match node.property::<String>("namespace")? {
            Some(namespace) => {
                if node.argument_count() > first {
                    let _ = node.arguments::<String>(first);
                    let help = "write two nodes";
                    return Err(node
                        .mistake("`namespace=` cannot be combined with names")
                        .help(help)
                        .report());
                }
                let names = names_of(node, &namespace, zones)?;
                Ok(Scope {
                    names,
                    exact: false,
                    first_argument: None,
                })
            }
            None => {
                let (matching, names) = (node.property("match"), node.arguments(first));
                let exact = matching? == Some(Match::Exact);
                Ok(Scope {
                    names: names?,
                    exact,
                    first_argument: Some(first),
                })
            }
        }
    }
}

/// The names above a namespace's services and pods, in each cluster zone that uses the filter. Excludes the
/// root and reverse zones.
fn names_of(node: Node<'_>, namespace: &str, zones: &[NameBuf]) -> Result<Vec<NameBuf>, Invalid> {
    let arpa = NameBuf::root()
        .as_name()
        .child("arpa")
        .unwrap_or_else(|_| NameBuf::root());
    let mut names = Vec::new();
    for zone in zones.iter().map(NameBuf::as_name) {
        if zone.is_root() || zone.is_at_or_below(&arpa) {
            continue;
        }
        for kind in ["svc", "pod"] {
            let name = zone
                .child(kind)
                .and_then(|above| above.as_name().child(namespace));
            names.push(name.map_err(|reason| {
                let message = format!("\"{namespace}\" is not a namespace");
                node.mistake(message)
                    .property("namespace")
                    .help(reason.to_string())
                    .report()
            })?);
        }
    }
    if names.is_empty() {
        let message = "no zone of a cluster uses this filter";
        let help = "`namespace=` covers names in the zones that use this filter, such as \"cluster.local\"";
        return Err(node.mistake(message).property("namespace").help(help).report());
    }
    Ok(names)
}
