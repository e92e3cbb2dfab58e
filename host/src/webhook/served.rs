//! The certificate for new connections.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use rustls::ServerConfig;
use tokio::sync::watch;

use super::server::Webhook;
use crate::tls::{self, Authorities, Identity};

/// ALPN protocols (RFC 7301).
const PROTOCOLS: &[&[u8]] = &[b"http/1.1"];

/// Publishes the certificate in use.
pub struct Served {
    webhook: Arc<Webhook>,
    /// The authorities of client certificates; `None`: clients need none.
    clients: Option<Authorities>,
    config: watch::Sender<Option<Arc<ServerConfig>>>,
}

impl Served {
    /// Starts without a certificate. With authorities in `clients`, clients need a certificate from one.
    pub fn new(webhook: Arc<Webhook>, clients: Option<Authorities>) -> Served {
        Served {
            webhook,
            clients,
            config: watch::Sender::new(None),
        }
    }

    /// Subscribes to the TLS configuration.
    pub fn receiver(&self) -> watch::Receiver<Option<Arc<ServerConfig>>> {
        self.config.subscribe()
    }

    /// Uses this certificate for new connections.
    ///
    /// # Errors
    /// When it cannot be used for TLS.
    pub fn serve(&self, identity: &Identity) -> Result<(), String> {
        let config =
            tls::server(identity, PROTOCOLS, self.clients.as_ref()).map_err(|error| error.to_string())?;
        self.config.send_replace(Some(config));
        let expires = identity.expires.and_then(|at| u64::try_from(at).ok());
        let counters = &self.webhook.counters;
        counters.certificates.fetch_add(1, Relaxed);
        counters.expires.store(expires.unwrap_or_default(), Relaxed);
        tracing::info!(expires, "using a new certificate");
        Ok(())
    }

    /// Logs and counts why there is no new certificate. The current one stays in use.
    pub fn failed(&self, problem: &str) {
        tracing::error!("the current certificate stays in use: {problem}");
        self.webhook.counters.certificate_errors.fetch_add(1, Relaxed);
    }
}
