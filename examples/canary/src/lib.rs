//! Gives a share of the clients another answer: a canary for the service behind a name.
//!
//! Which clients depends only on their addresses, so every worker, node and generation of the configuration
//! agrees. Each client has a number; those with numbers below the share are canaries. So a growing share only
//! adds clients, and a shrinking one only removes some.

use std::net::IpAddr;
use std::time::Duration;

use dnsweir_filter::{
    Answer, Class, Filter, FromValue, Invalid, Manifest, NameBuf, NameMap, Node, Prefix, PrefixLengths,
    Query, Rewrite, Setup, Ttl, Value, Verdict, stable_hash,
};

/// The filter.
pub struct Canary {
    names: NameMap<Trial>,
    lengths: PrefixLengths,
    ttl: Duration,
}

/// The trial for a name.
struct Trial {
    share: Share,
    /// Names of the same group have the same canaries.
    group: u64,
    instead: Instead,
}

/// The answer for canaries.
enum Instead {
    Addresses(Vec<IpAddr>),
    Name(NameBuf),
}

/// A share in hundredths of a percent.
#[derive(Clone, Copy)]
struct Share(u64);

/// All clients.
const WHOLE: f64 = 10_000.0;

impl FromValue for Share {
    const EXPECTED: &'static str = "a share in percent";

    fn from_value(value: Value<'_>) -> Result<Share, String> {
        let percent = match value {
            Value::Integer(percent) => percent as f64,
            Value::Decimal(percent) => percent,
            _ => f64::NAN,
        };
        if (0.0..=100.0).contains(&percent) {
            Ok(Share((percent * (WHOLE / 100.0)).round() as u64))
        } else {
            Err("a number from 0 to 100, such as 10 or 0.5".to_owned())
        }
    }
}

/// A name, or an address.
enum Target {
    Address(IpAddr),
    Name(NameBuf),
}

impl FromValue for Target {
    const EXPECTED: &'static str = "an address or a domain name";

    fn from_value(value: Value<'_>) -> Result<Target, String> {
        match IpAddr::from_value(value) {
            Ok(address) => Ok(Target::Address(address)),
            Err(_) => NameBuf::from_value(value).map(Target::Name),
        }
    }
}

impl Filter for Canary {
    fn configure(setup: Setup<'_>) -> Result<(Canary, Manifest), Invalid> {
        let config = setup.config();
        let ttl = config.setting_or("ttl", Ttl::MINUTE).into();
        let lengths = config
            .node("prefix")?
            .map_or(Ok(PrefixLengths::WHOLE), PrefixLengths::read)?;
        let nodes = config.nodes(&["canary"]);
        if nodes.is_empty() {
            let help = "such as: canary \"api.example\" \"api-next.example\" share=5";
            return Err(config.mistake("there is no canary").help(help).report());
        }
        let mut names = NameMap::new();
        for node in nodes {
            let (name, trial) = (node.argument::<NameBuf>(0), Trial::read(node));
            let (Ok(name), Ok(trial)) = (name, trial) else {
                continue;
            };
            if names.insert(name, trial).is_some() {
                let twice = node.mistake("this name has a canary already").argument(0);
                let _ = twice.help("keep one of them").report();
            }
        }
        let manifest = Manifest::new()
            .queries()
            .at_or_below(names.iter().map(|(name, _)| name));
        Ok((Canary { names, lengths, ttl }, manifest))
    }

    fn query(&mut self, query: &Query<'_>) -> Verdict {
        let Some(trial) = self
            .names
            .get(query.name())
            .filter(|_| query.class() == Class::IN)
        else {
            return Verdict::pass();
        };
        if number(self.lengths.of(query.client()), trial.group) >= trial.share.0 {
            dnsweir_filter::count("others", 1);
            return Verdict::pass();
        }
        dnsweir_filter::count("canaries", 1);
        match &trial.instead {
            Instead::Name(other) => Verdict::rewrite(Rewrite::new().name(other.clone())),
            Instead::Addresses(addresses) => Verdict::answer(Answer::of_host(query, addresses, self.ttl)),
        }
    }
}

impl Trial {
    /// `canary NAME TARGET… share=PERCENT group=TEXT`
    fn read(node: Node<'_>) -> Result<Trial, Invalid> {
        let (share, group) = (node.property("share"), node.property::<String>("group"));
        let name: Result<NameBuf, Invalid> = node.argument(0);
        let targets = node.arguments(1)?;
        let Some(share) = share? else {
            let missing = node.mistake("`canary` does not say which share of the clients");
            return Err(missing.help("such as: share=5").report());
        };
        let group = match group? {
            Some(group) => stable_hash(group.as_bytes(), 0),
            None => stable_hash(name?.as_name().as_wire(), 0),
        };
        let mut addresses = Vec::new();
        let count = targets.len();
        for (index, target) in targets.into_iter().enumerate() {
            match target {
                Target::Address(address) => addresses.push(address),
                Target::Name(name) if count == 1 => {
                    let instead = Instead::Name(name);
                    return Ok(Trial {
                        share,
                        group,
                        instead,
                    });
                }
                Target::Name(_) => {
                    let mistake = node.mistake("there is one other name, or there are addresses");
                    return Err(mistake.argument(index + 1).help("keep one of them").report());
                }
            }
        }
        let instead = Instead::Addresses(addresses);
        Ok(Trial {
            share,
            group,
            instead,
        })
    }
}

/// A client's number in a group, less than [`WHOLE`].
fn number(client: Prefix, group: u64) -> u64 {
    let hash = match client.address() {
        IpAddr::V4(address) => stable_hash(&address.octets(), group),
        IpAddr::V6(address) => stable_hash(&address.octets(), group),
    };
    hash % WHOLE as u64
}

dnsweir_filter::export!(Canary);
