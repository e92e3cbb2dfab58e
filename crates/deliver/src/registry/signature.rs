//! Decides whether an artifact has an accepted signature.
//!
//! Two formats are supported, both of cosign: simple signing
//! (<https://github.com/sigstore/cosign/blob/main/specs/SIGNATURE_SPEC.md>), and sigstore bundles, version
//! 0.3, around an in-toto statement (<https://docs.sigstore.dev/about/bundle/>). Both are verified with
//! configured public keys; bundles with a certificate, against the [trust root](identity). A simple signature
//! names the repository of its artifact, and is valid for no other; a bundle does not.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::signature::{ECDSA_P256_SHA256_ASN1, ED25519, UnparsedPublicKey, VerificationAlgorithm};

use super::artifact::{Artifact, Form, Signature};
use crate::config::{Diagnostic, Signatures, SignedBy, Signer};
use claim::{bundle, is_for, simple};
use identity::Identities;

mod claim;
mod cryptography;
mod identity;

/// The DER prefixes of public keys (RFC 5480 and RFC 8410).
const P256: &[u8] = &[
    0x30, 0x59, 0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x08, 0x2a, 0x86,
    0x48, 0xce, 0x3d, 0x03, 0x01, 0x07, 0x03, 0x42, 0x00,
];
const EDWARDS: &[u8] = &[
    0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00,
];

/// The keys and identities of which one must have signed each artifact; if empty, no signature is needed.
#[derive(Debug, Default)]
pub struct Policy {
    keys: Vec<PublicKey>,
    identities: Option<Identities>,
}

#[derive(Debug)]
struct PublicKey {
    name: String,
    algorithm: &'static dyn VerificationAlgorithm,
    octets: Vec<u8>,
}

impl Policy {
    /// # Errors
    /// Invalid keys, and an invalid trust root.
    pub fn new(signatures: &Signatures) -> Result<Policy, Vec<Diagnostic>> {
        let mut wrong = Vec::new();
        let mut policy = Policy::default();
        for key in &signatures.keys {
            match PublicKey::read(&key.name, &key.pem) {
                Some(key) => policy.keys.push(key),
                None => {
                    let problem = format!(
                        "the key {:?} is not a public key of ECDSA P-256 or Ed25519 in PEM",
                        key.name
                    );
                    let help = "name the file that `cosign generate-key-pair` writes as cosign.pub";
                    wrong.push(Diagnostic::new(key.span, problem).help(help));
                }
            }
        }
        if let Some(root) = &signatures.trust_root {
            match Identities::new(&root.json, &signatures.identities) {
                Ok(identities) => policy.identities = Some(identities),
                Err(problem) => {
                    let help =
                        "name a trusted root of sigstore in JSON, as `cosign trusted-root create` writes it";
                    wrong.push(Diagnostic::new(root.span, problem).help(help));
                }
            }
        }
        match wrong.is_empty() {
            true => Ok(policy),
            false => Err(wrong),
        }
    }

    /// Returns whether artifacts need a signature.
    pub fn asks(&self) -> bool {
        !self.keys.is_empty() || self.identities.is_some()
    }

    /// Returns the key or identity that signed `artifact`, as a filter requires. `repository` is where the
    /// artifact is from. `None` if no signature is needed.
    ///
    /// # Errors
    /// When it has no such signature.
    pub fn signer(
        &self,
        artifact: &Artifact,
        wants: &SignedBy,
        repository: &str,
    ) -> Result<Option<Signer>, String> {
        if !self.asks() {
            return Ok(None);
        }
        let names = &wants.names;
        let repository = wants.repository.as_deref().unwrap_or(repository);
        let keys = self.keys.iter().map(|key| key.name.as_str());
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
                Ok(signer) => return Ok(Some(signer)),
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
    ) -> Result<Signer, String> {
        let read = match &signature.form {
            Form::Simple(encoded) => simple(&signature.octets, encoded)?,
            Form::Bundle => match (bundle(&signature.octets)?, &self.identities) {
                (Some(claim), _) => claim,
                (None, Some(identities)) => {
                    let name = identities.signer(&signature.octets, wanted, digest)?.to_owned();
                    return Ok(Signer {
                        name,
                        says_repository: false,
                    });
                }
                (None, None) => {
                    return Err("a bundle is signed with a certificate, and only keys are taken".into());
                }
            },
        };
        let mut keys = self.keys.iter().filter(|key| wanted.contains(&key.name.as_str()));
        let by = keys.find(|key| key.has_signed(&read.message, &read.signature));
        let by = by.ok_or("a signature is wrong, or by another key")?;
        is_for(&read.digests, digest, &by.name)?;
        match &read.repository {
            Some(named) if named != repository => Err(format!(
                "a signature by {:?} is for {named:?}, not for {repository:?}: if that is the same module, write signed-by for={named:?}, \
                 or --for {named}",
                by.name
            )),
            named => Ok(Signer {
                name: by.name.clone(),
                says_repository: named.is_some(),
            }),
        }
    }
}

/// Returns whether the holder of a `key`, in PEM, has signed a message. The signature is in base64, as
/// `cosign sign-blob` writes it.
///
/// # Errors
/// When the key is not of a kind that [`Policy`] accepts.
pub fn has_signed(key: &str, message: &[u8], signature: &str) -> Result<bool, &'static str> {
    let key = PublicKey::read("", key).ok_or("it is not a public key of ECDSA P-256 or Ed25519 in PEM")?;
    let signature = STANDARD.decode(signature.trim_end());
    Ok(signature.is_ok_and(|signature| key.has_signed(message, &signature)))
}

impl PublicKey {
    fn read(name: &str, pem: &str) -> Option<PublicKey> {
        let inner = pem.split_once("-----BEGIN PUBLIC KEY-----")?.1;
        let inner = inner.split_once("-----END PUBLIC KEY-----")?.0;
        let text: String = inner.split_whitespace().collect();
        let der = STANDARD.decode(text).ok()?;
        let known: [(&[u8], usize, &'static dyn VerificationAlgorithm); 2] =
            [(P256, 65, &ECDSA_P256_SHA256_ASN1), (EDWARDS, 32, &ED25519)];
        known.into_iter().find_map(|(prefix, length, algorithm)| {
            let octets = der.strip_prefix(prefix).filter(|octets| octets.len() == length)?;
            Some(PublicKey {
                name: name.to_owned(),
                algorithm,
                octets: octets.to_vec(),
            })
        })
    }

    fn has_signed(&self, message: &[u8], signature: &[u8]) -> bool {
        UnparsedPublicKey::new(self.algorithm, &self.octets)
            .verify(message, signature)
            .is_ok()
    }
}

#[cfg(test)]
mod tests;
