//! Keeps the network of a running proxy as planned: one task owns it, and does one thing after the other.

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

/// How long the kernel's news must pause before we look: deleting a link is several of them.
const QUIET: Duration = Duration::from_millis(20);

/// How long we wait for that: there may always be news.
const NEWS: Duration = Duration::from_millis(200);

/// What the kernel tells us of.
const GROUPS: [MulticastGroup; 5] = [
    MulticastGroup::Link,
    MulticastGroup::Ipv4Ifaddr,
    MulticastGroup::Ipv6Ifaddr,
    MulticastGroup::Ipv4Route,
    MulticastGroup::Ipv6Route,
];

/// How long before the kernel is asked for a way to ask it again.
const REOPENED: Duration = Duration::from_secs(1);

/// How often we look when nobody said how often.
const INTERVAL: Duration = Duration::from_secs(60);

/// How often we look whether a process has ended whose addresses and rules were left alone.
const NEIGHBOUR: Duration = Duration::from_secs(1);

/// How often we look whether another process of our kind is there.
const COMPANY: Duration = Duration::from_secs(5);

/// The task that reconciles the network with a plan. Its commands are done in order, and none begins before the one
/// before it has ended; dropped, it leaves everything as it is.
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
    /// For [`Command::Carry`].
    turn: Option<Turn>,
    /// For [`Command::Unguard`].
    left: bool,
}

impl Drop for Reconciler {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Reconciler {
    /// Starts with nothing planned. While `symptom` says so, something does not work for which the network is looked at before its turn.
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
        };
        let task = tokio::spawn(task.run(received, urgency));
        Ok(Reconciler {
            commands,
            tester,
            presence,
            task,
        })
    }

    /// How others know of this process, if they can.
    pub fn presence(&self) -> Option<Arc<Presence>> {
        self.presence.clone()
    }

    /// Link and addresses of a plan, beside what is there already. While the caller holds what it returns,
    /// no other process changes the network: it is held until the addresses are listened on.
    pub async fn carry(&self, plan: Plan) -> Result<Turn, Error> {
        let mut reply = self.ask(Command::Carry(plan)).await?;
        match (reply.errors.pop(), reply.turn) {
            (None, Some(turn)) => Ok(turn),
            (Some(error), _) => Err(error),
            (None, None) => Err(gone()),
        }
    }

    /// The plan is wanted from now on, rules and all, and looked after every `interval`; what an earlier
    /// plan wanted and this one does not is taken away. Errors are logged and counted, and what could not
    /// be done is tried again.
    pub async fn guard(&self, plan: Plan, interval: Duration) -> Result<(), Error> {
        self.ask(Command::Guard(plan, interval)).await.map(|_| ())
    }

    /// Has the self-test of a plan repeated from now on, and returns after the first one.
    pub async fn test(&self, plan: &Plan, interval: Duration) {
        self.tester.test(plan.self_test.clone(), interval).await;
    }

    /// Takes the rules away, except those for addresses on which another process of our kind listens: they are its
    /// rules now; and those that a node-cache knows that listens there. Whether it listens on all of them.
    pub async fn unguard(&self) -> Result<bool, Error> {
        self.ask(Command::Unguard).await.map(|reply| reply.left)
    }

    /// Takes link and addresses away, except those on which another process listens.
    ///
    /// # Errors
    /// The last of the reasons for which something stays that was to go. All are logged.
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

