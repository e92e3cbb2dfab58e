//! What connections may take by the configuration, and why we close one.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU64, AtomicUsize};
use std::time::Duration;

use crate::config::Listen;

/// What the configuration allows; a reload changes it for connections that are open, too.
#[derive(Debug, Default)]
pub struct Bounds {
    connections: AtomicUsize,
    per_client: AtomicUsize,
    memory: AtomicUsize,
    /// In milliseconds, as the following.
    idle: AtomicU64,
    read: AtomicU64,
    write: AtomicU64,
}

impl Bounds {
    /// Takes over what `listen` says, and how many `connections` there may be.
    pub fn set(&self, listen: &Listen, connections: usize) {
        let milliseconds = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        self.connections.store(connections, Relaxed);
        self.per_client.store(listen.tcp_connections_per_client, Relaxed);
        self.memory.store(listen.tcp_memory, Relaxed);
        self.idle.store(milliseconds(listen.tcp_idle), Relaxed);
        self.read.store(milliseconds(listen.tcp_read), Relaxed);
        self.write.store(milliseconds(listen.tcp_write), Relaxed);
    }

    /// Connections that may be open.
    pub fn connections(&self) -> usize {
        self.connections.load(Relaxed)
    }

    /// Connections that one client may have open.
    pub(crate) fn per_client(&self) -> usize {
        self.per_client.load(Relaxed)
    }

    /// Octets that all connections may hold.
    pub fn memory(&self) -> usize {
        self.memory.load(Relaxed)
    }

    /// How long a connection may be silent.
    pub fn idle(&self) -> Duration {
        Duration::from_millis(self.idle.load(Relaxed))
    }

    /// How long a query may take from its first octet to its last.
    pub fn read(&self) -> Duration {
        Duration::from_millis(self.read.load(Relaxed))
    }

    /// How long a client may take nothing of what it is sent.
    pub fn write(&self) -> Duration {
        Duration::from_millis(self.write.load(Relaxed))
    }
}

/// Why a connection was closed, by us.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CloseReason {
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
    /// Room was needed: `tcp-memory` was full, its client held most of all, and it most of that.
    Memory,
    /// It sent what is no query.
    Malformed,
    /// Its TLS handshake was not over after `tcp-read`.
    Handshake,
}

impl CloseReason {
    /// All of them.
    pub const ALL: [CloseReason; 8] = [
        CloseReason::Idle,
        CloseReason::Read,
        CloseReason::Write,
        CloseReason::Connections,
        CloseReason::Client,
        CloseReason::Memory,
        CloseReason::Malformed,
        CloseReason::Handshake,
    ];

    /// Its label in `/metrics`.
    pub fn as_str(self) -> &'static str {
        match self {
            CloseReason::Idle => "idle",
            CloseReason::Read => "read",
            CloseReason::Write => "write",
            CloseReason::Connections => "connections",
            CloseReason::Client => "connections-per-client",
            CloseReason::Memory => "memory",
            CloseReason::Malformed => "malformed",
            CloseReason::Handshake => "handshake",
        }
    }
}
