//! Verifies the signatures of an artifact, which is somewhere else.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;

use super::signature::{Signed, Signers};
use crate::artifact::{Form, Signature};
use crate::policy::Verification;

/// Answers who gave each signature that is wanted.
///
/// # Errors
/// When one is missing, or the policy cannot be used.
pub fn verify(input: &[u8]) -> Result<Vec<Bytes>, String> {
    let asked: Verification = serde_json::from_slice(input).map_err(|error| error.to_string())?;
    let signers = Signers::new(&asked.policy)?;
    let decoded = |(form, text): &(Form, String)| {
        let octets = STANDARD.decode(text).map_err(|error| error.to_string())?;
        Ok(Signature {
            form: form.clone(),
            octets: octets.into(),
        })
    };
    let artifact = Signed {
        signatures: asked
            .signatures
            .iter()
            .map(decoded)
            .collect::<Result<_, String>>()?,
        digest: asked.digest,
    };
    let verified = asked
        .wanted
        .iter()
        .map(|wanted| signers.signer(&artifact, wanted));
    let verified = verified.collect::<Result<Vec<_>, String>>()?;
    let answer = serde_json::to_vec(&verified).map_err(|error| error.to_string())?;
    Ok(vec![answer.into()])
}
