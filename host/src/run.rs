//! From a configuration to a running proxy, from one generation to the next, and to the end.
//!
//! The main thread loads configurations, compiles and binds aside, and hands workers what is ready; it
//! answers no query. A reload either happens on all workers or not at all: whatever can fail has
//! succeeded before the first worker is told.

pub mod by_hand;
mod descriptors;
pub mod privileges;
mod reload;
mod watch;
mod watchdog;
mod worker;

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant, SystemTime};

use parking_lot::{Mutex, RwLock};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::admin;
use crate::ceiling::Ceiling;
use crate::config::{self, Config, Report};
use crate::filter::{self, CompiledCache, Engine, Filter};
use crate::listen::{ClientConnections, Limits, Port, Sockets};
use crate::node::{self, Plan, Reconciler};
use crate::serve::Shared;
use crate::serve::generation::Generation;
use crate::serve::trace::TraceSink;
use crate::state::State;
use descriptors::Descriptors;
use privileges::Needs;
use watchdog::Watchdog;
use worker::{Adoption, Command, WorkerThread};

/// How long queries under way may take to end after SIGTERM.
const DRAIN: Duration = Duration::from_secs(5);

/// How much longer workers may take to end. One that hangs is not waited for.
const LATE: Duration = Duration::from_secs(1);

/// What `dnsweir run` serves without `--config`.
const DEFAULT: &str = include_str!("default.kdl");

/// Why the proxy did not start, or did not go on.
#[derive(Debug)]
pub enum Stop {
    /// The configuration is not valid.
    Configuration(Report),
    /// The machine did not allow something.
    Machine(String),
}

impl fmt::Display for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Stop::Configuration(report) => report.fmt(f),
            Stop::Machine(error) => f.write_str(error),
        }
    }
}

impl From<Report> for Stop {
    fn from(report: Report) -> Stop {
        Stop::Configuration(report)
    }
}

fn machine(error: impl fmt::Display) -> Stop {
    Stop::Machine(error.to_string())
}

/// What a process needs that serves a configuration.
pub fn needs(file: Option<&Path>) -> Needs {
    match file {
        Some(file) if config::keeps_network(file) => Needs::Network,
        _ => Needs::Port,
    }
}

/// Loads a configuration and compiles its filters, and changes nothing.
pub fn check(file: &Path) -> Result<(), Stop> {
    let config = config::load(file, &builtins())?;
    let engine = engine(None)?;
    Generation::build(0, config, &engine, None)?;
    Ok(())
}

/// Who watches the proxy from the same process; as a rule nobody.
#[derive(Default)]
pub struct Spectators {
    /// Is told of every query.
    pub queries: Option<TraceSink>,
    /// Is told of every generation that begins to answer, the first one included, and why one does not. Then
    /// the log is not.
    pub generations: Option<Onlooker>,
    /// Whether modules are taken that answer recorded questions otherwise.
    pub whatever_was_recorded: bool,
}

/// Who is told of generations, on the main thread.
pub type Onlooker = Box<dyn Fn(Result<&Generation, &Stop>)>;

/// Runs the proxy until it is told to stop. Compiled filters are kept in `compiled`.
pub fn run(file: Option<PathBuf>, compiled: Option<PathBuf>, spectators: Spectators) -> Result<(), Stop> {
    // Before any socket: when a process is killed, the kernel closes the newest descriptors first, and
    // inotify's takes some twenty milliseconds, in which sockets after it would go on taking queries.
    let mut changes = watch::Changes::new();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(machine)?;
    let ended = runtime.block_on(async move {
        // From here on no signal ends the process before it has put things back.
        let mut signals = Signals::new().map_err(machine)?;
        let started = Proxy::start(
            file,
            engine(compiled)?,
            spectators,
            &mut changes,
            &mut signals.end,
        )
        .await?;
        let Some(mut proxy) = started else {
            return Ok(());
        };
        let ended = proxy.attend(&mut signals, changes).await;
        proxy.stop().await;
        ended
    });
    // What is still being loaded is for nobody any more.
    runtime.shutdown_background();
    ended
}

/// The signals that are orders.
struct Signals {
    end: End,
    hangup: Signal,
}

/// Those that say it is time to end.
struct End {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    fn new() -> io::Result<Signals> {
        let end = End {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        };
        let hangup = signal(SignalKind::hangup())?;
        Ok(Signals { end, hangup })
    }
}

