//! The UDP side of a listener: take a batch, serve it, send what is ready.

use std::future::poll_fn;
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsRawFd;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::watch;

use super::Switch;
use super::datagrams::{BATCH, Received, Route, Sending, send_one};
use crate::filter::Transport;
use crate::serve::{Admission, Arrival, Batch, LateReply, Replies, Worker};

/// A socket that can be waited for.
pub struct Socket {
    socket: AsyncFd<UdpSocket>,
    wildcard: bool,
}

impl Socket {
    /// Registers a bound socket with the calling thread's runtime.
    pub fn new(socket: UdpSocket, address: SocketAddr) -> io::Result<Socket> {
        // SAFETY: a UdpSocket owns its descriptor and names the same one until it is dropped, which the
        // AsyncFd does with it.
        let socket = unsafe { AsyncFd::register_with_interest(socket, Interest::READABLE) }?;
        Ok(Socket {
            socket,
            wildcard: address.ip().is_unspecified(),
        })
    }
}

/// Serves a socket until `stop`, and then what it still holds.
pub async fn listen(
    worker: Rc<Worker>,
    socket: Socket,
    switch: Arc<Switch>,
    server: u16,
    limit: usize,
    mut stop: watch::Receiver<bool>,
) {
    let socket = Rc::new(socket);
    let mut received = Received::new(socket.wildcard);
    let mut batch = Batch::default();
    let mut outbox = Outbox {
        socket: Rc::clone(&socket),
        sending: Sending::new(limit),
        routes: Vec::new(),
    };
    // One for all waits, and the socket's own place for a task that waits for it: what `readable` would note anew for
    // each batch, and strike out again.
    let mut stopped = pin!(stop.changed());
    loop {
        let mut ready = tokio::select! {
            biased;
            ready = poll_fn(|context| socket.socket.poll_read_ready(context)) => match ready {
                Ok(ready) => ready,
                Err(error) => return tracing::error!(%error, "a UDP listener has ended"),
            },
            _ = &mut stopped => break,
        };
        let fd = socket.socket.as_raw_fd();
        let more = match received.receive(fd) {
            Ok(count) => {
                serve(&worker, &received, count, &mut batch, &mut outbox, server, limit);
                // A batch that is not full has emptied the socket: no need for the call that would only say
                // so. What comes after it wakes us again.
                count == BATCH
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => false,
            // Errors of earlier replies (a client whose port is closed) are reported here: nobody cares.
            Err(_) => true,
        };
        if more {
            drop(ready);
            // Upstreams' answers wait for their turn.
            tokio::task::yield_now().await;
        } else {
            ready.clear_ready();
        }
    }
    // Turned off first: what comes after the last look would be lost.
    switch.udp_off();
    while let Ok(count @ 1..) = received.receive(socket.socket.as_raw_fd()) {
        serve(&worker, &received, count, &mut batch, &mut outbox, server, limit);
    }
}

fn serve(
    worker: &Rc<Worker>,
    received: &Received,
    count: usize,
    batch: &mut Batch,
    outbox: &mut Outbox,
    server: u16,
    limit: usize,
) {
    outbox.routes.clear();
    let now = worker.now();
    for index in 0..count {
        let Some((message, route)) = received.get(index) else {
            continue;
        };
        let arrival = Arrival {
            client: route.peer,
            server,
            transport: Transport::Udp,
            received: now,
            limit,
            keepalive: None,
        };
        match worker.admit(batch, message, arrival, outbox.sending.buffer()) {
            Admission::Travelling => outbox.routes.push(route),
            Admission::Answered(length) => outbox.sending.push(&route, length),
            Admission::Silence => {}
        }
    }
    worker.run(batch, outbox);
    outbox.sending.send(outbox.socket.socket.as_raw_fd());
    worker.tell_if_many();
}

/// Replies of one batch.
struct Outbox {
    socket: Rc<Socket>,
    sending: Sending,
    /// Of the queries that travel.
    routes: Vec<Route>,
}

impl Replies for Outbox {
    fn reply(&mut self, index: usize, write: impl FnOnce(&mut [u8]) -> usize) {
        let length = write(self.sending.buffer());
        self.sending.push(&self.routes[index], length);
    }

    fn later(&mut self, index: usize) -> Box<dyn LateReply> {
        Box::new(Late {
            socket: Rc::clone(&self.socket),
            route: self.routes[index],
        })
    }
}

struct Late {
    socket: Rc<Socket>,
    route: Route,
}

impl LateReply for Late {
    fn send(self: Box<Self>, message: &[u8]) {
        if let Err(error) = send_one(self.socket.socket.as_raw_fd(), &self.route, message) {
            tracing::debug!(client = %self.route.peer, %error, "a reply could not be sent");
        }
    }
}
