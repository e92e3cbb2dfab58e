//! The UDP side of a listener: receives a batch, serves it, and sends the replies that are ready.

use std::cell::RefCell;
use std::future::{Future as _, poll_fn};
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsRawFd;
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use super::service::Service;
use super::switch::refuse_datagrams;
use crate::datagrams::{BATCH, Datagrams, Outgoing, Route, send_one};
use crate::dns::Transport;
use crate::serve::{Admission, Batch, Client, DeferredReply, Replies, Worker};
use dnsweir_os::receiving::ReceivingSocket;
use socket2::SockRef;

/// A registered socket.
pub struct Socket {
    socket: ReceivingSocket,
    address: SocketAddr,
}

impl Socket {
    /// Registers a bound socket with the calling thread's runtime.
    pub fn new(socket: UdpSocket, address: SocketAddr) -> io::Result<Socket> {
        Ok(Socket {
            socket: ReceivingSocket::register(socket)?,
            address,
        })
    }
}

/// Serves a socket until the service stops, then drains it.
pub async fn listen(socket: Socket, service: Service) {
    let Service {
        worker,
        server,
        limits,
        mut leave,
        ..
    } = service;
    let socket = Rc::new(socket);
    let mut batch = Batch::default();
    let limit = || limits.borrow().udp_size;
    let mut exchange = Exchange::new(&Rc::new(Late::new(&socket)), limit());
    // Polls with the socket's own waker slot: `readable` would register and remove a waiter for each batch.
    // The wakeup from `leave` is registered once; afterwards a check is enough.
    let look = leave.clone();
    let mut stopped = pin!(leave.changed());
    let mut asked = false;
    let late = Rc::clone(&exchange.late);
    let _ending = Ending(Rc::clone(&late));
    loop {
        let ready = poll_fn(|context| {
            late.send(context);
            match socket.socket.poll_read_ready(context) {
                // Even if there is more to read: a flood could fill every batch.
                _ if look.has_changed().unwrap_or(true) => Poll::Ready(None),
                Poll::Ready(ready) => Poll::Ready(Some(ready)),
                Poll::Pending if asked => Poll::Pending,
                Poll::Pending => {
                    asked = true;
                    stopped.as_mut().poll(context).map(|_| None)
                }
            }
        });
        let mut ready = match ready.await {
            Some(Ok(ready)) => ready,
            Some(Err(error)) => return tracing::error!(%error, "a UDP listener failed"),
            None => break,
        };
        if exchange.immediate.len() != limit() {
            // A reload changed it.
            exchange = Exchange::new(&late, limit());
        }
        let fd = socket.socket.as_raw_fd();
        let more = match exchange.datagrams.receive(fd) {
            Ok(count) => {
                serve(&worker, count, &mut batch, &mut exchange, server);
                // A batch that is not full has emptied the socket, so the call that would only confirm it is
                // saved. Later datagrams wake us again.
                count == BATCH
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => false,
            // Errors of earlier replies (a client whose port is closed) are reported here. Ignore them.
            Err(_) => true,
        };
        if more {
            drop(ready);
            // Let tasks with upstream replies run.
            tokio::task::yield_now().await;
        } else {
            ready.clear_ready();
        }
    }
    late.end();
    // Turn it off first: datagrams that arrive after the last receive would be lost.
    refuse_datagrams(&SockRef::from(socket.socket.get_ref()), socket.address);
    while let Ok(count @ 1..) = exchange.datagrams.receive(socket.socket.as_raw_fd()) {
        serve(&worker, count, &mut batch, &mut exchange, server);
    }
}

/// Serves the first `count` slots.
fn serve(worker: &Rc<Worker>, count: usize, batch: &mut Batch, exchange: &mut Exchange, server: u16) {
    exchange.travelling.clear();
    let now = worker.now();
    for slot in 0..count {
        let Some((message, client)) = exchange.datagrams.get(slot) else {
            continue;
        };
        let client = Client {
            address: client,
            server,
            transport: Transport::Udp,
            received: now,
            limit: exchange.immediate.len(),
            keepalive: None,
        };
        match worker.admit(batch, message, client, &mut exchange.immediate) {
            Admission::Travelling => exchange.travelling.push(slot),
            Admission::Answered(length) => {
                let reply = &exchange.immediate[..length];
                exchange.datagrams.buffer(slot)[..length].copy_from_slice(reply);
                exchange.datagrams.reply(slot, length);
            }
            // UDP carries no transfers, and silence sends nothing.
            Admission::Transfer(_) | Admission::Silence => {}
        }
    }
    worker.run(batch, exchange);
    exchange.datagrams.send(exchange.late.socket.socket.as_raw_fd());
    worker.tell_if_many();
}

/// The buffers of a batch.
struct Exchange {
    late: Rc<Late>,
    datagrams: Datagrams,
    /// The slots of the queries that travel with the batch.
    travelling: Vec<usize>,
    /// Space for a reply that is written while its query is still read; the largest reply size.
    immediate: Box<[u8]>,
}

impl Exchange {
    fn new(late: &Rc<Late>, limit: usize) -> Exchange {
        let wildcard = late.socket.address.ip().is_unspecified();
        Exchange {
            late: Rc::clone(late),
            datagrams: Datagrams::new(BATCH, wildcard, limit),
            travelling: Vec::with_capacity(BATCH),
            immediate: vec![0; limit].into(),
        }
    }
}

impl Replies for Exchange {
    fn buffer(&mut self, index: usize) -> &mut [u8] {
        self.datagrams.buffer(self.travelling[index])
    }

    fn reply(&mut self, index: usize, length: usize) {
        self.datagrams.reply(self.travelling[index], length);
    }

    fn defer(&mut self, index: usize) -> Box<dyn DeferredReply> {
        Box::new(DeferredDatagram {
            late: Rc::clone(&self.late),
            route: self.datagrams.route(self.travelling[index]),
        })
    }
}

/// Replies that come after their batch. Those ready in one turn of the worker leave together: the first wakes
/// the listener, which runs after all tasks that were ready before it.
struct Late {
    socket: Rc<Socket>,
    outgoing: RefCell<Outgoing>,
    /// The listener's waker, while it runs.
    listener: RefCell<Option<Waker>>,
}

/// Ends the sending of replies together, however the listener ends: none would wake it any more.
struct Ending(Rc<Late>);

impl Drop for Ending {
    fn drop(&mut self) {
        self.0.end();
    }
}

impl Late {
    fn new(socket: &Rc<Socket>) -> Late {
        Late {
            socket: Rc::clone(socket),
            outgoing: RefCell::default(),
            listener: RefCell::default(),
        }
    }

    fn push(&self, route: Route, message: &[u8]) {
        let listener = self.listener.borrow();
        let Some(listener) = listener.as_ref() else {
            if let Err(error) = send_one(self.socket.socket.as_raw_fd(), &route, message) {
                refused(&route, &error);
            }
            return;
        };
        let mut outgoing = self.outgoing.borrow_mut();
        if outgoing.is_empty() {
            listener.wake_by_ref();
        }
        outgoing.push(Some(route), |octets| octets.extend_from_slice(message));
        if outgoing.is_full() {
            self.send_all(&mut outgoing);
        }
    }

    /// Sends pending replies, and registers the listener's waker for later ones.
    fn send(&self, context: &Context<'_>) {
        let mut listener = self.listener.borrow_mut();
        match &mut *listener {
            Some(listener) => listener.clone_from(context.waker()),
            None => *listener = Some(context.waker().clone()),
        }
        let mut outgoing = self.outgoing.borrow_mut();
        if !outgoing.is_empty() {
            self.send_all(&mut outgoing);
        }
    }

    /// From now on, sends each reply by itself.
    fn end(&self) {
        self.listener.take();
        self.send_all(&mut self.outgoing.borrow_mut());
    }

    fn send_all(&self, outgoing: &mut Outgoing) {
        let refused = |_, route: Option<&Route>, error| {
            if let Some(route) = route {
                refused(route, &error);
            }
        };
        // Closed ports of individual clients are not reported on a socket that serves many.
        outgoing.send(self.socket.socket.as_raw_fd(), refused, |_| {});
    }
}

/// Logs a reply that cannot be sent. It is not retried: the client asks again.
fn refused(route: &Route, error: &io::Error) {
    tracing::debug!(client = ?route.peer(), %error, "a reply could not be sent");
}

/// Sends a reply that comes after its batch.
struct DeferredDatagram {
    late: Rc<Late>,
    route: Route,
}

impl DeferredReply for DeferredDatagram {
    fn send(self: Box<Self>, message: &[u8]) {
        self.late.push(self.route, message);
    }
}
