//! Self-signed certificates: a client that has one trusts only this server by it.

use std::str::FromStr as _;
use std::time::Duration;

use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_ASN1_SIGNING as ALGORITHM, EcdsaKeyPair, KeyPair as _};
use sha2::{Digest as _, Sha256};
use x509_cert::certificate::{Certificate, TbsCertificate, Version};
use x509_cert::der::asn1::{Any, BitString, GeneralizedTime, Ia5String, OctetString, UtcTime};
use x509_cert::der::oid::AssociatedOid;
use x509_cert::der::oid::db::rfc5912::{
    ECDSA_WITH_SHA_256, ID_EC_PUBLIC_KEY, ID_KP_SERVER_AUTH, SECP_256_R_1,
};
use x509_cert::der::pem::{LineEnding, encode_string};
use x509_cert::der::{self, Encode, EncodePem as _};
use x509_cert::ext::Extension;
use x509_cert::ext::pkix::name::GeneralName;
use x509_cert::ext::pkix::{ExtendedKeyUsage, SubjectAltName};
use x509_cert::name::Name;
use x509_cert::serial_number::SerialNumber;
use x509_cert::spki::{AlgorithmIdentifierOwned, SubjectPublicKeyInfoOwned};
use x509_cert::time::{Time, Validity};

/// How many seconds clients' clocks may be behind.
const SKEW: u64 = 3600;

/// Makes a certificate for these DNS names and its key, both in PEM. It is valid for `lifetime` from `now`, in
/// seconds since 1970.
///
/// # Errors
/// When a name is invalid in a certificate, or random numbers are unavailable.
pub fn self_signed(names: &[String], now: i64, lifetime: Duration) -> Result<(String, String), String> {
    let random = SystemRandom::new();
    let no_key = |_| "cannot make a key: there are no random numbers".to_owned();
    let secret = EcdsaKeyPair::generate_pkcs8(&ALGORITHM, &random).map_err(no_key)?;
    let key = EcdsaKeyPair::from_pkcs8(&ALGORITHM, secret.as_ref(), &random);
    let key = key.map_err(|error| error.to_string())?;
    let wrong = |error: der::Error| format!("cannot make a certificate: {error}");
    let unsigned = unsigned(names, now, lifetime, key.public_key().as_ref()).map_err(wrong)?;
    let signature = key
        .sign(&random, &unsigned.to_der().map_err(wrong)?)
        .map_err(no_key)?;
    let certificate = Certificate {
        signature_algorithm: unsigned.signature.clone(),
        tbs_certificate: unsigned,
        signature: BitString::from_bytes(signature.as_ref()).map_err(wrong)?,
    };
    let certificate = certificate.to_pem(LineEnding::LF).map_err(wrong)?;
    let secret = encode_string("PRIVATE KEY", LineEnding::LF, secret.as_ref());
    Ok((certificate, secret.map_err(|error| wrong(error.into()))?))
}

/// What is signed: issuer and subject are the same.
fn unsigned(names: &[String], now: i64, lifetime: Duration, key: &[u8]) -> der::Result<TbsCertificate> {
    let now = u64::try_from(now).unwrap_or_default();
    let names = names
        .iter()
        .map(|name| Ia5String::new(name).map(GeneralName::DnsName));
    let names = SubjectAltName(names.collect::<der::Result<_>>()?);
    // RFC 5280 allows at most 64 characters here, and nothing uses it as a name.
    let subject = Name::from_str("CN=dnsweir webhook")?;
    Ok(TbsCertificate {
        version: Version::V3,
        serial_number: serial_number(key)?,
        signature: AlgorithmIdentifierOwned {
            oid: ECDSA_WITH_SHA_256,
            parameters: None,
        },
        issuer: subject.clone(),
        validity: Validity {
            not_before: time(now.saturating_sub(SKEW))?,
            not_after: time(now.saturating_add(lifetime.as_secs()))?,
        },
        subject,
        subject_public_key_info: SubjectPublicKeyInfoOwned {
            algorithm: AlgorithmIdentifierOwned {
                oid: ID_EC_PUBLIC_KEY,
                parameters: Some(Any::encode_from(&SECP_256_R_1)?),
            },
            subject_public_key: BitString::from_bytes(key)?,
        },
        issuer_unique_id: None,
        subject_unique_id: None,
        extensions: Some(vec![
            extension(&names)?,
            extension(&ExtendedKeyUsage(vec![ID_KP_SERVER_AUTH]))?,
        ]),
    })
}

/// A number that another certificate does not have: at most 20 bytes, and positive (RFC 5280 section 4.1.2.2).
fn serial_number(key: &[u8]) -> der::Result<SerialNumber> {
    let mut number: [u8; 32] = Sha256::digest(key).into();
    number[0] &= 0x7f;
    SerialNumber::new(&number[..20])
}

/// UTCTime until 2049, then GeneralizedTime (RFC 5280 section 4.1.2.5).
fn time(seconds: u64) -> der::Result<Time> {
    let since = Duration::from_secs(seconds);
    match UtcTime::from_unix_duration(since) {
        Ok(time) => Ok(time.into()),
        Err(_) => GeneralizedTime::from_unix_duration(since).map(Time::from),
    }
}

