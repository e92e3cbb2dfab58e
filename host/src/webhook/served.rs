//! The certificate that connections get from now on.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use rustls::ServerConfig;
use tokio::sync::watch;

use super::server::Webhook;
use crate::tls::{self, Authorities, Identity};

/// What is spoken upon TLS (RFC 7301).
const PROTOCOLS: &[&[u8]] = &[b"http/1.1"];

/// Where the certificate in use is put.
pub struct Served {
    webhook: Arc<Webhook>,
    /// Those of whoever may ask; none: whoever can connect.
    clients: Option<Authorities>,
    config: watch::Sender<Option<Arc<ServerConfig>>>,
}

impl Served {
    /// None yet. With authorities of `clients`, others than theirs cannot shake hands.
    pub fn new(webhook: Arc<Webhook>, clients: Option<Authorities>) -> Served {
        Served {
            webhook,
            clients,
            config: watch::Sender::new(None),
        }
    }

    /// Where it can be seen.
    pub fn receiver(&self) -> watch::Receiver<Option<Arc<ServerConfig>>> {
        self.config.subscribe()
    }

    /// Has connections that begin from now on get this one.
    ///
    /// # Errors
    /// When TLS is not possible with it.
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

    /// Says why there is no new one. The one in use stays.
    pub fn failed(&self, problem: &str) {
        tracing::error!("the current certificate stays in use: {problem}");
        self.webhook.counters.certificate_errors.fetch_add(1, Relaxed);
    }
}
