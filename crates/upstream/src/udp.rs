//! Queries over UDP, on short-lived sockets.
//!
//! An off-path attacker has to guess the ID and the port (RFC 5452 section 9.2). Every query has a random ID.
//! The kernel chooses the port, on purpose: Linux picks evenly from `ip_local_port_range` (28 232 ports
//! unless the operator widened it; measured, no neighbour more likely than another), while our own choice
//! would have to avoid `ip_local_reserved_ports`, NodePorts and whatever is about to listen.
//!
//! A socket per query would cost more than all the rest of a cache miss. So a few queries share a port:
//! [`QUERIES`] in its whole life, and none after [`LIFE`]. The next port belongs to a new socket, or to one whose
//! queries have all been answered and which is connected anew: its port is as hard to guess, and nothing that
//! was sent to the former port reaches it. An attacker who finds a port by scanning has no time left to use it
//! (`docs/decisions/0007-source-ports.md`). After a datagram that matches no query of its socket, the socket
//! takes no more queries, and for a while each query to that upstream has its own port; after [`STRAYS`] of them
//! the socket is given up, and its queries are repeated from another port.
//!
//! Earlier or abandoned queries on a socket must not disturb current ones: an ID is used once in a socket's
//! life, so late and duplicate replies are recognized; and a closed port that the kernel reports while
//! queries are being sent is attributed to the earlier ones.
//!
//! Queries of one turn of the worker leave together: a socket's task sends after all tasks that were ready
//! before it have run, and receives in batches as well.
//!
//! The don't-fragment bit is left at the kernel's default: set. A query that could need fragments is sent
//! over TCP in the first place ([`Query::fits_datagram`]).

use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::pin::pin;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use socket2::{Domain, Protocol, Type};
use tokio::io::{Interest, Ready};
use tokio::task::{AbortHandle, spawn_local};
use tokio::time::Instant;

use super::failure::Fault;
use super::message::{Query, Rejection, Reply};
use super::quota::{Permit, Quotas};
use super::upstream::Upstream;
use crate::config;
use crate::datagrams::{Datagrams, Outgoing, memory, outgoing_memory};
use crate::dns::MESSAGE_MAXIMUM;
use crate::dns::edns::UDP_DEFAULT;
use dnsweir_os::receiving::ReceivingSocket;

/// Most queries that one socket carries in its life.
pub(super) const QUERIES: usize = 16;
/// The same while the process may not open more sockets.
const QUERIES_AT_WORST: usize = 1024;
/// How long a socket accepts new queries.
pub(super) const LIFE: Duration = Duration::from_secs(1);
/// After so many datagrams that match no query, a socket is given up with its queries: the number of guesses
/// at an ID that an attacker gets who has found a port.
pub(super) const STRAYS: u32 = 16;
/// Sockets that a worker keeps for another port, over all upstreams. The process reserves descriptors for them.
pub const SPARE_SOCKETS: usize = 8;
/// Datagrams read from a socket per system call.
const BATCH: usize = 16;
/// Batches read before other tasks get their turn.
const TURN: usize = 4;

/// Most bytes that a worker holds for sending and receiving in batches.
pub fn batch_octets() -> usize {
    memory(BATCH, MESSAGE_MAXIMUM) + outgoing_memory(usize::from(UDP_DEFAULT))
}

thread_local! {
    /// The receive buffers: each holds any datagram, so none is cut. The kernel backs only the pages in use.
    static INCOMING: RefCell<Datagrams> = RefCell::new(Datagrams::new(BATCH, false, MESSAGE_MAXIMUM));
    /// The send buffers for queries that leave together.
    static OUTGOING: RefCell<Outgoing> = RefCell::default();
    /// How many spare sockets this worker has.
    static SPARE: Cell<usize> = const { Cell::new(0) };
}

/// One worker's sockets to one upstream.
pub(super) struct Sockets {
    upstream: Arc<Upstream>,
    quotas: Quotas,
    /// The socket for the next query, if it still accepts queries.
    current: RefCell<Option<Rc<Socket>>>,
    spare: Rc<Spare>,
}

/// A socket without queries, whose descriptor and task serve the next port.
#[derive(Default)]
struct Spare(RefCell<Option<Rc<Socket>>>);

impl Sockets {
    /// Opens no socket yet.
    pub fn new(upstream: Arc<Upstream>, quotas: Quotas) -> Self {
        Self {
            upstream,
            quotas,
            current: RefCell::new(None),
            spare: Rc::default(),
        }
    }

