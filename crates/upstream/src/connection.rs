//! A connection to an upstream that carries many queries at a time, over any stream.
//!
//! A connection is one task that both reads and writes. A caller puts a whole message with its length prefix
//! into the outbox and waits for the reply under an ID that is unique on this connection; replies may come in
//! any order. So a query can be given up at any moment without leaving half of it on the wire.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use tokio::io::{self, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::{Notify, oneshot};
use tokio::time::{Instant, sleep_until, timeout, timeout_at};

use super::failure::Fault;
use super::message::{Query, Rejection, Reply};
use super::quota::Permit;
use super::upstream::Upstream;
use crate::config::Protocol;
use crate::dns::MESSAGE_MAXIMUM;

/// Most queries on one connection: few enough that a random ID is free at the first or second try.
const MOST_PENDING: usize = 1024;
/// Unsent bytes at which a connection counts as full.
const MOST_UNSENT: usize = 64 * 1024;
/// After so many queries in a row without a reply, a connection is considered dead.
const MOST_SILENT: u32 = 2;
const INBOX: usize = 4096;
/// Including the length prefix.
const LARGEST_MESSAGE: usize = 2 + MESSAGE_MAXIMUM;
/// Most bytes that a connection holds: the outbox and the buffer being written, each at most full plus one
/// message; the inbox, less than one message plus one more read of that size; and as much again in replies
/// not yet taken.
pub(super) const CONNECTION_OCTETS: usize = 2 * (MOST_UNSENT + LARGEST_MESSAGE) + 2 * 2 * LARGEST_MESSAGE;

/// One connection to an upstream, over any stream.
pub(super) struct Connection {
    serial: u64,
    opened: Rc<Cell<u64>>,
    /// When it stops accepting queries.
    until: Option<Instant>,
    /// Once closed: the lowest serial number of a connection opened later.
    successors: Cell<u64>,
    state: RefCell<State>,
    /// Notified when the outbox, `pending` or `closed` changes.
    wake: Notify,
}

/// How long connections are kept.
#[derive(Debug, Clone, Copy)]
pub(super) struct Keeping {
    /// Without a query.
    pub idle: Duration,
    /// In total, even while there are queries.
    pub max_age: Option<Duration>,
}

struct State {
    pending: HashMap<u16, Waiting>,
    outbox: Vec<u8>,
    closed: bool,
    /// Accepts no more queries: the server asked for that, or it is too old.
    retiring: bool,
    /// Has carried a reply.
    proven: bool,
    /// Queries in a row without a reply in time.
    silent: u32,
    idle: Duration,
    quiet_since: Instant,
}

struct Waiting {
    query: Rc<Query>,
    reply: oneshot::Sender<Result<Reply, Fault>>,
}

impl Connection {
    /// A connection still to be established; it counts in `opened`.
    pub fn new(opened: &Rc<Cell<u64>>, keeping: Keeping) -> Self {
        let serial = opened.replace(opened.get() + 1);
        Self {
            serial,
            opened: opened.clone(),
            until: keeping.max_age.map(|age| Instant::now() + age),
            successors: Cell::new(serial + 1),
            state: RefCell::new(State {
                pending: HashMap::new(),
                outbox: Vec::new(),
                closed: false,
                retiring: false,
                proven: false,
                silent: 0,
                idle: keeping.idle,
                quiet_since: Instant::now(),
            }),
            wake: Notify::new(),
        }
    }

    /// Sends `query` and waits for its reply until `until`. Dropping the future gives the query up.
    pub async fn ask(&self, query: &Rc<Query>, until: Instant) -> Result<Reply, Fault> {
        let mut ticket = self.register(query);
        match timeout_at(until, &mut ticket.reply).await {
            Ok(Ok(outcome)) => outcome,
            // The task is gone: the worker is shutting down.
            Ok(Err(_)) => Err(Fault::Closed),
            Err(_) => {
                self.stayed_silent();
                Err(Fault::Timeout)
            }
        }
    }

