//! A certificate with its key.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::PemObject;
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{Error, InconsistentKeys};

use super::{certificates, digest, expiry, name, provider};

/// A certificate, its intermediates, and its key. Two are equal if their files were.
#[derive(Clone)]
pub struct Identity {
    key: Arc<CertifiedKey>,
    digest: [u8; 32],
    /// When the certificate expires, in seconds since 1970.
    pub expires: Option<i64>,
    /// The first DNS name in the certificate that is not a wildcard.
    pub name: Option<String>,
}

impl Identity {
    /// Parses two PEM texts, which may be the same.
    ///
    /// # Errors
    /// Which of the two is wrong (`true`: the key), and what is wrong, phrased to follow its name.
    pub fn from_pem(certificate: &[u8], key: &[u8]) -> Result<Identity, (bool, String)> {
        let chain = certificates(certificate).map_err(|problem| (false, problem))?;
        let expires = chain.first().and_then(expiry);
        let name = chain.first().and_then(name);
        // Never quote the contents of a key file.
        let private =
            PrivateKeyDer::from_pem_slice(key).map_err(|_| (true, "has no private key in PEM".into()))?;
        let certified = CertifiedKey::from_der(chain, private, &provider()).map_err(|error| match error {
            Error::InconsistentKeys(InconsistentKeys::KeyMismatch) => {
                (true, "is the key of another certificate".into())
            }
            Error::InvalidCertificate(_) => (false, format!("cannot be used: {error}")),
            error => (true, format!("cannot be used: {error}")),
        })?;
        Ok(Identity {
            key: Arc::new(certified),
            digest: digest(&[certificate, key]),
            expires,
            name,
        })
    }

    /// Presents this certificate to every client.
    pub(super) fn resolver(&self) -> Arc<SingleCertAndKey> {
        Arc::new(SingleCertAndKey::from(Arc::clone(&self.key)))
    }
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a certificate and its key")
    }
}

impl PartialEq for Identity {
    fn eq(&self, other: &Identity) -> bool {
        self.digest == other.digest
    }
}

impl Eq for Identity {}

impl Hash for Identity {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.digest.hash(state);
    }
}
