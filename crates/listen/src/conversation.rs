//! One connection over any stream: reads queries, and writes replies as they come.
//!
//! Everything that takes time has its own timeout. `tcp-read` bounds a query from its first byte to its last,
//! however many bytes arrive in between. `tcp-write` bounds how long a client may take none of what it is
//! sent, however long all of it takes. `tcp-idle` bounds the rest: silence between queries while no reply is
//! due.

use std::cell::RefCell;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::task::{spawn_local, yield_now};
use tokio::time::{Instant, sleep_until, timeout};

use super::bounds::CloseReason;
use super::client_connections::ClientConnection;
use super::framing::{FRAME_MAXIMUM, Frames, READ, Scratch};
use super::outbox::{Outbox, Owed, Sequence, UNSENT};
use super::service::Service;
use super::write_through::WriteThrough;
use crate::datagrams::BATCH;
use crate::dns::MESSAGE_MAXIMUM;
use crate::dns::Transport;
use crate::serve::{Admission, Batch, Client, Transfer, Worker};

/// Bytes that a client must take within `tcp-write`, unless it is sent fewer: taking a single byte now and
/// then does not count as progress.
const PROGRESS: usize = 4 << 10;

/// How long a connection may be silent during shutdown: enough for a query already on its way, from a client
/// that may have to wait for a processor.
const LAST_IDLE: Duration = Duration::from_millis(500);

/// The deadline where no timeout applies.
const NEVER: Duration = Duration::from_secs(3600);

thread_local! {
    /// Buffers that a worker's connections use in turn: nothing stays here across an await.
    static EXCHANGE: RefCell<Exchange> = RefCell::new(Exchange {
        scratch: Scratch::default(),
        batch: Batch::default(),
        replies: vec![0; 2 * FRAME_MAXIMUM].into(),
    });
}

/// What is needed to answer the queries just read.
struct Exchange {
    scratch: Scratch,
    batch: Batch,
    /// Replies with their length prefixes, until they are written.
    replies: Box<[u8]>,
}

/// Answers the queries that come through `stream` until it ends. Returns why, if we ended it.
pub async fn converse(
    service: Service,
    transport: Transport,
    stream: impl AsyncRead + AsyncWrite + Unpin,
    client: SocketAddr,
    connection: &Arc<ClientConnection>,
) -> Option<CloseReason> {
    let Service {
        worker,
        server,
        mut stop,
        ..
    } = service;
    let client = Client {
        address: client,
        server,
        transport,
        received: worker.now(),
        limit: MESSAGE_MAXIMUM,
        keepalive: None,
    };
    let stream = WriteThrough::new(stream, connection);
    let mut conversation = Conversation::new(worker, stream, client, Arc::clone(connection));
    let mut stopping = pin!(async { drop(stop.wait_for(|stopping| *stopping).await) });
    let mut alarm = pin!(sleep_until(Instant::now() + NEVER));
    loop {
        if connection.is_closed() || conversation.owed.is_aborted() {
            return None;
        }
        conversation.go_on();
        if conversation.is_over() {
            let _ = timeout(connection.bounds().write(), conversation.stream.shutdown()).await;
            return conversation.verdict;
        }
        let (due, reason) = conversation.due();
        if due <= Instant::now() {
            return Some(reason);
        }
        // The timer is not moved to a later deadline: it fires and the loop looks again. Most deadlines move
        // before then.
        if due < alarm.deadline() || alarm.is_elapsed() {
            alarm.as_mut().reset(due);
        }
        tokio::select! {
            event = poll_fn(|context| conversation.poll(context)) => match event {
                Ok(more) => if more { yield_now().await },
                // The client is gone.
                Err(_) => return None,
            },
            () = connection.woken() => {}
            () = &mut alarm => {}
            () = &mut stopping, if !conversation.stopping => conversation.stop(),
        }
    }
}

/// Sends a zone transfer, as fast as its client reads it.
async fn stream(transfer: Box<Transfer>, sequence: Sequence) {
    if !transfer.run(async |message| sequence.send(message).await).await {
        sequence.abort();
    }
}

impl<S> Drop for Conversation<S> {
    fn drop(&mut self) {
        self.owed.end();
    }
}

