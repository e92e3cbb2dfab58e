//! Clients, transports and origins as the interface has them.
//!
//! The proxy may come to know more transports and origins than a filter that was written before: each gets a number of
//! its own, and what the filter takes it for is its own affair.

use std::net::IpAddr;

use crate::dns::{Origin, Transport};

/// An address as IPv6, or v4-mapped: `client-high` and `client-low`.
#[inline]
pub fn client_halves(address: IpAddr) -> [u64; 2] {
    let bits = match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().to_bits(),
        IpAddr::V6(v6) => v6.to_bits(),
    };
    [(bits >> 64) as u64, bits as u64]
}

/// What `transport` of a query says. 2 to 4 are for TLS, HTTPS and QUIC.
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

/// What `source` of a response says.
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