impl End {
    /// Resolves when one of them has come.
    async fn come(&mut self) {
        let name = tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
        };
        tracing::info!("{name}: stopping");
    }
}

/// The engine of all generations, with the user's cache of compiled filters or `folder`.
fn engine(folder: Option<PathBuf>) -> Result<Engine, Stop> {
    let engine = Engine::new().map_err(machine)?.compiling_aside();
    let chosen = folder.is_some();
    let home = || Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache"));
    let caches = || {
        std::env::var_os("XDG_CACHE_HOME")
            .map(PathBuf::from)
            .or_else(home)
    };
    let Some(folder) = folder.or_else(|| Some(caches()?.join("dnsweir"))) else {
        return Ok(engine);
    };
    match CompiledCache::open(&folder) {
        Ok(cache) => Ok(engine.with_compiled_cache(cache)),
        Err(error) if chosen => Err(Stop::Machine(format!(
            "cannot store compiled filters in {}: {error}",
            folder.display()
        ))),
        Err(error) => {
            tracing::warn!(folder = %folder.display(), %error, "cannot store compiled filters");
            Ok(engine)
        }
    }
}

fn builtins() -> Vec<&'static str> {
    filter::BUILTINS.iter().map(|(name, _)| *name).collect()
}

fn load(file: Option<&Path>, whatever_was_recorded: bool) -> Result<Config, Report> {
    let mut config = match file {
        Some(file) => config::load(file, &builtins()),
        None => config::parse("the embedded default", DEFAULT, Path::new("/"), &builtins()),
    }?;
    if whatever_was_recorded {
        for filter in &mut config.filters {
            filter.questions = None;
        }
    }
    Ok(config)
}

/// The running proxy, as the main thread sees it.
struct Proxy {
    file: Option<PathBuf>,
    engine: Arc<Engine>,
    state: Arc<State>,
    workers: Vec<WorkerThread>,
    admin: Option<admin::Server>,
    /// Of the node's network, from the first configuration on that has a `node` section.
    reconciler: Option<Reconciler>,
    watchdog: Watchdog,
    /// TraceView of every generation.
    onlooker: Option<Onlooker>,
    whatever_was_recorded: bool,
}

/// Everything a generation needs, made aside.
struct Prepared {
    generation: Arc<Generation>,
    /// For each worker: an instance of each filter.
    instances: Vec<Vec<filter::Instance>>,
}

fn prepare(
    number: u64,
    config: Config,
    engine: &Engine,
    workers: usize,
    previous: Option<&Generation>,
) -> Result<Prepared, Stop> {
    let generation = Arc::new(Generation::build(number, config, engine, previous)?);
    let instances = (0..workers)
        .map(|_| {
            generation
                .filters
                .iter()
                .map(Filter::instantiate)
                .collect::<Result<Vec<_>, _>>()
        })
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| Stop::Machine(format!("a filter that was loaded cannot be started: {error}")))?;
    Ok(Prepared {
        generation,
        instances,
    })
}

impl Proxy {
    /// Starts; nothing comes of it if it is told to stop before it has.
    async fn start(
        file: Option<PathBuf>,
        engine: Engine,
        spectators: Spectators,
        changes: &mut watch::Changes,
        end: &mut End,
    ) -> Result<Option<Proxy>, Stop> {
        let started = Instant::now();
        let read = || load(file.as_deref(), spectators.whatever_was_recorded);
        let config = changes.watch_from(read, |config| &config.files)?;
        let node = Arc::new(node::Counters::default());
        let reconciler = match &config.node {
            Some(_) => Some(Reconciler::start(Arc::clone(&node)).map_err(machine)?),
            None => None,
        };
        // Whatever takes long in there, be it a filter that is compiled, ends with being waited for.
        let begun = tokio::select! {
            begun = Proxy::begin(file, engine, config, &reconciler, node, spectators, started) => begun.map(Some),
            () = end.come() => Ok(None),
        };
        match begun {
            Ok(Some(mut proxy)) => {
                proxy.reconciler = reconciler;
                Ok(Some(proxy))
            }
            ended => {
                // What was set up for a proxy that did not start serves nobody.
                if let Some(reconciler) = reconciler {
                    let _ = reconciler.unguard().await;
                    let _ = reconciler.drop_link().await;
                }
                ended
            }
        }
    }

