//! Limits of connections as configured, and the reasons to close one.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU64, AtomicUsize};
use std::time::Duration;

use crate::config::Listen;

/// The configured limits. A reload also changes them for open connections.
#[derive(Debug, Default)]
pub struct Bounds {
    connections: AtomicUsize,
    per_client: AtomicUsize,
    memory: AtomicUsize,
    /// In milliseconds, like the following.
    idle: AtomicU64,
    read: AtomicU64,
    write: AtomicU64,
}

impl Bounds {
    /// Takes the limits from `listen`, and the maximum number of connections.
    pub fn set(&self, listen: &Listen, connections: usize) {
        let milliseconds = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        self.connections.store(connections, Relaxed);
        self.per_client.store(listen.tcp_connections_per_client, Relaxed);
        self.memory.store(listen.tcp_memory, Relaxed);
        self.idle.store(milliseconds(listen.tcp_idle), Relaxed);
        self.read.store(milliseconds(listen.tcp_read), Relaxed);
        self.write.store(milliseconds(listen.tcp_write), Relaxed);
    }

    /// Returns how many connections may be open.
    pub fn connections(&self) -> usize {
        self.connections.load(Relaxed)
    }

    /// Returns how many connections one client may have open.
    pub(crate) fn per_client(&self) -> usize {
        self.per_client.load(Relaxed)
    }

    /// Returns the bytes that all connections may hold.
    pub fn memory(&self) -> usize {
        self.memory.load(Relaxed)
    }

    /// Returns how long a connection may be silent.
    pub fn idle(&self) -> Duration {
        Duration::from_millis(self.idle.load(Relaxed))
    }

    /// Returns how long a query may take from its first byte to its last.
    pub fn read(&self) -> Duration {
        Duration::from_millis(self.read.load(Relaxed))
    }

    /// Returns how long a client may take nothing of what it is sent.
    pub fn write(&self) -> Duration {
        Duration::from_millis(self.write.load(Relaxed))
    }
}

/// Why we closed a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CloseReason {
    /// It was silent for `tcp-idle`.
    Idle,
    /// A query was incomplete after `tcp-read`.
    Read,
    /// Its client took nothing for `tcp-write`.
    Write,
    /// Room was needed: `tcp-connections` were open.
    Connections,
    /// Room was needed: its client had `tcp-connections-per-client` open.
    Client,
    /// Room was needed: `tcp-memory` was full, its client held the most, and it was that client's largest.
    Memory,
    /// It sent something that is not a query.
    Malformed,
    /// Its TLS handshake was not complete after `tcp-read`.
    Handshake,
}

impl CloseReason {
    /// All variants.
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

    /// Returns its label in `/metrics`.
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
