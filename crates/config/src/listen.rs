//! `listen`: the addresses on which clients are served.

use std::net::SocketAddr;
use std::time::Duration;

use kdl::KdlNode;

use super::clients::{self, Clients};
use super::decode::{Decoder, block, child, whole};
use super::encrypted;
use super::surroundings::Listeners;
use super::units::{duration, ms, s, size};
use super::upstream::Encryption;
use super::words::words;
use crate::tls::Identity;

words! {
    /// `listen "ADDRESS"… { … }`
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Listen in LISTEN(1..=64): r#"listen "169.254.20.10" "10.96.0.10""#, then finish;

    /// For UDP and TCP, or, with a scheme, for [TLS](#listeners-for-tls); the default port is 53.
    values "ADDRESS" addresses: Vec<SocketAddr> = ("required"), "addresses";
    /// Largest UDP reply in bytes, for clients that accept that much (RFC 9715 section 3.1).
    one "udp-size" udp_size: u16 = 1232 in whole(512..=4096);
    /// Open client connections, over all addresses and workers; the default is lower where
    /// [descriptors](limits.md#descriptors) are scarce.
    one "tcp-connections" tcp_connections: usize = 1024 in whole(1..=1_000_000);
    /// Open connections per IPv4 address or IPv6 /64 network.
    one "tcp-connections-per-client" tcp_connections_per_client: usize = 128 in whole(1..=1_000_000);
    /// Memory for all connections: unanswered queries and unread replies.
    one "tcp-memory" tcp_memory: usize = "16MiB" in size(1 << 20..=64 << 30);
    /// How long a connection may be silent between queries.
    one "tcp-idle" tcp_idle: Duration = "10s" in duration(ms(100)..=s(3600));
    /// How long a query may take from its first byte to its last.
    one "tcp-read" tcp_read: Duration = "5s" in duration(ms(100)..=s(60));
    /// A client must read at least 4 KiB of its replies in this time.
    one "tcp-write" tcp_write: Duration = "5s" in duration(ms(100)..=s(60));
    /// Each UDP query goes to the worker of the processor on which it arrives: [below](#by-processor).
    switch "by-processor" by_processor: bool = off;
    /// The certificate for `tls://`, `https://` and `quic://`.
    hand "certificate" identity: Option<Identity> = none in encrypted::CERTIFICATE, "a file in PEM";
    /// Which clients may ask on some of the addresses: [below](#clients).
    hands "clients" clients: Vec<(SocketAddr, Clients)> = ("as in the file") in clients::OF_LISTENER, "addresses";
    besides {
        /// The subset of the addresses that have a scheme.
        encrypted: Vec<(SocketAddr, Encryption)>;
        /// Whether `tcp-connections` is set. If not, there are fewer where descriptors are scarce.
        tcp_connections_written: bool;
    }
}

impl Listen {
    /// All addresses with their protocols; `None`: DNS over UDP and TCP. QUIC may share one with TLS or
    /// HTTPS.
    pub fn each(&self) -> impl Iterator<Item = (SocketAddr, Option<Encryption>)> {
        let plain = self.plain().map(|address| (address, None));
        let encrypted = self.encrypted.iter();
        plain.chain(encrypted.map(|(address, encryption)| (*address, Some(*encryption))))
    }

    /// The addresses for DNS over UDP and TCP.
    pub fn plain(&self) -> impl Iterator<Item = SocketAddr> {
        let is_plain = |address: &SocketAddr| self.encrypted.iter().all(|(other, _)| other != address);
        self.addresses.iter().copied().filter(is_plain)
    }
}

/// Reads the addresses, also for later checks, and what depends on them.
fn finish(decoder: &mut Decoder, node: &KdlNode, listen: &mut Listen) {
    let mut listeners = Listeners::default();
    for ((address, encryption), span) in decoder.values_at(node, encrypted::listener) {
        let shares = listeners.has(address) && shares(&listen.encrypted, address, encryption);
        listen
            .encrypted
            .extend(encryption.map(|encryption| (address, encryption)));
        if !shares {
            let problem = format!("{address} is listed twice");
            decoder.meet(&mut listeners.0, address, span, problem, "keep one of them");
        }
    }
    listen.addresses = listeners.0.iter().map(|(address, _)| *address).collect();
    listen.clients = clients::decode_of_listener(decoder, block(node), &listen.addresses);
    listen.identity = identity(decoder, node, &listen.encrypted);
    listen.tcp_connections_written = child(block(node), "tcp-connections").is_some();
    decoder.around.listeners = listeners;
}

/// Whether a protocol can share an address with the one already there: QUIC, over UDP, can with TLS or HTTPS.
fn shares(
    encrypted: &[(SocketAddr, Encryption)],
    address: SocketAddr,
    encryption: Option<Encryption>,
) -> bool {
    let known = encrypted.iter().filter(|(known, _)| *known == address);
    let spoken = known.map(|(_, encryption)| *encryption).chain(encryption);
    let spoken: Vec<Encryption> = spoken.collect();
    let quic = spoken.iter().filter(|spoken| **spoken == Encryption::Quic);
    encryption.is_some() && spoken.len() == 2 && quic.count() == 1
}

/// Decodes `certificate`, which is required for encrypted listeners and refused otherwise.
fn identity(
    decoder: &mut Decoder,
    node: &KdlNode,
    encrypted: &[(SocketAddr, Encryption)],
) -> Option<Identity> {
    match (child(block(node), "certificate"), encrypted.first()) {
        (Some(certificate), Some(_)) => encrypted::identity(decoder, certificate),
        (Some(certificate), None) => {
            encrypted::CERTIFICATE.read(decoder, certificate);
            let problem = "`certificate` is for addresses with a scheme, but there are none";
            decoder.report(certificate, problem, "write one: listen \"tls://192.0.2.1\"");
            None
        }
        (None, Some((address, encryption))) => {
            let problem = format!("{}://{address} needs a certificate", encryption.word());
            let example = encrypted::CERTIFICATE.shape.example;
            let help = format!("write in the block of `listen`: {example}");
            decoder.report(node, problem, help);
            None
        }
        (None, None) => None,
    }
}
