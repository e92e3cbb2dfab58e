//! Access control: rules by client, name and type. The first matching rule decides.

mod rule;

use dnsweir_filter::{ExtendedError, Filter, Invalid, Manifest, Query, Rcode, Setup, Verdict, count_with};

use rule::{Action, Rule};

/// The filter.
pub struct Acl(Vec<Rule>);

impl Filter for Acl {
    fn configure(setup: Setup<'_>) -> Result<(Acl, Manifest), Invalid> {
        let config = setup.config();
        let nodes = config.nodes(&["allow", "block", "filter", "drop"]);
        if nodes.is_empty() {
            let help = "such as: block \"192.0.2.0/24\"";
            return Err(config.mistake("no rules are configured").help(help).report());
        }
        let rules = nodes.into_iter().filter_map(|node| Rule::read(node).ok());
        Ok((Acl(rules.collect()), Manifest::new().queries()))
    }

    fn query(&mut self, query: &Query<'_>) -> Verdict {
        let Some(rule) = self.0.iter().find(|rule| rule.fits(query)) else {
            return Verdict::pass();
        };
        let (verdict, word) = match rule.action {
            Action::Allow => return Verdict::pass(),
            Action::Block => (
                Verdict::refuse(Rcode::REFUSED).error(ExtendedError::BLOCKED),
                "block",
            ),
            Action::Filter => (
                Verdict::refuse(Rcode::NOERROR).error(ExtendedError::FILTERED),
                "filter",
            ),
            Action::Drop => return Verdict::drop_for("acl"),
        };
        count_with("queries", &[("action", word)], 1);
        verdict
    }
}

dnsweir_filter::export!(Acl);
