//! Whose signatures count, and whether an artifact has one.
//!
//! Two forms are read, both of cosign: simple signing (<https://github.com/sigstore/cosign/blob/main/specs/SIGNATURE_SPEC.md>),
//! and the bundles of sigstore, version 0.3, around a statement of in-toto
//! (<https://docs.sigstore.dev/about/bundle/>). Both are checked with public keys that the configuration names. A signature
//! made with a certificate of somebody's identity is refused by that name.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::signature::{ECDSA_P256_SHA256_ASN1, ED25519, UnparsedPublicKey, VerificationAlgorithm};
use serde::Deserialize;

use super::artifact::{Artifact, Form, Signature};
use crate::config::{Diagnostic, Key};

/// What a public key in DER begins with, up to the key itself (RFC 5480 and RFC 8410).
const P256: &[u8] = &[
    0x30, 0x59, 0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x08, 0x2a, 0x86,
    0x48, 0xce, 0x3d, 0x03, 0x01, 0x07, 0x03, 0x42, 0x00,
];
const EDWARDS: &[u8] = &[
    0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00,
];

/// What a simple signature says that it is, and what a statement is about.
const SIMPLE_TYPE: &str = "cosign container image signature";
const STATEMENT: &str = "application/vnd.in-toto+json";
const SIGNED: &str = "https://sigstore.dev/cosign/sign/v1";

/// The keys of which one must have signed each artifact; none: no signature is needed.
#[derive(Debug, Default)]
pub struct Policy(Vec<PublicKey>);

#[derive(Debug)]
struct PublicKey {
    name: String,
    algorithm: &'static dyn VerificationAlgorithm,
    octets: Vec<u8>,
}

impl Policy {
    /// # Errors
    /// Keys that are none.
    pub fn new(keys: &[Key]) -> Result<Policy, Vec<Diagnostic>> {
        let mut wrong = Vec::new();
        let mut read = Vec::new();
        for key in keys {
            match PublicKey::read(&key.name, &key.pem) {
                Some(key) => read.push(key),
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
        match wrong.is_empty() {
            true => Ok(Policy(read)),
            false => Err(wrong),
        }
    }

    /// Whether artifacts need a signature.
    pub fn asks(&self) -> bool {
        !self.0.is_empty()
    }

    /// The key that `artifact` is signed with, one of those called as in `names` if there are any. None if no signature is
    /// needed.
    ///
    /// # Errors
    /// When it has no such signature.
    pub fn signer(&self, artifact: &Artifact, names: &[String]) -> Result<Option<String>, String> {
        if !self.asks() {
            return Ok(None);
        }
        let keys: Vec<&PublicKey> = self
            .0
            .iter()
            .filter(|key| names.is_empty() || names.contains(&key.name))
            .collect();
        let wanted: Vec<String> = keys.iter().map(|key| format!("{:?}", key.name)).collect();
        let wanted = wanted.join(" or ");
        if artifact.signatures.is_empty() {
            return Err(format!(
                "{} is not signed, and must be by {wanted}",
                artifact.digest
            ));
        }
        let mut reasons: Vec<String> = Vec::new();
        for signature in &artifact.signatures {
            match signer(signature, &keys, &artifact.digest) {
                Ok(name) => return Ok(Some(name.to_owned())),
                Err(reason) if reasons.contains(&reason) => {}
                Err(reason) => reasons.push(reason),
            }
        }
        Err(format!(
            "{} is not signed by {wanted}: {}",
            artifact.digest,
            reasons.join("; ")
        ))
    }
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

/// Which of the `keys` has signed the artifact with this digest.
fn signer<'k>(signature: &Signature, keys: &[&'k PublicKey], digest: &str) -> Result<&'k str, String> {
    let claim = match &signature.form {
        Form::Simple(encoded) => simple(&signature.octets, encoded)?,
        Form::Bundle => bundle(&signature.octets)?,
    };
    let by = keys
        .iter()
        .find(|key| key.has_signed(&claim.message, &claim.signature));
    let by = by.ok_or("a signature is wrong, or by another key")?;
    match claim.digests.iter().any(|claimed| claimed == digest) {
        true => Ok(&by.name),
        false => Err(format!(
            "a signature by {:?} is for {}",
            by.name,
            claim.digests.first().map_or("nothing", String::as_str)
        )),
    }
}

