//! Certificates, good and bad.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, date_time_ymd};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};

/// Who signs certificates.
pub struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Default for Authority {
    fn default() -> Authority {
        Authority::new()
    }
}

impl Authority {
    /// One of its own.
    pub fn new() -> Authority {
        let mut params = CertificateParams::default();
        // Not that of what it signs, which OpenSSL would take for signed by itself.
        params.distinguished_name.push(DnType::CommonName, "an authority");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        Authority(CertifiedIssuer::self_signed(params, key).expect("an authority"))
    }

    /// Its own certificate, as a file has it.
    pub fn pem(&self) -> String {
        self.0.pem()
    }

    /// What somebody knows who trusts it alone.
    pub fn roots(&self) -> RootCertStore {
        let mut roots = RootCertStore::empty();
        roots.add(self.0.der().clone()).expect("an authority");
        roots
    }

    /// A certificate for these names and addresses that is valid now.
    pub fn issue(&self, names: &[&str]) -> Certificate {
        self.issue_between(names, 2020, 2080)
    }

    /// The same, valid from the beginning of a year to that of another.
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
    /// As a file has it.
    pub pem: String,
    /// Its key.
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

    /// What a TLS server needs; it asks clients for a certificate of an authority, if one is given.
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