    fn register(&self, query: &Rc<Query>) -> Ticket<'_> {
        let (sender, reply) = oneshot::channel();
        let mut state = self.state.borrow_mut();
        let mut id: u16 = rand::random();
        while state.pending.contains_key(&id) {
            id = rand::random();
        }
        state.pending.insert(
            id,
            Waiting {
                query: query.clone(),
                reply: sender,
            },
        );
        // `Query` never exceeds what the prefix can express.
        let length = u16::try_from(query.len()).unwrap_or(u16::MAX);
        state.outbox.extend_from_slice(&length.to_be_bytes());
        query.write(id, &mut state.outbox);
        self.wake.notify_one();
        Ticket {
            connection: self,
            id,
            reply,
        }
    }

    /// Counts a timeout. A server may be slow with one name, but several timeouts in a row mean that the
    /// connection broke without notice, as after a change of NAT rules.
    fn stayed_silent(&self) {
        let silent = {
            let mut state = self.state.borrow_mut();
            state.silent += 1;
            state.silent
        };
        if silent >= MOST_SILENT {
            self.close(Fault::Closed);
        }
    }

    /// Closes the connection, and fails every query still waiting on it with `fault`.
    pub fn close(&self, fault: Fault) {
        let mut state = self.state.borrow_mut();
        if !state.closed {
            state.closed = true;
            self.successors.set(self.opened.get());
        }
        for (_, waiting) in state.pending.drain() {
            // An error means that the caller has given up.
            let _ = waiting.reply.send(Err(fault));
        }
        self.wake.notify_one();
    }

    /// Whether it accepts queries. A connection that is too old closes once no query waits on it.
    pub fn is_open(&self) -> bool {
        let mut state = self.state.borrow_mut();
        if !state.retiring && self.until.is_some_and(|until| until <= Instant::now()) {
            state.retiring = true;
            self.wake.notify_one();
        }
        !state.closed && !state.retiring
    }

    /// Whether it has as many queries or unsent bytes as allowed.
    pub fn is_full(&self) -> bool {
        let state = self.state.borrow();
        state.pending.len() >= MOST_PENDING || state.outbox.len() >= MOST_UNSENT
    }

    /// Queries without a reply yet.
    pub fn pending(&self) -> usize {
        self.state.borrow().pending.len()
    }

    /// Its place in the order in which connections were opened.
    pub fn serial(&self) -> u64 {
        self.serial
    }

    /// Once it is closed: the lowest serial number of a connection opened later.
    pub fn successors(&self) -> u64 {
        self.successors.get()
    }

    /// Whether it has carried a reply.
    pub(crate) fn is_proven(&self) -> bool {
        self.state.borrow().proven
    }

    /// Runs the connection to its end, holding the permit. Establishing `stream` may take `dial`.
    pub async fn run<S: AsyncRead + AsyncWrite>(
        self: Rc<Self>,
        stream: impl Future<Output = Result<S, Fault>>,
        dial: Duration,
        upstream: Arc<Upstream>,
        _permit: Permit,
    ) {
        let fault = match timeout(dial, stream).await {
            Ok(Ok(stream)) => self.serve(stream, &upstream).await,
            Ok(Err(fault)) => fault,
            Err(_) => Fault::Timeout,
        };
        self.close(fault);
    }

    /// Writes the outbox and delivers replies until either side closes. Returns the fault of remaining
    /// queries.
    async fn serve(&self, stream: impl AsyncRead + AsyncWrite, upstream: &Upstream) -> Fault {
        let (mut reader, mut writer) = io::split(stream);
        let mut inbox = Vec::with_capacity(INBOX);
        let (mut sending, mut sent) = (Vec::new(), 0);
        // Whether the stream may still buffer some of what was written to it.
        let mut unflushed = false;
        loop {
            if sent == sending.len() {
                sending.clear();
                sent = 0;
                std::mem::swap(&mut sending, &mut self.state.borrow_mut().outbox);
            }
            let idle_until = {
                let state = self.state.borrow();
                if state.closed {
                    return Fault::Closed;
                }
                let idle = if state.retiring {
                    Duration::ZERO
                } else {
                    state.idle
                };
                state.pending.is_empty().then(|| state.quiet_since + idle)
            };
            tokio::select! {
                read = reader.read_buf(&mut inbox) => match read {
                    // A half-closed connection is of no more use to us (RFC 7766 section 6.2.4).
                    Ok(0) => return Fault::Closed,
                    Err(error) => return Fault::of_stream(&error),
                    Ok(_) => self.unpack(&mut inbox, upstream),
                },
                // The prefix and its message leave in one write (RFC 7766 section 8), with any others queued.
                written = write(&mut writer, &sending[sent..]), if sent < sending.len() || unflushed => {
                    match written {
                        Ok(0) if sent < sending.len() => return Fault::Closed,
                        Ok(count) => (sent, unflushed) = (sent + count, count > 0),
                        Err(error) => return Fault::of_stream(&error),
                    }
                }
                () = self.wake.notified() => {}
                () = sleep_until(idle_until.unwrap_or_else(Instant::now)), if idle_until.is_some() => return Fault::Closed,
            }
        }
    }

    /// Delivers the complete messages in `inbox`. The rest is less than one message, so `inbox` is bounded.
    fn unpack(&self, inbox: &mut Vec<u8>, upstream: &Upstream) {
        let mut at = 0;
        while let Some(&[high, low]) = inbox.get(at..at + 2) {
            let end = at + 2 + usize::from(u16::from_be_bytes([high, low]));
            let Some(message) = inbox.get(at + 2..end) else {
                break;
            };
            if !self.deliver(message) {
                upstream.counters.strays.fetch_add(1, Relaxed);
            }
            at = end;
        }
        inbox.drain(..at);
        if inbox.is_empty() {
            inbox.shrink_to(INBOX);
        }
    }

    /// Delivers a message to its query. Returns false if it answers no query under way.
    fn deliver(&self, message: &[u8]) -> bool {
        let mut state = self.state.borrow_mut();
        // Even a late reply shows that the connection works.
        state.silent = 0;
        let Some(&[high, low]) = message.get(..2) else {
            return false;
        };
        let id = u16::from_be_bytes([high, low]);
        let Some(waiting) = state.pending.get(&id) else {
            return false;
        };
        let outcome = match waiting.query.accept(id, Protocol::Tcp, message) {
            Ok(reply) => Ok(reply),
            Err(Rejection::Malformed) => Err(Fault::Malformed),
            Err(Rejection::Stray) => return false,
        };
        state.proven = true;
        state.quiet_since = Instant::now();
        if let Some(keepalive) = outcome.as_ref().ok().and_then(|reply| reply.keepalive) {
            state.idle = state.idle.min(keepalive);
            // RFC 7828 section 3.2.2: zero asks to close the connection as soon as possible.
            state.retiring |= keepalive.is_zero();
        }
        if let Some(waiting) = state.pending.remove(&id) {
            let _ = waiting.reply.send(outcome);
        }
        true
    }
}

/// Writes some of `octets`, or flushes the stream if there are none. Safe to cancel and repeat.
async fn write(writer: &mut (impl AsyncWrite + Unpin), octets: &[u8]) -> io::Result<usize> {
    match octets {
        [] => writer.flush().await.map(|()| 0),
        octets => writer.write(octets).await,
    }
}

/// A query under way on a connection; dropping it gives the query up.
struct Ticket<'c> {
    connection: &'c Connection,
    id: u16,
    reply: oneshot::Receiver<Result<Reply, Fault>>,
}

impl Drop for Ticket<'_> {
    fn drop(&mut self) {
        self.reply.close();
        let mut state = self.connection.state.borrow_mut();
        // The ID may have been reused for a query that still waits.
        if state
            .pending
            .get(&self.id)
            .is_some_and(|waiting| waiting.reply.is_closed())
        {
            state.pending.remove(&self.id);
            if state.pending.is_empty() {
                state.quiet_since = Instant::now();
                self.connection.wake.notify_one();
            }
        }
    }
}
