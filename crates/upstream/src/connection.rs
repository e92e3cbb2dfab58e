//! A connection to an upstream that carries many queries at a time, over any stream.
//!
//! A connection is a task that both writes and reads. A caller leaves a whole message with its length prefix in the
//! outbox, and waits for the reply under an ID that is unique on this connection; replies may come in any order. So a
//! query can be given up at any moment without leaving half of it on the wire.

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

/// Queries on one connection at a time: few enough that a random ID is free at the first or second try.
const MOST_PENDING: usize = 1024;
/// Bytes that a connection may have to write before it counts as full.
const MOST_UNSENT: usize = 64 * 1024;
/// Queries in a row without a reply after which a connection is taken for dead.
const MOST_SILENT: u32 = 2;
const INBOX: usize = 4096;
/// With its length prefix.
const LARGEST_MESSAGE: usize = 2 + MESSAGE_MAXIMUM;
/// Octets that a connection holds at most: what is to be written and what is being written, each full but for one
/// message; what was read, less than one message and one more read of as much; and as much again handed out and not
/// yet taken.
pub(super) const CONNECTION_OCTETS: usize = 2 * (MOST_UNSENT + LARGEST_MESSAGE) + 2 * 2 * LARGEST_MESSAGE;

/// One connection to an upstream, over any stream.
pub(super) struct Connection {
    serial: u64,
    opened: Rc<Cell<u64>>,
    /// Until when it takes queries.
    until: Option<Instant>,
    /// Once closed: the serial number from which on connections are younger than that.
    successors: Cell<u64>,
    state: RefCell<State>,
    /// The outbox, `pending` or `closed` changed.
    wake: Notify,
}

/// For how long connections are kept.
#[derive(Debug, Clone, Copy)]
pub(super) struct Keeping {
    /// Without a query.
    pub idle: Duration,
    /// At all, as long as there are queries.
    pub max_age: Option<Duration>,
}

struct State {
    pending: HashMap<u16, Waiting>,
    outbox: Vec<u8>,
    closed: bool,
    /// Takes no more queries, since the server asked for that, or it is old.
    retiring: bool,
    /// Has carried a reply.
    proven: bool,
    /// Queries in a row that got no reply in time.
    silent: u32,
    idle: Duration,
    quiet_since: Instant,
}

struct Waiting {
    query: Rc<Query>,
    reply: oneshot::Sender<Result<Reply, Fault>>,
}

impl Connection {
    /// A connection that is yet to be established; it counts in `opened`.
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

    /// Sends `query` and waits for its reply until then. Dropping the future forgets the query.
    pub async fn ask(&self, query: &Rc<Query>, until: Instant) -> Result<Reply, Fault> {
        let mut ticket = self.register(query);
        match timeout_at(until, &mut ticket.reply).await {
            Ok(Ok(outcome)) => outcome,
            // The task is gone without a word: the worker is shutting down.
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
        // `Query` is never longer than what the prefix can say.
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

    /// A server may be slow with one name, but a connection on which several in a row remain unanswered is
    /// broken without our having been told, as after a change of NAT rules.
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

    /// Ends it, and every query that still waits on it, with `fault`.
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

    /// Whether it takes queries; it ends when it has grown too old for that and nobody waits on it.
    pub fn is_open(&self) -> bool {
        let mut state = self.state.borrow_mut();
        if !state.retiring && self.until.is_some_and(|until| until <= Instant::now()) {
            state.retiring = true;
            self.wake.notify_one();
        }
        !state.closed && !state.retiring
    }

    /// Whether it has as much to do as it may have.
    pub fn is_full(&self) -> bool {
        let state = self.state.borrow();
        state.pending.len() >= MOST_PENDING || state.outbox.len() >= MOST_UNSENT
    }

    /// Queries without a reply.
    pub fn pending(&self) -> usize {
        self.state.borrow().pending.len()
    }

    /// Where it stands among all that were ever opened.
    pub fn serial(&self) -> u64 {
        self.serial
    }

    /// Once it is closed: the serial number from which on connections are younger than that.
    pub fn successors(&self) -> u64 {
        self.successors.get()
    }

    /// Whether it has carried a reply.
    pub(crate) fn is_proven(&self) -> bool {
        self.state.borrow().proven
    }

    /// The connection's whole life, in which it holds its permit. Establishing the `stream` may take as long as `dial`.
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

    /// Writes what is in the outbox and hands out what comes in, until either side has had enough; the result is why queries
    /// on it have no answer.
    async fn serve(&self, stream: impl AsyncRead + AsyncWrite, upstream: &Upstream) -> Fault {
        let (mut reader, mut writer) = io::split(stream);
        let mut inbox = Vec::with_capacity(INBOX);
        let (mut sending, mut sent) = (Vec::new(), 0);
        // Whether the stream may still keep some of what was written to it.
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
                    // A half-closed connection has nothing to tell us any more (RFC 7766 section 6.2.4).
                    Ok(0) => return Fault::Closed,
                    Err(error) => return Fault::of_stream(&error),
                    Ok(_) => self.unpack(&mut inbox, upstream),
                },
                // The prefix and its message leave in one write (RFC 7766 section 8), with others if they
                // wait.
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

    /// Hands out the whole messages in `inbox` and leaves the rest: less than one message, so it is bounded.
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

    /// False for a message that answers no query under way.
    fn deliver(&self, message: &[u8]) -> bool {
        let mut state = self.state.borrow_mut();
        // Even a reply that comes too late shows that the connection works.
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
            // RFC 7828 section 3.2.2: zero asks for the connection to be closed as soon as it can be.
            state.retiring |= keepalive.is_zero();
        }
        if let Some(waiting) = state.pending.remove(&id) {
            let _ = waiting.reply.send(outcome);
        }
        true
    }
}

/// Writes some of `octets`; if there are none, has the stream send what it keeps. Either may be given up and begun anew.
async fn write(writer: &mut (impl AsyncWrite + Unpin), octets: &[u8]) -> io::Result<usize> {
    match octets {
        [] => writer.flush().await.map(|()| 0),
        octets => writer.write(octets).await,
    }
}

/// A query under way on a connection, given up when dropped.
struct Ticket<'c> {
    connection: &'c Connection,
    id: u16,
    reply: oneshot::Receiver<Result<Reply, Fault>>,
}

impl Drop for Ticket<'_> {
    fn drop(&mut self) {
        self.reply.close();
        let mut state = self.connection.state.borrow_mut();
        // The ID may be another's by now, who still listens.
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
