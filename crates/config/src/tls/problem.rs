//! Explains why a TLS handshake failed.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use rustls::pki_types::{ServerName, UnixTime};
use rustls::{AlertDescription, CertificateError, Error};

use super::client::{NoAuthorities, WrongKey};

/// Why TLS failed or ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// The certificate is for other names.
    #[error("has a certificate for another name")]
    WrongName,
    /// The certificate has expired.
    #[error("has a certificate that has expired")]
    Expired,
    /// The certificate is not valid yet.
    #[error("has a certificate that is not valid yet")]
    NotYetValid,
    /// No trusted authority signed it.
    #[error("has a certificate of an unknown authority")]
    UnknownIssuer,
    /// The key is not one of those pinned.
    #[error("has another key than those pinned")]
    WrongKey,
    /// Something else is wrong with the certificate.
    #[error("has an unusable certificate")]
    Certificate,
    /// The peer sent an alert.
    #[error("ended TLS: {0:?}")]
    Alert(AlertDescription),
    /// The peer does not speak TLS, or no version and algorithms in common.
    #[error("does not speak TLS, or no supported version of it")]
    Protocol,
}

/// A problem with an explanation for the operator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Explained {
    /// The problem.
    pub problem: Problem,
    /// What is wrong in detail, and what to do.
    pub text: String,
    /// When the certificate expired, in seconds since 1970, if that is the problem.
    pub expired: Option<i64>,
}

impl Problem {
    /// Classifies an error of rustls.
    pub fn of(error: &Error) -> Problem {
        match error {
            Error::InvalidCertificate(error) => match error {
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
                    Problem::WrongName
                }
                CertificateError::Expired | CertificateError::ExpiredContext { .. } => Problem::Expired,
                CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
                    Problem::NotYetValid
                }
                // The signer has the name of a trusted authority, but another key.
                CertificateError::UnknownIssuer | CertificateError::BadSignature => Problem::UnknownIssuer,
                CertificateError::Other(other) if other.0.is::<WrongKey>() => Problem::WrongKey,
                CertificateError::Other(other) if other.0.is::<NoAuthorities>() => Problem::UnknownIssuer,
                _ => Problem::Certificate,
            },
            Error::AlertReceived(alert) => Problem::Alert(*alert),
            _ => Problem::Protocol,
        }
    }
}

impl Explained {
    /// Explains an error from a handshake with a server that should be `name`.
    pub fn of(error: &Error, name: &ServerName<'_>) -> Explained {
        let problem = Problem::of(error);
        let name = name.to_str();
        let expired = not_after(error);
        let text = match (problem, error) {
            (Problem::WrongName, error) => format!(
                "its certificate is not for {name}{}: write the name that it is for behind the address, as in \
                 tls://192.0.2.1%dns.example, or make sure that this is the right server",
                presented(error)
            ),
            (Problem::Expired, _) => {
                let when = expired.and_then(|at| Timestamp::from_second(at).ok());
                let when = when.map(|when| when.strftime(" on %b %e %H:%M:%S %Y +00:00").to_string());
                let when = when.unwrap_or_default();
                format!(
                    "its certificate expired{when}: its operator must renew it; also check this machine's clock"
                )
            }
            (Problem::NotYetValid, _) => {
                "its certificate is not valid yet: check this machine's clock".into()
            }
            (Problem::UnknownIssuer, Error::InvalidCertificate(CertificateError::Other(missing))) => {
                format!("{missing}: install them (Debian: ca-certificates), or name a file with `ca`")
            }
            (Problem::UnknownIssuer, _) => UNTRUSTED.into(),
            (Problem::WrongKey, Error::InvalidCertificate(CertificateError::Other(other))) => {
                let pin = other.0.downcast_ref::<WrongKey>().map(|WrongKey(pin)| pin);
                let key = pin.map(|pin| STANDARD.encode(pin)).unwrap_or_default();
                format!(
                    "its key is none of those pinned but sha256/{key}: if it has a new one, and you know that from \
                     elsewhere, write that as `pin`"
                )
            }
            (Problem::Alert(AlertDescription::CertificateRequired), _) => {
                "it requires a client certificate: name one and its key with `certificate`".into()
            }
            (Problem::Alert(_), _) => format!("it ended TLS: {error}"),
            _ => format!("TLS failed: {error}"),
        };
        Explained {
            problem,
            text,
            expired,
        }
    }
}

const UNTRUSTED: &str = "its certificate is of an authority that is not trusted here: if it should be, name the file with the \
                         authority's certificate with `ca`";

/// Lists some of the names that the certificate has instead.
fn presented(error: &Error) -> String {
    const SHOWN: usize = 4;
    let Error::InvalidCertificate(CertificateError::NotValidForNameContext { presented, .. }) = error else {
        return String::new();
    };
    if presented.is_empty() {
        return ", and for no other name either".into();
    }
    let names: Vec<&str> = presented.iter().take(SHOWN).map(|name| shown(name)).collect();
    let more = if presented.len() > SHOWN { ", …" } else { "" };
    format!(" but for {}{more}", names.join(", "))
}

/// The name in rustls's spelling `DnsName("dns.example")`.
fn shown(name: &str) -> &str {
    let inner = name.split_once('(').map_or(name, |(_, rest)| rest);
    inner.trim_matches(|c| matches!(c, '(' | ')' | '"'))
}

fn not_after(error: &Error) -> Option<i64> {
    match error {
        Error::InvalidCertificate(CertificateError::ExpiredContext { not_after, .. }) => {
            Some(seconds(*not_after))
        }
        _ => None,
    }
}

fn seconds(time: UnixTime) -> i64 {
    i64::try_from(time.as_secs()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_an_expiry_is_told() {
        let name = ServerName::try_from("dns.example").unwrap();
        let at = |seconds| UnixTime::since_unix_epoch(std::time::Duration::from_secs(seconds));
        let explained = |seconds| {
            let (time, not_after) = (at(u64::MAX), at(seconds));
            let error = CertificateError::ExpiredContext { time, not_after };
            Explained::of(&Error::InvalidCertificate(error), &name).text
        };
        for (seconds, expected) in [
            (
                1_609_459_200,
                "its certificate expired on Jan  1 00:00:00 2021 +00:00: its",
            ),
            (
                2_556_144_000,
                "its certificate expired on Jan  1 00:00:00 2051 +00:00: its",
            ),
            (u64::MAX, "its certificate expired: its"),
        ] {
            let text = explained(seconds);
            assert!(text.starts_with(expected), "{text}");
        }
    }
}