/// What the task owns.
struct Task {
    network: Network,
    news: News,
    presence: Option<Arc<Presence>>,
    counters: Arc<Counters>,
    turns: Turns,
    /// What stands in the way, as far as it was told.
    obstacles: Vec<String>,
    /// Why there are no links for the self-test, as far as it was told.
    untested: Option<String>,
    /// Whose link and addresses there are.
    carried: Plan,
    /// Whose rules there are.
    guarded: Plan,
    /// Not wanted, and left alone, since another process was bound to them when we last looked.
    spared: Vec<IpAddr>,
    /// Another process of our kind.
    company: Company,
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
                // A command makes what the news would ask for, or makes it unwanted.
                biased;
                command = commands.recv() => {
                    let Some((command, done)) = command else { return };
                    if let Command::Guard(_, every) = &command {
                        ticks = self::ticks(*every);
                        urgency.every = *every;
                    }
                    // Whoever asked may have gone.
                    let _ = done.send(self.obey(command).await);
                }
                news = self.news.next(), if self.network.is_open() => {
                    if news.is_some_and(|news| !self.concerns(&news)) {
                        continue;
                    }
                    let quiet = async { while let Ok(Some(_)) = timeout(QUIET, self.news.next()).await {} };
                    let _ = timeout(NEWS, quiet).await;
                    // What fails is tried again with the next check, which says so.
                    let _ = self.repair_link().await;
                }
                begin = urgency.come() => {
                    let mended = self.repair().await;
                    urgency.looked(begin, mended);
                }
                _ = ticks.tick() => { self.repair().await; }
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
        // What goes wrong at the end is tried once more, since nothing comes after it.
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

    /// Another way to ask the kernel, where the one that there was is closed.
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

    /// Returns the errors that leave an address out, since without addresses there is nothing to listen on. Rules are tried
    /// again.
    async fn carry(&mut self, plan: Plan) -> Vec<Error> {
        self.look_for_obstacles(&plan).await;
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

    /// A predecessor that lives takes its own link away. For one that was killed, somebody else has to.
    async fn drop_former(&self) -> Outcome {
        match self.is_alone() {
            true => self.network.drop_former(&self.carried).await,
            false => Outcome::default(),
        }
    }

    async fn unguard(&mut self) -> Reply {
        // A start that failed finds the rules of a predecessor that was killed.
        let plan = join(&self.guarded, self.carried.clone());
        let taken = others_listen(&plan.listeners);
        let ours = plan.listeners.iter().filter(|it| !taken.contains(it));
        let ours: Vec<IpAddr> = ours.map(SocketAddr::ip).collect();
        let mut outcome = self.network.forget(plan.closing(), ours.clone()).await;
        // What was taken is still asked for upstream, and replied to.
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
        // Of two that end at once, the second one finds nobody who listens.
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

    /// Leaves the rules about these listeners to whoever took them over: all of them to a process of our kind, and to a
    /// node-cache those that it knows, beside what is wanted.
    async fn hand_over(&self, wanted: Vec<Rule>, taken: &[SocketAddr]) -> Outcome {
        if !self.is_alone() {
            return Outcome::default();
        }
        let ips = taken.iter().map(SocketAddr::ip).collect();
        self.network.hand_over(wanted, ips).await
    }

    /// Says who stays beside us for longer than a takeover lasts.
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

    /// Whether no other process of our kind reconciles this node.
    fn is_alone(&self) -> bool {
        self.presence.as_ref().is_some_and(|presence| presence.is_alone())
    }

    /// Whether news of the kernel is about what we planned.
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
            // The kernel had more to say than it could keep.
            NetlinkPayload::Overrun(_) => true,
            _ => false,
        }
    }

    /// Tells what stands in the way, each thing once.
    async fn look_for_obstacles(&mut self, plan: &Plan) {
        let found = obstacles(plan).await;
        for obstacle in found.iter().filter(|obstacle| !self.obstacles.contains(obstacle)) {
            tracing::warn!("node: {obstacle}");
        }
        self.counters
            .obstacles
            .store(found.len() as u64, Ordering::Relaxed);
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

    /// Puts right whatever is not as planned, and says whether there was any such thing.
    async fn repair(&mut self) -> bool {
        // Without any, there is no reason to look: it costs a listing of all services.
        if !self.obstacles.is_empty() {
            let plan = self.guarded.clone();
            self.look_for_obstacles(&plan).await;
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

    /// Remembers what was left alone, and says so once.
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

    /// Says once why there is no self-test.
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

/// A plan that carries what either does.
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
