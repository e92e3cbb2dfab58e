//! The connections of all clients, over all workers: how many may be open, how much memory they hold, and
//! which are closed when there is no room.
//!
//! Any thread can free what a connection holds, immediately. So the bound on total memory is enforced at the
//! moment it would be exceeded, not when the connection's worker gets to it.

mod largest;
mod quiet;

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv6Addr};
use std::pin::Pin;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};

use dnsweir_os::clock::Uptime;
use parking_lot::Mutex;
use tokio::io::AsyncWrite;
use tokio::sync::Notify;

use super::bounds::{Bounds, CloseReason};
use super::buffers::Buffers;
use super::framing::missing;
use super::handshake::Handshake;
use crate::config::Listen;
use largest::{Holding, Largest};
use quiet::{Now, Quiet};

/// Descriptors beyond the connection limit, for connections that were dismissed but have not closed yet.
pub const LEAVING: usize = 64;

/// One client may hold at most this fraction of all memory. Beyond it, none of its connections is read until
/// it has taken its replies.
const SHARE: usize = 4;

/// All connections of clients.
#[derive(Default)]
pub struct ClientConnections {
    bounds: Bounds,
    /// Bytes that all of them hold.
    octets: AtomicUsize,
    table: Mutex<Table>,
    /// Counters by [`CloseReason`].
    closed: [AtomicU64; CloseReason::ALL.len()],
    /// Handshakes in progress of clients that have not proven their addresses.
    pub(super) unproven: AtomicUsize,
    /// Counters by [`Handshake`].
    handshakes: [AtomicU64; Handshake::ALL.len()],
    /// Whether anything waits until connections are settled.
    ending: AtomicBool,
    /// Notified then whenever one may be.
    settling: Notify,
}

/// Connections by serial number.
type Connections = HashMap<u64, Arc<ClientConnection>>;

#[derive(Default)]
struct Table {
    /// Serial number of the next connection.
    next: u64,
    connections: Connections,
    /// How many of them were dismissed and have not closed yet.
    leaving: usize,
    quiet: Quiet,
    clients: HashMap<IpAddr, Client>,
    /// Clients by what they hold.
    largest: Largest<IpAddr>,
}

/// A client with connections.
#[derive(Default)]
struct Client {
    usage: Arc<ClientUsage>,
    /// Its own ones.
    quiet: Quiet,
    /// The same by what they hold.
    largest: Largest<u64>,
}

/// What all connections of one client share.
#[derive(Debug, Default)]
struct ClientUsage {
    /// How many were not dismissed.
    connections: AtomicUsize,
    /// What they hold.
    holding: Holding,
}

/// Returns the unit that counts as one client: an IPv4 address, or an IPv6 /64 network, since a host can use
/// all addresses of it (RFC 4291 section 2.5.4).
pub fn client_network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX)).into(),
        address => address,
    }
}

impl ClientConnections {
    /// Creates the empty set, bounded to this many `connections` and by the other limits of `listen`.
    pub fn new(listen: &Listen, connections: usize) -> Arc<ClientConnections> {
        let all = ClientConnections::default();
        all.bound(listen, connections);
        Arc::new(all)
    }

    /// Changes the bounds. Excess connections are closed when the next one comes.
    pub fn bound(&self, listen: &Listen, connections: usize) {
        self.bounds.set(listen, connections);
    }

    /// Returns the bounds.
    pub(super) fn bounds(&self) -> &Bounds {
        &self.bounds
    }

    /// Returns the number of open connections.
    pub fn connections(&self) -> usize {
        let table = self.table.lock();
        table.connections.len() - table.leaving
    }

    /// Returns how many connections may be open.
    pub fn connections_maximum(&self) -> usize {
        self.bounds.connections()
    }

    /// Returns the bytes that connections hold.
    pub fn octets(&self) -> usize {
        self.octets.load(SeqCst)
    }

    /// Returns the bytes that connections may hold.
    pub fn octets_maximum(&self) -> usize {
        self.bounds.memory()
    }