    async fn begin(
        file: Option<PathBuf>,
        engine: Engine,
        config: Config,
        reconciler: &Option<Reconciler>,
        node: Arc<node::Counters>,
        spectators: Spectators,
        started: Instant,
    ) -> Result<Proxy, Stop> {
        let descriptors = Descriptors::of_process(&config, config.workers).map_err(machine)?;
        // First of all, so that no predecessor's answer is taken for ours. The address may be one that is yet
        // to be added.
        let told: Arc<OnceLock<Arc<State>>> = Arc::default();
        let serve = |listener: admin::Listener| listener.serve(Arc::clone(&told));
        let predecessors = config.admin.map(node::Predecessors::of);
        let port = port(&config);
        let bind_admin = |address| admin::Listener::bind(address, port);
        let mut admin = match config.admin.map(bind_admin).transpose() {
            Ok(listener) => listener.map(serve),
            Err(error) if reconciler.is_some() && error.kind() == io::ErrorKind::AddrNotAvailable => None,
            Err(error) => return Err(machine(error)),
        };
        let engine = Arc::new(engine);
        let workers = config.workers;
        let shared = Shared::new(config.cache_memory, spectators.queries);
        shared.waiting.set_limit(config.waiting_queries);
        shared.upstream_sockets.set_limit(descriptors.upstream_sockets);
        let Prepared {
            generation,
            instances,
        } = {
            // Compiling takes a while; the admin address answers meanwhile.
            let prepare = move |engine: &Engine| prepare(1, config, engine, workers, None);
            filter::beside(&engine, prepare).await.map_err(machine)??
        };
        let config = &generation.config;

        let connections = ClientConnections::new(&config.listen, descriptors.connections);
        let limits = Limits::new(&config.listen, workers, Arc::clone(&connections));
        // A predecessor that ends must not take the addresses away before we listen on them.
        let turn = match reconciler {
            Some(reconciler) => Some(reconciler.carry(Plan::of(config)).await.map_err(machine)?),
            None => None,
        };
        let sockets = bind(&shared, &config.listen.addresses, workers, port).map_err(machine)?;
        if let (Some(address), None) = (config.admin, &admin) {
            admin = Some(serve(bind_admin(address).map_err(machine)?));
        }
        drop(turn);
        let state = Arc::new(State {
            shared: Arc::clone(&shared),
            generation: RwLock::new(Arc::clone(&generation)),
            serving: AtomicBool::new(false),
            awaiting: AtomicBool::new(true),
            reloads: AtomicU64::new(0),
            failed_reloads: AtomicU64::new(0),
            reload_error: Mutex::new(None),
            started: SystemTime::now(),
            ceiling: RwLock::new(ceiling(&generation, workers, descriptors)),
            connections,
            predecessors: RwLock::new(predecessors),
            node,
            hangs: Arc::default(),
            hanging: Arc::default(),
        });
        // Set here only.
        let _ = told.set(Arc::clone(&state));

        let mut threads = Vec::new();
        let mut begun = Vec::new();
        for (index, (instances, sockets)) in instances.into_iter().zip(sockets).enumerate() {
            let (tell, wait) = oneshot::channel();
            let adoption = Adoption {
                generation: Arc::clone(&generation),
                instances,
                limits: limits.clone(),
            };
            let thread = WorkerThread::spawn(index, Arc::clone(&shared), adoption, sockets, tell);
            threads.push(thread.map_err(machine)?);
            begun.push(wait);
        }
        for begun in begun {
            begun
                .await
                .map_err(|_| machine("a worker ended while it started"))?
                .map_err(machine)?;
        }
        let pulses: Vec<_> = threads.iter().map(|thread| Arc::clone(&thread.pulse)).collect();
        let (hanging, hangs) = (Arc::clone(&state.hanging), Arc::clone(&state.hangs));
        let watchdog = Watchdog::start(pulses, Arc::clone(&state.node), hanging, hangs).map_err(machine)?;
        if let (Some(reconciler), Some(node)) = (reconciler, &config.node) {
            let plan = Plan::of(config);
            reconciler
                .guard(plan.clone(), node.interval)
                .await
                .map_err(machine)?;
            watchdog.beat();
            // It is only told: queries need not wait for it.
            tokio::spawn(name_leftovers(plan));
        }
        state.serving.store(true, Ordering::Relaxed);
        tokio::spawn(await_upstreams(Arc::clone(&state)));
        let addresses: Vec<_> = config.listen.addresses.iter().map(ToString::to_string).collect();
        tracing::info!(
            listen = addresses.join(" "),
            admin = config.admin.map(tracing::field::display),
            workers,
            zones = config.zones.iter().map(|zone| zone.names.len()).sum::<usize>(),
            filters = generation.filters.len(),
            milliseconds = started.elapsed().as_millis() as u64,
            "answering queries"
        );
        if let Some(tell) = &spectators.generations {
            tell(Ok(&generation));
        }
        Ok(Proxy {
            file,
            engine,
            state,
            workers: threads,
            admin,
            reconciler: None,
            watchdog,
            onlooker: spectators.generations,
            whatever_was_recorded: spectators.whatever_was_recorded,
        })
    }