    /// Sends `query` and waits for its reply for as long as the caller polls. Dropping the future gives the
    /// query up. Must be called on a `LocalRuntime`.
    pub async fn exchange(&self, query: &Rc<Query>, now: Instant) -> Result<Reply, Fault> {
        let (socket, index) = self.send(query, now)?;
        let waiting = Waiting { socket, index };
        poll_fn(|context| waiting.socket.poll(waiting.index, context)).await
    }

    fn send(&self, query: &Rc<Query>, now: Instant) -> Result<(Rc<Socket>, usize), Fault> {
        let alone = self.upstream.is_wary() && self.quotas.is_left();
        let current = self.current.borrow().clone();
        if let Some(socket) = current {
            let takes = !alone && socket.takes_queries(now);
            if takes || (!self.quotas.is_left() && socket.can_take_more()) {
                let index = socket.add(query);
                return Ok((socket, index));
            }
            socket.retire();
        }
        let permit = self.quotas.take()?;
        let socket = match self.spare.take() {
            Some(spare) if !spare.closed.get() && spare.udp.connect_anew(self.upstream.address).is_ok() => {
                spare.begin_anew(permit, now);
                spare
            }
            unfit => {
                unfit.into_iter().for_each(|socket| socket.close());
                Socket::open(&self.upstream, permit, &self.spare, now)?
            }
        };
        *self.current.borrow_mut() = Some(socket.clone());
        let index = socket.add(query);
        if alone {
            socket.retire();
        }
        Ok((socket, index))
    }
}

impl Drop for Sockets {
    fn drop(&mut self) {
        if let Some(socket) = self.current.take() {
            socket.retire();
        }
    }
}

impl Spare {
    /// Keeps a socket. Returns false if there is one already, or the worker has enough of them.
    fn keep(&self, socket: Rc<Socket>) -> bool {
        let mut kept = self.0.borrow_mut();
        let room = kept.is_none() && SPARE.get() < SPARE_SOCKETS;
        if room {
            *kept = Some(socket);
            SPARE.set(SPARE.get() + 1);
        }
        room
    }

    fn take(&self) -> Option<Rc<Socket>> {
        let socket = self.0.take()?;
        SPARE.set(SPARE.get() - 1);
        Some(socket)
    }
}

impl Drop for Spare {
    fn drop(&mut self) {
        if let Some(socket) = self.take() {
            socket.close();
        }
    }
}

/// A connected socket, with a task that sends and receives.
struct Socket {
    udp: ReceivingSocket,
    /// When it was last connected.
    opened: Cell<Instant>,
    /// All queries given to it since.
    queries: RefCell<Vec<Sent>>,
    /// How many of them were sent, or given up before that.
    sent: Cell<usize>,
    /// How many of them somebody waits for.
    awaited: Cell<usize>,
    /// Whether it accepts no more queries.
    retired: Cell<bool>,
    /// Whether its task has ended, or is about to end: it cannot be used again.
    closed: Cell<bool>,
    /// Datagrams that matched no query.
    strays: Cell<u32>,
    task: Cell<Option<AbortHandle>>,
    /// Wakes the task, once it has run.
    waker: RefCell<Option<Waker>>,
    /// Where it goes when nobody waits for it.
    spare: Weak<Spare>,
    /// None while it is a spare one.
    permit: Cell<Option<Permit>>,
}

struct Sent {
    id: u16,
    state: State,
}

enum State {
    /// Waiting for the reply.
    UnderWay(Rc<Query>, Option<Waker>),
    /// The reply is here, or there will be none.
    Ended(Result<Reply, Fault>),
    /// The caller no longer waits.
    Over,
}

impl Socket {
    fn open(
        upstream: &Arc<Upstream>,
        permit: Permit,
        spare: &Rc<Spare>,
        now: Instant,
    ) -> Result<Rc<Self>, Fault> {
        let local = |error: io::Error| Fault::Local(error.kind());
        let to = upstream.address;
        let udp = socket2::Socket::new(
            Domain::for_address(to),
            Type::DGRAM.nonblocking(),
            Some(Protocol::UDP),
        )
        .map_err(local)?;
        udp.connect(&to.into())
            .map_err(|error| Fault::of_network(&error))?;
        let socket = Rc::new(Self {
            udp: ReceivingSocket::register(udp.into()).map_err(local)?,
            opened: Cell::new(now),
            queries: RefCell::new(Vec::with_capacity(QUERIES)),
            sent: Cell::new(0),
            awaited: Cell::new(0),
            retired: Cell::new(false),
            closed: Cell::new(false),
            strays: Cell::new(0),
            task: Cell::new(None),
            waker: RefCell::default(),
            spare: Rc::downgrade(spare),
            permit: Cell::new(Some(permit)),
        });
        let task = spawn_local(socket.clone().run(upstream.clone()));
        socket.task.set(Some(task.abort_handle()));
        Ok(socket)
    }

