//! The connections of all clients, over all workers: how many there may be, how much memory they hold, and which of them is
//! closed when there is no room for all.
//!
//! What a connection holds can be taken from it by any thread, at once: the bound of all memory is kept at the
//! moment at which it would be passed, and not when the worker concerned comes to it.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv6Addr};
use std::pin::Pin;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};

use parking_lot::Mutex;
use tokio::io::AsyncWrite;
use tokio::sync::Notify;

use super::bounds::{Bounds, CloseReason};
use super::buffers::Buffers;
use super::framing::missing;
use crate::config::Listen;

/// Descriptors that connections may have beyond their number, for those that were dismissed and have not closed yet.
pub const LEAVING: usize = 64;

/// One client has at most this part of the memory of all; beyond it, none of its connections is read before it
/// has taken what it was sent.
const SHARE: usize = 4;

/// What became of a TLS handshake.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Handshake {
    /// A session began.
    Full,
    /// A session went on.
    Resumed,
    /// It is not known which of these: QUIC does not tell.
    Unknown,
    /// The two did not come together in time, or at all.
    Failed,
    /// None yet: a client over QUIC has to show its address first.
    Retried,
}

impl Handshake {
    /// All of them.
    pub const ALL: [Handshake; 5] = [
        Handshake::Full,
        Handshake::Resumed,
        Handshake::Unknown,
        Handshake::Failed,
        Handshake::Retried,
    ];

    /// Its label in `/metrics`.
    pub fn as_str(self) -> &'static str {
        match self {
            Handshake::Full => "full",
            Handshake::Resumed => "resumed",
            Handshake::Unknown => "unknown",
            Handshake::Failed => "failed",
            Handshake::Retried => "retried",
        }
    }
}

/// All connections of clients.
#[derive(Default)]
pub struct ClientConnections {
    bounds: Bounds,
    /// Octets that all of them hold.
    octets: AtomicUsize,
    table: Mutex<Table>,
    /// By [`CloseReason`].
    closed: [AtomicU64; CloseReason::ALL.len()],
    /// Handshakes of clients that have yet to show their addresses.
    pub(super) unproven: AtomicUsize,
    /// By [`Handshake`].
    handshakes: [AtomicU64; Handshake::ALL.len()],
}

#[derive(Default)]
struct Table {
    /// Serial number of the next connection.
    next: u64,
    connections: HashMap<u64, Arc<ClientConnection>>,
    /// How many of them were dismissed and have not closed yet.
    leaving: usize,
    clients: HashMap<IpAddr, Arc<ClientUsage>>,
}

/// What all connections of one client have in common.
#[derive(Debug, Default)]
struct ClientUsage {
    /// Those that were not dismissed.
    connections: AtomicUsize,
    /// What they hold.
    octets: AtomicUsize,
}

/// What counts as one client: an IPv4 address, or an IPv6 network of 64 bits, since a host there can use all of its
/// addresses (RFC 4291 section 2.5.4).
pub fn client_network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX)).into(),
        address => address,
    }
}

impl ClientConnections {
    /// None is open yet. There may be so many `connections`, and `listen` says what else bounds them.
    pub fn new(listen: &Listen, connections: usize) -> Arc<ClientConnections> {
        let all = ClientConnections::default();
        all.bound(listen, connections);
        Arc::new(all)
    }

    /// Other bounds from now on. Connections that are too many are closed when the next one comes.
    pub fn bound(&self, listen: &Listen, connections: usize) {
        self.bounds.set(listen, connections);
    }

    /// What each of them may take.
    pub(super) fn bounds(&self) -> &Bounds {
        &self.bounds
    }

    /// Connections that are open.
    pub fn connections(&self) -> usize {
        let table = self.table.lock();
        table.connections.len() - table.leaving
    }

    /// Connections that may be open.
    pub fn connections_maximum(&self) -> usize {
        self.bounds.connections()
    }

    /// Octets that connections hold.
    pub fn octets(&self) -> usize {
        self.octets.load(Relaxed)
    }

    /// Octets that they may hold.
    pub fn octets_maximum(&self) -> usize {
        self.bounds.memory()
    }

    /// Connections closed for a reason.
    pub fn closed(&self, reason: CloseReason) -> u64 {
        self.closed[reason as usize].load(Relaxed)
    }

    /// Counts a TLS handshake.
    pub fn count(&self, handshake: Handshake) {
        self.handshakes[handshake as usize].fetch_add(1, Relaxed);
    }

    /// TLS handshakes with an outcome.
    pub fn handshakes(&self, handshake: Handshake) -> u64 {
        self.handshakes[handshake as usize].load(Relaxed)
    }

