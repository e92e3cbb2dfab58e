//! Keeps the network of a running proxy as planned. One task owns it and does one thing at a time.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use futures_util::StreamExt as _;
use rtnetlink::MulticastGroup;
use rtnetlink::packet_core::NetlinkPayload;
use rtnetlink::packet_route::RouteNetlinkMessage;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use super::counters::Counters;
use super::error::{Error, Kind};
use super::link::{address_of, destination_of, name_of};
use super::network::{Network, News, Pair};
use super::outcome::Outcome;
use super::peers::{Turn, Turns, others_hold, others_listen};
use super::plan::{Plan, Rule};
use super::preflight::obstacles;
use super::presence::{Company, Presence};
use super::self_test::Tester;
use super::urgency::{Symptom, Urgency, ticks};

/// How long the kernel must be silent before we check: deleting a link causes several messages.
const QUIET: Duration = Duration::from_millis(20);

/// Upper bound on that wait, since news may never pause.
const NEWS: Duration = Duration::from_millis(200);

/// The kernel's multicast groups that we subscribe to.
const GROUPS: [MulticastGroup; 5] = [
    MulticastGroup::Link,
    MulticastGroup::Ipv4Ifaddr,
    MulticastGroup::Ipv6Ifaddr,
    MulticastGroup::Ipv4Route,
    MulticastGroup::Ipv6Route,
];

/// How long before a closed netlink socket is reopened.
const REOPENED: Duration = Duration::from_secs(1);

/// How often the network is checked until an interval is configured.
const INTERVAL: Duration = Duration::from_secs(60);

/// How often we check whether a process whose addresses and rules we left alone has ended.
const NEIGHBOUR: Duration = Duration::from_secs(1);

/// How often we check for another process of our kind.
const COMPANY: Duration = Duration::from_secs(5);

/// The task that reconciles the network with a plan. It runs its commands one at a time, in order. Dropping
/// it leaves the network as it is.
pub struct Reconciler {
    commands: mpsc::UnboundedSender<(Command, oneshot::Sender<Reply>)>,
    tester: Tester,
    presence: Option<Arc<Presence>>,
    task: JoinHandle<()>,
}

enum Command {
    Carry(Plan),
    Guard(Plan, Duration),
    Unguard,
    Drop,
}

struct Reply {
    errors: Vec<Error>,
    /// Set for [`Command::Carry`].
    turn: Option<Turn>,
    /// Set for [`Command::Unguard`].
    left: bool,
}

impl Drop for Reconciler {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Reconciler {
    /// Starts with an empty plan. While `symptom` returns true, it checks more often than the interval.
    pub fn start(counters: Arc<Counters>, symptom: Symptom) -> Result<Reconciler, Error> {
        let (network, news) = Network::listen(&GROUPS)?;
        let (commands, received) = mpsc::unbounded_channel();
        let tester = Tester::start(Arc::clone(&counters.self_test));
        let urgency = Urgency::new(symptom, Arc::clone(&counters.self_test), INTERVAL);
        let presence = Presence::announce().map(Arc::new).ok();
        let task = Task {
            network,
            news,
            presence: presence.clone(),
            counters,
            turns: Turns::default(),
            obstacles: Vec::new(),
            untested: None,
            carried: Plan::default(),
            guarded: Plan::default(),
            spared: Vec::new(),
            company: Company::default(),
            looking: None,
        };
        let task = tokio::spawn(task.run(received, urgency));
        Ok(Reconciler {
            commands,
            tester,
            presence,
            task,
        })
    }

    /// The socket that announces this process to others, if it could be opened.
    pub fn presence(&self) -> Option<Arc<Presence>> {
        self.presence.clone()
    }

    /// Adds a plan's link and addresses to what is there already. No other process changes the network while
    /// the caller holds the returned turn: hold it until sockets listen on the addresses.
    pub async fn carry(&self, plan: Plan) -> Result<Turn, Error> {
        let mut reply = self.ask(Command::Carry(plan)).await?;
        match (reply.errors.pop(), reply.turn) {
            (None, Some(turn)) => Ok(turn),
            (Some(error), _) => Err(error),
            (None, None) => Err(gone()),
        }
    }

