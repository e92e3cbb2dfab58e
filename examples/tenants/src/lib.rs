//! Gives each tenant its own policy: which names its clients may ask for.
//!
//! A client belongs to the tenant with the longest prefix that contains its address. Of a tenant's rules, the
//! one with the longest name decides, so that a name can be blocked and one below it allowed.

use dnsweir_filter::{
    ExtendedError, Filter, Invalid, Manifest, NameBuf, NameMap, Node, Prefix, PrefixMap, Query, Rcode, Setup,
    Verdict, count_with,
};

/// Blocked, and prohibited (RFC 8914 sections 4.16 and 4.19).
const BLOCKED: u16 = 15;
const PROHIBITED: u16 = 18;

/// The filter.
pub struct Tenants {
    prefixes: PrefixMap<usize>,
    tenants: Vec<Tenant>,
    /// The policy for clients without a tenant.
    others: Others,
}

struct Tenant {
    name: String,
    rules: NameMap<Rule>,
    rcode: Rcode,
}

#[derive(Clone, Copy, PartialEq)]
enum Rule {
    Allow,
    Block,
}

#[derive(Clone, Copy)]
enum Others {
    Pass,
    Refuse,
}

impl Filter for Tenants {
    fn configure(setup: Setup<'_>) -> Result<(Tenants, Manifest), Invalid> {
        let config = setup.config();
        let others = match config.setting_or("others", true) {
            true => Others::Pass,
            false => Others::Refuse,
        };
        let nodes = config.nodes(&["tenant"]);
        if nodes.is_empty() {
            let help = "such as: tenant \"guests\" \"10.9.0.0/16\" { block \"corp.example\" }";
            return Err(config.mistake("there is no tenant").help(help).report());
        }
        let (mut prefixes, mut tenants) = (PrefixMap::new(), Vec::new());
        for node in nodes {
            let (name, networks) = (node.argument::<String>(0), node.arguments::<Prefix>(1));
            let tenant = Tenant::read(node, name.unwrap_or_default());
            prefixes.extend(
                networks
                    .unwrap_or_default()
                    .into_iter()
                    .map(|prefix| (prefix, tenants.len())),
            );
            tenants.push(tenant);
        }
        let filter = Tenants {
            prefixes,
            tenants,
            others,
        };
        Ok((filter, Manifest::new().queries()))
    }

    fn query(&mut self, query: &Query<'_>) -> Verdict {
        let tenant = self.prefixes.get(query.client());
        let Some(tenant) = tenant.and_then(|&index| self.tenants.get(index)) else {
            return match self.others {
                Others::Pass => Verdict::pass(),
                Others::Refuse => {
                    count_with("refused", &[("tenant", "")], 1);
                    let error = ExtendedError::new(PROHIBITED).text("no tenant has this address");
                    Verdict::refuse(Rcode::REFUSED).error(error)
                }
            };
        };
        match tenant.rules.suffixes(query.name()).next() {
            Some((_, Rule::Block)) => {
                count_with("refused", &[("tenant", &tenant.name)], 1);
                Verdict::refuse(tenant.rcode).error(ExtendedError::new(BLOCKED).text(tenant.name.as_str()))
            }
            _ => Verdict::pass(),
        }
    }
}

impl Tenant {
    fn read(node: Node<'_>, name: String) -> Tenant {
        let mut rules = NameMap::new();
        for (word, rule) in [("block", Rule::Block), ("allow", Rule::Allow)] {
            for node in node.nodes(&[word]) {
                for (index, name) in node
                    .arguments::<NameBuf>(0)
                    .unwrap_or_default()
                    .into_iter()
                    .enumerate()
                {
                    if rules.insert(name, rule).is_some_and(|other| other != rule) {
                        let both = node.mistake("this name is blocked and allowed").argument(index);
                        let _ = both.help("keep one of them").report();
                    }
                }
            }
        }
        Tenant {
            name,
            rules,
            rcode: node.setting_or("rcode", Rcode::NXDOMAIN),
        }
    }
}

dnsweir_filter::export!(Tenants);
