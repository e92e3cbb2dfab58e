//! The client side of TLS.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{Resumption, WebPkiServerVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, Error, OtherError, SignatureScheme};
use rustls_platform_verifier::Verifier as SystemVerifier;
use sha2::{Digest as _, Sha256};

use super::{Authorities, Identity, provider};

/// The most TLS sessions kept for resumption, one or more per name.
const SESSIONS: usize = 64;

/// The SHA-256 of a public key with its algorithm (SubjectPublicKeyInfo): a pin as in RFC 7858 section 4.2.
pub type Pin = [u8; 32];

/// How to authenticate servers, and the client certificate.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Trust {
    /// Required authorities; `None`: the system's, or with pins, none are required.
    pub authorities: Option<Authorities>,
    /// The pinned keys, one of which is required; if empty, any key will do.
    pub pins: Vec<Pin>,
    /// The client certificate, for servers that ask for one.
    pub identity: Option<Identity>,
    /// Whether any certificate will do. Only a kubeconfig can ask for that.
    pub unverified: bool,
}

/// A client with one way to authenticate servers. Its connections share sessions for resumption.
#[derive(Debug, Clone)]
pub struct Client {
    config: Result<Arc<ClientConfig>, Error>,
    refusals: Arc<Refusals>,
}

/// The last verification error by expected server name, because QUIC reports it only as text.
type Refusals = Mutex<HashMap<ServerName<'static>, Error>>;

impl Client {
    /// Makes a client that offers these protocols (ALPN, RFC 7301), most preferred first.
    pub fn new(trust: &Trust, protocols: &[&[u8]]) -> Client {
        let refusals = Arc::default();
        Client {
            config: configuration(trust, protocols, &refusals).map(Arc::new),
            refusals,
        }
    }

    /// The configuration for rustls.
    ///
    /// # Errors
    /// When this program has no TLS.
    pub fn config(&self) -> Result<Arc<ClientConfig>, Error> {
        self.config.clone()
    }

    /// Why `name` was refused, unless it has been verified since. It stays: of several handshakes that fail at
    /// once, each needs it.
    pub fn refusal(&self, name: &ServerName<'static>) -> Option<Error> {
        self.refusals.lock().get(name).cloned()
    }
}

fn configuration(
    trust: &Trust,
    protocols: &[&[u8]],
    refusals: &Arc<Refusals>,
) -> Result<ClientConfig, Error> {
    let provider = provider();
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Verifier::new(trust, &provider, refusals)));
    let mut config = match &trust.identity {
        Some(identity) => builder.with_client_cert_resolver(identity.resolver()),
        None => builder.with_no_client_auth(),
    };
    config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
    // RFC 7858 section 3.4: resumption saves a round trip and most of the computing.
    config.resumption = Resumption::in_memory_sessions(SESSIONS);
    config.enable_early_data = false;
    Ok(config)
}

/// Verifies the certificates of servers.
#[derive(Debug)]
struct Verifier {
    chain: Chain,
    pins: Vec<Pin>,
    provider: Arc<CryptoProvider>,
    refusals: Arc<Refusals>,
}

/// Which authority must have signed a certificate.
#[derive(Debug)]
enum Chain {
    By(Arc<dyn ServerCertVerifier>),
    /// None: the key is pinned, or nothing is verified.
    Nobody,
    /// The system's authorities, but the system has none.
    Missing(String),
}

impl Verifier {
    fn new(trust: &Trust, provider: &Arc<CryptoProvider>, refusals: &Arc<Refusals>) -> Verifier {
        let chain = match &trust.authorities {
            _ if trust.unverified => Chain::Nobody,
            Some(authorities) => {
                let roots = Arc::clone(&authorities.roots);
                match WebPkiServerVerifier::builder_with_provider(roots, Arc::clone(provider)).build() {
                    Ok(verifier) => Chain::By(verifier),
                    Err(error) => Chain::Missing(error.to_string()),
                }
            }
            None if !trust.pins.is_empty() => Chain::Nobody,
            None => match SystemVerifier::new(Arc::clone(provider)) {
                Ok(verifier) => Chain::By(Arc::new(verifier)),
                Err(error) => Chain::Missing(error.to_string()),
            },
        };
        Verifier {
            chain,
            pins: trust.pins.clone(),
            provider: Arc::clone(provider),
            refusals: Arc::clone(refusals),
        }
    }

    /// RFC 7858 section 4.2: a key that is not pinned is a fatal error.
    fn check_pin(&self, certificate: &CertificateDer<'_>) -> Result<(), Error> {
        if self.pins.is_empty() {
            return Ok(());
        }
        let key = ParsedCertificate::try_from(certificate)?.subject_public_key_info();
        let pin: Pin = Sha256::digest(&key).into();
        match self.pins.contains(&pin) {
            true => Ok(()),
            false => Err(other(WrongKey(pin))),
        }
    }
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let chain = self.check_pin(end_entity).and_then(|()| match &self.chain {
            Chain::By(chain) => {
                chain.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now)
            }
            Chain::Nobody => Ok(ServerCertVerified::assertion()),
            Chain::Missing(why) => Err(other(NoAuthorities(why.clone()))),
        });
        let (name, mut refusals) = (server_name.to_owned(), self.refusals.lock());
        match &chain {
            Ok(_) => refusals.remove(&name),
            Err(error) => refusals.insert(name, error.clone()),
        };
        chain
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider
            .signature_verification_algorithms
            .supported_schemes()
    }
}

fn other(error: impl std::error::Error + Send + Sync + 'static) -> Error {
    CertificateError::Other(OtherError(Arc::new(error))).into()
}

/// The key is not pinned.
#[derive(Debug)]
pub(super) struct WrongKey(pub Pin);

impl fmt::Display for WrongKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("its key is not one of those pinned")
    }
}

impl std::error::Error for WrongKey {}

/// There is no authority that could have signed the certificate.
#[derive(Debug)]
pub(super) struct NoAuthorities(String);

impl fmt::Display for NoAuthorities {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "this system has no authorities ({})", self.0)
    }
}

impl std::error::Error for NoAuthorities {}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use super::super::{certificates, self_signed, server_name};
    use super::*;

    #[test]
    fn a_refusal_is_there_for_each_handshake_until_one_succeeds() {
        let now = UnixTime::since_unix_epoch(SystemTime::UNIX_EPOCH.elapsed().unwrap());
        let lifetime = Duration::from_secs(3600);
        let (pem, _) = self_signed(&["dns.example".into()], now.as_secs() as i64, lifetime).unwrap();
        let certificate = certificates(pem.as_bytes()).unwrap().remove(0);
        let name = server_name("dns.example").unwrap();
        let trust = Trust {
            pins: vec![[0; 32]],
            ..Trust::default()
        };
        let client = Client::new(&trust, &[]);
        let mut verifier = Verifier::new(&trust, &provider(), &client.refusals);
        let verify = |verifier: &Verifier| verifier.verify_server_cert(&certificate, &[], &name, &[], now);
        assert_eq!(client.refusal(&name), None);
        for _ in 0..2 {
            verify(&verifier).unwrap_err();
        }
        for _ in 0..2 {
            assert!(client.refusal(&name).is_some());
        }
        verifier.pins.clear();
        verify(&verifier).unwrap();
        assert_eq!(client.refusal(&name), None);
    }
}