    /// Returns how many connections were closed for a reason.
    pub fn closed(&self, reason: CloseReason) -> u64 {
        self.closed[reason as usize].load(Relaxed)
    }

    /// Counts a TLS handshake.
    pub fn count(&self, handshake: Handshake) {
        self.handshakes[handshake as usize].fetch_add(1, Relaxed);
    }

    /// Returns how many TLS handshakes had an outcome.
    pub fn handshakes(&self, handshake: Handshake) -> u64 {
        self.handshakes[handshake as usize].load(Relaxed)
    }

    /// Resolves when no client waits for a reply any more, or has any left to take. To be called at the end.
    pub async fn settled(&self) {
        self.ending.store(true, SeqCst);
        loop {
            let owing = self.owing();
            if owing.is_empty() {
                return;
            }
            for connection in owing {
                connection.settled().await;
            }
        }
    }

    /// The connections whose clients wait for a reply, or have not taken all of one.
    fn owing(&self) -> Vec<Arc<ClientConnection>> {
        let table = self.table.lock();
        let owing = table.staying().filter(|connection| connection.owes());
        owing.cloned().collect()
    }

    /// Adds a connection accepted at `now`. Where there is no room, the connection that has been quiet
    /// longest is dismissed: one of this client if it has too many, else any. `None` if too many dismissed
    /// connections have not closed yet, so that no descriptors are left.
    pub fn open(self: &Arc<Self>, address: IpAddr, now: Uptime) -> Option<Arc<ClientConnection>> {
        let network = client_network(address);
        let maximum = self.connections_maximum();
        let mut table = self.table.lock();
        if table.connections.len() >= maximum + LEAVING {
            return None;
        }
        let usage = Arc::clone(&table.clients.entry(network).or_default().usage);
        while usage.connections.load(Relaxed) >= self.bounds.per_client() && table.close_quietest_of(network)
        {
        }
        while table.connections.len() - table.leaving >= maximum && table.close_quietest() {}
        let serial = table.next;
        table.next += 1;
        let connection = Arc::new(ClientConnection::new(
            serial,
            Arc::clone(self),
            network,
            usage,
            now,
        ));
        table.insert(&connection);
        Some(connection)
    }

    /// Removes a connection that has ended; `reason` is set if we ended it.
    pub fn close(&self, connection: &ClientConnection, reason: Option<CloseReason>) {
        let mut table = self.table.lock();
        table.dismiss(connection, reason);
        if table.connections.remove(&connection.serial).is_some() {
            table.leaving -= 1;
        }
        table.forget(connection.network);
    }

    /// Closes connections until memory is within bounds: the largest one of the client that holds most. If none
    /// holds anything, another thread has just done it.
    fn make_room(&self) {
        while self.octets() > self.octets_maximum() && self.table.lock().close_largest() {}
    }
}

impl Table {
    /// Returns the connections that were not dismissed.
    fn staying(&self) -> impl Iterator<Item = &Arc<ClientConnection>> {
        self.connections
            .values()
            .filter(|connection| !connection.is_closed())
    }

    /// Marks a connection to be closed. What it holds is freed before this returns.
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

    /// Adds a connection of a client that is known.
    fn insert(&mut self, connection: &Arc<ClientConnection>) {
        let before = connection.client.connections.fetch_add(1, Relaxed);
        let (serial, now) = (connection.serial, connection.quiet_since());
        let look = |serial| look(&self.connections, serial);
        self.quiet.add(serial, now, self.connections.len(), look);
        if let Some(client) = self.clients.get_mut(&connection.network) {
            client.quiet.add(serial, now, before, look);
        }
        self.connections.insert(serial, Arc::clone(connection));
    }

