//! Starts the proxy from a configuration, takes it from one generation to the next, and stops it.
//!
//! The main thread loads configurations, compiles and binds in the background, and hands workers the result;
//! it answers no query. A reload happens on all workers or on none: everything that can fail is done before
//! the first worker switches.

mod absent;
mod before;
pub mod by_hand;
mod check;
mod config_origin;
mod descriptors;
mod named_upstreams;
mod recovery;
mod refresh;
mod reload;
mod signals;
mod stop;
mod succession;
mod waiting;
mod walls;
mod watchdog;
mod worker;

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::admin;
use crate::background;
use crate::ceiling::{Ceiling, OfFilters, memory_limit};
use crate::config::{self, Config, Report};
use crate::control;
use crate::fetch::Copies;
use crate::filter::{self, CompiledCache, Engine, Filter, Precompiled};
use crate::listen::{Address, BindError, ClientConnections, Limits, Port, Sockets};
use crate::node::{self, Plan, Reconciler};
use crate::private_folder::PrivateFolder;
use crate::privileges;
use crate::programs::Program;
use crate::registry::{self, Deliveries};
use crate::serve::Shared;
use crate::serve::generation::{Generation, Loaded};
use crate::serve::trace::TraceSink;
use crate::state::State;
use crate::watch;
pub use check::{check, check_text};
pub use config_origin::ConfigOrigin;
use descriptors::Descriptors;
use named_upstreams::NamedUpstreams;
pub use refresh::Refresher;
pub use reload::learn;
pub use signals::End;
use signals::Signals;
use succession::Succession;
pub use waiting::Mistakes;
use waiting::Waiting;
pub use walls::Places;
use walls::Walls;
use watchdog::Watchdog;
use worker::WorkerThread;