/// One that a client may ignore if it does not know it.
fn extension<T: AssociatedOid + Encode>(value: &T) -> der::Result<Extension> {
    Ok(Extension {
        extn_id: T::OID,
        critical: false,
        extn_value: OctetString::new(value.to_der()?)?,
    })
}

#[cfg(test)]
mod tests {
    use rustls::client::WebPkiServerVerifier;
    use rustls::client::danger::ServerCertVerifier as _;
    use rustls::pki_types::{CertificateDer, UnixTime};
    use x509_cert::der::Decode as _;

    use super::super::{Authorities, Identity, certificates, expiry, name, provider, server_name};
    use super::*;

    /// 15 July 2026.
    const NOW: i64 = 1_784_073_600;
    const DAY: Duration = Duration::from_secs(24 * 3600);

    fn made(names: &[&str], lifetime: Duration) -> (CertificateDer<'static>, String, String) {
        let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
        let (certificate, key) = self_signed(&names, NOW, lifetime).unwrap();
        (
            certificates(certificate.as_bytes()).unwrap().remove(0),
            certificate,
            key,
        )
    }

    #[test]
    fn it_says_what_it_is_for() {
        let (der, ..) = made(&["dns.example", "other.example"], DAY);
        let certificate = Certificate::from_der(&der).unwrap().tbs_certificate;
        assert_eq!(certificate.version, Version::V3);
        assert_eq!(certificate.subject.to_string(), "CN=dnsweir webhook");
        assert_eq!(certificate.issuer, certificate.subject);
        let (critical, names) = certificate.get::<SubjectAltName>().unwrap().unwrap();
        let name = |name: &str| GeneralName::DnsName(Ia5String::new(name).unwrap());
        assert_eq!(
            (critical, names.0),
            (false, vec![name("dns.example"), name("other.example")])
        );
        let (critical, usage) = certificate.get::<ExtendedKeyUsage>().unwrap().unwrap();
        assert_eq!((critical, usage.0), (false, vec![ID_KP_SERVER_AUTH]));
        assert_eq!(certificate.extensions.unwrap().len(), 2);
        let serial = certificate.serial_number;
        assert!((1..=20).contains(&serial.as_bytes().len()) && serial.as_bytes()[0] < 0x80);
        let (other, ..) = made(&["dns.example"], DAY);
        let other = Certificate::from_der(&other).unwrap().tbs_certificate;
        assert_ne!(serial, other.serial_number);
    }

    #[test]
    fn its_time_is_in_the_form_for_its_year() {
        let (der, ..) = made(&["dns.example"], DAY);
        let validity = Certificate::from_der(&der).unwrap().tbs_certificate.validity;
        assert_eq!(validity.not_before.to_string(), "2026-07-14T23:00:00Z");
        assert_eq!(validity.not_after.to_string(), "2026-07-16T00:00:00Z");
        assert!(matches!(validity.not_after, Time::UtcTime(_)));
        let lifetime = 18_250 * DAY;
        let (der, ..) = made(&["dns.example"], lifetime);
        let validity = Certificate::from_der(&der).unwrap().tbs_certificate.validity;
        assert!(matches!(validity.not_after, Time::GeneralTime(_)));
        assert_eq!(
            expiry(&der),
            Some(NOW + i64::try_from(lifetime.as_secs()).unwrap())
        );
        assert!(self_signed(&["dns.example".into()], NOW, Duration::MAX).is_err());
        // A clock that was never set.
        assert!(self_signed(&["dns.example".into()], 0, DAY).is_ok());
    }

    #[test]
    fn a_client_that_has_it_trusts_it() {
        let (der, certificate, key) = made(&["dns.example"], DAY);
        assert!(Identity::from_pem(certificate.as_bytes(), key.as_bytes()).is_ok());
        assert_eq!(name(&der).as_deref(), Some("dns.example"));
        let roots = Authorities::from_pem(certificate.as_bytes()).unwrap().roots;
        let verifier = WebPkiServerVerifier::builder_with_provider(roots, provider());
        let verifier = verifier.build().unwrap();
        let verify = |der: &CertificateDer<'_>, name: &str, at: i64| {
            let at = UnixTime::since_unix_epoch(Duration::from_secs(u64::try_from(at).unwrap()));
            verifier.verify_server_cert(der, &[], &server_name(name).unwrap(), &[], at)
        };
        verify(&der, "dns.example", NOW).unwrap();
        verify(&der, "dns.example", NOW - 3600).unwrap();
        verify(&der, "other.example", NOW).unwrap_err();
        verify(&der, "dns.example", NOW - 3601).unwrap_err();
        verify(&der, "dns.example", NOW + 24 * 3600 + 1).unwrap_err();
        // Of another key.
        verify(&made(&["dns.example"], DAY).0, "dns.example", NOW).unwrap_err();
    }

    #[test]
    fn names_outside_ascii_are_refused() {
        assert!(self_signed(&["bücher.example".into()], NOW, DAY).is_err());
    }
}