    /// Applies the whole plan, rules included, and checks it every `interval` from then on. Removes what an
    /// earlier plan had and this one does not. Errors are logged and counted, and what failed is retried.
    pub async fn guard(&self, plan: Plan, interval: Duration) -> Result<(), Error> {
        self.ask(Command::Guard(plan, interval)).await.map(|_| ())
    }

    /// Repeats the plan's self-test from now on. Returns after the first run.
    pub async fn test(&self, plan: &Plan, interval: Duration) {
        self.tester.test(plan.self_test.clone(), interval).await;
    }

    /// Removes the rules, except those for addresses on which another process of our kind listens, which now
    /// owns them, and those that a node-cache listening there knows. Returns whether another process listens
    /// on all addresses.
    pub async fn unguard(&self) -> Result<bool, Error> {
        self.ask(Command::Unguard).await.map(|reply| reply.left)
    }

    /// Removes link and addresses, except those on which another process listens.
    ///
    /// # Errors
    /// The last reason why something could not be removed. All of them are logged.
    pub async fn drop_link(&self) -> Result<(), Error> {
        let mut reply = self.ask(Command::Drop).await?;
        reply.errors.pop().map_or(Ok(()), Err)
    }

    async fn ask(&self, command: Command) -> Result<Reply, Error> {
        let (done, wait) = oneshot::channel();
        self.commands.send((command, done)).map_err(|_| gone())?;
        wait.await.map_err(|_| gone())
    }
}

fn gone() -> Error {
    Error {
        kind: Kind::InterfaceCheck,
        text: "the task that manages the node's network has ended".into(),
    }
}

/// The state that the task owns.
struct Task {
    network: Network,
    news: News,
    presence: Option<Arc<Presence>>,
    counters: Arc<Counters>,
    turns: Turns,
    /// Known obstacles, all of them logged.
    obstacles: Vec<String>,
    /// The logged reason why the links for the self-test are missing.
    untested: Option<String>,
    /// The plan whose link and addresses are in place.
    carried: Plan,
    /// The plan whose rules are in place.
    guarded: Plan,
    /// Unwanted addresses left alone because another process was bound to them at the last check.
    spared: Vec<IpAddr>,
    /// Tracks another process of our kind.
    company: Company,
    /// Looks for obstacles. It runs programs that list all rules, and nothing waits for what it finds.
    looking: Option<JoinHandle<Vec<String>>>,
}

impl Task {
    async fn run(
        mut self,
        mut commands: mpsc::UnboundedReceiver<(Command, oneshot::Sender<Reply>)>,
        mut urgency: Urgency,
    ) {
        let (mut ticks, mut looks) = (ticks(INTERVAL), ticks(COMPANY));
        loop {
            tokio::select! {
                // Commands first: each either fixes what the news is about or makes it irrelevant.
                biased;
                command = commands.recv() => {
                    let Some((command, done)) = command else { return };
                    if let Command::Guard(_, every) = &command {
                        ticks = self::ticks(*every);
                        urgency.every = *every;
                    }
                    let guards = matches!(command, Command::Guard(..));
                    // The caller may have gone.
                    let _ = done.send(self.obey(command).await);
                    if guards {
                        self.look_for_obstacles();
                    }
                }
                news = self.news.next(), if self.network.is_open() => {
                    if news.is_some_and(|news| !self.concerns(&news)) {
                        continue;
                    }
                    let quiet = async { while let Ok(Some(_)) = timeout(QUIET, self.news.next()).await {} };
                    let _ = timeout(NEWS, quiet).await;
                    // A failure is retried, and reported, by the next check.
                    let _ = self.repair_link().await;
                }
                begin = urgency.come() => {
                    let mended = self.repair().await;
                    urgency.looked(begin, mended);
                }
                _ = ticks.tick() => { self.repair().await; }
                found = found(&mut self.looking), if self.looking.is_some() => {
                    self.looking = None;
                    self.note_obstacles(found);
                }
                _ = looks.tick() => self.look_for_company(),
                () = sleep(REOPENED), if !self.network.is_open() => { self.repair().await; }
                () = sleep(NEIGHBOUR), if !self.spared.is_empty() => {
                    if others_hold(&self.spared) != self.spared {
                        self.repair().await;
                    }
                }
            }
        }
    }