/// Why the proxy did not start, or could not continue.
#[derive(Debug)]
pub enum Stop {
    /// The configuration is invalid.
    Configuration(Report),
    /// The machine refused something.
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

/// Loads a configuration file with all its modules, including those from registries. Also returns the folder
/// that keeps pulled modules and compiled filters: `compiled`, or dnsweir's in the user's cache folder.
///
/// # Errors
/// Every mistake in it, and modules that cannot be had.
pub fn load_whole(file: &Path, compiled: Option<&Path>) -> Result<(Config, Option<PrivateFolder>), Stop> {
    let mut config = config::load(file, filter::BUILTINS)?;
    let folder = folder(compiled.map(Path::to_owned))?;
    registry::deliver_now(&mut config, folder.clone())?;
    Ok((config, folder))
}

/// Checks by binding briefly that the addresses of a configuration are free. Those of a node are skipped:
/// they are handed over, or do not exist yet.
///
/// # Errors
/// When an address is not free, or there is no configuration.
pub fn try_addresses(file: &Path) -> Result<(), Stop> {
    if config::keeps_network(file) == Some(true) {
        return Ok(());
    }
    let (mut free, mut absent) = (0, None);
    for address in config::listeners(file)? {
        match Sockets::bind(address, Port::Own) {
            Ok(_) => free += 1,
            // A start waits for it while it serves the others.
            Err(error) if error.is_absent() => absent = absent.or(Some(error)),
            Err(error) => return Err(machine(error)),
        }
    }
    match absent {
        Some(error) if free == 0 => Err(machine(error)),
        _ => Ok(()),
    }
}

/// Observers in the same process; usually there are none.
#[derive(Default)]
pub struct Spectators {
    /// Receives every query.
    pub queries: Option<TraceSink>,
    /// Called with every generation that begins to answer, including the first, and with why one does not.
    /// These failures are then not logged.
    pub generations: Option<Onlooker>,
    /// Whether modules are accepted without running their test cases.
    pub without_test_cases: bool,
}

/// Observes generations, on the main thread.
pub type Onlooker = Box<dyn Fn(Result<&Generation, &Stop>)>;

/// Runs the proxy until it is told to stop.
///
/// # Errors
/// Why it did not start, or could not continue.
pub fn run(
    origin: ConfigOrigin,
    places: Places,
    mistakes: Mistakes,
    mut spectators: Spectators,
) -> Result<(), Stop> {
    // Open it before any socket: when a process is killed, the kernel closes the newest descriptors first,
    // and inotify's take some twenty milliseconds, during which older sockets would go on receiving queries.
    let mut changes = watch::Changes::default();
    // Modules are pulled and verified until the process ends, even after an upgrade without a restart.
    Program::Artifacts.hold();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(machine)?;
    let ended = runtime.block_on(async move {
        // From here on no signal ends the process before it has cleaned up.
        let mut signals = Signals::new().map_err(machine)?;
        let folder = folder(places.compiled.clone())?;
        let mut walls = Walls::new(&places, folder.as_ref());
        let mut waiting = Waiting::default();
        let started = loop {
            let (spectators, folder) = (std::mem::take(&mut spectators), folder.clone());
            let kept = (folder, &mut walls);
            let started = Proxy::start(origin.clone(), kept, spectators, &mut changes, &mut signals.end);
            match started.await {
                Err(Stop::Configuration(report)) if mistakes == Mistakes::Await => tokio::select! {
                    () = waiting.correction(&origin, &report, &mut changes, &mut signals.hangup) => {}
                    () = signals.end.come() => return Ok(()),
                },
                started => break started?,
            }
        };
        let Some(mut proxy) = started else {
            return Ok(());
        };
        let ended = proxy.attend(&mut signals, changes).await;
        let stays = leaves_network(&proxy.state.generation.read().config);
        ended.and(proxy.stop(stays).await)
    });
    // Do not wait for loads in progress: their result is no longer needed.
    runtime.shutdown_background();
    ended
}

/// Creates the engine of all generations.
fn engine(folder: Option<&PrivateFolder>) -> Result<Engine, Stop> {
    Ok(compiling_once(Engine::new().map_err(machine)?, folder))
}

/// Makes an engine compile in a child process, use filters precompiled with the program, and cache what it
/// compiles in `folder` if there is one.
pub fn compiling_once(engine: Engine, folder: Option<&PrivateFolder>) -> Engine {
    let engine = engine.compiling_aside();
    let engine = engine.with_precompiled(Precompiled::of_program());
    match folder {
        Some(folder) => match CompiledCache::new(folder.clone()) {
            Ok(cache) => engine.with_compiled_cache(cache),
            Err(error) => {
                tracing::warn!(%error, "compiled filters are not kept: the folder's key cannot be read or created");
                engine
            }
        },
        None => engine,
    }
}

/// Returns the folder for compiled filters and pulled modules: `chosen`, or dnsweir's folder in the user's
/// cache folder. If there is none, everything is compiled and pulled again.
///
/// # Errors
/// When others could change files in the chosen folder.
fn folder(chosen: Option<PathBuf>) -> Result<Option<PrivateFolder>, Stop> {
    let is_chosen = chosen.is_some();
    let variable = |name: &str| std::env::var_os(name).map(PathBuf::from);
    // The XDG Base Directory Specification says to ignore relative paths; an empty one counts as unset.
    let absolute = |path: &PathBuf| path.is_absolute();
    let home = || Some(variable("HOME").filter(absolute)?.join(".cache"));
    let caches = || variable("XDG_CACHE_HOME").filter(absolute).or_else(home);
    let Some(folder) = chosen.or_else(|| Some(caches()?.join("dnsweir"))) else {
        return Ok(None);
    };
    match PrivateFolder::open(&folder) {
        Ok(folder) => Ok(Some(folder)),
        Err(error) if is_chosen && folder.is_dir() => Err(Stop::Machine(format!(
            "cannot store compiled filters in {}: {error}",
            folder.display()
        ))),
        Err(error) => {
            tracing::warn!(folder = %folder.display(), %error, "cannot store compiled filters: they are compiled at every start");
            Ok(None)
        }
    }
}

/// Returns where copies of fetched files are kept.
fn copies(folder: Option<&PrivateFolder>) -> Option<Copies> {
    let fetched = folder?.folder("fetched").inspect_err(|error| {
        tracing::warn!(
            %error,
            "cannot keep copies of what is fetched in the folder `fetched` beside compiled filters"
        );
    });
    Some(Copies::new(fetched.ok()?))
}

/// The running proxy, owned by the main thread.
struct Proxy {
    origin: ConfigOrigin,
    engine: Arc<Engine>,
    state: Arc<State>,
    workers: Vec<WorkerThread>,
    /// The admin addresses, with their servers.
    admin: Vec<(SocketAddr, admin::Server)>,
    control: Option<control::Server>,
    /// The socket that the command line names, served from start to end.
    own_control: Option<control::Server>,
    /// What it may write.
    walls: Walls,
    /// The owner of the node's network, from the first configuration with a `node` section on.
    reconciler: Option<Reconciler>,
    /// Its place among other such processes, once it answers.
    succession: Option<Succession>,
    watchdog: Watchdog,
    /// Called for every generation.
    onlooker: Option<Onlooker>,
    without_test_cases: bool,
    refresher: Refresher,
    /// The addresses of upstreams configured by name.
    named: Arc<NamedUpstreams>,
    /// Replaced filters to go back to.
    before: before::Before,
    /// Link and address notifications, while the configuration waits for any.
    news: Option<node::News>,
    /// The indexes of the configured interfaces at the last link notification.
    interfaces: BTreeMap<String, Option<u32>>,
}

/// What is bound for the next generation besides its listeners, but not served yet.
struct Doors {
    admin: Vec<AdminDoor>,
    /// The control socket, or that there is to be none; `None` if it does not change.
    control: Option<ControlDoor>,
    /// Listener addresses that this machine does not have, or not yet.
    absent: Vec<Address>,
}

/// An admin address.
struct AdminDoor {
    address: SocketAddr,
    listener: admin::Listener,
    predecessor: node::Predecessors,
}

/// The control socket, if there is to be one.
type ControlDoor = Option<control::Server>;

/// Everything a generation needs, prepared in the background.
struct Prepared {
    generation: Arc<Generation>,
    /// For each worker, an instance of each filter that the running generation does not have.
    instances: Vec<Vec<filter::Instance>>,
}

/// Builds a generation and the instances that workers need for it. It takes over state from the `running`
/// generation, and may reuse the `former` filter.
fn prepare(
    number: u64,
    config: Config,
    engine: &Engine,
    workers: usize,
    running: Option<&Generation>,
    former: Option<&Loaded>,
) -> Result<Prepared, Stop> {
    let generation = Arc::new(Generation::build(number, config, engine, running, former)?);
    let runs = |filter: &Arc<Filter>| running.is_some_and(|running| running.index_of(filter).is_some());
    let instances = (0..workers)
        .map(|_| {
            generation
                .filters
                .iter()
                .map(|loaded| &loaded.filter)
                .filter(|filter| !runs(filter))
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

/// Loads the first configuration, and watches its files from then on, valid or not; `None` if the process
/// should end. Runs in the background, so that signals need not wait for many or large files.
async fn first_load(
    origin: &ConfigOrigin,
    without_test_cases: bool,
    changes: &mut watch::Changes,
    end: &mut End,
) -> Result<Option<Config>, Stop> {
    let (origin, mut watched) = (origin.clone(), std::mem::take(changes));
    let load = background::beside("loading", move || {
        let loaded = watched.watch_from(
            || origin.load(without_test_cases, true),
            |loaded| match loaded {
                Ok(config) => config.files.as_slice(),
                Err(report) => report.files(),
            },
        );
        (loaded, watched)
    });
    let (loaded, watched) = tokio::select! {
        loaded = load => loaded.map_err(machine)?,
        () = end.come() => return Ok(None),
    };
    *changes = watched;
    Ok(Some(loaded?))
}

impl Proxy {
    /// Starts the proxy; `None` if it is told to stop first.
    async fn start(
        origin: ConfigOrigin,
        (folder, walls): (Option<PrivateFolder>, &mut Walls),
        spectators: Spectators,
        changes: &mut watch::Changes,
        end: &mut End,
    ) -> Result<Option<Proxy>, Stop> {
        let started = Instant::now();
        let Some(config) = first_load(&origin, spectators.without_test_cases, changes, end).await? else {
            return Ok(None);
        };
        let stays = leaves_network(&config);
        // Drop the capabilities that were kept until the configuration was known.
        let needs = if config.node.is_some() {
            privileges::Needs::Network
        } else {
            privileges::Needs::Port
        };
        if let Err(error) = privileges::keep(needs) {
            tracing::warn!(%error, "could not drop unneeded capabilities");
        }
        // Before any lasting thread starts.
        walls.raise(&config).map_err(machine)?;
        let mut proxy = Proxy::of_nothing(origin, folder, spectators, &config)?;
        proxy.walls = walls.clone();
        let control = walls.control.clone();
        let control = control.map(|path| control::Server::start(&path, &proxy.state));
        proxy.own_control = control.transpose().map_err(machine)?;
        // Slow steps, such as compiling a filter, are cancelled when this is dropped.
        let begun = tokio::select! {
            begun = proxy.begin(config) => begun,
            // It may answer queries already.
            () = end.come() => return proxy.stop(stays).await.map(|()| None),
        };
        if let Err(stop) = begun {
            // Undo the node's network setup of a proxy that did not start.
            if let Some(reconciler) = proxy.reconciler.as_ref().filter(|_| !stays) {
                let _ = reconciler.unguard().await;
                let _ = reconciler.drop_link().await;
            }
            return Err(stop);
        }
        proxy.announce(started);
        let presence = proxy.reconciler.as_ref().and_then(Reconciler::presence);
        let workers = proxy.workers.iter().map(WorkerThread::commands).collect();
        proxy.succession =
            presence.map(|presence| Succession::start(presence, Arc::clone(&proxy.state), workers));
        Ok(Some(proxy))
    }

    /// Creates a proxy that serves nothing yet, with the workers that `config` wants. The node's network must
    /// be put in its care now: later the process lacks the rights.
    fn of_nothing(
        origin: ConfigOrigin,
        folder: Option<PrivateFolder>,
        spectators: Spectators,
        config: &Config,
    ) -> Result<Proxy, Stop> {
        let engine = engine(folder.as_ref())?;
        let refresher = Refresher::new(copies(folder.as_ref()));
        let workers = config.workers;
        let generation = Arc::new(Generation::nothing(workers));
        let nothing = &generation.config;
        let connections = ClientConnections::new(&nothing.listen, 0);
        let limits = Limits::new(&nothing.listen, workers, Arc::clone(&connections));
        let shared = Shared::new(config.cache_memory, spectators.queries);
        let threads = (0..workers).map(|index| {
            let nothing = Arc::clone(&generation);
            WorkerThread::spawn(index, Arc::clone(&shared), nothing, limits.clone())
        });
        let threads: Vec<WorkerThread> = threads.collect::<Result<_, _>>().map_err(machine)?;
        let ceiling = Ceiling::of(nothing, workers, 0, &OfFilters::default());
        let deliveries = Deliveries::new(folder);
        let state = Arc::new(State::new(shared, generation, ceiling, connections, deliveries));
        let keep = |_| Reconciler::start(Arc::clone(&state.node), looping(&state)).map_err(machine);
        let reconciler = config.node.as_ref().map(keep).transpose()?;
        Ok(Proxy {
            origin,
            engine: Arc::new(engine),
            watchdog: watch(&threads, &state).map_err(machine)?,
            state,
            workers: threads,
            admin: Vec::new(),
            control: None,
            own_control: None,
            walls: Walls::default(),
            reconciler,
            succession: None,
            onlooker: spectators.generations,
            without_test_cases: spectators.without_test_cases,
            refresher,
            named: Arc::default(),
            before: before::Before::default(),
            news: None,
            interfaces: BTreeMap::new(),
        })
    }

    /// Starts the first configuration.
    async fn begin(&mut self, mut config: Config) -> Result<(), Stop> {
        Descriptors::of_process(&config, config.workers).map_err(machine)?;
        // Bind this first, so that no predecessor's answer is taken for ours; it answers while filters
        // compile. The address may be one that is yet to be added.
        match self.bind_admin(&config) {
            Err(error) if self.reconciler.is_some() && error.kind() == io::ErrorKind::AddrNotAvailable => {}
            bound => {
                let admin = bound.map_err(machine)?;
                let doors = Doors {
                    admin,
                    control: None,
                    absent: Vec::new(),
                };
                self.open(doors, &config);
            }
        }
        self.named.learn(&mut config).await;
        self.state.deliveries.deliver(&mut config).await?;
        let workers = self.workers.len();
        let prepare = move |engine: &Engine| prepare(1, config, engine, workers, None, None);
        let prepared = filter::beside(&self.engine, prepare).await.map_err(machine)??;
        self.refresher.supply(&prepared.generation);
        let refreshed = self.refresher.bring_up(&prepared.generation).await;
        refreshed.map_err(machine)?;
        self.change_over(prepared).await
    }

    /// Announces that queries are answered, and starts the tasks they need not wait for.
    fn announce(&self, started: Instant) {
        self.state.serving.store(true, Ordering::Relaxed);
        self.tell_notes();
        tokio::spawn(recovery::await_first(Arc::clone(&self.state)));
        tokio::spawn(recovery::follow(Arc::clone(&self.state)));
        tokio::spawn(Arc::clone(&self.named).renew());
        tokio::spawn(admin::follow_problems(Arc::clone(&self.state)));
        let deliveries = Arc::clone(&self.state.deliveries);
        tokio::spawn(async move { deliveries.look().await });
        let generation = self.state.generation.read();
        let config = &generation.config;
        if config.node.is_some() {
            tokio::spawn(name_leftovers(Plan::of(config)));
        }
        let addresses: Vec<_> = config.listen.addresses.iter().map(ToString::to_string).collect();
        let admin: Vec<_> = config.admin.addresses.iter().map(ToString::to_string).collect();
        tracing::info!(
            listen = addresses.join(" "),
            admin = admin.join(" "),
            workers = self.workers.len(),
            zones = config.zones.iter().map(|zone| zone.names.len()).sum::<usize>(),
            filters = generation.filters.len(),
            milliseconds = started.elapsed().as_millis() as u64,
            "answering queries"
        );
        if let Some(tell) = &self.onlooker {
            tell(Ok(&generation));
        }
    }

    /// Binds the admin addresses of a configuration that are not served yet.
    fn bind_admin(&self, config: &Config) -> io::Result<Vec<AdminDoor>> {
        let is_served = |address: &SocketAddr| self.admin.iter().any(|(served, _)| served == address);
        let added = config
            .admin
            .addresses
            .iter()
            .filter(|address| !is_served(address));
        let mut doors = Vec::new();
        for &address in added {
            let predecessor = node::Predecessors::of(address);
            let listener = match admin::Listener::bind(address, port(config)) {
                // Wait for it, as for listener addresses.
                Err(error) if config.node.is_none() && error.kind() == io::ErrorKind::AddrNotAvailable => {
                    continue;
                }
                bound => bound?,
            };
            doors.push(AdminDoor {
                address,
                listener,
                predecessor,
            });
        }
        Ok(doors)
    }

    /// Creates the control socket of a configuration; `None` if it does not change.
    fn bind_control(&self, config: &Config) -> Result<Option<ControlDoor>, String> {
        let served = self.control.as_ref().map(control::Server::path);
        let own = self.own_control.as_ref().map(control::Server::path);
        let wanted = config.control.as_deref().filter(|path| Some(*path) != own);
        if served == wanted {
            return Ok(None);
        }
        let start = |path: &Path| control::Server::start(path, &self.state);
        wanted.map(start).transpose().map(Some)
    }

    /// Serves what was bound, and stops serving what the configuration no longer has.
    fn open(&mut self, doors: Doors, config: &Config) {
        self.admin
            .retain(|(served, _)| config.admin.addresses.contains(served));
        let mut predecessors = self.state.predecessors.write();
        predecessors.retain(|one| config.admin.addresses.contains(&one.address()));
        for door in doors.admin {
            predecessors.push(door.predecessor);
            let state = Arc::clone(&self.state);
            let server = door
                .listener
                .serve(move |path, headers| admin::reply(door.address, path, headers, &state));
            self.admin.push((door.address, server));
        }
        if let Some(control) = doors.control {
            self.control = control;
        }
        *self.state.absent.write() = doors.absent;
        *self.state.absent_admin.write() = self.absent_admin(config).copied().collect();
    }
}

/// Starts to monitor the workers.
fn watch(threads: &[WorkerThread], state: &State) -> io::Result<Watchdog> {
    let pulses = threads.iter().map(|thread| Arc::clone(&thread.pulse)).collect();
    let (hanging, hangs) = (Arc::clone(&state.hanging), Arc::clone(&state.hangs));
    Watchdog::start(pulses, Arc::clone(&state.node), hanging, hangs)
}

/// Returns a check for queries to an upstream that come back to us: rules may then divert queries that are
/// meant for the cluster's DNS.
fn looping(state: &Arc<State>) -> node::Symptom {
    let state = Arc::clone(state);
    Box::new(move || {
        let generation = Arc::clone(&state.generation.read());
        generation.sources.iter().any(|source| source.upkeep().loops())
    })
}

/// Returns the most memory that a generation can hold. A cache without a configured size shrinks to fit the
/// memory limit.
fn ceiling(generation: &Generation, workers: usize, descriptors: Descriptors) -> Ceiling {
    let filters = || generation.filters.iter().map(|loaded| &loaded.filter);
    let of_filters = OfFilters {
        compiled: filters().map(|filter| filter.code_octets()).sum(),
        tables: filters().map(|filter| filter.table_octets()).sum(),
        messages: filters().map(|filter| filter.message_octets()).sum(),
    };
    let mut ceiling = Ceiling::of(&generation.config, workers, descriptors.connections, &of_filters);
    if let Some(limit) = memory_limit().filter(|_| !generation.config.cache_memory_written) {
        ceiling.fit_cache(limit);
    }
    ceiling
}

/// Logs what other node caches have left on the node, or are doing there.
async fn name_leftovers(plan: Plan) {
    match node::find_leftovers(&plan).await {
        Ok(leftovers) => leftovers
            .iter()
            .for_each(|leftover| tracing::warn!("node: found {leftover}")),
        Err(error) => tracing::warn!(%error, "node: could not look for what other node caches left behind"),
    }
}

/// Returns whether the node's network setup outlasts the process, whether that ends or does not start.
fn leaves_network(config: &Config) -> bool {
    config.node.as_ref().is_some_and(|node| node.skip_teardown)
}

/// Returns how often the node's network is checked.
fn interval(config: &Config) -> Duration {
    config
        .node
        .as_ref()
        .map_or(Duration::from_secs(60), |node| node.interval)
}

/// Returns whether the ports of a configuration may be shared: those of a managed node are handed over
/// between processes (docs/decisions/0005-handover.md).
fn port(config: &Config) -> Port {
    match config.node {
        Some(_) => Port::Shared,
        None => Port::Own,
    }
}

/// The result of binding some addresses.
#[derive(Default)]
struct Bound {
    /// For each worker.
    sockets: Vec<worker::Bound>,
    /// Addresses that this machine does not have, or not yet.
    absent: Vec<Address>,
    /// Why the first of them could not be bound.
    why: Option<BindError>,
}

/// Binds every address once per worker. On a node, a missing address is an error: they have been added by
/// now.
fn bind(shared: &Shared, addresses: &[Address], workers: usize, port: Port) -> Result<Bound, BindError> {
    let mut bound = Bound {
        sockets: (0..workers).map(|_| Vec::new()).collect(),
        ..Bound::default()
    };
    for &address in addresses {
        let server = shared.server(address.0);
        let mut own = port;
        for (index, sockets) in bound.sockets.iter_mut().enumerate() {
            match Sockets::bind(address, own) {
                Ok(one) => sockets.push((one, server)),
                Err(error) if index == 0 && port == Port::Own && error.is_absent() => {
                    bound.absent.push(address);
                    bound.why.get_or_insert(error);
                    break;
                }
                Err(error) => return Err(error),
            }
            // The other workers share it with the first.
            own = Port::Shared;
        }
    }
    Ok(bound)
}
