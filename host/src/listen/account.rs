//! One connection's page of the book: what it holds, which any thread may take from it.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};
use std::task::{Context, Poll, ready};

use parking_lot::Mutex;
use tokio::io::AsyncWrite;
use tokio::sync::Notify;

use super::accounts::{Accounts, Client};
use super::framing::missing;

/// One client has at most this part of the memory of all; beyond it, none of its connections is read before it
/// has taken what it was sent.
const SHARE: usize = 4;

/// Octets in which replies are kept that the network does not take yet.
const CHUNK: usize = 4 << 10;

/// One connection's page of the book.
pub struct Account {
    /// By which the book finds it.
    pub(super) serial: u64,
    accounts: Arc<Accounts>,
    /// Who the client is.
    pub(super) network: IpAddr,
    /// What it has in common with the client's other connections.
    pub(super) client: Arc<Client>,
    held: Mutex<Held>,
    octets: AtomicUsize,
    /// Microseconds of the workers' clock since when nothing whole has come from the client and nothing gone to it.
    quiet_since: AtomicU64,
    /// Whether the client waits for an upstream.
    owed: AtomicBool,
    closed: AtomicBool,
    /// There is something to send, or it was closed.
    wake: Notify,
}

/// The memory of one connection.
#[derive(Debug, Default)]
struct Held {
    /// Octets that were read and not acted on.
    input: Vec<u8>,
    /// Replies with their lengths, in the order they leave.
    unsent: VecDeque<Vec<u8>>,
    /// How much of the first is sent.
    sent: usize,
    /// Octets of memory of the replies.
    unsent_octets: usize,
}

impl Account {
    /// An empty page for a connection that was accepted at `now`.
    pub(super) fn new(
        serial: u64,
        accounts: Arc<Accounts>,
        network: IpAddr,
        client: Arc<Client>,
        now: u64,
    ) -> Account {
        Account {
            serial,
            accounts,
            network,
            client,
            held: Mutex::default(),
            octets: AtomicUsize::new(0),
            quiet_since: AtomicU64::new(now),
            owed: AtomicBool::new(false),
            closed: AtomicBool::new(false),
            wake: Notify::new(),
        }
    }

    /// The book it is a page of.
    pub fn accounts(&self) -> &Arc<Accounts> {
        &self.accounts
    }

    /// Has it go, and frees what it holds. False: that was done before.
    pub(super) fn close(&self) -> bool {
        if self.closed.swap(true, Relaxed) {
            return false;
        }
        self.change(|held| *held = Held::default());
        self.wake.notify_one();
        true
    }

    /// Octets that it holds.
    pub fn octets(&self) -> usize {
        self.octets.load(Relaxed)
    }

    /// Of two connections, the one with less of this goes first.
    pub(super) fn quietness(&self) -> (bool, u64) {
        (self.owed.load(Relaxed), self.quiet_since.load(Relaxed))
    }

    /// Whether it was told to go.
    pub fn is_closed(&self) -> bool {
        self.closed.load(Relaxed)
    }

    /// Resolves when there is something to send, or it was told to go.
    pub async fn woken(&self) {
        self.wake.notified().await;
    }

    /// Has [`Account::woken`] resolve.
    pub fn wake(&self) {
        self.wake.notify_one();
    }

    /// Notes that something whole came from the client or went to it.
    pub fn note(&self, now: u64) {
        self.quiet_since.store(now, Relaxed);
    }

    /// Notes whether the client waits for an upstream.
    pub fn owe(&self, owed: bool) {
        self.owed.store(owed, Relaxed);
    }

    /// Whether the client has to take what it was sent before its next query is read: this connection's share of
    /// memory is used up, or the client's.
    pub fn is_crowded(&self, unsent_maximum: usize) -> bool {
        if self.octets() == 0 {
            return false;
        }
        let share = self.accounts.octets_maximum() / SHARE;
        let unsent = self.held.lock().unsent_octets;
        unsent >= unsent_maximum || (unsent > 0 && self.client.octets.load(Relaxed) >= share)
    }

