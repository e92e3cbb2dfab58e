//! Lets pods resolve only the names in an annotation of their namespace.
//!
//! Connections normally start with a name: pods that cannot resolve it do not get out, and attempts are
//! counted by namespace.

use std::time::Duration;

use dnsweir_filter::{
    ExtendedError, Filter, FromValue, Identity, Invalid, Manifest, Name, NameBuf, NameMap, Query, Rcode,
    Setup, Value, Verdict, count_with,
};

/// How long the host remembers that a pod may resolve a name. A change of the annotation clears that.
const REMEMBERED: Duration = Duration::from_secs(3600);

/// The filter.
pub struct EgressNames {
    annotation: String,
    always: NameMap<()>,
    unlisted: Policy,
    host: Policy,
    unknown: Policy,
}

/// The policy for clients without an annotation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Policy {
    Allow,
    Refuse,
}

impl FromValue for Policy {
    const EXPECTED: &'static str = "a policy";

    fn from_value(value: Value<'_>) -> Result<Policy, String> {
        value.one_of(&[("allow", Policy::Allow), ("refuse", Policy::Refuse)])
    }
}

impl Filter for EgressNames {
    fn configure(setup: Setup<'_>) -> Result<(EgressNames, Manifest), Invalid> {
        let config = setup.config();
        let annotation: String = config.setting("annotation")?;
        let mut always = NameMap::new();
        for node in config.nodes(&["always"]) {
            for name in node.arguments::<NameBuf>(0).unwrap_or_default() {
                always.insert(name, ());
            }
        }
        let manifest = Manifest::new().queries().namespace_annotation(&annotation);
        let filter = EgressNames {
            annotation,
            always,
            unlisted: config.setting_or("unlisted", Policy::Allow),
            host: config.setting_or("host", Policy::Allow),
            unknown: config.setting_or("unknown", Policy::Refuse),
        };
        Ok((filter, manifest))
    }

    fn query(&mut self, query: &Query<'_>) -> Verdict {
        let name = query.name();
        if self.always.suffixes(name).next().is_some() {
            return Verdict::pass().remember(REMEMBERED);
        }
        let (policy, namespace) = match query.identity() {
            Identity::Host => (self.host, "-"),
            Identity::Pod(pod) => match query.namespace_annotation(&self.annotation) {
                Some(list) if lists(list, name) => (Policy::Allow, pod.namespace),
                Some(_) => (Policy::Refuse, pod.namespace),
                None => (self.unlisted, pod.namespace),
            },
            _ => (self.unknown, "-"),
        };
        if policy == Policy::Allow {
            return Verdict::pass().remember(REMEMBERED);
        }
        // Not remembered, so that every attempt is counted.
        count_with("refused", &[("namespace", namespace)], 1);
        let why = ExtendedError::BLOCKED.text("not among the names that this namespace may resolve");
        Verdict::refuse(Rcode::REFUSED).error(why)
    }
}

/// Whether a list has a name, or a wildcard above it. Invalid entries match nothing.
fn lists(list: &str, name: Name<'_>) -> bool {
    let mut names = list
        .split(|letter: char| letter == ',' || letter.is_whitespace())
        .filter_map(|text| text.parse::<NameBuf>().ok());
    names.any(|listed| {
        let listed = listed.as_name();
        match listed.wildcard_base() {
            Some(base) => name != base && name.is_at_or_below(base),
            None => name == listed,
        }
    })
}

dnsweir_filter::export!(EgressNames);
