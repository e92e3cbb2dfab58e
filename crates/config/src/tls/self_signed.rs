//! Self-signed certificates: a client that has one trusts only this server by it.

use std::time::Duration;

use rcgen::{CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, KeyPair};
use x509_parser::time::ASN1Time;

/// How many seconds clients' clocks may be behind.
const SKEW: i64 = 3600;

/// Makes a certificate for these names and its key, both in PEM.
///
/// # Errors
/// When a name is invalid in a certificate, or random numbers are unavailable.
pub fn self_signed(names: &[String], now: i64, lifetime: Duration) -> Result<(String, String), String> {
    let time = |seconds| ASN1Time::from_timestamp(seconds).map_err(|error| error.to_string());
    let lifetime = i64::try_from(lifetime.as_secs()).unwrap_or(i64::MAX);
    let made = || {
        let mut params = CertificateParams::new(names)?;
        params.distinguished_name = DistinguishedName::new();
        // RFC 5280 allows at most 64 characters here, and nothing uses it as a name.
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
