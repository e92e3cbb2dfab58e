//! Our side of TLS where others are the clients.

use std::sync::Arc;

use rustls::crypto::ring::Ticketer;
use rustls::{Error, ServerConfig};

use super::{Identity, provider};

/// What rustls needs to know to take connections as `identity`, of clients that speak one of these protocols (ALPN, RFC 7301)
/// or do not say.
///
/// # Errors
/// When there is no TLS in this program, or no randomness for its tickets.
pub fn server(identity: &Identity, protocols: &[&[u8]]) -> Result<Arc<ServerConfig>, Error> {
    let mut config = ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_cert_resolver(identity.resolver());
    config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
    // Sessions are kept by the clients, sealed, and not here (RFC 5077, RFC 8446 section 2.2).
    config.ticketer = Ticketer::new()?;
    config.max_early_data_size = 0;
    Ok(Arc::new(config))
}
