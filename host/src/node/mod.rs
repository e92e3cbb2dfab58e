//! The node's network: the link that carries our addresses, and the rules that keep connection tracking
//! away from queries.
//!
//! [`Plan::of`] says what a configuration wants; [`inspect`] compares that with what is there, [`up`] and
//! [`down`] change it, any number of times with the same outcome; [`Reconciler`] does so for a running proxy.
//! What is not ours is never touched: [`link`] and [`rules`] say how they know.

mod forerunners;
mod link;
mod peers;
mod plan;
mod preflight;
mod program;
mod reconciler;
mod rules;
mod table;

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::RwLock;
use rtnetlink::Handle;
use tokio::task::JoinHandle;
use tokio::time::timeout;

pub use forerunners::{Leftover, find as find_leftovers, remove as remove_leftovers};
pub use peers::{Predecessors, Turns};
pub use plan::{Link, Plan, Rule};
pub use preflight::{obstacles, occupied};
pub use reconciler::Reconciler;
pub use table::HEARTBEAT_PORT;
use table::Line;

/// What failed, in the words of node-cache's metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A rule could not be listed, written or deleted.
    Iptables,
    /// Another program held the xtables lock for too long.
    IptablesLock,
    /// A program did not end in time, and was killed; or the kernel did not answer in time.
    Deadline,
    /// Another process kept the right to change the network, or a stranger took it.
    Turn,
    /// The link could not be made, or an address not added.
    InterfaceAdd,
    /// The link could not be looked at, or something not be taken away.
    InterfaceCheck,
}

impl Kind {
    /// All of them.
    pub const ALL: [Kind; 6] = [
        Kind::Iptables,
        Kind::IptablesLock,
        Kind::Deadline,
        Kind::Turn,
        Kind::InterfaceAdd,
        Kind::InterfaceCheck,
    ];

    /// The value of the label `kind`.
    pub fn label(self) -> &'static str {
        match self {
            Kind::Iptables => "iptables",
            Kind::IptablesLock => "iptables_lock",
            Kind::Deadline => "deadline",
            Kind::Turn => "turn",
            Kind::InterfaceAdd => "interface_add",
            Kind::InterfaceCheck => "interface_check",
        }
    }
}

/// Something that could not be done to the network.
#[derive(Debug, thiserror::Error)]
#[error("{text}")]
pub struct Error {
    /// What failed.
    pub kind: Kind,
    text: String,
}

/// What was done to the network, and what could not be.
#[derive(Debug, Default)]
#[must_use = "errors must reach someone"]
pub struct Outcome {
    /// In words, in order.
    pub done: Vec<String>,
    /// Everything that failed.
    pub errors: Vec<Error>,
    /// Why heartbeats are not listened for, where they are wanted: the rules hold as long as a socket is there.
    pub shortfall: Option<String>,
    /// Packets that the rules which bring us queries have matched, if they were looked at.
    packets: Option<u64>,
    /// Packets that went past us because nothing was heard of us, if that was looked at.
    unheard: Option<u64>,
    /// The addresses that were left alone, with the rules about them, since another process is bound to them.
    pub spared: Vec<IpAddr>,
}

impl Outcome {
    fn add(&mut self, outcome: Result<Vec<String>, Error>) {
        match outcome {
            Ok(done) => self.done.extend(done),
            Err(error) => self.errors.push(error),
        }
    }

    /// And what another change has done.
    pub fn extend(&mut self, other: Outcome) {
        self.done.extend(other.done);
        self.errors.extend(other.errors);
        self.shortfall = other.shortfall.or(self.shortfall.take());
        self.packets = other.packets.or(self.packets);
        self.unheard = other.unheard.or(self.unheard);
        self.spare(other.spared);
    }

    fn spare(&mut self, ips: Vec<IpAddr>) {
        let new = ips.into_iter().filter(|ip| !self.spared.contains(ip));
        let new: Vec<IpAddr> = new.collect();
        self.spared.extend(new);
    }
}

impl From<Error> for Outcome {
    fn from(error: Error) -> Outcome {
        Outcome {
            errors: vec![error],
            ..Outcome::default()
        }
    }
}

/// What is known of the node's network: counts for `/metrics`, and what the heartbeats are for.
#[derive(Debug, Default)]
pub struct Counters {
    errors: [AtomicU64; Kind::ALL.len()],
    /// Things that were found missing or changed, and put right.
    pub repairs: AtomicU64,
    failing: AtomicBool,
    /// Packets that the rules which bring us queries have matched, when they were last looked at.
    pub rule_packets: AtomicU64,
    /// Packets that went past us because nothing was heard of us.
    pub unheard_packets: AtomicU64,
    /// What was found to stand in the way when it was last looked for.
    pub obstacles: AtomicU64,
    /// The listeners whose rules are listening for heartbeats. Whoever serves them sends some.
    pub heartbeats: RwLock<Vec<SocketAddr>>,
    /// Whether that heartbeats are not possible has been said.
    deaf: AtomicBool,
}

