//! Clients, transports and origins as numbers of the interface.
//!
//! The proxy may learn more transports and origins than an older filter knows: each gets a new number, and
//! the filter decides how to treat those it does not know.

use std::net::IpAddr;

use crate::dns::{Origin, Transport};

/// An address as IPv6, IPv4 ones mapped: `client-high` and `client-low`.
#[inline]
pub fn client_halves(address: IpAddr) -> [u64; 2] {
    let bits = match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().to_bits(),
        IpAddr::V6(v6) => v6.to_bits(),
    };
    [(bits >> 64) as u64, bits as u64]
}

/// The `transport` number of a query.
#[inline]
pub fn transport_number(transport: Transport) -> u8 {
    match transport {
        Transport::Udp => 0,
        Transport::Tcp => 1,
        Transport::Tls => 2,
        Transport::Https => 3,
        Transport::Quic => 4,
        Transport::Internal => 5,
    }
}

/// The `source` number of a response.
#[inline]
pub fn source_number(origin: Origin) -> u8 {
    match origin {
        Origin::Upstream => 0,
        Origin::Cache => 1,
        Origin::Stale => 2,
        Origin::Filter => 3,
        Origin::Local => 4,
    }
}