    /// Enters a connection and its client among the largest, as far as they have grown.
    fn enter(&mut self, connection: &ClientConnection) {
        let client = &connection.client;
        let of_client = |network: IpAddr| Some(&self.clients.get(&network)?.usage.holding);
        self.largest
            .enter(connection.network, &client.holding, self.clients.len(), of_client);
        let count = client.connections.load(Relaxed);
        let of_connection = |serial: u64| holding(&self.connections, serial);
        if let Some(client) = self.clients.get_mut(&connection.network) {
            client
                .largest
                .enter(connection.serial, &connection.holding, count, of_connection);
        }
    }

    /// Closes the largest connection of the client that holds most; false if none holds anything.
    fn close_largest(&mut self) -> bool {
        let most = self
            .largest
            .first(|network| Some(&self.clients.get(&network)?.usage.holding));
        let client = most.and_then(|network| self.clients.get_mut(&network));
        let of_connection = |serial: u64| holding(&self.connections, serial);
        let largest = client.and_then(|client| client.largest.first(of_connection));
        self.dismiss_for(largest, CloseReason::Memory)
    }

    /// Closes the connection that has been quiet longest; false if there is none.
    fn close_quietest(&mut self) -> bool {
        let quietest = self.quiet.take(|serial| look(&self.connections, serial));
        self.dismiss_for(quietest, CloseReason::Connections)
    }

    /// Closes the connection of a client that has been quiet longest; false if there is none.
    fn close_quietest_of(&mut self, network: IpAddr) -> bool {
        let client = self.clients.get_mut(&network);
        let look = |serial| look(&self.connections, serial);
        let quietest = client.and_then(|client| client.quiet.take(look));
        self.dismiss_for(quietest, CloseReason::Client)
    }

    fn dismiss_for(&mut self, serial: Option<u64>, reason: CloseReason) -> bool {
        let connection = serial.and_then(|serial| self.connections.get(&serial).map(Arc::clone));
        connection
            .map(|connection| self.dismiss(&connection, Some(reason)))
            .is_some()
    }

    /// Removes a client without connections.
    fn forget(&mut self, network: IpAddr) {
        if self
            .clients
            .get(&network)
            .is_some_and(|client| client.usage.connections.load(Relaxed) == 0)
        {
            self.clients.remove(&network);
        }
    }
}

/// The connection with this number, unless it has ended or was dismissed.
fn open(connections: &Connections, serial: u64) -> Option<&ClientConnection> {
    let connection: &ClientConnection = connections.get(&serial)?;
    (!connection.is_closed()).then_some(connection)
}

fn look(connections: &Connections, serial: u64) -> Option<Now> {
    let connection = open(connections, serial)?;
    Some(Now {
        quiet_since: connection.quiet_since(),
        waits: connection.owed.load(Relaxed),
    })
}

fn holding(connections: &Connections, serial: u64) -> Option<&Holding> {
    Some(&open(connections, serial)?.holding)
}

/// One connection of a client. Any thread may free what it holds.
pub struct ClientConnection {
    /// Its key in the table.
    serial: u64,
    all: Arc<ClientConnections>,
    /// Its client's address or network.
    network: IpAddr,
    /// What it shares with the client's other connections.
    client: Arc<ClientUsage>,
    held: Mutex<Buffers>,
    holding: Holding,
    /// When the last complete query or reply passed, in microseconds of the workers' clock.
    quiet_since: AtomicU64,
    /// Whether the client waits for an upstream.
    owed: AtomicBool,
    /// Whether its stream buffers replies that have not left yet.
    unflushed: AtomicBool,
    /// Whether HTTP or QUIC has replies that the client has not fully taken.
    sending: AtomicBool,
    closed: AtomicBool,
    /// Notified when there is something to send, or when it was dismissed.
    wake: Notify,
    /// The SNI that the client sent, if any.
    server_name: OnceLock<Arc<str>>,
}

impl ClientConnection {
    /// Creates a connection accepted at `now`, which holds nothing yet.
    fn new(
        serial: u64,
        all: Arc<ClientConnections>,
        network: IpAddr,
        client: Arc<ClientUsage>,
        now: Uptime,
    ) -> ClientConnection {
        ClientConnection {
            serial,
            all,
            network,
            client,
            held: Mutex::default(),
            holding: Holding::default(),
            quiet_since: AtomicU64::new(now.as_micros()),
            owed: AtomicBool::new(false),
            unflushed: AtomicBool::new(false),
            sending: AtomicBool::new(false),
            closed: AtomicBool::new(false),
            wake: Notify::new(),
            server_name: OnceLock::new(),
        }
    }

