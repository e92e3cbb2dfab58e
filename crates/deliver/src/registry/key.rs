//! The public keys that signatures are checked with: ECDSA P-256 and Ed25519, as cosign writes them.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::signature::{ECDSA_P256_SHA256_ASN1, ED25519, UnparsedPublicKey, VerificationAlgorithm};

/// How a public key of ECDSA P-256 begins in DER (RFC 5480).
pub const P256: &[u8] = &[
    0x30, 0x59, 0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x08, 0x2a, 0x86,
    0x48, 0xce, 0x3d, 0x03, 0x01, 0x07, 0x03, 0x42, 0x00,
];

/// How a public key of Ed25519 begins in DER (RFC 8410).
pub const EDWARDS: &[u8] = &[
    0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00,
];

/// A public key.
#[derive(Debug)]
pub struct PublicKey {
    algorithm: &'static dyn VerificationAlgorithm,
    octets: Vec<u8>,
}

impl PublicKey {
    /// Reads a key in PEM; `None` if it is not of these kinds.
    pub fn read(pem: &str) -> Option<PublicKey> {
        let inner = pem.split_once("-----BEGIN PUBLIC KEY-----")?.1;
        let inner = inner.split_once("-----END PUBLIC KEY-----")?.0;
        let text: String = inner.split_whitespace().collect();
        let der = STANDARD.decode(text).ok()?;
        let known: [(&[u8], usize, &'static dyn VerificationAlgorithm); 2] =
            [(P256, 65, &ECDSA_P256_SHA256_ASN1), (EDWARDS, 32, &ED25519)];
        known.into_iter().find_map(|(prefix, length, algorithm)| {
            let octets = der.strip_prefix(prefix).filter(|octets| octets.len() == length)?;
            Some(PublicKey {
                algorithm,
                octets: octets.to_vec(),
            })
        })
    }

    /// Returns whether its holder has signed a message.
    pub fn has_signed(&self, message: &[u8], signature: &[u8]) -> bool {
        UnparsedPublicKey::new(self.algorithm, &self.octets)
            .verify(message, signature)
            .is_ok()
    }
}

/// Returns whether the holder of a `key`, in PEM, has signed a message. The signature is in base64, as
/// `cosign sign-blob` writes it.
///
/// # Errors
/// When the key is not of a kind that [`PublicKey`] is.
pub fn has_signed(key: &str, message: &[u8], signature: &str) -> Result<bool, &'static str> {
    let key = PublicKey::read(key).ok_or("it is not a public key of ECDSA P-256 or Ed25519 in PEM")?;
    let signature = STANDARD.decode(signature.trim_end());
    Ok(signature.is_ok_and(|signature| key.has_signed(message, &signature)))
}
