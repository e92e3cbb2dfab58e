//! Who must have signed artifacts, and the question whether they have, which a [process](super::process) answers.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};

use super::artifact::{Artifact, Form};
use super::key::PublicKey;
use super::process::{Error, Work, limits, run};
use crate::config::{Diagnostic, Registries, Signatures, SignedBy, Signer};

/// The largest answer, in bytes: a name for every filter of a module.
const ANSWER: usize = 1 << 20;

/// The keys and identities of which one must have signed each artifact; if empty, no signature is needed.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Policy {
    /// The public keys.
    pub keys: Vec<Key>,
    /// Sigstore's trusted root in JSON, which vouches for the identities.
    pub trust_root: Option<String>,
    /// The identities.
    pub identities: Vec<Identity>,
}

/// A public key.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Key {
    /// Its name.
    pub name: String,
    /// The key in PEM.
    pub pem: String,
}

/// A signer with certificates.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Identity {
    /// Its name.
    pub name: String,
    /// The address or URI in the certificate; a final `*` matches any ending.
    pub subject: String,
    /// The identity provider that authenticated the signer to the authority.
    pub issuer: String,
}

/// Which signature an artifact needs.
#[derive(Debug, Serialize, Deserialize)]
pub struct Wanted {
    /// The keys and identities of which one must have signed; if empty, any of them.
    pub names: Vec<String>,
    /// The repository that the signature must name, if it names one.
    pub repository: String,
}

/// What a process is to verify.
#[derive(Debug, Serialize, Deserialize)]
pub struct Verification {
    /// Who may have signed.
    pub policy: Policy,
    /// The digest of the artifact.
    pub digest: String,
    /// Which signatures it needs; the answer has a [`Verified`] for each.
    pub wanted: Vec<Wanted>,
    /// Those it has, in base64.
    pub signatures: Vec<(Form, String)>,
}

/// Who signed an artifact.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verified {
    /// The name of the key or identity.
    pub name: String,
    /// Whether the signature names the artifact's repository.
    pub says_repository: bool,
}

/// Returns the mistakes in the keys of a configuration.
pub fn mistakes(signatures: &Signatures) -> Vec<Diagnostic> {
    let wrong = signatures
        .keys
        .iter()
        .filter(|key| PublicKey::read(&key.pem).is_none());
    let wrong = wrong.map(|key| {
        let problem = format!(
            "the key {:?} is not a public key of ECDSA P-256 or Ed25519 in PEM",
            key.name
        );
        let help = "name the file that `cosign generate-key-pair` writes as cosign.pub";
        Diagnostic::new(key.span, problem).help(help)
    });
    wrong.collect()
}

impl From<&Signatures> for Policy {
    fn from(signatures: &Signatures) -> Policy {
        let keys = signatures.keys.iter().map(|key| Key {
            name: key.name.clone(),
            pem: key.pem.clone(),
        });
        let identities = signatures.identities.iter().map(|identity| Identity {
            name: identity.name.clone(),
            subject: identity.subject.clone(),
            issuer: identity.issuer.clone(),
        });
        Policy {
            keys: keys.collect(),
            trust_root: signatures.trust_root.as_ref().map(|root| root.json.clone()),
            identities: identities.collect(),
        }
    }
}

impl Policy {
    /// Returns whether artifacts need a signature.
    pub(super) fn asks(&self) -> bool {
        !self.keys.is_empty() || self.trust_root.is_some()
    }

    /// Checks the trust root.
    ///
    /// # Errors
    /// When it cannot be used, or no process can check it.
    pub async fn check(&self, registries: &Registries) -> Result<(), Error> {
        if self.trust_root.is_none() {
            return Ok(());
        }
        let nothing = Verification {
            policy: Policy {
                keys: Vec::new(),
                ..self.clone()
            },
            digest: String::new(),
            wanted: Vec::new(),
            signatures: Vec::new(),
        };
        nothing.answer(registries).await.map(drop)
    }

