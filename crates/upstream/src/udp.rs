//! Queries over UDP, on sockets that change all the time.
//!
//! What an attacker off the path has to guess is the ID and the port (RFC 5452 section 9.2). Every query has
//! a random ID. The port is the kernel's choice, on purpose: Linux takes it evenly from
//! `ip_local_port_range` (28 232 ports unless the operator widened it; measured, no neighbour more likely
//! than another), while ports of our own choice would have to steer clear of `ip_local_reserved_ports`,
//! NodePorts and whatever is about to listen.
//!
//! A socket for each query would cost more than all the rest of a miss. So a few queries share one:
//! [`QUERIES`] in its whole life, and none after [`LIFE`]. An attacker who finds its port by trial has no time left to
//! use it (`docs/decisions/0007-source-ports.md`). A datagram that answers nothing that was asked on a socket ends
//! its use at once, and for a while each query to that upstream has a port to itself; [`STRAYS`] of them end the
//! socket, and what was under way on it is asked anew from another port.
//!
//! Neither what was asked before on a socket, nor what was given up, may disturb what is asked now: an ID is
//! used once in a socket's life, so replies that are late or come twice are known as such, and when the kernel reports
//! a closed port while queries are sent, that is about earlier ones.
//!
//! What is asked in one turn of the worker leaves together: a socket is a task that sends when all tasks that were ready
//! before had their turn, and hands out what comes in, in batches as well.
//!
//! The don't-fragment bit is the kernel's default as well: it is set, and a query that could need fragments
//! is sent over TCP in the first place ([`Query::fits_datagram`]).

use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::pin::pin;
use std::rc::Rc;
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

/// Queries that one socket carries in its life.
pub(super) const QUERIES: usize = 16;
/// The same while the process may open no more sockets.
const QUERIES_AT_WORST: usize = 1024;
/// How long a socket takes new queries.
pub(super) const LIFE: Duration = Duration::from_secs(1);
/// Datagrams that answer nothing after which a socket is given up, with what is under way on it: as many guesses of
/// an ID as an attacker gets who has found a port.
pub(super) const STRAYS: u32 = 16;
/// Datagrams taken from a socket at once.
const BATCH: usize = 16;
/// And how often before others have their turn.
const TURN: usize = 4;

/// Octets that a worker holds at most for what it sends and receives in batches.
pub fn batch_octets() -> usize {
    memory(BATCH, MESSAGE_MAXIMUM) + outgoing_memory(usize::from(UDP_DEFAULT))
}

thread_local! {
    /// Where datagrams are read: room for any, so that none arrives cut. The kernel gives memory to what is used.
    static INCOMING: RefCell<Datagrams> = RefCell::new(Datagrams::new(BATCH, false, MESSAGE_MAXIMUM));
    /// Where those are written that leave together.
    static OUTGOING: RefCell<Outgoing> = RefCell::default();
}

/// One worker's sockets to one upstream.
pub(super) struct Sockets {
    upstream: Arc<Upstream>,
    quotas: Quotas,
    /// The one that takes the next query, if it still may.
    current: RefCell<Option<Rc<Socket>>>,
}

impl Sockets {
    /// Opens nothing yet.
    pub fn new(upstream: Arc<Upstream>, quotas: Quotas) -> Self {
        Self {
            upstream,
            quotas,
            current: RefCell::new(None),
        }
    }

