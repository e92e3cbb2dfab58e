//! The certificate for new connections, and whose certificates clients need.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use dnsweir_config::tls::{self, Authorities, Identity};
use parking_lot::Mutex;
use rustls::ServerConfig;
use tokio::sync::watch;

use super::server::Webhook;

/// ALPN protocols (RFC 7301).
const PROTOCOLS: &[&[u8]] = &[b"http/1.1"];

/// Publishes the TLS configuration in use.
pub struct Served {
    webhook: Arc<Webhook>,
    parts: Mutex<Parts>,
    config: watch::Sender<Option<Arc<ServerConfig>>>,
}

/// What it is made of.
struct Parts {
    /// The certificate; `None`: there is none yet.
    identity: Option<Identity>,
    /// The authorities of client certificates; `None`: clients need none.
    clients: Option<Authorities>,
}

impl Served {
    /// Starts without a certificate. With authorities in `clients`, clients need a certificate from one.
    pub fn new(webhook: Arc<Webhook>, clients: Option<Authorities>) -> Served {
        Served {
            webhook,
            parts: Mutex::new(Parts {
                identity: None,
                clients,
            }),
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
        let mut parts = self.parts.lock();
        self.publish(identity, parts.clients.as_ref())?;
        parts.identity = Some(identity.clone());
        let expires = identity.expires.and_then(|at| u64::try_from(at).ok());
        let counters = &self.webhook.counters;
        counters.certificates.fetch_add(1, Relaxed);
        counters.expires.store(expires.unwrap_or_default(), Relaxed);
        tracing::info!(expires, "using a new certificate");
        Ok(())
    }

    /// Requires certificates of these authorities from the clients of new connections.
    ///
    /// # Errors
    /// When they cannot be used for TLS.
    pub fn require(&self, clients: Authorities) -> Result<(), String> {
        let mut parts = self.parts.lock();
        if let Some(identity) = &parts.identity {
            self.publish(identity, Some(&clients))?;
        }
        parts.clients = Some(clients);
        tracing::info!("using new authorities of clients");
        Ok(())
    }

    fn publish(&self, identity: &Identity, clients: Option<&Authorities>) -> Result<(), String> {
        let config = tls::server(identity, PROTOCOLS, clients).map_err(|error| error.to_string())?;
        self.config.send_replace(Some(config));
        Ok(())
    }

    /// Logs and counts why there is nothing new. What is in use stays.
    pub fn failed(&self, problem: &str) {
        tracing::error!("the current certificates stay in use: {problem}");
        self.webhook.counters.certificate_errors.fetch_add(1, Relaxed);
    }
}
