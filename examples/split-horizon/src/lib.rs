//! Answers names differently for clients of different subnets.
//!
//! The first view that has a client's address applies to it. Names that this view does not mention pass to
//! the next stage.

use std::net::IpAddr;
use std::time::Duration;

use dnsweir_filter::{
    Answer, Class, Filter, Invalid, Manifest, NameBuf, NameMap, Node, Prefix, Query, Rewrite, Setup, Ttl,
    Verdict,
};

/// The filter.
pub struct SplitHorizon {
    views: Vec<View>,
    ttl: Duration,
}

/// The names that clients with these addresses see.
struct View {
    clients: Vec<Prefix>,
    names: NameMap<Seen>,
}

/// The entry for a name.
enum Seen {
    /// It has these addresses, and nothing else.
    Addresses(Vec<IpAddr>),
    /// It is looked up under this name.
    Other(NameBuf),
}

impl Filter for SplitHorizon {
    fn configure(setup: Setup<'_>) -> Result<(SplitHorizon, Manifest), Invalid> {
        let config = setup.config();
        let ttl = config.setting_or("ttl", Ttl::MINUTE).into();
        let nodes = config.nodes(&["view"]);
        if nodes.is_empty() {
            let help = "such as: view \"10.0.0.0/8\" { host \"shop.example\" \"10.0.0.7\" }";
            return Err(config.mistake("there is no view").help(help).report());
        }
        let views: Vec<View> = nodes.into_iter().map(View::read).collect();
        let names = views.iter().flat_map(|view| view.names.iter());
        let manifest = Manifest::new().queries().at_or_below(names.map(|(name, _)| name));
        Ok((SplitHorizon { views, ttl }, manifest))
    }

    fn query(&mut self, query: &Query<'_>) -> Verdict {
        let client = query.client();
        let view = self.views.iter().find(|view| {
            let mut prefixes = view.clients.iter();
            prefixes.any(|prefix| prefix.contains(client))
        });
        match view.and_then(|view| view.names.get(query.name())) {
            Some(Seen::Other(other)) => Verdict::rewrite(Rewrite::new().name(other.clone())),
            Some(Seen::Addresses(addresses)) if query.class() == Class::IN => {
                Verdict::answer(Answer::of_host(query, addresses, self.ttl))
            }
            _ => Verdict::pass(),
        }
    }
}

impl View {
    /// `view PREFIX… { host NAME ADDRESS…; rewrite NAME NAME }`
    fn read(node: Node<'_>) -> View {
        let mut names = NameMap::new();
        for said in node.nodes(&["host", "rewrite"]) {
            let (name, seen) = match said.name() {
                "host" => (
                    said.argument::<NameBuf>(0),
                    said.arguments(1).map(Seen::Addresses),
                ),
                _ => (said.argument::<NameBuf>(0), said.argument(1).map(Seen::Other)),
            };
            let (Ok(name), Ok(seen)) = (name, seen) else {
                continue;
            };
            let text = name.to_string();
            if names.insert(name, seen).is_some() {
                let twice = said.mistake(format!("this view says twice what {text} is"));
                let _ = twice.argument(0).help("keep one of them").report();
            }
        }
        if names.is_empty() {
            let empty = node.mistake("this view shows nothing of its own");
            let _ = empty.help("write `host` or `rewrite` in its block").report();
        }
        View {
            clients: node.arguments(0).unwrap_or_default(),
            names,
        }
    }
}

dnsweir_filter::export!(SplitHorizon);
