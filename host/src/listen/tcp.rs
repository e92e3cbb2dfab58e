//! The TCP side of a listener (RFC 7766): connections that are pipelined, answered as answers come, and
//! bounded in number, idleness and slowness.

use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, watch};
use tokio::task::spawn_local;
use tokio::time::{Instant, timeout, timeout_at};

use super::{Limits, Switch};
use crate::dns::MESSAGE_MAXIMUM;
use crate::filter::Transport;
use crate::serve::{Admission, Arrival, Batch, LateReply, Replies, Worker};

/// Queries of one connection that may wait for upstreams; the client's next ones wait in its own buffer.
const OUTSTANDING: usize = 256;

/// Octets of unsent replies beyond which no more queries are read.
const UNSENT: usize = 1 << 20;

/// How long a connection may be silent once we are to stop: time for a query that was on its way, of a client
/// that may have to wait for a processor.
const LAST_IDLE: Duration = Duration::from_millis(500);

/// Octets of the length prefix (RFC 7766 section 8).
const PREFIX: usize = 2;

/// How long connections whose handshake has begun may take to end it once we are to stop. They cannot be
/// given to another listener: closed before, ours would have them reset.
const HANDSHAKE: Duration = Duration::from_millis(100);

/// Accepts connections until `stop`.
pub async fn listen(
    worker: Rc<Worker>,
    listener: TcpListener,
    switch: Arc<Switch>,
    server: u16,
    limits: Rc<RefCell<Limits>>,
    mut stop: watch::Receiver<bool>,
) {
    let mut last: Option<Instant> = None;
    loop {
        let accepted = match last {
            None => tokio::select! {
                accepted = listener.accept() => accepted,
                _ = stop.changed() => {
                    switch.pass_on(limits.borrow().siblings);
                    last = Some(Instant::now() + HANDSHAKE);
                    continue;
                }
            },
            Some(at) => match timeout_at(at, listener.accept()).await {
                Ok(accepted) => accepted,
                // The last look is at the socket itself, and finds those that wait: closed unaccepted, they
                // would be reset.
                Err(_) => match switch.accept() {
                    Some(accepted) => accepted,
                    None => return switch.tcp_off(),
                },
            },
        };
        match accepted {
            Ok((stream, client)) => {
                // RFC 7766 section 6.2.2 leaves the bound to us; a closed connection tells the client so.
                let limits = limits.borrow().clone();
                let Some(place) = Place::take(&limits) else {
                    tracing::debug!(%client, "too many connections");
                    continue;
                };
                let _ = stream.set_nodelay(true);
                let (worker, stop) = (Rc::clone(&worker), stop.clone());
                spawn_local(async move {
                    converse(&worker, stream, client, server, &limits, stop).await;
                    drop(place);
                });
            }
            Err(_) if last.is_some() => return switch.tcp_off(),
            Err(error) => {
                // Out of descriptors, or a connection that was gone before we took it: the next attempt
                // may do better, but not at once.
                tracing::warn!(%error, "cannot accept a connection");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

/// One of the connections that may be open.
struct Place(Arc<AtomicUsize>);

impl Place {
    fn take(limits: &Limits) -> Option<Place> {
        let place = Place(Arc::clone(&limits.connections));
        let open = place.0.fetch_add(1, Ordering::Relaxed);
        (open < limits.connections_maximum).then_some(place)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// What the reading and the writing side of a connection share with the replies still to come.
#[derive(Default)]
struct Conversation {
    /// Replies with their prefixes, not yet written.
    unsent: RefCell<Vec<u8>>,
    /// Queries without a reply yet.
    outstanding: Cell<usize>,
    /// Nothing more will be read.
    read_all: Cell<bool>,
    /// Something above changed.
    changed: Notify,
    /// Replies were written, or given up.
    eased: Notify,
}

impl Conversation {
    fn is_crowded(&self) -> bool {
        self.outstanding.get() >= OUTSTANDING || self.unsent.borrow().len() >= UNSENT
    }

    fn push(&self, message: &[u8]) {
        let mut unsent = self.unsent.borrow_mut();
        unsent.extend((message.len() as u16).to_be_bytes());
        unsent.extend(message);
        self.changed.notify_one();
    }
}

async fn converse(
    worker: &Rc<Worker>,
    mut stream: TcpStream,
    client: SocketAddr,
    server: u16,
    limits: &Limits,
    stop: watch::Receiver<bool>,
) {
    let conversation = Rc::new(Conversation::default());
    let (reader, writer) = stream.split();
    let reading = async {
        read_queries(worker, &conversation, reader, client, server, limits, stop).await;
        conversation.read_all.set(true);
        conversation.changed.notify_one();
        // The writer ends when all that was asked is answered: half-closed clients still get their
        // replies (RFC 7766 section 6.2.4).
        std::future::pending::<()>().await;
    };
    tokio::select! {
        () = reading => {}
        () = write_replies(&conversation, writer, limits.write) => {}
    }
}

async fn read_queries(
    worker: &Rc<Worker>,
    conversation: &Rc<Conversation>,
    mut reader: ReadHalf<'_>,
    client: SocketAddr,
    server: u16,
    limits: &Limits,
    mut stop: watch::Receiver<bool>,
) {
    let mut input = Vec::with_capacity(4096);
    let mut batch = Batch::default();
    let mut outbox = Outbox {
        conversation: Rc::clone(conversation),
        buffer: vec![0; MESSAGE_MAXIMUM].into(),
    };
    loop {
        while conversation.is_crowded() {
            conversation.eased.notified().await;
        }
        let idle = if *stop.borrow() { LAST_IDLE } else { limits.idle };
        // A client that waits for us is not idle.
        let read = async {
            loop {
                match timeout(idle, reader.read_buf(&mut input)).await {
                    Ok(Ok(count)) if count > 0 => return true,
                    Err(_) if conversation.outstanding.get() > 0 => {}
                    _ => return false,
                }
            }
        };
        let more = tokio::select! {
            more = read => more,
            Ok(()) = stop.changed() => continue,
        };
        if !more {
            return;
        }
        let mut at = 0;
        let now = worker.now();
        while let Some(prefix) = input.get(at..at + PREFIX) {
            let length = usize::from(u16::from_be_bytes([prefix[0], prefix[1]]));
            let Some(message) = input.get(at + PREFIX..at + PREFIX + length) else {
                break;
            };
            at += PREFIX + length;
            let arrival = Arrival {
                client,
                server,
                transport: Transport::Tcp,
                received: now,
                limit: MESSAGE_MAXIMUM,
                // RFC 7828 section 3.2.2, in units of 100 ms.
                keepalive: Some(u16::try_from(limits.idle.as_millis() / 100).unwrap_or(u16::MAX)),
            };
            match worker.admit(&mut batch, message, arrival, &mut outbox.buffer) {
                Admission::Travelling => {}
                Admission::Answered(length) => conversation.push(&outbox.buffer[..length]),
                // What is no query ends the conversation: there is nothing to gain from the rest.
                Admission::Silence => return worker.run(&mut batch, &mut outbox),
            }
            if batch.len() == super::datagrams::BATCH {
                worker.run(&mut batch, &mut outbox);
            }
        }
        input.drain(..at);
        worker.run(&mut batch, &mut outbox);
        worker.tell_if_many();
    }
}

async fn write_replies(conversation: &Conversation, mut writer: WriteHalf<'_>, limit: Duration) {
    let mut writing = Vec::new();
    loop {
        std::mem::swap(&mut writing, &mut *conversation.unsent.borrow_mut());
        if writing.is_empty() {
            if conversation.read_all.get() && conversation.outstanding.get() == 0 {
                let _ = writer.shutdown().await;
                return;
            }
            conversation.changed.notified().await;
            continue;
        }
        conversation.eased.notify_one();
        // Prefix and message leave in one write (RFC 7766 section 8).
        if !matches!(timeout(limit, writer.write_all(&writing)).await, Ok(Ok(()))) {
            return;
        }
        writing.clear();
    }
}

struct Outbox {
    conversation: Rc<Conversation>,
    buffer: Box<[u8]>,
}

impl Replies for Outbox {
    fn reply(&mut self, _: usize, write: impl FnOnce(&mut [u8]) -> usize) {
        let length = write(&mut self.buffer);
        self.conversation.push(&self.buffer[..length]);
    }

    fn later(&mut self, _: usize) -> Box<dyn LateReply> {
        self.conversation
            .outstanding
            .set(self.conversation.outstanding.get() + 1);
        Box::new(Late(Rc::clone(&self.conversation)))
    }
}

struct Late(Rc<Conversation>);

impl LateReply for Late {
    fn send(self: Box<Self>, message: &[u8]) {
        self.0.push(message);
    }
}

impl Drop for Late {
    fn drop(&mut self) {
        self.0.outstanding.set(self.0.outstanding.get() - 1);
        self.0.changed.notify_one();
        self.0.eased.notify_one();
    }
}