    /// Returns, for each of `wanted`, the key or identity that signed `artifact`. `repository` is where it is from.
    /// `None` if no signature is needed.
    ///
    /// # Errors
    /// When it has not all of these signatures, or no process can verify them.
    pub async fn signers(
        &self,
        artifact: &Artifact,
        wanted: &[SignedBy],
        repository: &str,
        registries: &Registries,
    ) -> Result<Vec<Option<Signer>>, Error> {
        if !self.asks() {
            return Ok(vec![None; wanted.len()]);
        }
        let wanted = wanted.iter().map(|wants| Wanted {
            names: wants.names.clone(),
            repository: wants.repository.as_deref().unwrap_or(repository).to_owned(),
        });
        let signatures = artifact.signatures.iter();
        let signatures = signatures.map(|one| (one.form.clone(), STANDARD.encode(&one.octets)));
        let verification = Verification {
            policy: self.clone(),
            digest: artifact.digest.clone(),
            wanted: wanted.collect(),
            signatures: signatures.collect(),
        };
        let verified = verification.answer(registries).await?;
        let signers = verified.into_iter().map(|by| Signer {
            name: by.name,
            says_repository: by.says_repository,
        });
        Ok(signers.map(Some).collect())
    }
}

impl Verification {
    /// Returns the answer of a process, which is about all of `wanted`, and names nobody else.
    async fn answer(&self, registries: &Registries) -> Result<Vec<Verified>, Error> {
        let input = serde_json::to_vec(self).map_err(|error| Error::Failed(error.to_string()))?;
        let answer = run(Work::Verify, &[&input], limits(registries), ANSWER).await?;
        let verified: Option<Vec<Verified>> = serde_json::from_slice(&answer).ok();
        let names = |wanted: &Wanted, name: &str| {
            let keys = self.policy.keys.iter().map(|key| &key.name);
            let mut known = keys.chain(self.policy.identities.iter().map(|identity| &identity.name));
            let is_wanted = wanted.names.is_empty() || wanted.names.iter().any(|one| one == name);
            is_wanted && known.any(|one| one == name)
        };
        let verified = verified.filter(|verified| {
            let mut pairs = self.wanted.iter().zip(verified);
            verified.len() == self.wanted.len() && pairs.all(|(wanted, by)| names(wanted, &by.name))
        });
        verified.ok_or_else(|| {
            Error::Failed("the process that verifies signatures answers something else".into())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::artifact::tests::artifact;
    use super::*;
    use crate::config::{Key, Span};

    const PEM: &str = "-----BEGIN PUBLIC KEY-----
MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEbx78avA85+2vurYBO2gixRb5az6g
7yQoadwjYttoTLCze51l+jEkbBBYwkCzDmMx4s6YkkN8FkFiUUgCbzy+KQ==
-----END PUBLIC KEY-----
";

    #[tokio::test]
    async fn without_a_policy_nobody_is_asked() {
        let wanted = [SignedBy {
            names: Vec::new(),
            repository: None,
        }];
        let (artifact, registries) = (artifact(b"module"), Registries::default());
        let policy = Policy::default();
        let signers = policy.signers(&artifact, &wanted, "a", &registries);
        assert_eq!(signers.await.unwrap(), [None::<Signer>]);
        Policy::default().check(&registries).await.unwrap();
    }

    #[test]
    fn keys_that_are_none_are_told() {
        let key = |pem: String| Key {
            name: "key".into(),
            pem,
            span: Span::default(),
        };
        // RSA, judging by its first bytes.
        let rsa = STANDARD.encode([0x30, 0x82, 0x01, 0x22]);
        for pem in [
            String::new(),
            PEM.replace("PUBLIC", "PRIVATE"),
            PEM.replace("MFk", "MFl"),
            rsa,
        ] {
            let signatures = Signatures {
                keys: vec![key(PEM.into()), key(pem)],
                ..Signatures::default()
            };
            let wrong = mistakes(&signatures);
            assert_eq!(wrong.len(), 1, "{wrong:?}");
            assert!(wrong[0].message.contains("ECDSA P-256 or Ed25519"), "{wrong:?}");
        }
    }
}