    /// Records the SNI that the client sent.
    pub fn set_server_name(&self, name: &str) {
        let _ = self.server_name.set(name.into());
    }

    /// Returns the SNI that the client sent.
    pub fn server_name(&self) -> Option<&Arc<str>> {
        self.server_name.get()
    }

    /// Returns the set of all connections that it belongs to.
    pub fn all(&self) -> &Arc<ClientConnections> {
        &self.all
    }

    /// Returns the bounds, which are the same for all.
    pub(super) fn bounds(&self) -> &Bounds {
        &self.all.bounds
    }

    /// Dismisses it, and frees what it holds; false if it was dismissed before.
    fn close(&self) -> bool {
        if self.closed.swap(true, SeqCst) {
            return false;
        }
        self.change(|held| *held = Buffers::default());
        self.wake.notify_one();
        true
    }

    /// Returns the bytes it holds.
    pub fn octets(&self) -> usize {
        self.holding.octets()
    }

    /// Returns whether it was dismissed.
    pub fn is_closed(&self) -> bool {
        self.closed.load(SeqCst)
    }

    /// Resolves when there is something to send, or when it was dismissed.
    pub async fn woken(&self) {
        self.wake.notified().await;
    }

    /// Resolves when it was dismissed, ignoring wakeups to send.
    pub async fn dismissed(&self) {
        while !self.is_closed() {
            self.woken().await;
        }
    }

    /// Makes [`ClientConnection::woken`] resolve.
    pub fn wake(&self) {
        self.wake.notify_one();
    }

    /// Records that a complete query or reply passed.
    pub fn note(&self, now: Uptime) {
        self.quiet_since.store(now.as_micros(), Relaxed);
    }

    /// When it was last active.
    fn quiet_since(&self) -> Uptime {
        Uptime::from_micros(self.quiet_since.load(Relaxed))
    }

    /// Records whether the client waits for an upstream.
    pub fn owe(&self, owed: bool) {
        self.owed.store(owed, SeqCst);
        self.settle();
    }

    /// Records whether its stream buffers replies that have not left yet.
    pub(crate) fn set_unflushed(&self, unflushed: bool) {
        // It seldom changes.
        if self.is_unflushed() != unflushed {
            self.unflushed.store(unflushed, SeqCst);
            self.settle();
        }
    }

    /// Returns whether its stream buffers replies that have not left yet.
    pub(crate) fn is_unflushed(&self) -> bool {
        self.unflushed.load(SeqCst)
    }

    /// Records whether HTTP or QUIC has replies that the client has not fully taken.
    pub(crate) fn set_sending(&self, sending: bool) {
        self.sending.store(sending, SeqCst);
        self.settle();
    }

    /// Whether the client waits for a reply, or has not taken all of one.
    fn owes(&self) -> bool {
        self.owed.load(SeqCst) || self.sending.load(SeqCst) || self.unsent() > 0 || self.is_unflushed()
    }

    /// Resolves when the client has no reply to wait for or to take any more, or the connection was dismissed.
    async fn settled(&self) {
        loop {
            // From here on, no notification is missed.
            let settling = self.all.settling.notified();
            if self.is_closed() || !self.owes() {
                return;
            }
            settling.await;
        }
    }

    /// Has what waits until connections are [settled](ClientConnections::settled) look at this one again.
    fn settle(&self) {
        // The change is stored before this is read. Who waits stores this before it reads what has changed.
        if self.all.ending.load(SeqCst) {
            self.all.settling.notify_waiters();
        }
    }

