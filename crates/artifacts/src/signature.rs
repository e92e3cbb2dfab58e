//! Decides whether an artifact has an accepted signature.
//!
//! Two formats are supported, both of cosign: simple signing
//! (<https://github.com/sigstore/cosign/blob/main/specs/SIGNATURE_SPEC.md>), and sigstore bundles, version
//! 0.3, around an in-toto statement (<https://docs.sigstore.dev/about/bundle/>). Both are verified with
//! configured public keys; bundles with a certificate, against the [trust root](identity). A simple signature
//! names the repository of its artifact, and is valid for no other; a bundle does not.

use crate::artifact::{Form, Signature};
use crate::key::PublicKey;
use crate::policy::{Policy, Verified, Wanted};
use claim::{bundle, is_for, simple};
use identity::Identities;

mod claim;
mod cryptography;
mod identity;

pub use claim::SIGNED;

/// An artifact, as far as it matters who signed it.
pub struct Signed {
    /// The digest of its manifest.
    pub digest: String,
    /// Its signatures.
    pub signatures: Vec<Signature>,
}

/// The keys and identities of which one must have signed each artifact.
#[derive(Debug)]
pub struct Signers {
    keys: Vec<(String, PublicKey)>,
    identities: Option<Identities>,
}

impl Signers {
    /// Reads the keys and the trust root of a policy.
    ///
    /// # Errors
    /// When one of them is not valid.
    pub fn new(policy: &Policy) -> Result<Signers, String> {
        let keys = policy.keys.iter().map(|key| {
            let name = key.name.clone();
            match PublicKey::read(&key.pem) {
                Some(key) => Ok((name, key)),
                None => Err(format!("the key {name:?} cannot be used")),
            }
        });
        let root = policy.trust_root.as_ref();
        let identities = root.map(|root| Identities::new(root, &policy.identities));
        Ok(Signers {
            keys: keys.collect::<Result<_, String>>()?,
            identities: identities.transpose()?,
        })
    }

    /// Returns the key or identity that gave `artifact` the signature that is `wanted`.
    ///
    /// # Errors
    /// When it has no such signature.
    pub fn signer(&self, artifact: &Signed, wanted: &Wanted) -> Result<Verified, String> {
        let Wanted { names, repository } = wanted;
        let keys = self.keys.iter().map(|(name, _)| name.as_str());
        let all = keys.chain(self.identities.iter().flat_map(Identities::names));
        let wanted =
            Vec::from_iter(all.filter(|name| names.is_empty() || names.iter().any(|one| one == name)));
        let shown = Vec::from_iter(wanted.iter().map(|name| format!("{name:?}"))).join(" or ");
        if artifact.signatures.is_empty() {
            return Err(format!(
                "{} is not signed, and must be by {shown}",
                artifact.digest
            ));
        }
        let mut reasons: Vec<String> = Vec::new();
        for signature in &artifact.signatures {
            match self.signer_of(signature, &wanted, &artifact.digest, repository) {
                Ok(signer) => return Ok(signer),
                Err(reason) if reasons.contains(&reason) => {}
                Err(reason) => reasons.push(reason),
            }
        }
        Err(format!(
            "{} is not signed by {shown}: {}",
            artifact.digest,
            reasons.join("; ")
        ))
    }

    /// Returns which of `wanted` signed this digest, for this repository if the signature names one.
    fn signer_of(
        &self,
        signature: &Signature,
        wanted: &[&str],
        digest: &str,
        repository: &str,
    ) -> Result<Verified, String> {
        let read = match &signature.form {
            Form::Simple(encoded) => simple(&signature.octets, encoded)?,
            Form::Bundle => match (bundle(&signature.octets)?, &self.identities) {
                (Some(claim), _) => claim,
                (None, Some(identities)) => {
                    let name = identities.signer(&signature.octets, wanted, digest)?.to_owned();
                    return Ok(Verified {
                        name,
                        says_repository: false,
                    });
                }
                (None, None) => {
                    return Err("a bundle is signed with a certificate, and only keys are taken".into());
                }
            },
        };
        let mut keys = self
            .keys
            .iter()
            .filter(|(name, _)| wanted.contains(&name.as_str()));
        let by = keys.find(|(_, key)| key.has_signed(&read.message, &read.signature));
        let (name, _) = by.ok_or("a signature is wrong, or by another key")?;
        is_for(&read.digests, digest, name)?;
        match &read.repository {
            Some(named) if named != repository => Err(format!(
                "a signature by {name:?} is for {named:?}, not for {repository:?}: if that is the same module, write signed-by for={named:?}, \
                 or --for {named}"
            )),
            named => Ok(Verified {
                name: name.clone(),
                says_repository: named.is_some(),
            }),
        }
    }
}

#[cfg(test)]
mod tests;