    async fn obey(&mut self, command: Command) -> Reply {
        let turn = self.turn().await;
        self.reopen();
        let mut reply = self.try_to(&command).await;
        let ends = matches!(command, Command::Unguard | Command::Drop);
        // Cleanup is retried once, since no later check would.
        if !reply.errors.is_empty() && (ends || !self.network.is_open()) {
            self.reopen();
            reply = self.try_to(&command).await;
        }
        match command {
            Command::Carry(_) => reply.turn = Some(turn),
            Command::Guard(..) => {}
            Command::Unguard => self.guarded = Plan::default(),
            Command::Drop => self.carried = Plan::default(),
        }
        reply
    }

    async fn try_to(&mut self, command: &Command) -> Reply {
        let done = |errors| Reply {
            errors,
            turn: None,
            left: false,
        };
        match command {
            Command::Carry(plan) => done(self.carry(plan.clone()).await),
            Command::Guard(plan, _) => done(self.guard(plan.clone()).await),
            Command::Unguard => self.unguard().await,
            Command::Drop => self.drop_link().await,
        }
    }

    /// Opens a new netlink socket if the old one is closed.
    fn reopen(&mut self) {
        if self.network.is_open() {
            return;
        }
        match Network::listen(&GROUPS) {
            Ok((network, news)) => (self.network, self.news) = (network, news),
            Err(error) => {
                self.counters.count(&error);
                tracing::error!(kind = error.kind.label(), "node: {error}");
            }
        }
    }

    /// Returns only the errors that leave an address out, since without addresses there is nothing to listen
    /// on. Rules are retried.
    async fn carry(&mut self, plan: Plan) -> Vec<Error> {
        let outcome = self.network.carry(&plan, Pair::Anew).await;
        self.carried = join(&self.carried, plan);
        self.tell_untested(&outcome);
        self.tell(&outcome);
        let mut errors = outcome.errors;
        errors.retain(|error| matches!(error.kind, Kind::InterfaceAdd | Kind::InterfaceCheck));
        errors
    }

    async fn guard(&mut self, plan: Plan) -> Vec<Error> {
        let before = std::mem::replace(&mut self.guarded, plan.clone());
        let carried = std::mem::replace(&mut self.carried, plan);
        let mut ips = before.listening_ips();
        ips.extend(carried.listening_ips());
        ips.extend(self.guarded.listening_ips());
        let mut outcome = self.network.guard(&self.guarded, &ips).await;
        let name = |plan: &Plan| plan.link.as_ref().map(|link| link.name.clone());
        for old in [before, carried] {
            if name(&old) != name(&self.carried) {
                outcome.extend(self.network.drop_link(&old).await);
            }
            if self.carried.self_test.is_none() {
                outcome.extend(self.network.drop_pair(&old).await);
            }
        }
        outcome.extend(self.drop_former().await);
        self.tell(&outcome);
        self.spare(&outcome);
        self.counters.tried(&outcome.errors);
        self.counters.guarded(&self.guarded, &outcome);
        outcome.errors
    }

    /// Removes former configurations' links. A live predecessor removes its own; a killed one cannot.
    async fn drop_former(&self) -> Outcome {
        match self.is_alone() {
            true => self.network.drop_former(&self.carried).await,
            false => Outcome::default(),
        }
    }

    async fn unguard(&mut self) -> Reply {
        // After a failed start, the rules of a killed predecessor may still be there.
        let plan = join(&self.guarded, self.carried.clone());
        let taken = others_listen(&plan.listeners);
        let ours = plan.listeners.iter().filter(|it| !taken.contains(it));
        let ours: Vec<IpAddr> = ours.map(SocketAddr::ip).collect();
        let mut outcome = self.network.forget(plan.closing(), ours.clone()).await;
        // We still send upstream queries and replies from the addresses that were taken over.
        outcome.extend(self.hand_over(plan.closing(), &taken).await);
        self.tell(&outcome);
        self.counters.heartbeats.write().clear();
        Reply {
            errors: outcome.errors,
            turn: None,
            left: !taken.is_empty() && ours.is_empty(),
        }
    }