    /// Octets of replies that the network has not taken.
    pub fn unsent(&self) -> usize {
        match self.octets() {
            0 => 0,
            _ => self.held.lock().unsent_octets,
        }
    }

    /// Gives back what was kept of the input, if it is `wanted`.
    pub fn take_input(&self, wanted: impl FnOnce(&[u8]) -> bool) -> Vec<u8> {
        match self.octets() {
            0 => Vec::new(),
            _ => self.change(|held| match wanted(&held.input) {
                true => std::mem::take(&mut held.input),
                false => Vec::new(),
            }),
        }
    }

    /// Keeps octets that were read behind those that are kept, if the message that those begin still lacks some: however
    /// many pieces it comes in, it is not moved for each. False: it is whole now, or nothing was kept.
    pub fn append_input(&self, read: &[u8]) -> bool {
        if self.octets() == 0 {
            return false;
        }
        let appended = self.change(|held| {
            let lacks = !held.input.is_empty() && read.len() < missing(&held.input);
            if lacks {
                held.input.extend_from_slice(read);
            }
            lacks
        });
        self.accounts.make_room();
        appended
    }

    /// Keeps octets that were read and cannot be acted on yet, in place of those that were taken.
    pub fn keep_input(&self, input: &[u8]) {
        if !input.is_empty() {
            self.change(|held| held.input = input.to_vec());
            self.accounts.make_room();
        }
    }

    /// Keeps replies until the network takes them. Forgets them if the connection was told to go.
    pub fn push(&self, octets: &[&[u8]]) {
        self.change(|held| held.push(octets));
        self.accounts.make_room();
    }

    /// Changes what is held, and keeps the book.
    fn change<T>(&self, change: impl FnOnce(&mut Held) -> T) -> T {
        let mut held = self.held.lock();
        let changed = change(&mut held);
        if self.closed.load(Relaxed) {
            *held = Held::default();
        }
        let after = held.input.capacity() + held.unsent_octets;
        let before = self.octets.swap(after, Relaxed);
        for total in [&self.client.octets, &self.accounts.octets] {
            // Wraps, and so takes away what was more before.
            total.fetch_add(after.wrapping_sub(before), Relaxed);
        }
        changed
    }

    /// Has the network take some of what is unsent; the result says how many octets it took.
    pub fn poll_write(
        &self,
        stream: Pin<&mut (impl AsyncWrite + ?Sized)>,
        context: &mut Context<'_>,
    ) -> Poll<std::io::Result<usize>> {
        let mut outcome = Poll::Pending;
        self.change(|held| {
            outcome = held.poll_write(stream, context);
        });
        outcome
    }
}

impl Held {
    /// Appends; a message that would not fit the last chunk begins one, so that it leaves in one write with its length
    /// (RFC 7766 section 8).
    fn push(&mut self, octets: &[&[u8]]) {
        let length: usize = octets.iter().map(|part| part.len()).sum();
        let fits = |last: &Vec<u8>| last.capacity() - last.len() >= length;
        if !self.unsent.back().is_some_and(fits) {
            let chunk = Vec::with_capacity(length.max(CHUNK));
            self.unsent_octets += chunk.capacity();
            self.unsent.push_back(chunk);
        }
        if let Some(last) = self.unsent.back_mut() {
            octets.iter().for_each(|part| last.extend_from_slice(part));
        }
    }

    fn poll_write(
        &mut self,
        stream: Pin<&mut (impl AsyncWrite + ?Sized)>,
        context: &mut Context<'_>,
    ) -> Poll<std::io::Result<usize>> {
        let Some(first) = self.unsent.front() else {
            return Poll::Pending;
        };
        let count = ready!(stream.poll_write(context, &first[self.sent..]))?;
        self.sent += count;
        if self.sent == first.len() {
            self.unsent_octets -= first.capacity();
            self.sent = 0;
            self.unsent.pop_front();
        }
        if self.unsent.is_empty() {
            self.unsent = VecDeque::new();
        }
        Poll::Ready(Ok(count))
    }
}