struct Conversation<S> {
    worker: Rc<Worker>,
    stream: S,
    /// The client, as passed along with every query.
    client: Client,
    owed: Rc<Owed>,
    /// Size in bytes of the largest recent reply.
    largest: usize,
    /// Whether nothing more will be read.
    read_all: bool,
    /// Whether the service is stopping.
    stopping: bool,
    /// Whether a reply was due at the last look.
    waited: bool,
    /// When the last complete query or reply passed.
    quiet: Instant,
    /// When the first byte of an incomplete query came.
    begun: Option<Instant>,
    /// Since when the client made too little progress, and the bytes it took since; `None` if it is sent
    /// nothing.
    stalled: Option<(Instant, usize)>,
    /// Why the connection ends once all replies are sent.
    verdict: Option<CloseReason>,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Conversation<S> {
    fn new(
        worker: Rc<Worker>,
        stream: S,
        client: Client,
        connection: Arc<ClientConnection>,
    ) -> Conversation<S> {
        Conversation {
            owed: Rc::new(Owed::new(Rc::clone(&worker), connection, client.transport)),
            worker,
            stream,
            client,
            // Not known yet: the first batch is small, and its replies tell how large the next may be.
            largest: FRAME_MAXIMUM,
            read_all: false,
            stopping: false,
            waited: false,
            quiet: Instant::now(),
            begun: None,
            stalled: None,
            verdict: None,
        }
    }

    /// Does all work that need not wait, and sets the deadlines.
    fn go_on(&mut self) {
        if !self.owed.is_crowded() {
            let kept = self.owed.connection.take_input(|kept| Frames::of(kept).is_due());
            if !kept.is_empty() {
                EXCHANGE.with_borrow_mut(|exchange| {
                    let (batch, replies) = (&mut exchange.batch, &mut exchange.replies);
                    let rest = self.answer(&kept, batch, replies);
                    self.keep(rest, rest.len() < kept.len());
                });
            }
        } else if self.begun.is_some() {
            // We have stopped reading, so the client is not the slow one.
            self.begun = Some(Instant::now());
        }
        let waits = !self.owed.is_empty();
        if waits || self.waited {
            self.quiet = Instant::now();
        }
        self.waited = waits;
        self.stalled = match self.owed.is_sent() {
            true => None,
            false => self.stalled.or_else(|| Some((Instant::now(), 0))),
        };
    }

    fn stop(&mut self) {
        self.stopping = true;
        self.quiet = Instant::now();
    }

    /// Returns whether nothing is left to read or send: half-closed clients still get their replies (RFC 7766
    /// section 6.2.4).
    fn is_over(&self) -> bool {
        self.read_all && self.owed.is_empty()
    }

    /// Returns when the connection ends if nothing happens, and why.
    fn due(&self) -> (Instant, CloseReason) {
        let bounds = self.owed.connection.bounds();
        let write = self
            .stalled
            .map(|(since, _)| (since + bounds.write(), CloseReason::Write));
        let read = self
            .begun
            .filter(|_| !self.read_all && !self.owed.is_crowded())
            .map(|begun| (begun + bounds.read(), CloseReason::Read));
        let idle = match self.stopping {
            true => LAST_IDLE.min(bounds.idle()),
            false => bounds.idle(),
        };
        // A client that waits for a reply is not idle (RFC 7766 section 3).
        let idle = (!self.waited && self.begun.is_none()).then(|| (self.quiet + idle, CloseReason::Idle));
        [write, read, idle]
            .into_iter()
            .flatten()
            .min_by_key(|(due, _)| *due)
            .unwrap_or_else(|| (Instant::now() + NEVER, CloseReason::Idle))
    }

    /// Writes unsent replies, or reads and answers queries; true if there may be more to read right away.
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<io::Result<bool>> {
        if let Poll::Ready(written) = self.owed.poll_write(Pin::new(&mut self.stream), context) {
            self.took(written?);
            return Poll::Ready(Ok(false));
        }
        if self.owed.connection.is_unflushed()
            && let Poll::Ready(flushed) = Pin::new(&mut self.stream).poll_flush(context)
        {
            return Poll::Ready(flushed.map(|()| false));
        }
        if self.read_all || self.owed.is_crowded() {
            return Poll::Pending;
        }
        // What became due meanwhile is answered first: while a connection is read, what it keeps is less than a
        // message.
        let is_due = |kept: &[u8]| Frames::of(kept).is_due();
        if self.begun.is_some() && self.owed.connection.has_input(is_due) {
            return Poll::Ready(Ok(false));
        }
        EXCHANGE.with_borrow_mut(|exchange| {
            let mut read = ReadBuf::new(exchange.scratch.read());
            ready!(Pin::new(&mut self.stream).poll_read(context, &mut read))?;
            let count = read.filled().len();
            if count == 0 {
                self.read_all = true;
                return Poll::Ready(Ok(false));
            }
            if self
                .owed
                .connection
                .append_input(&exchange.scratch.read()[..count])
            {
                return Poll::Ready(Ok(count == READ));
            }
            let kept = self.owed.connection.take_input(|_| true);
            let octets = exchange.scratch.join(&kept, count);
            let rest = self.answer(octets, &mut exchange.batch, &mut exchange.replies);
            self.keep(rest, rest.len() < octets.len());
            Poll::Ready(Ok(count == READ))
        })
    }

    /// Records that the client took `count` bytes.
    fn took(&mut self, count: usize) {
        let taken = self.stalled.map_or(0, |(_, taken)| taken) + count;
        if self.owed.connection.unsent() == 0 {
            self.stalled = None;
        } else if taken >= PROGRESS {
            self.stalled = None;
            self.owed.connection.note(self.worker.now());
        } else if let Some((_, so_far)) = &mut self.stalled {
            *so_far = taken;
        }
    }

    /// Keeps the unanswered rest of the input; `some` says whether any of it was answered.
    fn keep(&mut self, rest: &[u8], some: bool) {
        if some {
            self.begun = None;
            self.quiet = Instant::now();
        }
        if rest.is_empty() || self.read_all {
            self.begun = None;
            return;
        }
        self.begun = self.begun.or_else(|| Some(Instant::now()));
        self.owed.connection.keep_input(rest);
    }

    /// Answers complete queries while there is room for their replies; returns the rest of the input.
    fn answer<'o>(&mut self, octets: &'o [u8], batch: &mut Batch, replies: &mut [u8]) -> &'o [u8] {
        let mut frames = Frames::of(octets);
        let mut outbox = Outbox::new(&self.owed, Pin::new(&mut self.stream), replies);
        // RFC 7828 section 3.2.2, in units of 100 ms.
        let keepalive = self.owed.connection.bounds().idle().as_millis() / 100;
        let client = Client {
            received: self.worker.now(),
            keepalive: Some(u16::try_from(keepalive).unwrap_or(u16::MAX)),
            ..self.client
        };
        if frames.is_due() {
            self.owed.connection.note(client.received);
        }
        let is_over = |owed: &Owed| owed.is_crowded() || owed.connection.is_closed();
        while !self.read_all && frames.is_due() && !is_over(&self.owed) {
            // As many as there is room for, if their replies are as large as recent ones.
            let room = UNSENT.saturating_sub(self.owed.connection.unsent() + outbox.filled());
            let most = (1 + room / self.largest).min(BATCH);
            for message in frames.by_ref().take(most) {
                match self.worker.admit(batch, message, client, outbox.space()) {
                    Admission::Travelling => batch.set_server_name(self.owed.connection.server_name()),
                    Admission::Answered(length) => outbox.take(length),
                    Admission::Transfer(transfer) => drop(spawn_local(stream(transfer, outbox.sequence()))),
                    Admission::Silence => {
                        // A message that is no query ends the conversation: the rest is not worth reading.
                        (self.read_all, self.verdict) = (true, Some(CloseReason::Malformed));
                        break;
                    }
                }
            }
            self.worker.run(batch, &mut outbox);
            self.largest = outbox.largest().unwrap_or(self.largest);
        }
        outbox.flush();
        self.worker.tell_if_many();
        frames.rest()
    }
}

#[cfg(test)]
pub(super) mod tests;
