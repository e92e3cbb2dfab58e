//! The node's network: the link that carries our addresses, and the rules that keep queries out of connection
//! tracking.
//!
//! [`Plan::of`] turns a configuration into a plan. [`inspect`] compares the node with it; [`up`] and [`down`]
//! apply and remove it, and are idempotent. [`Reconciler`] keeps a running proxy's network as planned.
//! Nothing that is not ours is touched: [`link`] and [`rules`] say how they recognize what is.

mod counters;
mod error;
mod forerunners;
mod link;
mod network;
mod news;
mod outcome;
mod peers;
mod plan;
mod preflight;
mod presence;
mod program;
mod reconciler;
mod rule_news;
mod rules;
mod self_test;
mod table;
mod urgency;

use std::fmt;
use std::io;
use std::net::IpAddr;

use dnsweir_config as config;
use dnsweir_os::netstat;
use dnsweir_wire::dns;

pub use counters::Counters;
use error::Error;
pub use error::Kind;
pub use forerunners::{Leftover, find as find_leftovers, remove as remove_leftovers};
use network::{Network, Pair, no_pair};
pub use news::News;
pub use outcome::Outcome;
pub use peers::{Predecessors, Turns, others_answer};
pub use plan::Plan;
pub use preflight::{obstacles, occupied};
pub use presence::{Elders, Presence, Successor};
pub use reconciler::Reconciler;
use self_test::SelfTest;
pub use self_test::Verdict;
pub use table::HEARTBEAT_PORT;
pub use urgency::Symptom;

/// One part of the plan, or a leftover that is not in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// The link, address or rule.
    pub what: String,
    /// What is wrong with it; `None` if it is as planned.
    pub wrong: Option<&'static str>,
}

/// Compares the network with a plan and changes nothing.
pub async fn inspect(plan: &Plan) -> Result<Vec<Finding>, Error> {
    let mut findings = Vec::new();
    let mut add = |what: String, wrong| findings.push(Finding { what, wrong });
    let network = Network::open()?;
    let mut addresses: Vec<IpAddr> = plan.listeners.iter().map(|listener| listener.ip()).collect();
    if let Some(link) = &plan.link {
        let difference = network.ask(link::compare(&network.handle, link)).await?;
        add(format!("link {}", link.name), difference.of_link());
        for ip in &link.addresses {
            let wrong = if difference.missing.contains(ip) {
                Some("missing")
            } else {
                difference.unrouted.contains(ip).then_some("without its route")
            };
            add(format!("address {ip}"), wrong);
        }
        for ip in &difference.stale {
            add(format!("address {ip}"), Some("not wanted"));
        }
        addresses.extend(difference.stale);
    }
    let mut difference = rules::compare(&plan.rules, &addresses).await?;
    difference.spare();
    for rule in &plan.rules {
        add(rule.to_string(), difference.of_rule(rule));
    }
    for rule in difference.stale() {
        add(rule.to_string(), Some("not wanted"));
    }
    let lines = table::lines(plan);
    let difference = table::compare(&lines, &addresses).await?;
    if let Some(why) = &difference.shortfall {
        add(
            format!("no heartbeats, which this node does not support: {why}"),
            None,
        );
    }
    // Without those that this node does not support.
    for line in lines.iter().filter(|line| difference.target.contains(line)) {
        let missing = difference.missing.contains(line).then_some("missing");
        add(line.to_string(), missing);
    }
    for line in difference.stale {
        add(line.to_string(), Some("not wanted"));
    }
    if let Some(test) = &plan.self_test {
        findings.extend(inspect_self_test(&network, test).await);
    }
    Ok(findings)
}

/// Runs the self-test, which shows whether pods get answers, if another process listens.
async fn inspect_self_test(network: &Network, test: &SelfTest) -> Vec<Finding> {
    let there = network
        .ask(async { self_test::pair::is_there(&network.handle).await.map_err(no_pair) })
        .await;
    let is_asked = !peers::others_listen(&test.listeners).is_empty();
    let verdicts = match there {
        Ok(true) if is_asked => self_test::run(test).await.map_err(no_pair),
        Ok(true) => Ok(Vec::new()),
        Ok(false) => Err(no_pair(io::ErrorKind::NotFound.into())),
        Err(error) => Err(error),
    };
    match verdicts {
        Ok(verdicts) => verdicts
            .into_iter()
            .map(|(listener, verdict)| Finding {
                what: format!("self-test of {listener}"),
                wrong: verdict.wrong(),
            })
            .collect(),
        Err(error) => vec![Finding {
            what: format!("no self-test, which this node does not support: {error}"),
            wrong: None,
        }],
    }
}

/// Puts the plan in place once. A process that serves uses [`Reconciler`] instead.
pub async fn up(plan: &Plan) -> Outcome {
    let network = match Network::open() {
        Ok(network) => network,
        Err(error) => return error.into(),
    };
    let mut outcome = network.carry(plan, Pair::Whole).await;
    if outcome.errors.is_empty() {
        outcome.extend(network.guard(plan, &plan.listening_ips()).await);
    }
    outcome
}

/// Removes everything that is planned. Continues after errors; what stays because others use it is one.
pub async fn down(plan: &Plan) -> Outcome {
    let network = match Network::open() {
        Ok(network) => network,
        Err(error) => return error.into(),
    };
    let ips = plan.listening_ips();
    let mut outcome = network.forget(plan.leaving(), ips.clone()).await;
    outcome.extend(network.drop_link(plan).await);
    // A running process still uses them.
    match presence::reconciling() {
        None => {
            outcome.extend(network.drop_former(plan).await);
            outcome.extend(network.drop_pair(plan).await);
        }
        Some(who) if plan.self_test.is_some() => {
            let what = "the links for the self-test";
            let why = format!("they are in use by {who}");
            outcome.errors.push(stays(what, &why));
        }
        Some(_) => {}
    }
    let spared = outcome.spared.clone();
    let gone = ips.into_iter().filter(|ip| !spared.contains(ip));
    outcome.extend(network.forget(Vec::new(), gone.collect()).await);
    for ip in &outcome.spared {
        let what = format!("{ip} with its rules and its link");
        outcome.errors.push(stays(&what, &peers::holder(*ip)));
    }
    outcome
}

/// The error for something that should go but stays.
fn stays(what: &str, why: &str) -> Error {
    Error {
        kind: Kind::InterfaceCheck,
        text: format!("cannot take away {what}: {why}. End that process, and run this again"),
    }
}

/// A plan as text, one line per item.
impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(link) = &self.link {
            writeln!(f, "link {}", link.name)?;
            for ip in &link.addresses {
                writeln!(f, "address {ip}")?;
            }
        }
        self.rules.iter().try_for_each(|rule| writeln!(f, "{rule}"))?;
        let mut lines = table::lines(self).into_iter();
        lines.try_for_each(|line| writeln!(f, "{line}"))?;
        self.self_test.iter().try_for_each(|test| writeln!(f, "{test}"))
    }
}