impl Counters {
    /// How many errors of a kind there were.
    pub fn errors(&self, kind: Kind) -> u64 {
        self.errors[kind as usize].load(Ordering::Relaxed)
    }

    /// Whether something that is wanted could not be done when it was last tried.
    pub fn failing(&self) -> bool {
        self.failing.load(Ordering::Relaxed)
    }

    fn tried(&self, errors: &[Error]) {
        self.failing.store(!errors.is_empty(), Ordering::Relaxed);
    }

    /// The rules of a plan have been looked after.
    fn guarded(&self, plan: &Plan, outcome: &Outcome) {
        if let Some(packets) = outcome.packets {
            self.rule_packets.store(packets, Ordering::Relaxed);
        }
        if let Some(packets) = outcome.unheard {
            self.unheard_packets.store(packets, Ordering::Relaxed);
        }
        let mut heartbeats = plan.heartbeats();
        if let Some(why) = &outcome.shortfall {
            if !self.deaf.swap(true, Ordering::Relaxed) {
                tracing::warn!(
                    why,
                    "node: no heartbeats: if this process hangs, pods get no answers until it is ended"
                );
            }
            heartbeats.clear();
        } else {
            self.deaf.store(false, Ordering::Relaxed);
        }
        *self.heartbeats.write() = heartbeats;
    }

    fn count(&self, error: &Error) {
        self.errors[error.kind as usize].fetch_add(1, Ordering::Relaxed);
    }
}

/// One thing that is wanted, or not wanted and there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// The link, address or rule.
    pub what: String,
    /// What is wrong with it; nothing: it is as it ought to be.
    pub wrong: Option<&'static str>,
}

