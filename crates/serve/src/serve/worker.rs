//! The state of a worker.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use dnsweir_os::clock::{UnixTime, Uptime};

use crate::dns::MESSAGE_MAXIMUM;
use crate::filter;

use super::live::Live;
use super::observed::Sampler;
use super::queue::Queue;
use super::stores::Shared;

/// One worker: a thread's generation, instances and buffers.
pub struct Worker {
    pub(super) shared: Arc<Shared>,
    pub(super) live: RefCell<Rc<Live>>,
    pub(super) scratch: RefCell<Scratch>,
    pub(super) reply: RefCell<ReplyBuffer>,
    /// Queries that outlive their batch.
    pub(super) queue: Queue,
    /// Chooses the queries to sample.
    pub(super) sampler: Sampler,
    /// Events that no filter has received yet, weighted by size.
    pub(super) events_waiting: Cell<usize>,
    /// Notified of the first of them.
    pub(super) event: tokio::sync::Notify,
}

/// Buffers that a batch needs while it runs, reused for the next one.
#[derive(Default)]
pub(super) struct Scratch {
    /// For each filter, the queries of the batch for which, or for whose responses, it has to be called.
    pub(super) waiting: Vec<Vec<usize>>,
    pub(super) queries: filter::Batch<filter::Query>,
    pub(super) verdicts: Vec<filter::QueryOutcome>,
    pub(super) responses: filter::Batch<filter::Response>,
    pub(super) response_verdicts: Vec<filter::ResponseOutcome>,
}

/// A buffer for the largest reply, used for deferred ones.
pub(super) type ReplyBuffer = Box<[u8; MESSAGE_MAXIMUM]>;

/// The current time by both clocks.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Clocks {
    /// By the workers' clock.
    pub(super) now: Uptime,
    /// Unix time, by the machine's clock.
    pub(super) unix: UnixTime,
}

impl Worker {
    /// Creates a worker with this generation.
    pub fn new(shared: Arc<Shared>, live: Live) -> Rc<Worker> {
        Rc::new(Worker {
            shared,
            live: RefCell::new(Rc::new(live)),
            scratch: RefCell::default(),
            reply: RefCell::new(Box::new([0; MESSAGE_MAXIMUM])),
            queue: Queue::default(),
            sampler: Sampler::default(),
            events_waiting: Cell::new(0),
            event: tokio::sync::Notify::new(),
        })
    }

    /// Switches to another generation. Queries in progress finish on the one they began with.
    pub fn swap(&self, live: Live) {
        let old = self.live.replace(Rc::new(live));
        self.tell_all(&old);
    }

    /// The generation for the next batch.
    pub fn live(&self) -> Rc<Live> {
        Rc::clone(&self.live.borrow())
    }

    /// Reads the workers' clock.
    pub fn now(&self) -> Uptime {
        self.shared.now()
    }

    /// Reads both clocks, once for a whole batch.
    pub(super) fn clocks(&self) -> Clocks {
        Clocks {
            now: self.now(),
            unix: UnixTime::now(),
        }
    }
}