    /// Adds a connection that was accepted at `now`. Where there is no room, the connection that has been quiet
    /// longest is dismissed: of this client, if it has too many, else of all. None: too many that were dismissed have not
    /// closed yet, and there are no descriptors left.
    pub fn open(self: &Arc<Self>, address: IpAddr, now: u64) -> Option<Arc<ClientConnection>> {
        let network = client_network(address);
        let maximum = self.connections_maximum();
        let mut table = self.table.lock();
        if table.connections.len() >= maximum + LEAVING {
            return None;
        }
        let client = Arc::clone(table.clients.entry(network).or_default());
        while client.connections.load(Relaxed) >= self.bounds.per_client() {
            table.close_quietest(CloseReason::Client, |connection| connection.network == network);
        }
        while table.connections.len() - table.leaving >= maximum {
            table.close_quietest(CloseReason::Connections, |_| true);
        }
        client.connections.fetch_add(1, Relaxed);
        let serial = table.next;
        table.next += 1;
        let connection = Arc::new(ClientConnection::new(
            serial,
            Arc::clone(self),
            network,
            client,
            now,
        ));
        table.connections.insert(serial, Arc::clone(&connection));
        Some(connection)
    }

    /// Removes a connection that has ended, for a reason of ours or none.
    pub fn close(&self, connection: &ClientConnection, reason: Option<CloseReason>) {
        let mut table = self.table.lock();
        table.dismiss(connection, reason);
        if table.connections.remove(&connection.serial).is_some() {
            table.leaving -= 1;
        }
        table.forget(connection.network);
    }

    /// Closes connections until what all hold is not too much: of the client that holds most, the one that holds most.
    fn make_room(&self) {
        while self.octets() > self.octets_maximum() {
            let mut table = self.table.lock();
            let most = table
                .staying()
                .filter(|connection| connection.octets() > 0)
                .max_by_key(|connection| (connection.client.octets.load(Relaxed), connection.octets()))
                .map(Arc::clone);
            match most {
                Some(connection) => table.dismiss(&connection, Some(CloseReason::Memory)),
                // Another thread has just done it.
                None => return,
            }
        }
    }
}

impl Table {
    /// The connections that were not dismissed.
    fn staying(&self) -> impl Iterator<Item = &Arc<ClientConnection>> {
        self.connections
            .values()
            .filter(|connection| !connection.is_closed())
    }

    /// Tells a connection to close. What it holds is free when this returns.
    fn dismiss(&mut self, connection: &ClientConnection, reason: Option<CloseReason>) {
        if !connection.close() {
            return;
        }
        self.leaving += 1;
        connection.client.connections.fetch_sub(1, Relaxed);
        if let Some(reason) = reason {
            connection.all.closed[reason as usize].fetch_add(1, Relaxed);
        }
    }

    /// Of those that some may be closed for, closes the one that has been quiet longest: first among those that wait
    /// for nothing.
    fn close_quietest(&mut self, reason: CloseReason, of: impl Fn(&ClientConnection) -> bool) {
        let quietest = self
            .staying()
            .filter(|connection| of(connection))
            .min_by_key(|connection| connection.quietness())
            .map(Arc::clone);
        if let Some(connection) = quietest {
            self.dismiss(&connection, Some(reason));
        }
    }

    /// Forgets a client that has no connection any more.
    fn forget(&mut self, network: IpAddr) {
        if self
            .clients
            .get(&network)
            .is_some_and(|client| client.connections.load(Relaxed) == 0)
        {
            self.clients.remove(&network);
        }
    }
}

/// One connection of a client: what it holds, which any thread may take from it.
pub struct ClientConnection {
    /// By which it is found.
    serial: u64,
    all: Arc<ClientConnections>,
    /// Who the client is.
    network: IpAddr,
    /// What it has in common with the client's other connections.
    client: Arc<ClientUsage>,
    held: Mutex<Buffers>,
    octets: AtomicUsize,
    /// Microseconds of the workers' clock since when nothing whole has come from the client and nothing gone to it.
    quiet_since: AtomicU64,
    /// Whether the client waits for an upstream.
    owed: AtomicBool,
    closed: AtomicBool,
    /// There is something to send, or it was closed.
    wake: Notify,
    /// The name that the client asked for in TLS; none: it asked for none, or there is no TLS.
    server_name: OnceLock<Arc<str>>,
}

impl ClientConnection {
    /// A connection that was accepted at `now` and holds nothing yet.
    fn new(
        serial: u64,
        all: Arc<ClientConnections>,
        network: IpAddr,
        client: Arc<ClientUsage>,
        now: u64,
    ) -> ClientConnection {
        ClientConnection {
            serial,
            all,
            network,
            client,
            held: Mutex::default(),
            octets: AtomicUsize::new(0),
            quiet_since: AtomicU64::new(now),
            owed: AtomicBool::new(false),
            closed: AtomicBool::new(false),
            wake: Notify::new(),
            server_name: OnceLock::new(),
        }
    }

