//! TLS: authentication of servers, our own certificates, and clear error messages.
//!
//! This module handles certificates and keys, but neither DNS nor sockets. The cryptography is ring's. TLS
//! versions are 1.2 and 1.3, as in RFC 8310 section 9. Early data (0-RTT) is neither sent nor accepted,
//! because it can be replayed (RFC 8446 section 8).

mod authorities;
mod certificate;
mod client;
mod identity;
mod key_exchange;
mod problem;
mod self_signed;
mod server;

use std::io;
use std::net::IpAddr;
use std::sync::{Arc, LazyLock};

use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use sha2::{Digest as _, Sha256};

pub use authorities::Authorities;
pub use certificate::expiry;
use certificate::name;
pub use client::{Client, Pin, Trust};
pub use identity::Identity;
use key_exchange::X25519MlKem768;
pub use problem::{Explained, Problem};
pub use self_signed::self_signed;
pub use server::server;

/// ring, chosen explicitly whatever else is in the process, with a key exchange that it lacks.
fn provider() -> Arc<CryptoProvider> {
    static PROVIDER: LazyLock<Arc<CryptoProvider>> = LazyLock::new(|| {
        let mut provider = rustls::crypto::ring::default_provider();
        // First: clients send a share for it, and servers prefer it.
        provider.kx_groups.insert(0, &X25519MlKem768);
        Arc::new(provider)
    });
    Arc::clone(&PROVIDER)
}

/// Parses a host name or IP address as it appears in certificates.
pub fn server_name(text: &str) -> Option<ServerName<'static>> {
    ServerName::try_from(text.trim_end_matches('.').to_owned()).ok()
}

/// The name that a server's certificate must have: the configured one, else the address.
pub fn server_name_at(written: Option<&str>, address: IpAddr) -> ServerName<'static> {
    written.and_then(server_name).unwrap_or_else(|| address.into())
}

/// The TLS error inside an I/O error, if there is one.
pub fn error_in(error: &io::Error) -> Option<&rustls::Error> {
    error.get_ref()?.downcast_ref()
}

/// Parses the certificates in a PEM text.
///
/// # Errors
/// What is wrong with the text, phrased to follow its name.
pub fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    let found = found.map_err(|error| format!("is not PEM: {error}"))?;
    match found.is_empty() {
        true => Err("has no certificate in PEM".into()),
        false => Ok(found),
    }
}

fn digest(parts: &[&[u8]]) -> [u8; 32] {
    let mut hasher = Sha256::new();
    for part in parts {
        hasher.update((part.len() as u64).to_be_bytes());
        hasher.update(part);
    }
    hasher.finalize().into()
}
