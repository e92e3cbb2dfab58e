//! An upstream that is asked over TLS (RFC 7858): who it has to be, and what is known of its certificate.
//!
//! The server proves who it is, or it is not asked: that is the strict profile of RFC 8310 section 5, and there is no other
//! here. What is wrong with a certificate is logged once, until it changes.

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

/// Octets that TLS holds of a connection beside what is written and read upon it: a record that is being read, one that
/// was, and what is to be sent.
pub(super) const TLS_OCTETS: usize = 2 * (18 << 10) + (64 << 10);

/// An upstream that is asked over TLS: who it has to be, and what is known of its certificate.
#[derive(Debug)]
pub(super) struct Secured {
    address: SocketAddr,
    client: Client,
    name: ServerName<'static>,
    /// What is asked for over HTTPS.
    path: Option<String>,
    /// Until when its certificate was valid that it had last, in seconds since 1970; 0: none is known.
    expires: AtomicI64,
    /// Handshakes that began a session.
    pub full: AtomicU64,
    /// Those that went on with one.
    pub resumed: AtomicU64,
    /// Those of which that is not known: QUIC does not tell.
    pub unknown: AtomicU64,
    /// What was wrong the last time, if something was.
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

    /// What is asked for over HTTPS, as a URI.
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

    /// Until when its certificate is valid, in seconds since 1970, if it has shown one.
    pub fn expires(&self) -> Option<u64> {
        u64::try_from(self.expires.load(Relaxed))
            .ok()
            .filter(|&expires| expires > 0)
    }

    /// What rustls needs to know, and the name to ask for.
    pub fn client_config(&self) -> Result<(Arc<ClientConfig>, ServerName<'static>), Fault> {
        let config = self
            .client
            .config()
            .map_err(|error| Fault::Tls(Problem::of(&error)))?;
        Ok((config, self.name.clone()))
    }

    /// A handshake succeeded, of a kind if that is known.
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

    /// Why the certificate was refused the last time, if it was.
    pub fn refusal(&self) -> Option<rustls::Error> {
        self.client.refusal(&self.name)
    }

    /// A handshake failed. It is logged, unless it failed in the same way before.
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
