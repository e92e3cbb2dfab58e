//! Certificates that are their own authority: whoever has one knows this server by it, and trusts nobody else for it.

use std::time::Duration;

use rcgen::{CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, KeyPair};
use x509_parser::time::ASN1Time;

/// How far the clocks of clients may be behind ours.
const SKEW: i64 = 3600;

/// A new certificate for these names, and its key, both in PEM.
///
/// # Errors
/// When a name cannot be in a certificate, or there is no randomness.
pub fn self_signed(names: &[String], now: i64, lifetime: Duration) -> Result<(String, String), String> {
    let time = |seconds| ASN1Time::from_timestamp(seconds).map_err(|error| error.to_string());
    let lifetime = i64::try_from(lifetime.as_secs()).unwrap_or(i64::MAX);
    let made = || {
        let mut params = CertificateParams::new(names)?;
        params.distinguished_name = DistinguishedName::new();
        // RFC 5280 has no more than 64 characters here, and nobody reads it for a name.
        params
            .distinguished_name
            .push(DnType::CommonName, "dnsweir webhook");
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        Ok(params)
    };
    let mut params = made().map_err(|error: rcgen::Error| error.to_string())?;
    params.not_before = time(now - SKEW)?.to_datetime();
    params.not_after = time(now.saturating_add(lifetime))?.to_datetime();
    let key = KeyPair::generate().map_err(|error| error.to_string())?;
    let certificate = params.self_signed(&key).map_err(|error| error.to_string())?;
    Ok((certificate.pem(), key.serialize_pem()))
}
