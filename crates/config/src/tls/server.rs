//! Our side of TLS where others are the clients.

use std::sync::Arc;

use rustls::crypto::ring::Ticketer;
use rustls::server::WebPkiClientVerifier;
use rustls::{Error, ServerConfig};

use super::{Authorities, Identity, provider};

/// What rustls needs to know to take connections as `identity`, of clients that speak one of these protocols (ALPN, RFC 7301)
/// or do not say. With authorities of `clients`, they have to have a certificate of one.
///
/// # Errors
/// When there is no TLS in this program, no randomness for its tickets, or no authority.
pub fn server(
    identity: &Identity,
    protocols: &[&[u8]],
    clients: Option<&Authorities>,
) -> Result<Arc<ServerConfig>, Error> {
    let builder = ServerConfig::builder_with_provider(provider()).with_safe_default_protocol_versions()?;
    let builder = match clients {
        Some(authorities) => {
            let roots = Arc::clone(&authorities.roots);
            let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider()).build();
            builder.with_client_cert_verifier(verifier.map_err(|error| Error::General(error.to_string()))?)
        }
        None => builder.with_no_client_auth(),
    };
    let mut config = builder.with_cert_resolver(identity.resolver());
    config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
    // Sessions are kept by the clients, sealed, and not here (RFC 5077, RFC 8446 section 2.2).
    config.ticketer = Ticketer::new()?;
    config.max_early_data_size = 0;
    Ok(Arc::new(config))
}
