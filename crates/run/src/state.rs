//! What the process shows of itself: written by [`run`](crate::run), read by `admin` and `metrics`.

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

/// What a kernel without Landlock means.
const NO_LANDLOCK: &str = "this kernel has no Landlock, or it is switched off: this process and the one that pulls modules from registries may write \
                           and execute everything that this user may, and only a filter of system calls keeps the one that compiles \
                           filters from files";

/// What the admin address shows of the process.
pub struct State {
    /// What the workers share: cache and counters.
    pub shared: Arc<Shared>,
    /// The running generation.
    pub generation: RwLock<Arc<Generation>>,
    /// Whether every listener is up and nothing is being taken down.
    pub serving: AtomicBool,
    /// Whether the start still waits for an answer from an upstream of each zone.
    pub awaiting: AtomicBool,
    /// Reloads that led to a new generation.
    pub reloads: AtomicU64,
    /// Reloads that changed nothing, since the configuration was not valid.
    pub failed_reloads: AtomicU64,
    /// Filters that were gone back from, since they failed for many while on probation.
    pub reverted_reloads: AtomicU64,
    /// Why the last reload failed, if it did.
    pub reload_error: Mutex<Option<String>>,
    /// Addresses to listen on that this machine does not have, or not yet.
    pub absent: RwLock<Vec<Address>>,
    /// What was a minute ago.
    pub history: History,
    /// When the process started.
    pub started: SystemTime,
    /// The most memory that the running generation comes to hold.
    pub ceiling: RwLock<Ceiling>,
    /// Connections of clients.
    pub connections: Arc<ClientConnections>,
    /// Who served the admin address before we did, if we do.
    pub predecessors: RwLock<Vec<node::Predecessors>>,
    /// What happened to the node's network.
    pub node: Arc<node::Counters>,
    /// What brings modules from registries.
    pub deliveries: Arc<Deliveries>,
    /// Workers that hang.
    pub hanging: Arc<AtomicUsize>,
    /// How often a worker hung.
    pub hangs: Arc<AtomicU64>,
}

impl State {
    /// That of a process that serves nothing yet.
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

    /// Why the process had better be started again, if so. Whoever restarts what is not healthy is meant to: a worker that hangs does not come
    /// back often.
    pub(crate) fn ailment(&self) -> Option<&'static str> {
        (self.hanging.load(Ordering::Relaxed) > 0).then_some("a worker is unresponsive")
    }

    /// What the configuration names and cannot be used on this machine, or not yet, and who is in our place, for people.
    pub fn notes(&self) -> Vec<String> {
        let generation = self.generation.read();
        let config = &generation.config;
        let absent = |address: &SocketAddr| format!("{address}: no link of this machine has the address yet");
        let listeners = self.absent.read();
        let listeners = listeners.iter().map(|(address, _)| absent(address));
        let nobody = config.listen.addresses.iter().copied().filter_map(reaches_nobody);
        let unusable = config.unusable.iter().cloned();
        let beside = self.node.beside.read().clone();
        let memory = self.ceiling.read().beyond(memory_limit());
        let open = (!confine::keeps_paths()).then(|| NO_LANDLOCK.to_owned());
        listeners
            .chain(nobody)
            .chain(unusable)
            .chain(beside)
            .chain(memory)
            .chain(open)
            .collect()
    }
}