    /// Takes a spare socket that was connected anew into use.
    fn begin_anew(&self, permit: Permit, now: Instant) {
        self.opened.set(now);
        self.queries.borrow_mut().clear();
        self.sent.set(0);
        self.retired.set(false);
        self.strays.set(0);
        self.permit.set(Some(permit));
    }

    fn takes_queries(&self, now: Instant) -> bool {
        !self.retired.get()
            && self.queries.borrow().len() < QUERIES
            && now.saturating_duration_since(self.opened.get()) < LIFE
    }

    /// Whether it can go on taking queries when no other socket may be opened. Its port is easier to find by
    /// scanning than that of a socket with [`QUERIES`], but an ID is still used once and no query refused.
    fn can_take_more(&self) -> bool {
        !self.retired.get() && self.queries.borrow().len() < QUERIES_AT_WORST
    }

    /// Stops accepting queries; after its last query, the socket becomes a spare one or closes.
    fn retire(self: &Rc<Self>) {
        self.retired.set(true);
        self.end_if_done();
    }

    /// Becomes a spare socket, or closes.
    fn end_if_done(self: &Rc<Self>) {
        if self.closed.get() || !self.retired.get() || self.awaited.get() > 0 {
            return;
        }
        // A spare one has none, and is not kept twice.
        let Some(permit) = self.permit.take() else { return };
        let kept = self.spare.upgrade();
        if !kept.is_some_and(|spare| spare.keep(Rc::clone(self))) {
            self.permit.set(Some(permit));
            self.close();
        }
    }

    fn close(&self) {
        self.closed.set(true);
        if let Some(task) = self.task.take() {
            task.abort();
        }
    }

    /// Queues `query` for this turn under an unused ID. Returns its index among the socket's queries.
    fn add(&self, query: &Rc<Query>) -> usize {
        let mut queries = self.queries.borrow_mut();
        let id = loop {
            let id = rand::random();
            if queries.iter().all(|sent| sent.id != id) {
                break id;
            }
        };
        if self.sent.get() == queries.len()
            && let Some(waker) = &*self.waker.borrow()
        {
            waker.wake_by_ref();
        }
        queries.push(Sent {
            id,
            state: State::UnderWay(query.clone(), None),
        });
        self.awaited.set(self.awaited.get() + 1);
        queries.len() - 1
    }

    fn poll(&self, index: usize, context: &mut Context<'_>) -> Poll<Result<Reply, Fault>> {
        let state = &mut self.queries.borrow_mut()[index].state;
        if let State::UnderWay(_, waker) = state {
            match waker {
                Some(waker) => waker.clone_from(context.waker()),
                None => *waker = Some(context.waker().clone()),
            }
            return Poll::Pending;
        }
        match std::mem::replace(state, State::Over) {
            State::Ended(outcome) => Poll::Ready(outcome),
            // Polled again after it returned `Ready`.
            State::UnderWay(..) | State::Over => Poll::Pending,
        }
    }

    /// Sends and reads until the socket is closed or fails.
    async fn run(self: Rc<Self>, upstream: Arc<Upstream>) {
        loop {
            let error = match self.ready().await {
                // ICMP reported a closed port. That alone does not make a socket readable. There is no error if
                // sending met it first, or if it was about the former port.
                Ok(ready) if ready.is_error() => self.udp.get_ref().take_error().ok().flatten(),
                Ok(_) => self.receive(&upstream).err(),
                Err(error) => Some(error),
            };
            if let Some(error) = error {
                self.closed.set(true);
                let all = self.queries.borrow().len();
                return self.fail(Fault::of_network(&error), all);
            }
        }
    }

    /// Sends queued queries until the socket is readable or has an error.
    async fn ready(self: &Rc<Self>) -> io::Result<Ready> {
        let mut ready = pin!(self.udp.ready(Interest::READABLE | Interest::ERROR));
        poll_fn(|context| {
            self.waker
                .borrow_mut()
                .get_or_insert_with(|| context.waker().clone())
                .clone_from(context.waker());
            self.send();
            ready.as_mut().poll(context).map_ok(|mut guard| {
                let ready = guard.ready();
                // The next error is news again.
                guard.clear_ready_matching(Ready::ERROR);
                ready
            })
        })
        .await
    }

    /// Sends the queued queries.
    fn send(self: &Rc<Self>) {
        if self.sent.get() < self.queries.borrow().len() {
            OUTGOING.with_borrow_mut(|outgoing| self.send_in(outgoing));
        }
    }

