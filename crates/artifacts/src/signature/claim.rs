//! Parses what a signature, in either format, says about artifacts.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;

/// The type of a bundle's statement that an artifact is signed. Other statements about it, such as its list
/// of parts, have other types.
pub const SIGNED: &str = "https://sigstore.dev/cosign/sign/v1";

/// The types of a simple signature, and of an envelope's payload.
const SIMPLE_TYPE: &str = "cosign container image signature";
const STATEMENT: &str = "application/vnd.in-toto+json";
pub const NO_ENVELOPE: &str = "a bundle has no DSSE envelope";

/// What a signature says, and what it signs.
pub struct Claim {
    pub message: Vec<u8>,
    pub signature: Vec<u8>,
    /// The artifacts that it is for.
    pub digests: Vec<String>,
    /// Their repository, if it says so, without its registry, which may be a mirror.
    pub repository: Option<String>,
}

#[derive(Deserialize)]
struct Simple {
    critical: Critical,
}

#[derive(Deserialize)]
struct Critical {
    #[serde(default)]
    identity: Named,
    image: Image,
    r#type: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Image {
    docker_manifest_digest: String,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
struct Named {
    docker_reference: String,
}

/// Parses a simple signature, whose own bytes are `encoded` in base64.
pub fn simple(payload: &[u8], encoded: &str) -> Result<Claim, String> {
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
        repository: repository(&read.critical.identity.docker_reference),
    })
}

/// Returns the repository in a docker reference, `HOST/NAME:TAG@DIGEST`, where everything but the name is
/// optional. The first part is a host if it has a dot or a port, or is `localhost`
/// (<https://github.com/distribution/reference>).
fn repository(reference: &str) -> Option<String> {
    let named = reference.split_once('@').map_or(reference, |(named, _)| named);
    let named = match named.rsplit_once(':') {
        Some((named, tag)) if !tag.contains('/') => named,
        _ => named,
    };
    let name = match named.split_once('/') {
        Some((host, name)) if host.contains(['.', ':']) || host == "localhost" => name,
        _ => named,
    };
    (!name.is_empty()).then(|| name.to_owned())
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
    digest: BTreeMap<String, String>,
}

/// Parses a bundle that is signed by a key; `None` if it is signed with a certificate.
pub fn bundle(octets: &[u8]) -> Result<Option<Claim>, String> {
    let broken = "a bundle is broken";
    let read: Bundle = serde_json::from_slice(octets).map_err(|_| broken)?;
    if read.verification_material.public_key.is_none() {
        return Ok(None);
    }
    let envelope = read.dsse_envelope.ok_or(NO_ENVELOPE)?;
    if envelope.payload_type != STATEMENT {
        return Err(format!(
            "a bundle has a payload of the type {:?}, not {STATEMENT:?}",
            envelope.payload_type
        ));
    }
    let payload = STANDARD.decode(&envelope.payload).map_err(|_| broken)?;
    let digests = stated(&payload)?;
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
    Ok(Some(Claim {
        message,
        signature: STANDARD.decode(&signature.sig).map_err(|_| broken)?,
        digests,
        repository: None,
    }))
}

/// Returns the digests of the artifacts that a statement declares signed.
pub fn stated(statement: &[u8]) -> Result<Vec<String>, String> {
    let statement: Statement = serde_json::from_slice(statement).map_err(|_| "a bundle is broken")?;
    if statement.predicate_type != SIGNED {
        return Err(format!(
            "a bundle says {:?}, not {SIGNED:?}",
            statement.predicate_type
        ));
    }
    let subjects = statement.subject.into_iter();
    let digests = subjects.filter_map(|mut subject| subject.digest.remove("sha256"));
    Ok(digests.map(|digits| format!("sha256:{digits}")).collect())
}

/// Checks that what `by` signed is for the artifact with this digest.
pub fn is_for(claimed: &[String], digest: &str, by: &str) -> Result<(), String> {
    match claimed.iter().any(|claimed| claimed == digest) {
        true => Ok(()),
        false => Err(format!(
            "a signature by {by:?} is for {}",
            claimed.first().map_or("nothing", String::as_str)
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repository_is_named_without_its_registry() {
        for (reference, expected) in [
            ("r.example/dns/block-list", Some("dns/block-list")),
            (
                "r.example:5000/dns/block-list:1@sha256:00",
                Some("dns/block-list"),
            ),
            ("localhost/block-list", Some("block-list")),
            ("[::1]:5000/a/b", Some("a/b")),
            ("index.docker.io/library/a", Some("library/a")),
            ("dns/block-list:1", Some("dns/block-list")),
            ("a", Some("a")),
            ("", None),
            ("r.example/", None),
        ] {
            assert_eq!(repository(reference).as_deref(), expected, "{reference}");
        }
    }
}