    async fn drop_link(&mut self) -> Reply {
        let plan = self.carried.clone();
        let taken = others_listen(&plan.listeners);
        let mut outcome = self.network.drop_link(&plan).await;
        // If two end at the same time, the second finds no other listener.
        if taken.is_empty() || self.is_alone() {
            outcome.extend(self.network.drop_pair(&plan).await);
        }
        let gone = plan.listeners.iter().filter(|it| !taken.contains(it));
        let gone = gone.map(SocketAddr::ip).collect();
        outcome.extend(self.network.forget(Vec::new(), gone).await);
        outcome.extend(self.hand_over(Vec::new(), &taken).await);
        self.tell(&outcome);
        Reply {
            errors: outcome.errors,
            turn: None,
            left: false,
        }
    }

    /// Leaves the rules about these listeners to the process that took them over: all of them to a process of
    /// our kind; to a node-cache only those that it knows, and the wanted ones.
    async fn hand_over(&self, wanted: Vec<Rule>, taken: &[SocketAddr]) -> Outcome {
        if !self.is_alone() {
            return Outcome::default();
        }
        let ips = taken.iter().map(SocketAddr::ip).collect();
        self.network.hand_over(wanted, ips).await
    }

    /// Logs a process of our kind that stays for longer than a takeover lasts.
    fn look_for_company(&mut self) {
        let other = self.presence.as_ref().and_then(|presence| presence.other());
        let stays = self.company.look(other, Instant::now());
        let said = stays.map(|other| {
            format!(
                "another dnsweir also manages this node's network: {other}. The one that started last answers where both listen, and \
                 the other one stands aside until it is gone. Remove one of the two installations"
            )
        });
        let mut known = self.counters.beside.write();
        if let Some(said) = said.as_ref().filter(|said| known.as_ref() != Some(said)) {
            tracing::error!("node: {said}");
        }
        *known = said;
    }

    /// Returns whether no other process of our kind reconciles this node.
    fn is_alone(&self) -> bool {
        self.presence.as_ref().is_some_and(|presence| presence.is_alone())
    }

    /// Returns whether a kernel message is about something we planned.
    fn concerns(&self, payload: &NetlinkPayload<RouteNetlinkMessage>) -> bool {
        let Some(link) = &self.carried.link else {
            return false;
        };
        match payload {
            NetlinkPayload::InnerMessage(
                RouteNetlinkMessage::NewLink(message) | RouteNetlinkMessage::DelLink(message),
            ) => name_of(message) == Some(&link.name),
            NetlinkPayload::InnerMessage(
                RouteNetlinkMessage::NewAddress(message) | RouteNetlinkMessage::DelAddress(message),
            ) => address_of(message).is_some_and(|ip: IpAddr| link.addresses.contains(&ip)),
            NetlinkPayload::InnerMessage(RouteNetlinkMessage::DelRoute(message)) => {
                destination_of(message).is_some_and(|ip| link.addresses.contains(&ip))
            }
            // The kernel dropped messages: its buffer was full.
            NetlinkPayload::Overrun(_) => true,
            _ => false,
        }
    }

    /// Begins to look for obstacles, again if that has begun.
    fn look_for_obstacles(&mut self) {
        let plan = self.guarded.clone();
        let looking = tokio::spawn(async move { obstacles(&plan).await });
        if let Some(former) = self.looking.replace(looking) {
            former.abort();
        }
    }

    /// Remembers the obstacles found, and logs each new one once.
    fn note_obstacles(&mut self, found: Vec<String>) {
        tracing::debug!(obstacles = found.len(), "node: looked for obstacles");
        self.counters
            .obstacles
            .store(found.len() as u64, Ordering::Relaxed);
        for obstacle in found.iter().filter(|obstacle| !self.obstacles.contains(obstacle)) {
            tracing::warn!("node: {obstacle}");
        }
        self.obstacles = found;
    }

