//! A filter with a handful of names: answers some, blocks others.
//!
//! ```kdl
//! config {
//!     host "hello.example" "192.0.2.7"   // A queries for this name get this address
//!     block "ads.example"                // this name and all below it do not exist
//! }
//! ```

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use dnsweir_filter::{
    Answer, Filter, Invalid, Level, Manifest, NameBuf, NameMap, Node, Query, Rcode, Rdata, Setup, Type, Verdict,
    log,
};

const TTL: Duration = Duration::from_secs(300);

struct Names {
    hosts: NameMap<Ipv4Addr>,
    blocked: NameMap<()>,
}

impl Filter for Names {
    fn configure(setup: Setup<'_>) -> Result<(Names, Manifest), Invalid> {
        let mut filter = Names {
            hosts: NameMap::new(),
            blocked: NameMap::new(),
        };
        let mut names: Vec<NameBuf> = Vec::new();
        for node in setup.config().nodes(&["host", "block"]) {
            let Ok(name) = node.argument::<NameBuf>(0) else {
                continue; // Recorded as a mistake.
            };
            names.push(name.clone());
            if node.name() == "block" {
                filter.blocked.insert(name, ());
            } else if let Ok(address) = address(node) {
                filter.hosts.insert(name, address);
            }
        }
        let (hosts, blocked) = (filter.hosts.len(), filter.blocked.len());
        log(
            Level::Info,
            &format!("the Rust filter is ready: {hosts} hosts, {blocked} blocked"),
        );
        Ok((filter, Manifest::new().queries().at_or_below(&names)))
    }

    fn query(&mut self, query: &Query<'_>) -> Verdict {
        if query.qtype() == Type::A
            && let Some(&address) = self.hosts.get(query.name())
        {
            let record = Rdata::address(address.into());
            return Verdict::answer(Answer::noerror().record(query.name(), TTL, record));
        }
        if self.blocked.suffixes(query.name()).next().is_some() {
            dnsweir_filter::count("blocked", 1);
            return Verdict::refuse(Rcode::NXDOMAIN);
        }
        Verdict::pass()
    }
}

/// The address that a node gives a name.
fn address(node: Node<'_>) -> Result<Ipv4Addr, Invalid> {
    match node.argument(1)? {
        IpAddr::V4(address) => Ok(address),
        IpAddr::V6(_) => Err(node
            .mistake("this needs an IPv4 address")
            .argument(1)
            .report()),
    }
}

dnsweir_filter::export!(Names);
