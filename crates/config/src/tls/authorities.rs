//! Certificate authorities.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use rustls::RootCertStore;

use super::{certificates, digest};

/// A set of configured authorities. Two are equal if their files were.
#[derive(Clone)]
pub struct Authorities {
    pub(super) roots: Arc<RootCertStore>,
    digest: [u8; 32],
}

impl Authorities {
    /// Parses the authorities in a PEM text.
    ///
    /// # Errors
    /// What is wrong with it, phrased to follow its name.
    pub fn from_pem(pem: &[u8]) -> Result<Authorities, String> {
        let mut roots = RootCertStore::empty();
        for certificate in certificates(pem)? {
            roots.add(certificate).map_err(|error| {
                format!("has something that is not the certificate of an authority: {error}")
            })?;
        }
        Ok(Authorities {
            roots: Arc::new(roots),
            digest: digest(&[pem]),
        })
    }
}

impl fmt::Debug for Authorities {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} authorities", self.roots.len())
    }
}

impl PartialEq for Authorities {
    fn eq(&self, other: &Authorities) -> bool {
        self.digest == other.digest
    }
}

impl Eq for Authorities {}

impl Hash for Authorities {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.digest.hash(state);
    }
}