    /// Sends `query` and waits for its reply, for as long as the caller lets it. Dropping the future gives
    /// the query up. Must be called on a `LocalRuntime`.
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
        let socket = Socket::open(&self.upstream, self.quotas.take()?, now)?;
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

/// A connected socket, with a task that sends and reads.
struct Socket {
    udp: ReceivingSocket,
    opened: Instant,
    /// All that were ever given to it.
    queries: RefCell<Vec<Sent>>,
    /// How many of them have left, or were given up before.
    sent: Cell<usize>,
    /// How many of them have no reply and have not been given up.
    under_way: Cell<usize>,
    /// Whether it takes no more.
    retired: Cell<bool>,
    /// Datagrams that answered nothing.
    strays: Cell<u32>,
    task: Cell<Option<AbortHandle>>,
    /// Wakes the task, once it has begun.
    waker: RefCell<Option<Waker>>,
    _permit: Permit,
}

struct Sent {
    id: u16,
    state: State,
}

enum State {
    /// The reply is awaited.
    UnderWay(Rc<Query>, Option<Waker>),
    /// It is here, or there will be none.
    Ended(Result<Reply, Fault>),
    /// Nobody waits any more.
    Over,
}

impl Socket {
    fn open(upstream: &Arc<Upstream>, permit: Permit, now: Instant) -> Result<Rc<Self>, Fault> {
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
            opened: now,
            queries: RefCell::new(Vec::with_capacity(QUERIES)),
            sent: Cell::new(0),
            under_way: Cell::new(0),
            retired: Cell::new(false),
            strays: Cell::new(0),
            task: Cell::new(None),
            waker: RefCell::default(),
            _permit: permit,
        });
        let task = spawn_local(socket.clone().run(upstream.clone()));
        socket.task.set(Some(task.abort_handle()));
        Ok(socket)
    }

    fn takes_queries(&self, now: Instant) -> bool {
        !self.retired.get()
            && self.queries.borrow().len() < QUERIES
            && now.saturating_duration_since(self.opened) < LIFE
    }

    /// Whether it could go on where no other socket may be opened. A port that is used for longer is easier
    /// to find by trial than one of [`QUERIES`], but an ID is still used once in its life, and no query is
    /// turned away.
    fn can_take_more(&self) -> bool {
        !self.retired.get() && self.queries.borrow().len() < QUERIES_AT_WORST
    }

    /// Takes no more queries, and ends when the last of those under way does.
    fn retire(&self) {
        self.retired.set(true);
        self.close_if_done();
    }

    fn close_if_done(&self) {
        if self.retired.get()
            && self.under_way.get() == 0
            && let Some(task) = self.task.take()
        {
            task.abort();
        }
    }

    /// Has `query` leave with others of this turn, under an ID that this socket has not seen; returns its index among the
    /// socket's queries.
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
        self.under_way.set(self.under_way.get() + 1);
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
            // Polled again after it was ready.
            State::UnderWay(..) | State::Over => Poll::Pending,
        }
    }

    /// Sends and reads until the socket is closed or fails.
    async fn run(self: Rc<Self>, upstream: Arc<Upstream>) {
        loop {
            let error = match self.ready().await {
                // ICMP said that the port is closed. That alone does not make a socket readable.
                Ok(ready) if ready.is_error() => {
                    let error = self.udp.get_ref().take_error().ok().flatten();
                    Some(error.unwrap_or_else(|| io::ErrorKind::Other.into()))
                }
                Ok(_) => self.receive(&upstream).err(),
                Err(error) => Some(error),
            };
            if let Some(error) = error {
                let all = self.queries.borrow().len();
                return self.fail(Fault::of_network(&error), all);
            }
        }
    }

    /// Sends what is there to be sent, until something comes in.
    async fn ready(&self) -> io::Result<Ready> {
        let mut ready = pin!(self.udp.ready(Interest::READABLE | Interest::ERROR));
        poll_fn(|context| {
            self.waker
                .borrow_mut()
                .get_or_insert_with(|| context.waker().clone())
                .clone_from(context.waker());
            self.send();
            ready.as_mut().poll(context).map_ok(|guard| guard.ready())
        })
        .await
    }

    /// Sends what has not left yet.
    fn send(&self) {
        if self.sent.get() < self.queries.borrow().len() {
            OUTGOING.with_borrow_mut(|outgoing| self.send_in(outgoing));
        }
    }

    fn send_in(&self, outgoing: &mut Outgoing) {
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
            // Not through the event loop, which knows no better than the kernel whether there is room.
            let socket = self.udp.as_raw_fd();
            let refused = |at: usize, _: Option<&_>, error| self.refuse(indexes[at], &error);
            let closed = |at: usize| self.fail(Fault::Refused, indexes[at]);
            outgoing.send(socket, refused, closed);
        }
    }

    /// A query could not be sent, such as for want of buffer space. What is under way continues.
    fn refuse(&self, index: usize, error: &io::Error) {
        self.retired.set(true);
        self.end(index, Err(Fault::of_network(error)));
    }

    /// Hands out what is there.
    fn receive(&self, upstream: &Upstream) -> io::Result<()> {
        for _ in 0..TURN {
            let received = self.udp.try_io(Interest::READABLE, |_| {
                let count = INCOMING.with_borrow_mut(|incoming| {
                    let count = incoming.receive(self.udp.as_raw_fd())?;
                    for slot in 0..count {
                        self.take_from(upstream, incoming.get(slot));
                    }
                    io::Result::Ok(count)
                })?;
                // What is not full has emptied the socket: no need for the call that would only say so.
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

    /// Looks at a datagram, and at where it comes from.
    fn take_from(&self, upstream: &Upstream, datagram: Option<(&[u8], SocketAddr)>) {
        // A connected socket receives from its peer alone, but for what came in just before it was connected. RFC 5452
        // section 9.1: what does not match is dropped, and the right one may yet come.
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

    /// Hands a datagram to the query that it answers. False if nothing like it was asked here.
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
            // Late, or for the second time.
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
        self.one_less();
        waker.into_iter().for_each(Waker::wake);
        true
    }

    /// Ends what is under way of the first `count`: the network cannot tell which of them it means, but all of them went
    /// to the same closed port.
    fn fail(&self, fault: Fault, count: usize) {
        self.retired.set(true);
        for index in 0..count {
            self.end(index, Err(fault));
        }
        self.close_if_done();
    }

    /// Ends one if it is under way.
    fn end(&self, index: usize, outcome: Result<Reply, Fault>) {
        let state = &mut self.queries.borrow_mut()[index].state;
        if let State::UnderWay(_, waker) = state {
            let waker = waker.take();
            *state = State::Ended(outcome);
            self.one_less();
            // What it wakes runs later.
            waker.into_iter().for_each(Waker::wake);
        }
    }

    fn one_less(&self) {
        self.under_way.set(self.under_way.get() - 1);
        self.close_if_done();
    }
}

/// Gives the query up when it is dropped.
struct Waiting {
    socket: Rc<Socket>,
    index: usize,
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let state = &mut self.socket.queries.borrow_mut()[self.index].state;
        let before = std::mem::replace(state, State::Over);
        if matches!(before, State::UnderWay(..)) {
            self.socket.one_less();
        }
    }
}
