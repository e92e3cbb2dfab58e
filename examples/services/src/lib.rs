//! Answers the names of services with virtual addresses, as the DNS proxy of a service mesh does.
//!
//! A service has addresses from the configuration, or one that is derived from its name, which may be a
//! wildcard. Other names pass to the next stage.

mod pool;

use std::net::IpAddr;
use std::time::Duration;

use dnsweir_filter::{
    Answer, Class, Filter, Invalid, Manifest, Name, NameBuf, NameMap, Node, Prefix, Query, Setup, Ttl,
    Verdict,
};

use pool::Pool;

/// How long the host may remember a verdict. Bounded, so that it forgets names that are no longer asked for.
const REMEMBER: Duration = Duration::from_secs(3600);

/// The filter.
pub struct Services {
    hosts: NameMap<Vec<IpAddr>>,
    ttl: Duration,
}

/// `service NAME ADDRESS…`
struct Service<'a> {
    node: Node<'a>,
    name: NameBuf,
    addresses: Vec<IpAddr>,
}

impl Filter for Services {
    fn configure(setup: Setup<'_>) -> Result<(Services, Manifest), Invalid> {
        let config = setup.config();
        let ttl = config.setting_or("ttl", Ttl::MINUTE).into();
        let mut pools = Vec::new();
        for node in config.nodes(&["allocate"]) {
            pools.extend(read_pools(node));
        }
        let nodes = config.nodes(&["service"]);
        if nodes.is_empty() {
            let help = "such as: service \"*.test.global\" \"240.0.0.7\"";
            return Err(config.mistake("there is no service").help(help).report());
        }
        let services = nodes.into_iter().map(Service::read);
        let mut services: Vec<Service<'_>> = services.filter_map(Result::ok).collect();
        // Configured addresses are reserved before any is allocated, and services get theirs in the order of
        // their names: the allocation does not depend on the order of the configuration.
        for address in services.iter().flat_map(|service| &service.addresses) {
            pools.iter_mut().for_each(|pool| pool.reserve(*address));
        }
        services.sort_by(|one, other| one.stands().cmp(&other.stands()));
        let bases: Vec<NameBuf> = services.iter().map(|service| service.stands().0.into()).collect();
        let mut hosts = NameMap::new();
        for service in services {
            let Ok(addresses) = service.addresses(&mut pools) else {
                continue;
            };
            if hosts.insert(service.name, addresses).is_some() {
                let twice = service.node.mistake("this service is written twice").argument(0);
                let _ = twice.help("write all of its addresses in one node").report();
            }
        }
        let manifest = Manifest::new().queries().at_or_below(&bases);
        Ok((Services { hosts, ttl }, manifest))
    }

    fn query(&mut self, query: &Query<'_>) -> Verdict {
        let found = self.hosts.matching(query.name());
        let verdict = match found.filter(|_| query.class() == Class::IN) {
            Some(addresses) => Verdict::answer(Answer::of_host(query, addresses, self.ttl)),
            None => Verdict::pass(),
        };
        verdict.remember(REMEMBER)
    }
}

/// `allocate PREFIX…`
fn read_pools(node: Node<'_>) -> Vec<Pool> {
    let prefixes: Vec<Prefix> = node.arguments(0).unwrap_or_default();
    let pools = prefixes.into_iter().enumerate().filter_map(|(index, prefix)| {
        let pool = Pool::new(prefix);
        if pool.is_none() {
            let mistake = node.mistake(format!("{prefix} has no addresses to give out"));
            let _ = mistake.argument(index).help("such as 240.240.0.0/16").report();
        }
        pool
    });
    pools.collect()
}

impl<'a> Service<'a> {
    fn read(node: Node<'a>) -> Result<Service<'a>, Invalid> {
        let name = node.argument::<NameBuf>(0);
        let addresses = node.optional_arguments(1);
        let (name, addresses) = (name?, addresses?);
        let service = Service {
            node,
            name,
            addresses,
        };
        if service.stands().0.labels().any(|label| label == b"*") {
            let mistake = node.mistake(format!("{} is neither a name nor a wildcard", service.name));
            let help = "an asterisk is a wildcard only as the first label";
            return Err(mistake.argument(0).help(help).report());
        }
        Ok(service)
    }

    /// The name, without the asterisk if it is a wildcard, and whether it is one.
    fn stands(&self) -> (Name<'_>, bool) {
        let name = self.name.as_name();
        match name.wildcard_base() {
            Some(base) => (base, true),
            None => (name, false),
        }
    }

    /// The configured addresses, or one from each pool.
    fn addresses(&self, pools: &mut [Pool]) -> Result<Vec<IpAddr>, Invalid> {
        if !self.addresses.is_empty() {
            return Ok(self.addresses.clone());
        }
        if pools.is_empty() {
            let mistake = self.node.mistake("this service has no address");
            let help = "write one, or where to take them from: allocate \"240.240.0.0/16\"";
            return Err(mistake.help(help).report());
        }
        let (name, wildcard) = self.stands();
        let given = pools.iter_mut().map(|pool| pool.give(name, wildcard));
        given.collect::<Option<_>>().ok_or_else(|| {
            let mistake = self.node.mistake("there is no address left for this service");
            mistake.help("give `allocate` a shorter prefix").report()
        })
    }
}

dnsweir_filter::export!(Services);
