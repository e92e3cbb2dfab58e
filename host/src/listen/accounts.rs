//! What connections of clients hold, kept in one book for all workers: how many there may be, what memory is
//! theirs, and which of them goes when there is no room for all.
//!
//! What a connection holds can be taken from it by any thread, at once: the bound of all memory is kept at the
//! moment at which it would be passed, and not when the worker concerned comes to it.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU64, AtomicUsize};
use std::time::Duration;

use parking_lot::Mutex;

use super::account::Account;
use crate::config::Listen;

/// Descriptors that connections may have beyond their number: those that were told to go have yet to do so.
pub const LEAVING: usize = 64;

/// Why a connection was closed, by us.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// It was silent for `tcp-idle`.
    Idle,
    /// A query was not whole after `tcp-read`.
    Read,
    /// Its client took nothing for `tcp-write`.
    Write,
    /// Room was needed: `tcp-connections` were open.
    Connections,
    /// Room was needed: its client had `tcp-connections-per-client`.
    Client,
    /// Room was needed: `tcp-memory` was full, and it held most of all.
    Memory,
    /// It sent what is no query.
    Malformed,
}

impl Reason {
    /// All of them.
    pub const ALL: [Reason; 7] = [
        Reason::Idle,
        Reason::Read,
        Reason::Write,
        Reason::Connections,
        Reason::Client,
        Reason::Memory,
        Reason::Malformed,
    ];

    /// Its label in `/metrics`.
    pub fn as_str(self) -> &'static str {
        match self {
            Reason::Idle => "idle",
            Reason::Read => "read",
            Reason::Write => "write",
            Reason::Connections => "connections",
            Reason::Client => "connections-per-client",
            Reason::Memory => "memory",
            Reason::Malformed => "malformed",
        }
    }
}

/// What the configuration allows; a reload changes it for connections that are open, too.
#[derive(Debug, Default)]
struct Bounds {
    connections: AtomicUsize,
    per_client: AtomicUsize,
    memory: AtomicUsize,
    /// In milliseconds, as the following.
    idle: AtomicU64,
    read: AtomicU64,
    write: AtomicU64,
}

/// The book of all connections.
#[derive(Default)]
pub struct Accounts {
    bounds: Bounds,
    /// Octets that all of them hold.
    pub(super) octets: AtomicUsize,
    table: Mutex<Table>,
    /// By [`Reason`].
    closed: [AtomicU64; Reason::ALL.len()],
}

#[derive(Default)]
struct Table {
    /// Serial number of the next connection.
    next: u64,
    connections: HashMap<u64, Arc<Account>>,
    /// How many of them were told to go.
    leaving: usize,
    clients: HashMap<IpAddr, Arc<Client>>,
}

/// What all connections of one client have in common.
#[derive(Debug, Default)]
pub(super) struct Client {
    /// Those that were not told to go.
    connections: AtomicUsize,
    /// What they hold.
    pub(super) octets: AtomicUsize,
}

/// Who counts as one client: an IPv4 address, or a network of IPv6 with 64 bits, since whoever has one address there
/// has all of them (RFC 4291 section 2.5.4).
fn client_network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX)).into(),
        address => address,
    }
}

impl Accounts {
    /// An empty book for `connections` connections by the words of `listen`.
    pub fn new(listen: &Listen, connections: usize) -> Arc<Accounts> {
        let accounts = Accounts::default();
        accounts.bound(listen, connections);
        Arc::new(accounts)
    }

    /// Other bounds from now on. Connections that are too many are closed when the next one comes.
    pub fn bound(&self, listen: &Listen, connections: usize) {
        let milliseconds = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let bounds = &self.bounds;
        bounds.connections.store(connections, Relaxed);
        bounds
            .per_client
            .store(listen.tcp_connections_per_client, Relaxed);
        bounds.memory.store(listen.tcp_memory, Relaxed);
        bounds.idle.store(milliseconds(listen.tcp_idle), Relaxed);
        bounds.read.store(milliseconds(listen.tcp_read), Relaxed);
        bounds.write.store(milliseconds(listen.tcp_write), Relaxed);
    }