/// What a signature says, and what is signed of it.
struct Claim {
    message: Vec<u8>,
    signature: Vec<u8>,
    /// The artifacts that it is about.
    digests: Vec<String>,
}

#[derive(Deserialize)]
struct Simple {
    critical: Critical,
}

#[derive(Deserialize)]
struct Critical {
    image: Image,
    r#type: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Image {
    docker_manifest_digest: String,
}

fn simple(payload: &[u8], encoded: &str) -> Result<Claim, String> {
    let broken = "a signature is broken";
    let read: Simple = serde_json::from_slice(payload).map_err(|_| broken)?;
    if read.critical.r#type != SIMPLE_TYPE {
        return Err(format!(
            "a signature is of the type {:?}, not {SIMPLE_TYPE:?}",
            read.critical.r#type
        ));
    }
    Ok(Claim {
        message: payload.to_vec(),
        signature: STANDARD.decode(encoded).map_err(|_| broken)?,
        digests: vec![read.critical.image.docker_manifest_digest],
    })
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Bundle {
    verification_material: Material,
    dsse_envelope: Option<Envelope>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Material {
    public_key: Option<serde_json::Value>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Envelope {
    payload: String,
    payload_type: String,
    signatures: Vec<EnvelopeSignature>,
}

#[derive(Deserialize)]
struct EnvelopeSignature {
    sig: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Statement {
    predicate_type: String,
    subject: Vec<Subject>,
}

#[derive(Deserialize)]
struct Subject {
    digest: std::collections::BTreeMap<String, String>,
}

fn bundle(octets: &[u8]) -> Result<Claim, String> {
    let broken = "a bundle is broken";
    let read: Bundle = serde_json::from_slice(octets).map_err(|_| broken)?;
    if read.verification_material.public_key.is_none() {
        return Err("a bundle is signed with a certificate, and only keys are supported".into());
    }
    let envelope = read.dsse_envelope.ok_or("a bundle has no DSSE envelope")?;
    if envelope.payload_type != STATEMENT {
        return Err(format!(
            "a bundle has a payload of the type {:?}, not {STATEMENT:?}",
            envelope.payload_type
        ));
    }
    let payload = STANDARD.decode(&envelope.payload).map_err(|_| broken)?;
    let statement: Statement = serde_json::from_slice(&payload).map_err(|_| broken)?;
    // Statements about an artifact, a list of its parts say, have other types, and are no signatures.
    if statement.predicate_type != SIGNED {
        return Err(format!(
            "a bundle says {:?}, not {SIGNED:?}",
            statement.predicate_type
        ));
    }
    let [signature] = &envelope.signatures[..] else {
        return Err(format!(
            "a bundle has {} signatures, and not one",
            envelope.signatures.len()
        ));
    };
    // <https://github.com/secure-systems-lab/dsse/blob/master/protocol.md>, "Pre-Authentication Encoding".
    let (kind, length) = (&envelope.payload_type, payload.len());
    let mut message = format!("DSSEv1 {} {kind} {length} ", kind.len()).into_bytes();
    message.extend_from_slice(&payload);
    let digests = statement
        .subject
        .into_iter()
        .filter_map(|mut subject| subject.digest.remove("sha256"));
    Ok(Claim {
        message,
        signature: STANDARD.decode(&signature.sig).map_err(|_| broken)?,
        digests: digests.map(|digits| format!("sha256:{digits}")).collect(),
    })
}

#[cfg(test)]
mod tests;
