//! What happens to a query, told while it happens: for `dnsweir explain` and `dnsweir dev`.
//!
//! The way of a query is told by the code that takes it along, at the places where it decides something; there
//! is no second account of it. Without a sink no trace is begun, and each of those places costs one
//! look at an absent pointer.

use std::cell::{OnceCell, RefCell};
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::{Duration, Instant};

use crate::dns::Transport;

/// Who is told of every query, on the thread that answered it.
pub type TraceSink = Box<dyn Fn(&TraceView<'_>) + Send + Sync>;

/// A query's trace so far.
#[derive(Debug)]
pub struct Trace {
    pub(super) begun: Instant,
    pub(super) identity: OnceCell<String>,
    pub(super) events: RefCell<Vec<TraceEvent>>,
}

/// Whether the query was on its way in or its response on its way out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// The query, top to bottom.
    In,
    /// The response, bottom to top.
    Out,
}

/// One thing that happened on a query's way.
#[derive(Debug, Clone)]
pub struct TraceEvent {
    /// Which stage: `zone`, `use NAME`, `cache`, `forward`, `alias`, `lookup`, `delay`, `end`.
    pub stage: String,
    /// On which way.
    pub direction: Direction,
    /// What it saw.
    pub saw: String,
    /// What it did about it, a line each.
    pub did: Vec<String>,
    /// How long that took, where it was measured: of a filter, the call for the whole batch.
    pub took: Option<Duration>,
    /// When it was done, from the query's arrival.
    pub at: Duration,
    /// How many aliases and lookups deep.
    pub depth: u8,
}

/// A whole trace.
#[derive(Debug)]
pub struct TraceView<'a> {
    /// Who asked.
    pub client: SocketAddr,
    /// Who that is, if the configuration wants to know.
    pub identity: Option<&'a str>,
    /// How.
    pub transport: Transport,
    /// What: name, class and type.
    pub question: String,
    /// In order.
    pub events: &'a [TraceEvent],
    /// From arrival to response.
    pub took: Duration,
    /// What the client got; none: nothing.
    pub reply: Option<Reply>,
}

/// What a client got.
#[derive(Debug)]
pub struct Reply {
    /// The rcode.
    pub rcode: String,
    /// Where it came from.
    pub source: &'static str,
    /// The INFO-CODE of an extended error (RFC 8914).
    pub error: Option<u16>,
    /// Octets; 0: nothing was sent, since it would not fit.
    pub size: usize,
    /// The answer section, a record each.
    pub answers: Vec<String>,
}

impl Trace {
    /// Begins now.
    pub(super) fn begin() -> Rc<Trace> {
        Rc::new(Trace {
            begun: Instant::now(),
            identity: OnceCell::new(),
            events: RefCell::default(),
        })
    }

    /// One of what happens at the same time, to be [joined](Trace::join) when it is over.
    pub(super) fn branch(&self) -> Rc<Trace> {
        Rc::new(Trace {
            begun: self.begun,
            identity: OnceCell::new(),
            events: RefCell::default(),
        })
    }

    /// Notes who asked.
    pub(super) fn identify(&self, identity: String) {
        // It is found out once.
        let _ = self.identity.set(identity);
    }

    /// Takes over what a branch tells.
    pub(super) fn join(&self, branch: &Trace) {
        self.events.borrow_mut().append(&mut branch.events.borrow_mut());
    }

    pub(super) fn add(&self, depth: u8, event: TraceEvent) {
        let at = self.begun.elapsed();
        self.events.borrow_mut().push(TraceEvent { at, depth, ..event });
    }
}

impl TraceEvent {
    pub(super) fn new(stage: &str, direction: Direction, saw: String, did: String) -> TraceEvent {
        let (stage, did) = (stage.to_owned(), vec![did]);
        TraceEvent {
            stage,
            direction,
            saw,
            did,
            took: None,
            at: Duration::ZERO,
            depth: 0,
        }
    }
}
