//! Traces of queries, for `dnsweir explain` and `dnsweir dev`.
//!
//! The code that processes a query also traces it, where it decides something; there is no second account.
//! Without a sink no trace is begun, and each of those places costs one test of a null pointer.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::{Duration, Instant};

use crate::dns::Transport;

/// Receives the trace of every query, on the thread that answered it.
pub type TraceSink = Box<dyn Fn(&TraceView<'_>) + Send + Sync>;

/// A query's trace so far.
#[derive(Debug)]
pub struct Trace {
    pub(super) begun: Instant,
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

/// One event in a trace.
#[derive(Debug, Clone)]
pub struct TraceEvent {
    /// The stage: `zone`, `use NAME`, `cache`, `forward`, `alias`, `lookup`, `delay`, `end`.
    pub stage: String,
    /// The direction.
    pub direction: Direction,
    /// What the stage saw.
    pub saw: String,
    /// What it did about it, one line each.
    pub did: Vec<String>,
    /// How long that took, if measured; for a filter, the call for the whole batch.
    pub took: Option<Duration>,
    /// Time since the query arrived.
    pub at: Duration,
    /// Nesting depth of aliases and lookups.
    pub depth: u8,
}

/// A finished trace.
#[derive(Debug)]
pub struct TraceView<'a> {
    /// The client.
    pub client: SocketAddr,
    /// The client's identity, if it is configured.
    pub identity: Option<&'a str>,
    /// The transport.
    pub transport: Transport,
    /// The question: name, class and type.
    pub question: String,
    /// The events, in order.
    pub events: &'a [TraceEvent],
    /// Time from arrival to response.
    pub took: Duration,
    /// The reply, if one was sent.
    pub reply: Option<Reply>,
}

/// The reply to a client.
#[derive(Debug)]
pub struct Reply {
    /// The rcode.
    pub rcode: String,
    /// The origin of the response.
    pub source: &'static str,
    /// The INFO-CODE of an extended error (RFC 8914).
    pub error: Option<u16>,
    /// Size in bytes; 0: nothing was sent, because it would not fit.
    pub size: usize,
    /// The answer section, one line per record.
    pub answers: Vec<String>,
}

impl Trace {
    /// Begins a trace now.
    pub(super) fn begin() -> Rc<Trace> {
        Rc::new(Trace {
            begun: Instant::now(),
            events: RefCell::default(),
        })
    }

    /// Creates a trace for one of several concurrent lookups, to be [joined](Trace::join) when it is done.
    pub(super) fn branch(&self) -> Rc<Trace> {
        Rc::new(Trace {
            begun: self.begun,
            events: RefCell::default(),
        })
    }

    /// Takes over a branch's events.
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
