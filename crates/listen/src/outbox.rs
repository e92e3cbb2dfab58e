//! What a connection owes its client: replies of a batch, written at once, and those that come later.

use std::cell::Cell;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::io::AsyncWrite;
use tokio::sync::Notify;

use super::client_connections::ClientConnection;
use super::framing::{FRAME_MAXIMUM, PREFIX};
use crate::dns::Transport;
use crate::dns::padding::{REPLY_BLOCK, pad, padded};
use crate::serve::{DeferredReply, Replies, Worker};

/// Queries of one connection that may wait for upstreams; the client's next ones wait in its own buffer.
const OUTSTANDING: usize = 256;

/// Octets of unsent replies beyond which no more of a connection's queries are read.
pub const UNSENT: usize = 256 << 10;

/// What a connection shares with the replies that are still to come.
pub struct Owed {
    /// What it holds.
    pub connection: Arc<ClientConnection>,
    worker: Rc<Worker>,
    /// Whether replies are padded, so that their length says less.
    pads: bool,
    /// Queries without a reply yet.
    outstanding: Cell<usize>,
    /// Whether the stream may still keep some of what was written to it.
    unflushed: Cell<bool>,
    /// Wakes those who wait for the client to take something.
    taken: Notify,
    /// Whether nobody writes to the stream any more.
    ended: Cell<bool>,
    /// Whether a sequence of messages was cut off, so that the stream is to end.
    aborted: Cell<bool>,
}

impl Owed {
    /// Nothing is owed yet.
    pub fn new(worker: Rc<Worker>, connection: Arc<ClientConnection>, transport: Transport) -> Owed {
        Owed {
            pads: transport == Transport::Tls,
            connection,
            worker,
            outstanding: Cell::new(0),
            unflushed: Cell::new(false),
            taken: Notify::new(),
            ended: Cell::new(false),
            aborted: Cell::new(false),
        }
    }

    /// Whether the rest of what was begun will never come.
    pub(crate) fn is_aborted(&self) -> bool {
        self.aborted.get()
    }

    /// The conversation is over: nothing that comes from now on is sent.
    pub fn end(&self) {
        self.ended.set(true);
        self.taken.notify_waiters();
    }

    /// Whether the client has to wait with its next query.
    pub(crate) fn is_crowded(&self) -> bool {
        self.outstanding.get() >= OUTSTANDING || self.connection.is_crowded(UNSENT)
    }

    /// Whether nothing is to be sent, now or later.
    pub fn is_empty(&self) -> bool {
        self.outstanding.get() == 0 && self.is_sent()
    }

    /// Whether nothing is to be sent now.
    pub(crate) fn is_sent(&self) -> bool {
        self.connection.unsent() == 0 && !self.unflushed.get()
    }

    /// Has the stream take some of the replies that are kept; the result says how many octets it took.
    pub(crate) fn poll_write(
        &self,
        mut stream: Pin<&mut impl AsyncWrite>,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        let written = ready!(self.connection.poll_write(stream.as_mut(), context))?;
        self.unflushed.set(true);
        self.taken.notify_waiters();
        match self.poll_flush(stream, context) {
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            _ => Poll::Ready(Ok(written)),
        }
    }

    /// Has the stream send what it was given, if it keeps some. Pending for ever if it does not.
    pub(crate) fn poll_flush(
        &self,
        stream: Pin<&mut impl AsyncWrite>,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        if !self.unflushed.get() {
            return Poll::Pending;
        }
        let flushed = stream.poll_flush(context);
        self.unflushed.set(flushed.is_pending());
        flushed
    }
}

/// Octets of unsent replies beyond which a sequence of messages waits.
const AHEAD: usize = 64 << 10;

/// The replies of a batch on their way to the network.
pub struct Outbox<'c, S> {
    owed: &'c Rc<Owed>,
    stream: Pin<&'c mut S>,
    replies: &'c mut [u8],
    filled: usize,
    /// Octets of the largest reply.
    largest: usize,
}