    /// Returns whether the client has to take replies before its next query is read, because this
    /// connection's share of memory is used up, or the client's.
    pub(crate) fn is_crowded(&self, unsent_maximum: usize) -> bool {
        if self.octets() == 0 {
            return false;
        }
        let share = self.all.octets_maximum() / SHARE;
        let unsent = self.held.lock().unsent();
        unsent >= unsent_maximum || (unsent > 0 && self.client.holding.octets() >= share)
    }

    /// Returns the bytes of replies that are not written yet.
    pub fn unsent(&self) -> usize {
        match self.octets() {
            0 => 0,
            _ => self.held.lock().unsent(),
        }
    }

    /// Whether `wanted` accepts the kept input.
    pub(crate) fn has_input(&self, wanted: impl FnOnce(&[u8]) -> bool) -> bool {
        self.octets() > 0 && wanted(&self.held.lock().input)
    }

    /// Takes the kept input out, if `wanted` accepts it.
    pub(crate) fn take_input(&self, wanted: impl FnOnce(&[u8]) -> bool) -> Vec<u8> {
        match self.octets() {
            0 => Vec::new(),
            _ => self.change(|held| match wanted(&held.input) {
                true => std::mem::take(&mut held.input),
                false => Vec::new(),
            }),
        }
    }

    /// Appends newly read bytes to the kept input if the message there remains incomplete, so that a message
    /// in many pieces is not copied for each; false if it is now complete, or nothing was kept.
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

    /// Keeps the unanswered rest of the input, in place of what was taken out.
    pub(crate) fn keep_input(&self, input: &[u8]) {
        if !input.is_empty() {
            self.change(|held| held.input = input.to_vec());
            self.all.make_room();
        }
    }

    /// Keeps replies until they are written. Discards them if the connection was dismissed.
    pub fn push(&self, octets: &[&[u8]]) {
        self.change(|held| held.push(octets));
        self.all.make_room();
    }

    /// Stores received bytes of a stream; false if the connection was dismissed.
    pub fn receive(&self, stream: u64, octets: &[u8]) -> bool {
        self.change(|held| held.receive(stream, octets));
        self.all.make_room();
        !self.is_closed()
    }

    /// Stores the reply of a stream until it is taken; false if the connection was dismissed.
    pub fn reply(&self, stream: u64, octets: Vec<u8>) -> bool {
        self.change(|held| held.reply(stream, octets));
        self.all.make_room();
        !self.is_closed()
    }

    /// Takes up to `most` bytes of a stream's reply; `None` if nothing is left or the connection was
    /// dismissed.
    pub fn piece(&self, stream: u64, most: usize) -> Option<Vec<u8>> {
        self.change(|held| held.piece(stream, most))
    }

    /// Frees what a stream holds; returns its query, if it held one.
    pub fn forget(&self, stream: u64) -> Vec<u8> {
        self.change(|held| held.forget(stream))
    }

    /// Changes what is held, and keeps the totals right.
    fn change<T>(&self, change: impl FnOnce(&mut Buffers) -> T) -> T {
        let mut held = self.held.lock();
        let changed = change(&mut held);
        if self.closed.load(Relaxed) {
            *held = Buffers::default();
        }
        // Who sees it hold nothing also sees why.
        let is_outgrown = self.account(held.octets());
        drop(held);
        if is_outgrown {
            self.all.table.lock().enter(self);
        }
        self.settle();
        changed
    }

    /// Records what it holds; returns whether it or its client has outgrown its entry. The totals never exceed
    /// what connections hold: whoever makes room finds a connection.
    fn account(&self, after: usize) -> bool {
        let (client, before) = (&self.client.holding, self.octets());
        if let Some(more) = after.checked_sub(before) {
            self.holding.grow(more);
            client.grow(more);
            self.all.octets.fetch_add(more, SeqCst);
            return more > 0 && (self.holding.is_outgrown() || client.is_outgrown());
        }
        let less = before - after;
        self.all.octets.fetch_sub(less, SeqCst);
        client.shrink(less);
        self.holding.shrink(less);
        false
    }

    /// Writes unsent replies to the stream; returns how many bytes it took.
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