    /// How long a connection may be silent.
    pub fn idle(&self) -> Duration {
        Duration::from_millis(self.bounds.idle.load(Relaxed))
    }

    /// How long a query may take from its first octet to its last.
    pub fn read(&self) -> Duration {
        Duration::from_millis(self.bounds.read.load(Relaxed))
    }

    /// How long a client may take nothing of what it is sent.
    pub fn write(&self) -> Duration {
        Duration::from_millis(self.bounds.write.load(Relaxed))
    }

    /// Connections that are open.
    pub fn connections(&self) -> usize {
        let table = self.table.lock();
        table.connections.len() - table.leaving
    }

    /// Connections that may be open.
    pub fn connections_maximum(&self) -> usize {
        self.bounds.connections.load(Relaxed)
    }

    /// Octets that connections hold.
    pub fn octets(&self) -> usize {
        self.octets.load(Relaxed)
    }

    /// Octets that they may hold.
    pub fn octets_maximum(&self) -> usize {
        self.bounds.memory.load(Relaxed)
    }

    /// Connections closed for a reason.
    pub fn closed(&self, reason: Reason) -> u64 {
        self.closed[reason as usize].load(Relaxed)
    }

    /// Enters a connection that was accepted at `now`. Where there is no room, the connection that has been quiet
    /// longest goes: of this client, if it has too many, else of all. None: those that were told to go have not gone,
    /// and there are descriptors for no more.
    pub fn open(self: &Arc<Self>, address: IpAddr, now: u64) -> Option<Arc<Account>> {
        let network = client_network(address);
        let maximum = self.connections_maximum();
        let mut table = self.table.lock();
        if table.connections.len() >= maximum + LEAVING {
            return None;
        }
        let client = Arc::clone(table.clients.entry(network).or_default());
        let per_client = self.bounds.per_client.load(Relaxed);
        while client.connections.load(Relaxed) >= per_client {
            table.close_quietest(Reason::Client, |account| account.network == network);
        }
        while table.connections.len() - table.leaving >= maximum {
            table.close_quietest(Reason::Connections, |_| true);
        }
        client.connections.fetch_add(1, Relaxed);
        let serial = table.next;
        table.next += 1;
        let account = Arc::new(Account::new(serial, Arc::clone(self), network, client, now));
        table.connections.insert(serial, Arc::clone(&account));
        Some(account)
    }

    /// Takes a connection out of the book that has ended, for a reason of ours or none.
    pub fn close(&self, account: &Account, reason: Option<Reason>) {
        let mut table = self.table.lock();
        table.tell(account, reason);
        if table.connections.remove(&account.serial).is_some() {
            table.leaving -= 1;
        }
        table.forget(account.network);
    }

    /// Closes those that hold most, until what all hold is not too much.
    pub(super) fn make_room(&self) {
        while self.octets() > self.octets_maximum() {
            let mut table = self.table.lock();
            let most = table
                .staying()
                .max_by_key(|account| account.octets())
                .filter(|account| account.octets() > 0)
                .map(Arc::clone);
            match most {
                Some(account) => table.tell(&account, Some(Reason::Memory)),
                // Another thread has just done it.
                None => return,
            }
        }
    }
}

impl Table {
    /// The connections that were not told to go.
    fn staying(&self) -> impl Iterator<Item = &Arc<Account>> {
        self.connections.values().filter(|account| !account.is_closed())
    }

    /// Has a connection go at once: what it holds is free when this returns.
    fn tell(&mut self, account: &Account, reason: Option<Reason>) {
        if !account.close() {
            return;
        }
        self.leaving += 1;
        account.client.connections.fetch_sub(1, Relaxed);
        if let Some(reason) = reason {
            account.accounts().closed[reason as usize].fetch_add(1, Relaxed);
        }
    }

