//! Certificates, good and bad.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, date_time_ymd};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};

/// A certificate authority.
pub struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Default for Authority {
    fn default() -> Authority {
        Authority::new()
    }
}

impl Authority {
    /// Creates an authority.
    pub fn new() -> Authority {
        let mut params = CertificateParams::default();
        // Must differ from that of its certificates, which OpenSSL would take for self-signed.
        params.distinguished_name.push(DnType::CommonName, "an authority");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        Authority(CertifiedIssuer::self_signed(params, key).expect("an authority"))
    }

    /// Returns its own certificate in PEM.
    pub fn pem(&self) -> String {
        self.0.pem()
    }

    /// Returns roots that trust it alone.
    pub fn roots(&self) -> RootCertStore {
        let mut roots = RootCertStore::empty();
        roots.add(self.0.der().clone()).expect("an authority");
        roots
    }

    /// Issues a certificate for these names and addresses that is valid now.
    pub fn issue(&self, names: &[&str]) -> Certificate {
        self.issue_between(names, 2020, 2080)
    }

    /// The same, valid from the beginning of one year to that of another.
    pub fn issue_between(&self, names: &[&str], from: i32, to: i32) -> Certificate {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(names).expect("names");
        params.not_before = date_time_ymd(from, 1, 1);
        params.not_after = date_time_ymd(to, 1, 1);
        let key = KeyPair::generate().expect("a key");
        let certificate = params.signed_by(&key, &self.0).expect("a certificate");
        Certificate {
            pem: certificate.pem(),
            key_pem: key.serialize_pem(),
            der: certificate.der().clone(),
            key_der: key.serialize_der(),
        }
    }
}

/// A certificate and its key.
pub struct Certificate {
    /// The certificate in PEM.
    pub pem: String,
    /// The key in PEM.
    pub key_pem: String,
    der: CertificateDer<'static>,
    key_der: Vec<u8>,
}

impl Certificate {
    /// Writes both to a folder: `NAME.pem` and `NAME.key`.
    pub fn write(&self, folder: &Path, name: &str) -> (PathBuf, PathBuf) {
        let paths = [("pem", &self.pem), ("key", &self.key_pem)].map(|(ending, text)| {
            let path = folder.join(format!("{name}.{ending}"));
            std::fs::write(&path, text).expect("a certificate's file");
            path
        });
        paths.into()
    }

    /// Returns a TLS server's configuration; it requires a client certificate of an authority, if given.
    pub fn server(&self, clients: Option<&Authority>) -> Arc<ServerConfig> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .expect("versions");
        let builder = match clients {
            None => builder.with_no_client_auth(),
            Some(authority) => {
                let roots = Arc::new(authority.roots());
                let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider);
                builder.with_client_cert_verifier(verifier.build().expect("a verifier"))
            }
        };
        let key = PrivateKeyDer::try_from(self.key_der.clone()).expect("a key");
        let config = builder.with_single_cert(vec![self.der.clone()], key);
        Arc::new(config.expect("a configuration"))
    }
}