    /// Notes the name that the client asked for in TLS.
    pub fn set_server_name(&self, name: &str) {
        let _ = self.server_name.set(name.into());
    }

    /// The name that the client asked for in TLS.
    pub fn server_name(&self) -> Option<&Arc<str>> {
        self.server_name.get()
    }

    /// All connections, of which it is one.
    pub fn all(&self) -> &Arc<ClientConnections> {
        &self.all
    }

    /// What it may take, as every other.
    pub(super) fn bounds(&self) -> &Bounds {
        &self.all.bounds
    }

    /// Dismisses it, and frees what it holds. False: that was done before.
    fn close(&self) -> bool {
        if self.closed.swap(true, Relaxed) {
            return false;
        }
        self.change(|held| *held = Buffers::default());
        self.wake.notify_one();
        true
    }

    /// Octets that it holds.
    pub fn octets(&self) -> usize {
        self.octets.load(Relaxed)
    }

    /// Of two connections, the one with less of this goes first.
    fn quietness(&self) -> (bool, u64) {
        (self.owed.load(Relaxed), self.quiet_since.load(Relaxed))
    }

    /// Whether it was dismissed.
    pub fn is_closed(&self) -> bool {
        self.closed.load(Relaxed)
    }

    /// Resolves when there is something to send, or it was dismissed.
    pub async fn woken(&self) {
        self.wake.notified().await;
    }

    /// Resolves when it was dismissed. Nothing is to be sent yet.
    pub async fn dismissed(&self) {
        while !self.is_closed() {
            self.woken().await;
        }
    }

    /// Has [`ClientConnection::woken`] resolve.
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
    pub(crate) fn is_crowded(&self, unsent_maximum: usize) -> bool {
        if self.octets() == 0 {
            return false;
        }
        let share = self.all.octets_maximum() / SHARE;
        let unsent = self.held.lock().unsent();
        unsent >= unsent_maximum || (unsent > 0 && self.client.octets.load(Relaxed) >= share)
    }

    /// Octets of replies that the network has not taken.
    pub fn unsent(&self) -> usize {
        match self.octets() {
            0 => 0,
            _ => self.held.lock().unsent(),
        }
    }

    /// Gives back what was kept of the input, if it is `wanted`.
    pub(crate) fn take_input(&self, wanted: impl FnOnce(&[u8]) -> bool) -> Vec<u8> {
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
    pub(crate) fn append_input(&self, read: &[u8]) -> bool {
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
        self.all.make_room();
        appended
    }

    /// Keeps octets that were read and cannot be acted on yet, in place of those that were taken.
    pub(crate) fn keep_input(&self, input: &[u8]) {
        if !input.is_empty() {
            self.change(|held| held.input = input.to_vec());
            self.all.make_room();
        }
    }

    /// Keeps replies until the network takes them. Forgets them if the connection was dismissed.
    pub fn push(&self, octets: &[&[u8]]) {
        self.change(|held| held.push(octets));
        self.all.make_room();
    }

    /// Keeps what came on one of its streams; false: the connection was dismissed.
    pub fn receive(&self, stream: u64, octets: &[u8]) -> bool {
        self.change(|held| held.receive(stream, octets));
        self.all.make_room();
        !self.is_closed()
    }

    /// Keeps the reply of a stream until it is taken; false: the connection was dismissed.
    pub fn reply(&self, stream: u64, octets: Vec<u8>) -> bool {
        self.change(|held| held.reply(stream, octets));
        self.all.make_room();
        !self.is_closed()
    }

    /// The next octets of a stream's reply, so many at most; none when all are taken, or the connection was dismissed.
    pub fn piece(&self, stream: u64, most: usize) -> Option<Vec<u8>> {
        self.change(|held| held.piece(stream, most))
    }

    /// Gives up what a stream holds: the result is its query, if that is what it was.
    pub fn forget(&self, stream: u64) -> Vec<u8> {
        self.change(|held| held.forget(stream))
    }

    /// Changes what is held, and keeps the sums right.
    fn change<T>(&self, change: impl FnOnce(&mut Buffers) -> T) -> T {
        let mut held = self.held.lock();
        let changed = change(&mut held);
        if self.closed.load(Relaxed) {
            *held = Buffers::default();
        }
        let after = held.octets();
        let before = self.octets.swap(after, Relaxed);
        for total in [&self.client.octets, &self.all.octets] {
            // Wraps, and so takes away what was more before.
            total.fetch_add(after.wrapping_sub(before), Relaxed);
        }
        changed
    }

    /// Has the network take some of what is unsent; the result says how many octets it took.
    pub(crate) fn poll_write(
        &self,
        stream: Pin<&mut (impl AsyncWrite + ?Sized)>,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        let mut outcome = Poll::Pending;
        self.change(|held| {
            outcome = held.poll_write(stream, context);
        });
        outcome
    }
}

#[cfg(test)]
mod tests;