    /// Of those that some may be closed for, closes the one that has been quiet longest: first among those that wait
    /// for nothing.
    fn close_quietest(&mut self, reason: Reason, of: impl Fn(&Account) -> bool) {
        let quietest = self
            .staying()
            .filter(|account| of(account))
            .min_by_key(|account| account.quietness())
            .map(Arc::clone);
        if let Some(account) = quietest {
            self.tell(&account, Some(reason));
        }
    }

    /// Drops the page of a client that has no connection any more.
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

#[cfg(test)]
mod tests {
    use super::*;

    fn accounts(options: &str, connections: usize) -> Arc<Accounts> {
        let text = format!("listen \"127.0.0.1\" {{ {options} }}\nzone \".\" {{ forward \"192.0.2.1\" }}");
        let config = crate::config::parse("test", &text, std::path::Path::new("/"), &[]).unwrap();
        Accounts::new(&config.listen, connections)
    }

    fn open(accounts: &Arc<Accounts>, client: &str, now: u64) -> Arc<Account> {
        accounts.open(client.parse().unwrap(), now).unwrap()
    }

    #[test]
    fn the_quietest_goes_and_those_that_wait_come_last() {
        let accounts = accounts("", 3);
        let [waits, quiet, busy] =
            ["10.0.0.1", "10.0.0.2", "10.0.0.3"].map(|client| open(&accounts, client, 1));
        waits.owe(true);
        busy.note(5);
        let next = open(&accounts, "10.0.0.4", 6);
        assert!(quiet.is_closed() && !waits.is_closed() && !busy.is_closed());
        open(&accounts, "10.0.0.5", 7);
        assert!(busy.is_closed() && !next.is_closed());
        assert_eq!(
            (accounts.connections(), accounts.closed(Reason::Connections)),
            (3, 2)
        );
    }

    #[test]
    fn a_network_of_ipv6_is_one_client() {
        let accounts = accounts("tcp-connections-per-client 2", 100);
        let first = open(&accounts, "2001:db8::1", 1);
        let mapped = open(&accounts, "::ffff:192.0.2.1", 1);
        open(&accounts, "2001:db8::2", 2);
        let elsewhere = open(&accounts, "2001:db8:0:1::1", 2);
        open(&accounts, "2001:db8::3", 3);
        assert!(first.is_closed() && !mapped.is_closed() && !elsewhere.is_closed());
        open(&accounts, "192.0.2.1", 4);
        open(&accounts, "192.0.2.1", 5);
        assert!(mapped.is_closed());
    }

    #[test]
    fn memory_is_never_more_than_it_may_be() {
        let accounts = accounts("tcp-memory \"1MiB\"", 100);
        let small = open(&accounts, "10.0.0.1", 1);
        small.push(&[&[0; 100]]);
        let large: Vec<_> = (2..20)
            .map(|client| {
                let account = open(&accounts, &format!("10.0.0.{client}"), 1);
                account.push(&[&vec![0; 100_000 + client]]);
                assert!(accounts.octets() <= 1 << 20);
                account
            })
            .collect();
        assert!(!small.is_closed());
        // What was told to go holds nothing, whatever it is given.
        let gone = large.iter().find(|account| account.is_closed()).unwrap();
        gone.push(&[&[0; 1000]]);
        assert_eq!((gone.octets(), gone.unsent()), (0, 0));
        for account in large.iter().chain([&small]) {
            accounts.close(account, None);
        }
        assert_eq!((accounts.octets(), accounts.connections()), (0, 0));
    }

    #[test]
    fn those_that_have_yet_to_go_take_descriptors() {
        let accounts = accounts("", 1);
        for client in 0..=LEAVING {
            open(&accounts, "10.0.0.1", client as u64);
        }
        assert!(accounts.open("10.0.0.2".parse().unwrap(), 1).is_none());
        assert_eq!(accounts.connections(), 1);
    }
}