    async fn turn(&mut self) -> Turn {
        let (turn, error) = self.turns.take().await;
        if let Some(error) = error {
            self.counters.count(&error);
            tracing::warn!("node: {error}");
        }
        turn
    }

    async fn repair_link(&mut self) -> Outcome {
        let mut outcome = Outcome::default();
        self.reopen();
        if !self.carried.is_empty() {
            let pair = if self.counters.self_test.is_broken() {
                Pair::Anew
            } else {
                Pair::Whole
            };
            let _turn = self.turn().await;
            outcome = self.network.carry(&self.carried, pair).await;
            self.tell_untested(&outcome);
            self.repaired(&outcome);
        }
        outcome
    }

    /// Repairs whatever is not as planned, and returns whether anything was.
    async fn repair(&mut self) -> bool {
        // Repeated only while there are any: the check lists all services.
        if !self.obstacles.is_empty() {
            self.look_for_obstacles();
        }
        let mut outcome = self.repair_link().await;
        if !self.guarded.rules.is_empty() {
            let _turn = self.turn().await;
            let rules = self
                .network
                .guard(&self.guarded, &self.guarded.listening_ips())
                .await;
            self.repaired(&rules);
            self.counters.guarded(&self.guarded, &rules);
            outcome.extend(rules);
        }
        if !self.carried.is_empty() {
            let _turn = self.turn().await;
            let former = self.drop_former().await;
            self.tell(&former);
            outcome.extend(former);
        }
        self.counters.tried(&outcome.errors);
        self.spare(&outcome);
        !outcome.done.is_empty()
    }

    /// Remembers which addresses were left alone, and logs them once.
    fn spare(&mut self, outcome: &Outcome) {
        if self.spared == outcome.spared {
            return;
        }
        self.spared.clone_from(&outcome.spared);
        for ip in &self.spared {
            tracing::warn!(
                "node: another process is bound to {ip}: leaving the address and its rules alone for as long as it is"
            );
        }
    }

    fn repaired(&self, outcome: &Outcome) {
        self.counters
            .repairs
            .fetch_add(outcome.done.len() as u64, Ordering::Relaxed);
        if !outcome.done.is_empty() {
            tracing::warn!(count = outcome.done.len(), "repaired the node's network");
        }
        self.tell(outcome);
    }

    /// Logs once why there is no self-test.
    fn tell_untested(&mut self, outcome: &Outcome) {
        if self.untested == outcome.untested {
            return;
        }
        self.untested.clone_from(&outcome.untested);
        if let Some(why) = &self.untested {
            tracing::warn!("node: no self-test, so whether pods get answers is not known: {why}");
        }
    }

    fn tell(&self, outcome: &Outcome) {
        for done in &outcome.done {
            tracing::info!("node: {done}");
        }
        for error in &outcome.errors {
            self.counters.count(error);
            tracing::error!(kind = error.kind.label(), "node: {error}");
        }
    }
}

/// Waits for what was looked for; for ever, if nothing is. Cancel-safe.
async fn found(looking: &mut Option<JoinHandle<Vec<String>>>) -> Vec<String> {
    match looking {
        Some(task) => task.await.unwrap_or_default(),
        None => std::future::pending().await,
    }
}

/// The second plan with the link's addresses and the listeners of the first added.
fn join(one: &Plan, mut other: Plan) -> Plan {
    if let (Some(old), Some(new)) = (&one.link, &mut other.link)
        && old.name == new.name
    {
        let more: Vec<IpAddr> = old
            .addresses
            .iter()
            .copied()
            .filter(|ip| !new.addresses.contains(ip))
            .collect();
        new.addresses.extend(more);
    }
    let more: Vec<_> = one
        .listeners
        .iter()
        .copied()
        .filter(|it| !other.listeners.contains(it))
        .collect();
    other.listeners.extend(more);
    other
}