/// Compares the network with a plan, and changes nothing.
pub async fn inspect(plan: &Plan) -> Result<Vec<Finding>, Error> {
    let mut findings = Vec::new();
    let mut add = |what: String, wrong| findings.push(Finding { what, wrong });
    let network = Network::open()?;
    let mut addresses: Vec<IpAddr> = plan.listeners.iter().map(|listener| listener.ip()).collect();
    if let Some(link) = &plan.link {
        let difference = in_time(link::compare(&network.handle, link)).await?;
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
    let wanted = |line: &&Line| difference.shortfall.is_none() || !line.is_optional();
    for line in lines.iter().filter(wanted) {
        let missing = difference.missing.contains(line).then_some("missing");
        add(line.to_string(), missing);
    }
    for line in difference.stale {
        add(line.to_string(), Some("not wanted"));
    }
    Ok(findings)
}

/// Makes the network as planned. For a process that serves, there is [`Reconciler`].
pub async fn up(plan: &Plan) -> Outcome {
    let network = match Network::open() {
        Ok(network) => network,
        Err(error) => return error.into(),
    };
    let mut outcome = network.carry(plan).await;
    if outcome.errors.is_empty() {
        outcome.extend(network.guard(plan, &plan.listening_ips()).await);
    }
    outcome
}

/// Takes away everything that is planned. Goes on after errors.
pub async fn down(plan: &Plan) -> Outcome {
    let network = match Network::open() {
        Ok(network) => network,
        Err(error) => return error.into(),
    };
    let ips = plan.listening_ips();
    let mut outcome = network.unguard(plan, &ips).await;
    outcome.extend(network.drop_link(plan).await);
    let spared = outcome.spared.clone();
    let gone = ips.into_iter().filter(|ip| !spared.contains(ip));
    outcome.extend(network.forget(gone.collect()).await);
    outcome
}

/// Access to the kernel.
struct Network {
    handle: Handle,
    connection: JoinHandle<()>,
}

impl Drop for Network {
    fn drop(&mut self) {
        self.connection.abort();
    }
}

impl Network {
    fn open() -> Result<Network, Error> {
        let (connection, handle, _) = rtnetlink::new_connection().map_err(no_netlink)?;
        Ok(Network {
            handle,
            connection: tokio::spawn(connection),
        })
    }

    /// Link and addresses; nothing is taken away.
    async fn carry(&self, plan: &Plan) -> Outcome {
        let mut outcome = Outcome::default();
        let Some(link) = &plan.link else { return outcome };
        let difference = match in_time(link::compare(&self.handle, link)).await {
            Ok(difference) => difference,
            Err(error) => return error.into(),
        };
        // From the moment on at which the node has the address, its queries bear it.
        let leaving = plan.leaving();
        if difference.adds() && !leaving.is_empty() {
            match rules::compare(&leaving, &plan.listening_ips()).await {
                Ok(difference) => outcome.extend(rules::settle(&difference.without_stale()).await),
                Err(error) => outcome.errors.push(error),
            }
        }
        outcome.add(in_time(link::raise(&self.handle, link, &difference)).await);
        outcome
    }

    /// Rules, and away with what is ours on the link or about `ips`, and not wanted.
    async fn guard(&self, plan: &Plan, ips: &[IpAddr]) -> Outcome {
        let mut outcome = Outcome::default();
        let mut ips = ips.to_vec();
        if let Some(link) = &plan.link {
            match in_time(link::compare(&self.handle, link)).await {
                Ok(difference) => {
                    ips.extend(&difference.stale);
                    outcome.add(in_time(link::tidy(&self.handle, link, &difference)).await);
                    outcome.spare(difference.spared);
                }
                Err(error) => outcome.errors.push(error),
            }
        }
        let lines = table::lines(plan);
        outcome.extend(
            self.settle(&plan.rules, &lines, &ips, |difference| difference)
                .await,
        );
        outcome
    }

    /// No rule that is ours about these addresses remains, except those about the node's own queries, which go after the
    /// addresses.
    async fn unguard(&self, plan: &Plan, ips: &[IpAddr]) -> Outcome {
        let wanted = if plan.link.is_some() {
            plan.leaving()
        } else {
            Vec::new()
        };
        self.delete(wanted, ips.to_vec(), |difference| difference).await
    }

    /// Of the rules about addresses that a node-cache serves from now on, those go that it does not know and that are not
    /// wanted.
    async fn hand_over(&self, wanted: Vec<Rule>, ips: Vec<IpAddr>) -> Outcome {
        self.delete(wanted, ips, rules::Difference::without_node_caches)
            .await
    }

    /// No rule that is ours about these addresses remains.
    async fn forget(&self, ips: Vec<IpAddr>) -> Outcome {
        self.delete(Vec::new(), ips, |difference| difference).await
    }

    /// Rules and lines about these addresses go, except those that are wanted or that `which` leaves out.
    async fn delete(
        &self,
        wanted: Vec<Rule>,
        ips: Vec<IpAddr>,
        which: fn(rules::Difference) -> rules::Difference,
    ) -> Outcome {
        if ips.is_empty() {
            return Outcome::default();
        }
        self.settle(&wanted, &[], &ips, |difference| {
            which(difference.without_missing())
        })
        .await
    }

    /// What differs is put right, as far as `which` leaves it, and rules of a node-cache that lives are left alone.
    async fn settle(
        &self,
        rules: &[Rule],
        lines: &[Line],
        ips: &[IpAddr],
        which: impl FnOnce(rules::Difference) -> rules::Difference,
    ) -> Outcome {
        let mut outcome = Outcome::default();
        match rules::compare(rules, ips).await.map(which) {
            Ok(mut difference) => {
                outcome.packets = Some(difference.packets);
                outcome.spare(difference.spare());
                outcome.extend(rules::settle(&difference).await);
            }
            Err(error) => outcome.errors.push(error),
        }
        match table::compare(lines, ips).await {
            Ok(difference) => {
                outcome.unheard = Some(difference.unheard);
                outcome.extend(table::settle(&difference).await);
            }
            Err(error) => outcome.errors.push(error),
        }
        outcome
    }

    /// The addresses go, except those that another process needs, and with the last one the link.
    async fn drop_link(&self, plan: &Plan) -> Outcome {
        let mut outcome = Outcome::default();
        if let Some(link) = &plan.link {
            match in_time(link::lower(&self.handle, link)).await {
                Ok((done, spared)) => {
                    outcome.done = done;
                    outcome.spared = spared;
                }
                Err(error) => outcome.errors.push(error),
            }
        }
        outcome
    }
}

impl Plan {
    fn listening_ips(&self) -> Vec<IpAddr> {
        self.listeners.iter().map(|listener| listener.ip()).collect()
    }
}

fn no_netlink(error: io::Error) -> Error {
    Error {
        kind: Kind::InterfaceCheck,
        text: format!("no netlink socket: {error}"),
    }
}

/// What the kernel does not answer in time is given up.
async fn in_time<T>(work: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
    match timeout(program::DEADLINE, work).await {
        Ok(done) => done,
        Err(_) => Err(Error {
            kind: Kind::Deadline,
            text: format!(
                "the kernel did not answer within {} s",
                program::DEADLINE.as_secs()
            ),
        }),
    }
}

/// A plan as text, a line for each thing.
impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(link) = &self.link {
            writeln!(f, "link {}", link.name)?;
            for ip in &link.addresses {
                writeln!(f, "address {ip}")?;
            }
        }
        self.rules.iter().try_for_each(|rule| writeln!(f, "{rule}"))?;
        table::lines(self)
            .iter()
            .try_for_each(|line| writeln!(f, "{line}"))
    }
}
