//! How queries come.

/// What a query came over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Transport {
    /// A datagram.
    Udp,
    /// A connection, messages with their length before them (RFC 1035 section 4.2.2).
    Tcp,
    /// The same, upon TLS (RFC 7858).
    Tls,
    /// A request (RFC 8484).
    Https,
    /// A stream of QUIC (RFC 9250).
    Quic,
    /// Nothing: the proxy asks itself, to refresh an entry or for the target of an alias.
    Internal,
}
