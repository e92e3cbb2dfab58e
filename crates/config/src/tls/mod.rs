//! TLS: authentication of servers, our own certificates, and clear error messages.
//!
//! This module handles certificates and keys, but neither DNS nor sockets. The cryptography is ring's. TLS
//! versions are 1.2 and 1.3, as in RFC 8310 section 9. Early data (0-RTT) is neither sent nor accepted,
//! because it can be replayed (RFC 8446 section 8).

mod authorities;
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
use x509_cert::Certificate;
use x509_cert::der::Decode as _;
use x509_cert::ext::pkix::SubjectAltName;
use x509_cert::ext::pkix::name::GeneralName;

pub use authorities::Authorities;
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

/// When a certificate expires, in seconds since 1970.
pub fn expiry(certificate: &CertificateDer<'_>) -> Option<i64> {
    let certificate = Certificate::from_der(certificate).ok()?.tbs_certificate;
    let expiry = certificate.validity.not_after.to_unix_duration();
    i64::try_from(expiry.as_secs()).ok()
}

/// The first DNS name in a certificate that is not a wildcard.
fn name(certificate: &CertificateDer<'_>) -> Option<String> {
    let certificate = Certificate::from_der(certificate).ok()?.tbs_certificate;
    let (_, SubjectAltName(names)) = certificate.get().ok()??;
    names.iter().find_map(|name| match name {
        GeneralName::DnsName(name) if !name.as_str().starts_with('*') => Some(name.to_string()),
        _ => None,
    })
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

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, KeyPair, date_time_ymd};

    use super::*;

    fn made(names: &[&str], year: i32) -> CertificateDer<'static> {
        let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
        let mut params = CertificateParams::new(names).unwrap();
        params.not_after = date_time_ymd(year, 2, 28);
        params.self_signed(&KeyPair::generate().unwrap()).unwrap().into()
    }

    /// RFC 5280 section 4.1.2.5: UTCTime until 2049, then GeneralizedTime.
    #[test]
    fn expiry_is_read_in_both_forms() {
        for (year, seconds) in [
            (1999, 920_160_000),
            (2049, 2_498_083_200),
            (2050, 2_529_619_200),
            (9999, 253_375_776_000),
        ] {
            assert_eq!(expiry(&made(&["dns.example"], year)), Some(seconds), "{year}");
        }
        assert_eq!(expiry(&CertificateDer::from(&b"x"[..])), None);
    }

    #[test]
    fn the_first_dns_name_that_is_no_wildcard_is_the_name() {
        for (names, expected) in [
            (&["dns.example", "other.example"][..], Some("dns.example")),
            (
                &["192.0.2.1", "2001:db8::1", "*.example", "dns.example"],
                Some("dns.example"),
            ),
            (&["192.0.2.1", "*.example"], None),
            (&[], None),
        ] {
            assert_eq!(name(&made(names, 2049)).as_deref(), expected, "{names:?}");
        }
        assert_eq!(name(&CertificateDer::from(&b"x"[..])), None);
    }
}