    fn send_in(self: &Rc<Self>, outgoing: &mut Outgoing) {
        let mut indexes = Vec::with_capacity(QUERIES);
        while self.sent.get() < self.queries.borrow().len() {
            indexes.clear();
            let queries = self.queries.borrow();
            for (index, sent) in queries.iter().enumerate().skip(self.sent.get()) {
                if outgoing.is_full() {
                    break;
                }
                self.sent.set(index + 1);
                if let State::UnderWay(query, _) = &sent.state {
                    outgoing.push(None, |octets| query.write(sent.id, octets));
                    indexes.push(index);
                }
            }
            drop(queries);
            // Bypasses the event loop, which knows no better than the kernel whether there is room.
            let socket = self.udp.as_raw_fd();
            let refused = |at: usize, _: Option<&_>, error| self.refuse(indexes[at], &error);
            let closed = |at: usize| self.fail(Fault::Refused, indexes[at]);
            outgoing.send(socket, refused, closed);
        }
    }

    /// Fails one query that could not be sent, for example for lack of buffer space. The others continue.
    fn refuse(&self, index: usize, error: &io::Error) {
        self.retired.set(true);
        self.end(index, Err(Fault::of_network(error)));
    }

    /// Delivers what has arrived.
    fn receive(self: &Rc<Self>, upstream: &Upstream) -> io::Result<()> {
        for _ in 0..TURN {
            let received = self.udp.try_io(Interest::READABLE, |_| {
                let count = INCOMING.with_borrow_mut(|incoming| {
                    let count = incoming.receive(self.udp.as_raw_fd())?;
                    for slot in 0..count {
                        self.take_from(upstream, incoming.get(slot));
                    }
                    io::Result::Ok(count)
                })?;
                // A batch that is not full emptied the socket: skip the call that would only confirm it.
                match count {
                    BATCH => Ok(()),
                    _ => Err(io::ErrorKind::WouldBlock.into()),
                }
            });
            match received {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Handles a datagram after checking its sender.
    fn take_from(self: &Rc<Self>, upstream: &Upstream, datagram: Option<(&[u8], SocketAddr)>) {
        // A connected socket receives only from its peer, except what came in just before it was connected.
        // RFC 5452 section 9.1: a datagram that does not match is dropped, and the right one may still come.
        let expected = upstream.address;
        let ours = |from: SocketAddr| (from.ip(), from.port()) == (expected.ip(), expected.port());
        if datagram.is_some_and(|(octets, from)| ours(from) && self.take(octets)) {
            return;
        }
        upstream.saw_stray();
        self.strays.set(self.strays.get() + 1);
        self.retire();
        if self.strays.get() >= STRAYS {
            let all = self.queries.borrow().len();
            self.fail(Fault::Forged, all);
        }
    }

    /// Delivers a datagram to its query. Returns false if it matches no query of this socket.
    fn take(&self, datagram: &[u8]) -> bool {
        let Some(id) = datagram.first_chunk() else {
            return false;
        };
        let id = u16::from_be_bytes(*id);
        let mut queries = self.queries.borrow_mut();
        let Some(sent) = queries.iter_mut().find(|sent| sent.id == id) else {
            return false;
        };
        let State::UnderWay(query, waker) = &mut sent.state else {
            // Late, or a duplicate.
            return true;
        };
        let outcome = match query.accept(id, config::Protocol::Udp, datagram) {
            Ok(reply) => Ok(reply),
            Err(Rejection::Malformed) => Err(Fault::Malformed),
            Err(Rejection::Stray) => return false,
        };
        let waker = waker.take();
        sent.state = State::Ended(outcome);
        drop(queries);
        waker.into_iter().for_each(Waker::wake);
        true
    }

    /// Fails the queries under way among the first `count`: the network error does not say which one it is
    /// about, but all of them went to the same closed port.
    fn fail(self: &Rc<Self>, fault: Fault, count: usize) {
        for index in 0..count {
            self.end(index, Err(fault));
        }
        self.retire();
    }

    /// Ends the query if it is under way.
    fn end(&self, index: usize, outcome: Result<Reply, Fault>) {
        let state = &mut self.queries.borrow_mut()[index].state;
        if let State::UnderWay(_, waker) = state {
            let waker = waker.take();
            *state = State::Ended(outcome);
            // The woken task runs later.
            waker.into_iter().for_each(Waker::wake);
        }
    }
}

/// Gives the query up when dropped.
struct Waiting {
    socket: Rc<Socket>,
    index: usize,
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.socket.queries.borrow_mut()[self.index].state = State::Over;
        self.socket.awaited.set(self.socket.awaited.get() - 1);
        self.socket.end_if_done();
    }
}
