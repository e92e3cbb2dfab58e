//! What TLS needs to know of us, for connections that begin from now on.

use std::sync::Arc;

use rustls::ServerConfig;

use crate::config::{Encryption, Listen};
use crate::tls;

/// What is spoken upon TLS: DNS, as the registry of RFC 7301 has it.
const TLS: &[&[u8]] = &[b"dot"];

/// HTTP/2, and HTTP/1.1 for who has nothing else (RFC 8484 section 5.2).
const HTTPS: &[&[u8]] = &[HTTP2, b"http/1.1"];

/// The name of HTTP/2 (RFC 9113 section 3.1).
pub const HTTP2: &[u8] = b"h2";

/// By what is spoken upon it.
#[derive(Clone, Default)]
pub struct Secured {
    /// For DNS over TLS, if somebody listens for it.
    pub tls: Option<Arc<ServerConfig>>,
    /// For DNS over HTTPS, if somebody listens for it.
    pub https: Option<Arc<ServerConfig>>,
}

impl Secured {
    /// As the configuration has it.
    pub fn new(listen: &Listen) -> Secured {
        let of = |wanted: Encryption, protocols: &[&[u8]]| {
            let identity = listen.identity.as_ref()?;
            let mut listening = listen.encrypted.iter().map(|(_, encryption)| *encryption);
            listening.find(|encryption| *encryption == wanted)?;
            tls::server(identity, protocols)
                .inspect_err(|error| tracing::error!(%error, "connections over TLS are not taken"))
                .ok()
        };
        Secured {
            tls: of(Encryption::Tls, TLS),
            https: of(Encryption::Https, HTTPS),
        }
    }
}
