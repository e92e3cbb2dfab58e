//! A filter for dnsweir: answers some names from its configuration and refuses others.
//!
//! ```kdl
//! config {
//!     answer "hello.example" "192.0.2.1" "2001:db8::1"
//!     block "ads.example" "tracker.example"
//!     ttl "5m"
//! }
//! ```
//!
//! The documentation of `dnsweir_filter` has everything that a filter can do: `cargo doc --open`.

use std::net::IpAddr;
use std::time::Duration;

use dnsweir_filter::{
    Answer, Filter, Invalid, Manifest, NameBuf, NameMap, Query, Rcode, Rdata, Setup, Ttl, Type, Verdict,
};

/// How long the proxy may reuse a verdict for a name. Verdicts here depend neither on the client nor on the time.
const REMEMBER: Duration = Duration::from_secs(3600);

/// The filter, with its configuration.
pub struct {Type} {
    /// Addresses by name.
    answers: NameMap<Vec<IpAddr>>,
    /// These names and all names below them.
    blocked: NameMap<()>,
    ttl: Duration,
}

impl Filter for {Type} {
    /// Called once. Mistakes in `config` are underlined in the operator's file. Reading continues after a
    /// mistake, so that all are reported together.
    fn configure(setup: Setup<'_>) -> Result<({Type}, Manifest), Invalid> {
        let config = setup.config();
        let ttl = config.setting_or("ttl", Ttl::HOUR).into();
        let mut names = Vec::new();
        let mut answers: NameMap<Vec<IpAddr>> = NameMap::new();
        for node in config.nodes(&["answer"]) {
            let (name, addresses) = (node.argument::<NameBuf>(0), node.arguments::<IpAddr>(1));
            if let (Ok(name), Ok(addresses)) = (name, addresses) {
                names.push(name.clone());
                answers.entry(name).extend(addresses);
            }
        }
        let mut blocked = NameMap::new();
        for node in config.nodes(&["block"]) {
            for name in node.arguments::<NameBuf>(0).unwrap_or_default() {
                names.push(name.clone());
                blocked.insert(name, ());
            }
        }
        if names.is_empty() {
            let help = "such as: block \"ads.example\"";
            return Err(config.mistake("there is nothing to answer or to block").help(help).report());
        }
        // The proxy calls the filter only for queries at or below these names.
        let manifest = Manifest::new().queries().at_or_below(&names);
        Ok(({Type} { answers, blocked, ttl }, manifest))
    }

    /// Called for every query that the manifest covers and no remembered verdict answers.
    fn query(&mut self, query: &Query<'_>) -> Verdict {
        let name = query.name();
        if self.blocked.suffixes(name).next().is_some() {
            // In /metrics: dnsweir_filter_counter_total{filter="…",name="blocked"}
            dnsweir_filter::count("blocked", 1);
            return Verdict::refuse(Rcode::NXDOMAIN).remember(REMEMBER);
        }
        let Some(addresses) = self.answers.get(name) else {
            return Verdict::pass().remember(REMEMBER);
        };
        let mut answer = Answer::noerror();
        for &address in addresses {
            if query.qtype() == if address.is_ipv4() { Type::A } else { Type::AAAA } {
                answer = answer.record(name, self.ttl, Rdata::address(address));
            }
        }
        Verdict::answer(answer).remember(REMEMBER)
    }
}

dnsweir_filter::export!({Type});
