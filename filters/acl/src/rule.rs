//! A rule of the configuration.

use dnsweir_filter::{Invalid, NameBuf, Node, Prefix, Query, Type};

/// What happens to a matching query.
#[derive(Clone, Copy)]
pub enum Action {
    /// It passes.
    Allow,
    /// It is refused.
    Block,
    /// Its answer is empty.
    Filter,
    /// It is dropped.
    Drop,
}

/// A rule. An empty list matches everything.
pub struct Rule {
    pub action: Action,
    clients: Vec<Prefix>,
    names: Vec<NameBuf>,
    types: Vec<Type>,
}

impl Rule {
    /// Reads `allow`, `block`, `filter` or `drop`.
    pub fn read(node: Node<'_>) -> Result<Rule, Invalid> {
        let action = match node.name() {
            "allow" => Action::Allow,
            "block" => Action::Block,
            "filter" => Action::Filter,
            _ => Action::Drop,
        };
        let clients = node.optional_arguments(0);
        let names = values(node, "name");
        let types = values(node, "type");
        Ok(Rule {
            action,
            clients: clients?,
            names: names?,
            types: types?,
        })
    }

    /// Whether the rule matches this query.
    pub fn fits(&self, query: &Query<'_>) -> bool {
        let (client, name) = (query.client(), query.name());
        let clients = &self.clients;
        (clients.is_empty() || clients.iter().any(|network| network.contains(client)))
            && (self.types.is_empty() || self.types.contains(&query.qtype()))
            && (self.names.is_empty() || self.names.iter().any(|zone| name.is_at_or_below(zone)))
    }
}

/// The values of a child node; none if it is missing.
fn values<T: dnsweir_filter::FromValue>(rule: Node<'_>, name: &'static str) -> Result<Vec<T>, Invalid> {
    rule.node(name)?.map_or(Ok(Vec::new()), |node| node.arguments(0))
}
