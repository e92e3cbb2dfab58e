//! Our side of TLS where others are the servers.

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

/// Sessions that are kept to be resumed, one or more for each name.
const SESSIONS: usize = 64;

/// The SHA-256 of a public key with its algorithm (SubjectPublicKeyInfo), as RFC 7858 section 4.2 pins it.
pub type Pin = [u8; 32];

/// How servers prove who they are, and we to them.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Trust {
    /// Who must have signed their certificates; none: the system's authorities, or with pins nobody.
    pub authorities: Option<Authorities>,
    /// The keys of which they must have one; none: any.
    pub pins: Vec<Pin>,
    /// Who we are, where they ask.
    pub identity: Option<Identity>,
}

/// Connections to servers that are trusted in one way. Sessions are resumed among them.
#[derive(Debug, Clone)]
pub struct Client {
    config: Result<Arc<ClientConfig>, Error>,
    refusals: Arc<Refusals>,
}

/// Why servers were refused the last time, by the names that they should have had: QUIC hands on no more than a text.
type Refusals = Mutex<HashMap<ServerName<'static>, Error>>;

impl Client {
    /// One that speaks these protocols (ALPN, RFC 7301), the first if it can.
    pub fn new(trust: &Trust, protocols: &[&[u8]]) -> Client {
        let refusals = Arc::default();
        Client {
            config: configuration(trust, protocols, &refusals).map(Arc::new),
            refusals,
        }
    }

    /// What rustls needs to know.
    ///
    /// # Errors
    /// When there is no TLS in this program.
    pub fn config(&self) -> Result<Arc<ClientConfig>, Error> {
        self.config.clone()
    }

    /// Why a server that should be `name` was refused, if it was since this was last asked.
    pub fn refusal(&self, name: &ServerName<'static>) -> Option<Error> {
        self.refusals.lock().remove(name)
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

/// Decides whether a server is who it has to be.
#[derive(Debug)]
struct Verifier {
    chain: Chain,
    pins: Vec<Pin>,
    provider: Arc<CryptoProvider>,
    refusals: Arc<Refusals>,
}

/// Who must have signed a certificate.
#[derive(Debug)]
enum Chain {
    By(Arc<dyn ServerCertVerifier>),
    /// Nobody: the key is pinned.
    Nobody,
    /// One of the system's authorities, which has none.
    Missing(String),
}

impl Verifier {
    fn new(trust: &Trust, provider: &Arc<CryptoProvider>, refusals: &Arc<Refusals>) -> Verifier {
        let chain = match &trust.authorities {
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

    /// RFC 7858 section 4.2: a key that is not pinned is an error from which there is no way on.
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
        chain.inspect_err(|error| {
            self.refusals.lock().insert(server_name.to_owned(), error.clone());
        })
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

/// A key that is not among those pinned.
#[derive(Debug)]
pub(super) struct WrongKey(pub Pin);

impl fmt::Display for WrongKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("its key is not one of those pinned")
    }
}

impl std::error::Error for WrongKey {}

/// There is nobody who could vouch for a server.
#[derive(Debug)]
pub(super) struct NoAuthorities(String);

impl fmt::Display for NoAuthorities {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "this system has no authorities ({})", self.0)
    }
}

impl std::error::Error for NoAuthorities {}