impl<'c, S: AsyncWrite> Outbox<'c, S> {
    /// An empty one that uses `replies`, room for two messages at least.
    pub fn new(owed: &'c Rc<Owed>, stream: Pin<&'c mut S>, replies: &'c mut [u8]) -> Outbox<'c, S> {
        Outbox {
            owed,
            stream,
            replies,
            filled: 0,
            largest: 0,
        }
    }

    /// Octets that are not written yet.
    pub fn filled(&self) -> usize {
        self.filled
    }

    /// Octets of the largest reply since this was asked for the last time, if there was one.
    pub fn largest(&mut self) -> Option<usize> {
        Some(std::mem::take(&mut self.largest)).filter(|&largest| largest > 0)
    }

    /// Room for any reply.
    pub fn space(&mut self) -> &mut [u8] {
        if self.replies.len() - self.filled < FRAME_MAXIMUM {
            self.flush();
        }
        &mut self.replies[self.filled + PREFIX..]
    }

    /// Takes the reply that was written there.
    pub fn take(&mut self, mut length: usize) {
        if self.owed.pads {
            let start = self.filled + PREFIX;
            let padding = pad(&mut self.replies[start..start + length], REPLY_BLOCK);
            self.replies[start + length..start + length + padding.len()].copy_from_slice(&padding);
            length += padding.len();
        }
        self.replies[self.filled..self.filled + PREFIX].copy_from_slice(&(length as u16).to_be_bytes());
        self.filled += PREFIX + length;
        self.largest = self.largest.max(PREFIX + length);
    }

    /// Writes what the network takes, prefixes and messages together (RFC 7766 section 8), and leaves the rest to the
    /// connection.
    pub fn flush(&mut self) {
        let mut at = 0;
        if self.filled > 0 && self.owed.connection.unsent() == 0 {
            // No waker is needed: what is left is written when the connection's task continues.
            let mut context = Context::from_waker(std::task::Waker::noop());
            let written = self
                .stream
                .as_mut()
                .poll_write(&mut context, &self.replies[..self.filled]);
            if let Poll::Ready(Ok(count)) = written {
                at = count;
                self.owed.unflushed.set(true);
                // An error shows when the connection's task continues.
                let _ = self.owed.poll_flush(self.stream.as_mut(), &mut context);
            }
        }
        if at < self.filled {
            self.owed.connection.push(&[&self.replies[at..self.filled]]);
        }
        self.filled = 0;
    }
}

impl<S: AsyncWrite> Outbox<'_, S> {
    /// The way back for a reply that is many messages.
    pub fn sequence(&self) -> Sequence {
        Sequence(DeferredFrame::new(self.owed))
    }
}

/// The way back for a reply that is many messages. However many they are, the connection holds a bounded number of octets.
pub struct Sequence(DeferredFrame);

impl Sequence {
    /// Sends the next message as soon as the client has taken most of those before; false: it has gone.
    pub async fn send(&self, message: &[u8]) -> bool {
        let owed = &self.0.0;
        while !owed.ended.get() && owed.connection.unsent() >= AHEAD {
            owed.taken.notified().await;
        }
        if owed.ended.get() || owed.connection.is_closed() {
            return false;
        }
        owed.connection.note(owed.worker.now());
        let length = (message.len() as u16).to_be_bytes();
        owed.connection.push(&[&length, message]);
        owed.connection.wake();
        true
    }

    /// Ends the connection: the rest of the sequence will not come, and whoever waits for it shall know.
    pub fn abort(&self) {
        let owed = &self.0.0;
        owed.aborted.set(true);
        owed.connection.wake();
    }
}

impl<S: AsyncWrite> Replies for Outbox<'_, S> {
    fn buffer(&mut self, _: usize) -> &mut [u8] {
        self.space()
    }

    fn reply(&mut self, _: usize, length: usize) {
        self.take(length);
    }

    fn defer(&mut self, _: usize) -> Box<dyn DeferredReply> {
        Box::new(DeferredFrame::new(self.owed))
    }
}

/// The way back for a reply that comes after its batch.
struct DeferredFrame(Rc<Owed>);

impl DeferredFrame {
    fn new(owed: &Rc<Owed>) -> DeferredFrame {
        owed.outstanding.set(owed.outstanding.get() + 1);
        owed.connection.owe(true);
        DeferredFrame(Rc::clone(owed))
    }
}

impl DeferredReply for DeferredFrame {
    fn send(self: Box<Self>, message: &[u8]) {
        // Before it leaves: the client may open its next connection, which looks who was quiet for longest, at once.
        self.0.connection.note(self.0.worker.now());
        let padding = self.0.pads.then(|| padded(message, REPLY_BLOCK));
        let message = padding.as_deref().unwrap_or(message);
        let length = (message.len() as u16).to_be_bytes();
        self.0.connection.push(&[&length, message]);
    }
}

impl Drop for DeferredFrame {
    fn drop(&mut self) {
        self.0.outstanding.set(self.0.outstanding.get() - 1);
        self.0.connection.owe(self.0.outstanding.get() > 0);
        self.0.connection.wake();
    }
}
