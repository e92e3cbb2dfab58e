//! Clients, transports and origins as the interface has them.
//!
//! The proxy may know more transports and origins than the interface that a filter was written for: each is mapped to
//! the nearest case. `docs/interface.md` says how a later interface tells more.

use std::net::IpAddr;

use super::bindings::dnsweir::filter::types;
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

impl From<Transport> for types::Transport {
    #[inline]
    fn from(transport: Transport) -> types::Transport {
        match transport {
            Transport::Udp => types::Transport::Udp,
            Transport::Tcp => types::Transport::Tcp,
            Transport::Internal => types::Transport::Internal,
        }
    }
}

impl From<Origin> for types::Source {
    #[inline]
    fn from(origin: Origin) -> types::Source {
        match origin {
            Origin::Upstream => types::Source::Upstream,
            Origin::Cache => types::Source::Cache,
            Origin::Stale => types::Source::Stale,
            Origin::Filter => types::Source::Filter,
            Origin::Local => types::Source::Local,
        }
    }
}
