//! Transports of queries.

/// The transport that a query came over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Transport {
    /// A datagram.
    Udp,
    /// A connection whose messages have a length prefix (RFC 1035 section 4.2.2).
    Tcp,
    /// The same over TLS (RFC 7858).
    Tls,
    /// An HTTP request (RFC 8484).
    Https,
    /// A QUIC stream (RFC 9250).
    Quic,
    /// None: the proxy's own query, to refresh an entry or resolve an alias's target.
    Internal,
}
