//! Answers the names of services with virtual addresses, as the DNS proxy of a service mesh does.
//!
//! A service has the addresses that are written, or one that is derived from its name. Its name may be
//! a wildcard. What is no service goes on to the next stage.

mod pool;

use std::net::IpAddr;
use std::time::Duration;

use dnsweir_filter::{
    Answer, Class, Filter, Invalid, Manifest, Name, NameBuf, NameMap, Node, Prefix, Query, Setup, Ttl,
    Verdict,
};

use pool::Pool;

/// How long the host may go without asking again. Not forever, so that its memory of names that
/// nobody asks for any more has an end.
const REMEMBER: Duration = Duration::from_secs(3600);

/// The filter.
pub struct Services {
    hosts: NameMap<Entry>,
    ttl: Duration,
}

/// What there is at a name.
#[derive(Default)]
struct Entry {
    /// The addresses of a service with this name.
    exact: Option<Vec<IpAddr>>,
    /// The addresses of the service whose name is an asterisk below this name.
    wildcard: Option<Vec<IpAddr>>,
}

/// `service NAME ADDRESS…`
struct Service<'a> {
    node: Node<'a>,
    /// Without the asterisk.
    name: NameBuf,
    wildcard: bool,
    addresses: Vec<IpAddr>,
}

impl Filter for Services {
    fn configure(setup: Setup<'_>) -> Result<(Services, Manifest), Invalid> {
        let config = setup.config();
        let ttl = config.setting_or("ttl", Ttl::MINUTE).into();
        let mut pools = Vec::new();
        for node in config.nodes(&["allocate"]) {
            for (index, prefix) in node
                .arguments::<Prefix>(0)
                .unwrap_or_default()
                .into_iter()
                .enumerate()
            {
                match Pool::new(prefix) {
                    Some(pool) => pools.push(pool),
                    None => {
                        let mistake = node.mistake(format!("{prefix} has no addresses to give out"));
                        let _ = mistake.argument(index).help("such as 240.240.0.0/16").report();
                    }
                }
            }
        }
        let nodes = config.nodes(&["service"]);
        if nodes.is_empty() {
            let help = "such as: service \"*.test.global\" \"240.0.0.7\"";
            return Err(config.mistake("there is no service").help(help).report());
        }
        let mut services: Vec<Service<'_>> = nodes
            .into_iter()
            .filter_map(|node| Service::read(node).ok())
            .collect();
        // Written addresses are taken before any is given out, and those are given out in the order of the
        // names: what a service gets does not depend on where it stands.
        for address in services.iter().flat_map(|service| &service.addresses) {
            pools.iter_mut().for_each(|pool| pool.reserve(*address));
        }
        services.sort_by(|one, other| (&one.name, one.wildcard).cmp(&(&other.name, other.wildcard)));
        let mut hosts: NameMap<Entry> = NameMap::new();
        for service in services {
            let Ok(addresses) = service.addresses(&mut pools) else {
                continue;
            };
            let entry = hosts.entry(service.name);
            let place = if service.wildcard {
                &mut entry.wildcard
            } else {
                &mut entry.exact
            };
            if place.replace(addresses).is_some() {
                let twice = service.node.mistake("this service is written twice").argument(0);
                let _ = twice.help("write all of its addresses in one node").report();
            }
        }
        let manifest = Manifest::new()
            .queries()
            .at_or_below(hosts.iter().map(|(name, _)| name));
        Ok((Services { hosts, ttl }, manifest))
    }

    fn query(&mut self, query: &Query<'_>) -> Verdict {
        let found = self.find(query.name()).filter(|_| query.class() == Class::IN);
        let verdict = match found {
            Some(addresses) => Verdict::answer(Answer::of_host(query, addresses, self.ttl)),
            None => Verdict::pass(),
        };
        verdict.remember(REMEMBER)
    }
}

impl Services {
    /// The service of a name: the one that is called so, or else that of the longest wildcard.
    fn find(&self, name: Name<'_>) -> Option<&Vec<IpAddr>> {
        self.hosts.suffixes(name).find_map(|(suffix, entry)| {
            if suffix == name {
                // A wildcard has a label more than what it stands on.
                entry.exact.as_ref()
            } else {
                entry.wildcard.as_ref()
            }
        })
    }
}

impl<'a> Service<'a> {
    fn read(node: Node<'a>) -> Result<Service<'a>, Invalid> {
        let name = node.argument::<NameBuf>(0);
        let addresses = match node.argument_count() {
            0 | 1 => Ok(Vec::new()),
            _ => node.arguments(1),
        };
        let (name, addresses) = (name?, addresses?);
        let mut labels = name.as_name().labels();
        let wildcard = labels.next() == Some(b"*");
        let rest = name
            .as_name()
            .parent()
            .filter(|_| wildcard)
            .unwrap_or(name.as_name());
        if rest.labels().any(|label| label == b"*") {
            let mistake = node.mistake(format!("{name} is neither a name nor a wildcard"));
            let help = "an asterisk is a wildcard only as the first label";
            return Err(mistake.argument(0).help(help).report());
        }
        Ok(Service {
            node,
            name: rest.into(),
            wildcard,
            addresses,
        })
    }

    /// The addresses that are written, or one of each pool.
    fn addresses(&self, pools: &mut [Pool]) -> Result<Vec<IpAddr>, Invalid> {
        if !self.addresses.is_empty() {
            return Ok(self.addresses.clone());
        }
        if pools.is_empty() {
            let mistake = self.node.mistake("this service has no address");
            let help = "write one, or where to take them from: allocate \"240.240.0.0/16\"";
            return Err(mistake.help(help).report());
        }
        let given = pools
            .iter_mut()
            .map(|pool| pool.give(self.name.as_name(), self.wildcard));
        given.collect::<Option<_>>().ok_or_else(|| {
            let mistake = self.node.mistake("there is no address left for this service");
            mistake.help("give `allocate` a shorter prefix").report()
        })
    }
}

dnsweir_filter::export!(Services);
