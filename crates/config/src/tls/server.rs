//! The server side of TLS.

use std::sync::Arc;

use rustls::crypto::ring::Ticketer;
use rustls::server::WebPkiClientVerifier;
use rustls::{Error, ServerConfig};

use super::{Authorities, Identity, provider};

/// The rustls configuration for a server with this `identity`. Clients must offer one of these protocols
/// (ALPN, RFC 7301) or none. With authorities in `clients`, they need a certificate signed by one of them.
///
/// # Errors
/// When this program has no TLS, there are no random numbers for tickets, or no authority.
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
    // Clients keep the sessions, in encrypted tickets (RFC 5077, RFC 8446 section 2.2).
    config.ticketer = Ticketer::new()?;
    config.max_early_data_size = 0;
    Ok(Arc::new(config))
}
