//! The TLS identity of an upstream (RFC 7858), and what is known of its certificate.
//!
//! An upstream that does not prove its identity is not asked: the strict profile of RFC 8310 section 5, the
//! only one here. A certificate's fault is logged once, until it changes.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicI64, AtomicU64};

use parking_lot::Mutex;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, HandshakeKind};

use super::failure::Fault;
use crate::config;
use dnsweir_config::tls::{Client, Explained, Problem, expiry, server_name_at};

/// Bytes that TLS holds per connection besides the data written and read on it: the record being read, the
/// last one read, and data to be sent.
pub(super) const TLS_OCTETS: usize = 2 * (18 << 10) + (64 << 10);

/// The TLS identity of an upstream, and what is known of its certificate.
#[derive(Debug)]
pub(super) struct Secured {
    address: SocketAddr,
    client: Client,
    name: ServerName<'static>,
    /// The path for requests over HTTPS.
    path: Option<String>,
    /// When the certificate last seen expires, in seconds since 1970; 0 if none was seen.
    expires: AtomicI64,
    /// Full handshakes.
    pub full: AtomicU64,
    /// Handshakes that resumed a session.
    pub resumed: AtomicU64,
    /// Handshakes of unknown kind: QUIC does not report it.
    pub unknown: AtomicU64,
    /// The last error text, if the last handshake failed.
    wrong: Mutex<Option<String>>,
}

impl Secured {
    /// Nothing is known of its certificate yet.
    pub fn new(client: Client, upstream: &config::Upstream) -> Secured {
        Secured {
            address: upstream.address,
            client,
            name: server_name_at(upstream.name.as_deref(), upstream.address.ip()),
            path: upstream.path.clone(),
            expires: AtomicI64::new(0),
            full: AtomicU64::new(0),
            resumed: AtomicU64::new(0),
            unknown: AtomicU64::new(0),
            wrong: Mutex::new(None),
        }
    }

    /// The URI for requests over HTTPS.
    pub fn uri(&self) -> String {
        let path = self.path.as_deref().unwrap_or("/");
        let host = match &self.name {
            ServerName::IpAddress(_) if self.address.is_ipv6() => format!("[{}]", self.address.ip()),
            name => name.to_str().into_owned(),
        };
        match self.address.port() {
            443 => format!("https://{host}{path}"),
            port => format!("https://{host}:{port}{path}"),
        }
    }

    /// When its certificate expires, in seconds since 1970, if it has shown one.
    pub fn expires(&self) -> Option<u64> {
        u64::try_from(self.expires.load(Relaxed))
            .ok()
            .filter(|&expires| expires > 0)
    }

    /// The configuration for rustls, and the server name to verify.
    pub fn client_config(&self) -> Result<(Arc<ClientConfig>, ServerName<'static>), Fault> {
        let config = self
            .client
            .config()
            .map_err(|error| Fault::Tls(Problem::of(&error)))?;
        Ok((config, self.name.clone()))
    }

    /// Records a successful handshake, and its kind if known.
    pub fn connected(&self, kind: Option<HandshakeKind>, certificate: Option<&CertificateDer<'_>>) {
        let counter = match kind {
            Some(HandshakeKind::Resumed) => &self.resumed,
            Some(_) => &self.full,
            None => &self.unknown,
        };
        counter.fetch_add(1, Relaxed);
        if let Some(expires) = certificate.and_then(expiry) {
            self.expires.store(expires, Relaxed);
        }
        if self.wrong.lock().take().is_some() {
            tracing::info!(upstream = %self.address, "TLS to the upstream works again");
        }
    }

    /// Why the certificate was last rejected, if it was.
    pub fn refusal(&self) -> Option<rustls::Error> {
        self.client.refusal(&self.name)
    }

    /// Records a failed handshake. It is logged, unless the last one failed in the same way.
    pub fn failed(&self, error: &rustls::Error) -> Fault {
        let explained = Explained::of(error, &self.name);
        if let Some(expired) = explained.expired {
            self.expires.store(expired, Relaxed);
        }
        let mut wrong = self.wrong.lock();
        if wrong.as_ref() != Some(&explained.text) {
            tracing::error!(upstream = %self.address, "the upstream is not asked: {}", explained.text);
            *wrong = Some(explained.text);
        }
        Fault::Tls(explained.problem)
    }
}
