//! Signatures with certificates of identities ("keyless"): an authority certifies, for some minutes, who held
//! a key that nobody kept.
//!
//! `sigstore-verify` checks bundles as `cosign verify --new-bundle-format --trusted-root` does, offline: the
//! certificate chain, its proof from a certificate log if the trust root has any, the entry in the signature
//! log, and its time. The certificate may have expired since, but not before it signed. The statement, and
//! whom the certificate is for, are checked here.

use std::fmt;
use std::str;

use sigstore_verify::trust_root::TrustedRoot;
use sigstore_verify::types::{Artifact, Bundle, Sha256Hash, SignatureContent};
use sigstore_verify::{VerificationPolicy, Verifier, crypto};

use super::claim::{NO_ENVELOPE, is_for, stated};
use super::cryptography::Ring;
use crate::policy::Identity;

/// The most signature logs, certificate logs, CAs, and timestamp authorities in a trust root.
const MOST_TRUSTED: usize = 64;

/// The most log entries, and timestamps, in a bundle.
const MOST_ENTRIES: usize = 8;

/// The most hashes from a log entry to the root of its log: one for each bit of its index.
const MOST_HASHES: usize = 64;

/// The most lines of a checkpoint: its statement, and its signatures, including those of witnesses.
const MOST_LINES: usize = 64;

/// Identities, and what vouches for them.
pub struct Identities {
    verifier: Verifier,
    policy: VerificationPolicy,
    known: Vec<Identity>,
}

impl fmt::Debug for Identities {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Identities")
            .field("known", &self.known)
            .finish_non_exhaustive()
    }
}

impl Identities {
    /// Creates the `known` identities, with a trust root in JSON.
    ///
    /// # Errors
    /// When the trust root is invalid.
    pub fn new(root: &str, known: &[Identity]) -> Result<Identities, String> {
        // The first provider stays installed; it is the same.
        let _ = crypto::install_default_provider(&Ring);
        let wrong = |error: &dyn fmt::Display| format!("the trust root cannot be used: {error}");
        let root = TrustedRoot::from_json(root).map_err(|error| wrong(&error))?;
        for (length, what) in [
            (root.tlogs.len(), "tlogs"),
            (root.ctlogs.len(), "ctlogs"),
            (root.certificate_authorities.len(), "certificateAuthorities"),
            (root.timestamp_authorities.len(), "timestampAuthorities"),
        ] {
            if length > MOST_TRUSTED {
                return Err(wrong(&format!(
                    "it has {length} `{what}`, and at most {MOST_TRUSTED} are taken"
                )));
            }
        }
        // A signature must be in a log. A certificate must be in one only if the trust root has certificate
        // logs.
        let policy = match root.ctlogs.is_empty() {
            true => VerificationPolicy::any_identity().skip_sct(),
            false => VerificationPolicy::any_identity(),
        };
        Ok(Identities {
            verifier: Verifier::new(&root).map_err(|error| wrong(&error))?,
            policy,
            known: known.to_vec(),
        })
    }

    /// Returns their names.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.known.iter().map(|identity| identity.name.as_str())
    }

    /// Returns which of `wanted` signed, with this bundle, the artifact with this digest.
    ///
    /// # Errors
    /// When none of them did.
    pub fn signer(&self, bundle: &[u8], wanted: &[&str], digest: &str) -> Result<&str, String> {
        let bundle = str::from_utf8(bundle).map_err(|_| "a bundle is broken: it is not UTF-8")?;
        let bundle = Bundle::from_json(bundle).map_err(|error| format!("a bundle is broken: {error}"))?;
        bounded(&bundle)?;
        let SignatureContent::DsseEnvelope(envelope) = &bundle.content else {
            return Err(NO_ENVELOPE.into());
        };
        let claimed = stated(envelope.payload.as_bytes())?;
        // Whether it is for this artifact is checked below, to name the signer in the error.
        let about = claimed
            .iter()
            .find(|claimed| *claimed == digest)
            .or(claimed.first());
        let about = about.and_then(|about| Sha256Hash::from_hex(about.trim_start_matches("sha256:")).ok());
        let about = about.ok_or("a bundle is about nothing that has a SHA-256 digest")?;
        let checked = self.verifier.verify(Artifact::from(about), &bundle, &self.policy);
        let checked = checked.map_err(|error| format!("a bundle with a certificate is refused: {error}"))?;
        let subject = checked.identity().map_or("", |subject| subject.as_str());
        let issuer = checked.issuer().unwrap_or_default();
        let by = self.known.iter().find(|identity| {
            wanted.contains(&identity.name.as_str())
                && identity.issuer == issuer
                && is_subject(identity, subject)
        });
        let by = by.ok_or_else(|| format!("a signature is by {subject:?} of the issuer {issuer:?}"))?;
        is_for(&claimed, digest, &by.name)?;
        Ok(&by.name)
    }
}

/// Returns whether a certificate with this `subject` is for that identity.
fn is_subject(identity: &Identity, subject: &str) -> bool {
    match identity.subject.strip_suffix('*') {
        Some(begin) => subject.starts_with(begin),
        None => subject == identity.subject,
    }
}

/// Checks that there is no more to verify than in an honest bundle.
fn bounded(bundle: &Bundle) -> Result<(), String> {
    let material = &bundle.verification_material;
    let entries = &material.tlog_entries;
    let proofs = || entries.iter().filter_map(|entry| entry.inclusion_proof.as_ref());
    let hashes = proofs().map(|proof| proof.hashes.len()).max();
    let lines = proofs()
        .map(|proof| proof.checkpoint.envelope().lines().count())
        .max();
    let timestamps = material.timestamp_verification_data.rfc3161_timestamps.len();
    for (number, most, what) in [
        (entries.len(), MOST_ENTRIES, "entries of logs"),
        (timestamps, MOST_ENTRIES, "timestamps"),
        (hashes.unwrap_or_default(), MOST_HASHES, "hashes of a proof"),
        (lines.unwrap_or_default(), MOST_LINES, "lines of a checkpoint"),
    ] {
        if number > most {
            return Err(format!(
                "a bundle has {number} {what}, and at most {most} are read"
            ));
        }
    }
    Ok(())
}
