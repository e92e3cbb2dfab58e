//! State that the process shows: written by [`run`](crate::run), read by `admin` and `metrics`.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::SystemTime;

use parking_lot::{Mutex, RwLock};

use crate::ceiling::{Ceiling, memory_limit};
use crate::confine;
use crate::history::History;
use crate::listen::{Address, ClientConnections, reaches_nobody};
use crate::node;
use crate::registry::Deliveries;
use crate::serve::Shared;
use crate::serve::generation::Generation;

/// The note for a kernel without Landlock.
const NO_LANDLOCK: &str = "this kernel has no Landlock, or it is switched off: this process and the one that pulls modules from registries may write \
                           and execute everything that this user may, and only a filter of system calls keeps the one that compiles \
                           filters from files";

/// What the admin address shows of the process.
pub struct State {
    /// What workers share: the cache and counters.
    pub shared: Arc<Shared>,
    /// The running generation.
    pub generation: RwLock<Arc<Generation>>,
    /// Whether every listener is up and nothing is being torn down.
    pub serving: AtomicBool,
    /// Whether the start still waits for a first upstream answer in each zone.
    pub awaiting: AtomicBool,
    /// Reloads that led to a new generation.
    pub reloads: AtomicU64,
    /// Reloads that changed nothing because the configuration was invalid.
    pub failed_reloads: AtomicU64,
    /// Filters that were reverted because they failed for many names while on probation.
    pub reverted_reloads: AtomicU64,
    /// Why the last reload failed, if it did.
    pub reload_error: Mutex<Option<String>>,
    /// Listener addresses that this machine does not have, or not yet.
    pub absent: RwLock<Vec<Address>>,
    /// Such admin addresses.
    pub absent_admin: RwLock<Vec<SocketAddr>>,
    /// Counters of the last minute.
    pub history: History,
    /// When the process started.
    pub started: SystemTime,
    /// The most memory that the running generation can hold.
    pub ceiling: RwLock<Ceiling>,
    /// Client connections.
    pub connections: Arc<ClientConnections>,
    /// Earlier processes that served our admin addresses.
    pub predecessors: RwLock<Vec<node::Predecessors>>,
    /// Counters of the node's network.
    pub node: Arc<node::Counters>,
    /// Delivers modules from registries.
    pub deliveries: Arc<Deliveries>,
    /// How many workers hang now.
    pub hanging: Arc<AtomicUsize>,
    /// How often a worker hung.
    pub hangs: Arc<AtomicU64>,
}

impl State {
    /// Creates the state of a process that serves nothing yet.
    pub(crate) fn new(
        shared: Arc<Shared>,
        generation: Arc<Generation>,
        ceiling: Ceiling,
        connections: Arc<ClientConnections>,
        deliveries: Arc<Deliveries>,
    ) -> State {
        State {
            shared,
            ceiling: RwLock::new(ceiling),
            generation: RwLock::new(generation),
            serving: AtomicBool::new(false),
            awaiting: AtomicBool::new(true),
            reloads: AtomicU64::new(0),
            failed_reloads: AtomicU64::new(0),
            reverted_reloads: AtomicU64::new(0),
            reload_error: Mutex::new(None),
            absent: RwLock::default(),
            absent_admin: RwLock::default(),
            history: History::default(),
            started: SystemTime::now(),
            connections,
            predecessors: RwLock::default(),
            node: Arc::default(),
            deliveries,
            hangs: Arc::default(),
            hanging: Arc::default(),
        }
    }

    /// Returns why the process should be restarted, if so. Supervisors restart what is unhealthy, and a
    /// hanging worker rarely recovers.
    pub(crate) fn ailment(&self) -> Option<&'static str> {
        (self.hanging.load(Ordering::Relaxed) > 0).then_some("a worker is unresponsive")
    }

    /// Describes, for the operator, what of the configuration cannot be used on this machine, or not yet, and
    /// which process answers in our place.
    pub fn notes(&self) -> Vec<String> {
        let generation = self.generation.read();
        let config = &generation.config;
        let absent = |address: &SocketAddr| format!("{address}: no link of this machine has the address yet");
        let listeners = self.absent.read();
        let listeners = listeners.iter().map(|(address, _)| absent(address));
        let admin = self.absent_admin.read();
        let admin = admin.iter().map(|address| format!("admin {}", absent(address)));
        let nobody = config.listen.addresses.iter().copied().filter_map(reaches_nobody);
        let unusable = config.unusable.iter().cloned();
        let beside = self.node.beside.read().clone();
        let memory = self.ceiling.read().beyond(memory_limit());
        let open = (!confine::keeps_paths()).then(|| NO_LANDLOCK.to_owned());
        listeners
            .chain(admin)
            .chain(nobody)
            .chain(unusable)
            .chain(beside)
            .chain(memory)
            .chain(open)
            .collect()
    }
}
