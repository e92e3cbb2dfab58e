//! The replies of a connection: those of a batch, written immediately, and those that come later.

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

/// The most queries of a connection that may wait for upstreams; its next ones stay in the client's buffer.
const OUTSTANDING: usize = 256;

/// Bytes of unsent replies beyond which a connection is not read.
pub const UNSENT: usize = 256 << 10;

/// What a connection shares with its pending replies.
pub struct Owed {
    /// The connection, which holds unsent replies.
    pub connection: Arc<ClientConnection>,
    worker: Rc<Worker>,
    /// Whether replies are padded, to hide their length.
    pads: bool,
    /// Number of queries without a reply.
    outstanding: Cell<usize>,
    /// Wakes tasks that wait for the client to take replies.
    taken: Notify,
    /// Whether the conversation is over, so that nothing is written any more.
    ended: Cell<bool>,
    /// Whether a message sequence was cut off, so that the connection must end.
    aborted: Cell<bool>,
}

impl Owed {
    /// Creates it without pending replies.
    pub fn new(worker: Rc<Worker>, connection: Arc<ClientConnection>, transport: Transport) -> Owed {
        Owed {
            pads: transport == Transport::Tls,
            connection,
            worker,
            outstanding: Cell::new(0),
            taken: Notify::new(),
            ended: Cell::new(false),
            aborted: Cell::new(false),
        }
    }

    /// Returns whether a message sequence was cut off.
    pub(crate) fn is_aborted(&self) -> bool {
        self.aborted.get()
    }

    /// Ends the conversation: later replies are not sent.
    pub fn end(&self) {
        self.ended.set(true);
        self.taken.notify_waiters();
    }

    /// Returns whether the client's next query must wait.
    pub(crate) fn is_crowded(&self) -> bool {
        self.outstanding.get() >= OUTSTANDING || self.connection.is_crowded(UNSENT)
    }

    /// Returns whether there is nothing to send, now or later.
    pub fn is_empty(&self) -> bool {
        self.outstanding.get() == 0 && self.is_sent()
    }

    /// Returns whether there is nothing to send now.
    pub(crate) fn is_sent(&self) -> bool {
        self.connection.unsent() == 0 && !self.connection.is_unflushed()
    }

    /// Writes kept replies to the stream; returns how many bytes it took.
    pub(crate) fn poll_write(
        &self,
        stream: Pin<&mut impl AsyncWrite>,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        let written = ready!(self.connection.poll_write(stream, context))?;
        self.taken.notify_waiters();
        Poll::Ready(Ok(written))
    }
}

/// Bytes of unsent replies beyond which a message sequence waits.
const AHEAD: usize = 64 << 10;

/// The replies of a batch, on their way to the stream.
pub struct Outbox<'c, S> {
    owed: &'c Rc<Owed>,
    stream: Pin<&'c mut S>,
    replies: &'c mut [u8],
    filled: usize,
    /// Size in bytes of the largest reply.
    largest: usize,
}

impl<'c, S: AsyncWrite> Outbox<'c, S> {
    /// Creates an empty one in `replies`, which has room for at least two messages.
    pub fn new(owed: &'c Rc<Owed>, stream: Pin<&'c mut S>, replies: &'c mut [u8]) -> Outbox<'c, S> {
        Outbox {
            owed,
            stream,
            replies,
            filled: 0,
            largest: 0,
        }
    }

    /// Returns the bytes not written yet.
    pub fn filled(&self) -> usize {
        self.filled
    }

    /// Returns the size of the largest reply since the last call, if there was one.
    pub fn largest(&mut self) -> Option<usize> {
        Some(std::mem::take(&mut self.largest)).filter(|&largest| largest > 0)
    }

    /// Returns space for any reply.
    pub fn space(&mut self) -> &mut [u8] {
        if self.replies.len() - self.filled < FRAME_MAXIMUM {
            self.flush();
        }
        &mut self.replies[self.filled + PREFIX..]
    }

    /// Adds the reply of `length` bytes that was written to the space.
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

    /// Writes what the stream takes, prefixes and messages together (RFC 7766 section 8), and leaves the rest
    /// to the connection.
    pub fn flush(&mut self) {
        let mut at = 0;
        // A connection that was dismissed has lost what it kept, so what follows would continue another reply.
        // In this order: it is closed before it loses that.
        if self.filled > 0 && self.owed.connection.unsent() == 0 && !self.owed.connection.is_closed() {
            // No waker is needed: the rest is written when the connection's task continues.
            let mut context = Context::from_waker(std::task::Waker::noop());
            let written = self
                .stream
                .as_mut()
                .poll_write(&mut context, &self.replies[..self.filled]);
            // An error surfaces when the connection's task continues.
            if let Poll::Ready(Ok(count)) = written {
                at = count;
            }
        }
        if at < self.filled {
            self.owed.connection.push(&[&self.replies[at..self.filled]]);
        }
        self.filled = 0;
    }
}

impl<S: AsyncWrite> Outbox<'_, S> {
    /// Returns the handle to send a reply of many messages.
    pub fn sequence(&self) -> Sequence {
        Sequence(DeferredFrame::new(self.owed))
    }
}

/// Sends a reply of many messages, of which the connection holds a bounded number of bytes.
pub struct Sequence(DeferredFrame);

impl Sequence {
    /// Sends the next message once the client has taken most of those before; false if the client is gone.
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

    /// Ends the connection, so that the client notices that the rest of the sequence is missing.
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

/// Sends a reply that comes after its batch.
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
        // Before it leaves: the client may open its next connection right away, which may evict the one quiet
        // for longest.
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
