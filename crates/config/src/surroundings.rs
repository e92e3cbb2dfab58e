//! What is read before zones and sources, which are checked against it.

use std::net::{IpAddr, SocketAddr};

use super::address::DNS_PORT;
use super::error::Span;
use crate::dns::tsig::Key;

/// What is read before zones and sources.
#[derive(Default)]
pub(super) struct Surroundings {
    /// The addresses of `listen`.
    pub listeners: Listeners,
    /// Addresses of the cluster's DNS that the node's own queries reach, though the proxy listens on them.
    pub past_us: Vec<IpAddr>,
    /// The keys that may sign zone transfers.
    pub keys: Vec<Key>,
    /// The names of the zone around it; none for a named source.
    pub zones: Vec<String>,
    /// Whether pods are identified.
    pub pods: bool,
}

impl Surroundings {
    /// The listener that would receive queries to an upstream, and its span.
    pub(super) fn loops(&self, upstream: SocketAddr) -> Option<(SocketAddr, Span)> {
        let past_us = upstream.port() == DNS_PORT && self.past_us.contains(&upstream.ip());
        self.listeners.reached_by(upstream).filter(|_| !past_us)
    }

    /// Why a name server in a file must not be used, if it is this proxy.
    pub(super) fn is_loop(&self, server: SocketAddr) -> Option<String> {
        let (listener, _) = self.loops(server)?;
        Some(format!("a loop: the proxy itself listens on {listener}"))
    }
}

/// The listen addresses with their spans, to check other addresses for conflicts.
#[derive(Default)]
pub(super) struct Listeners(pub(super) Vec<(SocketAddr, Span)>);

impl Listeners {
    /// The listener that receives packets sent to `to`, and its span. A wildcard listener matches loopback;
    /// the node's other addresses are not known here.
    pub(crate) fn reached_by(&self, to: SocketAddr) -> Option<(SocketAddr, Span)> {
        let ip = to.ip().to_canonical();
        let takes = |listener: &SocketAddr| {
            let own = listener.ip().to_canonical();
            let wildcard = own.is_unspecified() && ip.is_loopback() && own.is_ipv4() == ip.is_ipv4();
            listener.port() == to.port() && (own == ip || wildcard)
        };
        self.0.iter().find(|(listener, _)| takes(listener)).copied()
    }

    /// Whether it contains an address.
    pub fn has(&self, address: SocketAddr) -> bool {
        self.0.iter().any(|(listener, _)| *listener == address)
    }

    /// The number of listeners.
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// The listener whose TCP port conflicts with a server on this address, and its span. A wildcard uses the
    /// port on all addresses.
    pub(crate) fn sharing_port_with(&self, admin: SocketAddr) -> Option<(SocketAddr, Span)> {
        let same = |listener: &SocketAddr| {
            let own = listener.ip().to_canonical();
            let wildcard = own.is_unspecified() || admin.ip().is_unspecified();
            listener.port() == admin.port()
                && (own == admin.ip() || wildcard && own.is_ipv4() == admin.is_ipv4())
        };
        self.0.iter().find(|(listener, _)| same(listener)).copied()
    }

    /// The wildcard listener, if there is one, and its span.
    pub fn wildcard(&self) -> Option<(SocketAddr, Span)> {
        let mut listeners = self.0.iter().copied();
        listeners.find(|(listener, _)| listener.ip().is_unspecified())
    }
}
