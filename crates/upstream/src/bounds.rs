//! The most that a `forward` stage may hold, whatever clients ask and upstreams send: sockets and bytes.

use super::connection::CONNECTION_OCTETS;
use super::https::HTTP_OCTETS;
use super::left_behind::MOST_LEFT;
use super::quic::QUIC_OCTETS;
use super::secured::TLS_OCTETS;
use crate::config::{Encryption, Forward, Protocol};

/// Bytes that a query under way holds: the query, twice, and an answer of the size that upstreams are asked
/// to keep to over UDP. Larger ones come over TCP, and count towards the connection's share.
pub(super) const QUERY_OCTETS: usize = 4 * 1024;
/// Bytes that an attempt holds: the waiting caller's state, and its part of a socket.
pub(super) const ATTEMPT_OCTETS: usize = 2 * 1024;

/// The most sockets that such a stage has open, over all workers: one per query under way and per lost
/// attempt, and per worker and upstream those kept for later queries. [`PROBE_SOCKETS`](super::PROBE_SOCKETS)
/// are on top, once per process.
pub fn most_sockets(config: &Forward, workers: usize) -> usize {
    config.concurrent + workers * (MOST_LEFT + config.upstreams.len()) + most_connections(config, workers)
}

/// How many of those sockets are at most connections kept for later queries.
pub fn most_connections(config: &Forward, workers: usize) -> usize {
    workers * config.upstreams.len() * config.connections
}

/// The most bytes that such a stage holds for queries under way and in the buffers of its connections, over
/// all workers. Replies waiting to be sent to clients are not included.
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