    /// Takes nothing new, ends what is under way, and returns when that is done or takes too long.
    async fn stop(self) {
        self.state.serving.store(false, Ordering::Relaxed);
        let begun = Instant::now();
        let skip = self
            .state
            .generation
            .read()
            .config
            .node
            .as_ref()
            .is_some_and(|node| node.skip_teardown);
        let reconciler = self.reconciler.as_ref().filter(|_| !skip);
        // First the rules, while our sockets still take what the rules keep from the cluster's DNS.
        let mut handed_over = false;
        if let Some(reconciler) = reconciler {
            handed_over = reconciler.unguard().await.unwrap_or(false);
            if handed_over {
                tracing::info!(
                    "another process listens on these addresses: leaving the node's network to it"
                );
            }
        }
        if handed_over || skip {
            // Probes are for the successor from now on.
            drop(self.admin);
        }
        for worker in &self.workers {
            worker.send(Command::Stop { within: DRAIN });
        }
        let ended = async {
            for worker in self.workers {
                worker.join().await;
            }
        };
        if timeout(DRAIN + LATE, ended).await.is_err() {
            tracing::warn!("a worker is unresponsive: not waiting for it");
        }
        if let Some(reconciler) = reconciler {
            let _ = reconciler.drop_link().await;
        }
        tracing::info!(milliseconds = begun.elapsed().as_millis() as u64, "stopped");
    }
}

/// The most memory that a generation comes to hold.
fn ceiling(generation: &Generation, workers: usize, descriptors: Descriptors) -> Ceiling {
    let compiled = generation.filters.iter().map(|filter| filter.code_octets()).sum();
    Ceiling::of(&generation.config, workers, descriptors.connections, compiled)
}

/// Says what other node caches have left on the node, or do there.
async fn name_leftovers(plan: Plan) {
    match node::find_leftovers(&plan).await {
        Ok(leftovers) => leftovers
            .iter()
            .for_each(|leftover| tracing::warn!("node: found {leftover}")),
        Err(error) => tracing::warn!(%error, "node: could not look for what other node caches left behind"),
    }
}

/// Waits until an upstream of each zone has answered, or as long as the configuration says. A node whose upstreams are
/// broken is to start in the end, and to say so.
async fn await_upstreams(state: Arc<State>) {
    let generation = Arc::clone(&state.generation.read());
    let limit = generation.config.await_upstreams;
    let answers = async {
        for source in &generation.sources {
            source.ready().await;
        }
    };
    if tokio::time::timeout(limit, answers).await.is_err() && !limit.is_zero() {
        for why in generation
            .sources
            .iter()
            .filter_map(|source| source.not_ready(true))
        {
            tracing::warn!(
                "{why}; since `await-upstreams` is over, this alone no longer keeps the proxy from being ready"
            );
        }
    }
    state.awaiting.store(false, Ordering::Relaxed);
}

/// How often a configuration wants the node's network to be looked at.
fn interval(config: &Config) -> Duration {
    config
        .node
        .as_ref()
        .map_or(Duration::from_secs(60), |node| node.interval)
}

/// Whose the ports of a configuration may be: those of a node that is kept are handed over from one process to the
/// next (docs/decisions/0005-handover.md).
fn port(config: &Config) -> Port {
    match config.node {
        Some(_) => Port::Shared,
        None => Port::Own,
    }
}

/// Binds every address once for every worker.
fn bind(
    shared: &Shared,
    addresses: &[SocketAddr],
    workers: usize,
    port: Port,
) -> Result<Vec<worker::Bound>, io::Error> {
    let mut all: Vec<worker::Bound> = (0..workers).map(|_| Vec::new()).collect();
    for &address in addresses {
        let server = shared.server(address);
        let mut port = port;
        for sockets in &mut all {
            sockets.push((Sockets::bind(address, port).map_err(io::Error::other)?, server));
            // The others join the first one.
            port = Port::Shared;
        }
    }
    Ok(all)
}
