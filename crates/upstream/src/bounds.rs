//! What a `forward` stage may hold at most, for all that clients ask and upstreams send: sockets and octets.

use super::connection::CONNECTION_OCTETS;
use super::https::HTTP_OCTETS;
use super::left_behind::MOST_LEFT;
use super::quic::QUIC_OCTETS;
use super::secured::TLS_OCTETS;
use crate::config::{Encryption, Forward, Protocol};

/// Octets that a query under way holds: itself, twice, and an answer of the size that upstreams are told to keep to
/// over UDP. Larger ones come over TCP, where the connection's share covers them.
pub(super) const QUERY_OCTETS: usize = 4 * 1024;
/// Octets that an attempt holds: what waits for the reply, and its part of a socket.
pub(super) const ATTEMPT_OCTETS: usize = 2 * 1024;

/// The most sockets that such a stage has open at once, over all workers: one for each query under way and each
/// attempt left behind, and for each worker and upstream what is kept for the next ones. [`PROBE_SOCKETS`](super::PROBE_SOCKETS) come on
/// top, once for the whole process.
pub fn most_sockets(config: &Forward, workers: usize) -> usize {
    config.concurrent + workers * (MOST_LEFT + config.upstreams.len()) + most_connections(config, workers)
}

/// How many of these are connections that are kept for the next queries, at most.
pub fn most_connections(config: &Forward, workers: usize) -> usize {
    workers * config.upstreams.len() * config.connections
}

/// The most octets that such a stage holds for queries under way and in the buffers of its connections, over all
/// workers. What the clients are owed is not among them.
pub fn most_octets(config: &Forward, workers: usize) -> usize {
    let query = QUERY_OCTETS + config.attempts as usize * ATTEMPT_OCTETS;
    let tls = match config.protocol {
        Protocol::Udp | Protocol::Tcp => 0,
        Protocol::Encrypted(Encryption::Tls) => TLS_OCTETS,
        Protocol::Encrypted(Encryption::Https) => TLS_OCTETS + HTTP_OCTETS,
        Protocol::Encrypted(Encryption::Quic) => TLS_OCTETS + QUIC_OCTETS,
    };
    let left = workers * MOST_LEFT * (QUERY_OCTETS + ATTEMPT_OCTETS);
    config.concurrent * query + left + most_connections(config, workers) * (CONNECTION_OCTETS + tls)
}
