//! A private sigstore: a certificate authority, a certificate log, a signature log, and bundles from all
//! three.
//!
//! Everything is written from the formats' own specifications, not with the library that reads it: bundles
//! and trust roots (<https://github.com/sigstore/protobuf-specs>), entries and promises of the log
//! (<https://github.com/sigstore/rekor>), proofs of certificates (RFC 6962), and checkpoints
//! (<https://github.com/C2SP/C2SP/blob/main/tlog-checkpoint.md>).

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rcgen::{
    BasicConstraints, Certificate, CertificateParams, CertifiedIssuer, CustomExtension, DnType,
    ExtendedKeyUsagePurpose, IsCa, KeyPair, PublicKeyData as _, SanType, SerialNumber, SigningKey as _,
    date_time_ymd,
};
use ring::digest::{SHA256, digest};
use serde_json::{Value, json};

/// The media type of a bundle.
pub const BUNDLE: &str = "application/vnd.dev.sigstore.bundle.v0.3+json";

/// When certificates become valid, for ten minutes: 1 June 2025. Long ago, because only the time of signing
/// counts.
const BEGIN: i64 = 1_748_736_000;

/// Extensions of a certificate: its issuer (<https://github.com/sigstore/fulcio/blob/main/docs/oid-info.md>), and its
/// proofs of certificate logs (RFC 6962 section 3.3).
const ISSUER: &[u64] = &[1, 3, 6, 1, 4, 1, 57264, 1, 8];
const PROOFS: &[u64] = &[1, 3, 6, 1, 4, 1, 11129, 2, 4, 2];

/// An authority and two logs.
pub struct Sigstore {
    authority: CertifiedIssuer<'static, KeyPair>,
    log: KeyPair,
    certificate_log: KeyPair,
}

/// A signature to make.
#[derive(Clone, Copy)]
pub struct Signing<'a> {
    /// The URI of the signer.
    pub subject: &'a str,
    /// The identity provider of the signer.
    pub issuer: &'a str,
    /// The digest of the artifact.
    pub digest: &'a str,
    /// The type of the statement about it.
    pub predicate: &'a str,
    /// When the log records it, in minutes after the start of the certificate.
    pub minute: i64,
    /// Whether the certificate is for code signing.
    pub for_code: bool,
    /// Whether a certificate log has the certificate.
    pub logged: bool,
}

impl Default for Signing<'_> {
    fn default() -> Self {
        Signing {
            subject: "https://git.example/filters/.github/workflows/release.yml@refs/tags/v1",
            issuer: "https://issuer.example",
            digest: "",
            predicate: "https://sigstore.dev/cosign/sign/v1",
            minute: 1,
            for_code: true,
            logged: true,
        }
    }
}

impl Sigstore {
    /// Creates one with new keys.
    pub fn new() -> Sigstore {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, "authority");
        let key = KeyPair::generate().expect("a key");
        Sigstore {
            authority: CertifiedIssuer::self_signed(params, key).expect("an authority"),
            log: KeyPair::generate().expect("a key"),
            certificate_log: KeyPair::generate().expect("a key"),
        }
    }

    /// Returns its trust root.
    pub fn trust_root(&self) -> Value {
        let valid = json!({ "start": "2025-01-01T00:00:00Z" });
        let log = |key: &KeyPair| {
            json!({
                "baseUrl": "https://log.example", "hashAlgorithm": "SHA2_256", "logId": { "keyId": encode(id(key)) },
                "publicKey": {
                    "rawBytes": encode(key.subject_public_key_info()), "keyDetails": "PKIX_ECDSA_P256_SHA_256",
                    "validFor": valid,
                },
            })
        };
        json!({
            "mediaType": "application/vnd.dev.sigstore.trustedroot+json;version=0.1",
            "tlogs": [log(&self.log)],
            "ctlogs": [log(&self.certificate_log)],
            "certificateAuthorities": [{
                "subject": { "organization": "example", "commonName": "authority" }, "uri": "https://ca.example",
                "certChain": { "certificates": [{ "rawBytes": encode(self.authority.der()) }] }, "validFor": valid,
            }],
            "timestampAuthorities": [],
        })
    }

    /// Returns a bundle with such a signature.
    pub fn bundle(&self, signing: &Signing<'_>) -> Value {
        let key = KeyPair::generate().expect("a key");
        let certificate = self.certificate(&key, signing);
        let payload = json!({
            "_type": "https://in-toto.io/Statement/v1", "predicateType": signing.predicate, "predicate": {},
            "subject": [{ "digest": { "sha256": signing.digest.trim_start_matches("sha256:") } }],
        })
        .to_string();
        let kind = "application/vnd.in-toto+json";
        let message = format!("DSSEv1 {} {kind} {} {payload}", kind.len(), payload.len());
        let signature = encode(key.sign(message.as_bytes()).expect("a signature"));
        let body = json!({
            "apiVersion": "0.0.1", "kind": "dsse", "spec": {
                "envelopeHash": { "algorithm": "sha256", "value": hex(&hash(&[b"not looked at"])) },
                "payloadHash": { "algorithm": "sha256", "value": hex(&hash(&[payload.as_bytes()])) },
                "signatures": [{ "signature": signature, "verifier": encode(certificate.pem()) }],
            },
        });
        json!({
            "mediaType": BUNDLE,
            "verificationMaterial": {
                "certificate": { "rawBytes": encode(certificate.der()) },
                "tlogEntries": [self.entry(&body.to_string(), BEGIN + 60 * signing.minute)],
            },
            "dsseEnvelope": {
                "payload": encode(&payload), "payloadType": kind, "signatures": [{ "sig": signature }],
            },
        })
    }

    /// Returns the log entry of a body, the second of two leaves, with all its proofs.
    fn entry(&self, body: &str, time: i64) -> Value {
        // RFC 6962 section 2.1.
        let leaf = hash(&[&[0], body.as_bytes()]);
        let other = hash(&[&[0], b"another entry"]);
        let root = encode(hash(&[&[1], &other, &leaf]));
        let promise = json!({
            "body": encode(body), "integratedTime": time, "logID": hex(&id(&self.log)), "logIndex": 1,
        });
        let promise = self
            .log
            .sign(promise.to_string().as_bytes())
            .expect("a signature");
        let note = format!("log.example\n2\n{root}\n");
        let signature = self.log.sign(note.as_bytes()).expect("a signature");
        let signature = encode([&id(&self.log)[..4], &signature].concat());
        json!({
            "logIndex": "1", "logId": { "keyId": encode(id(&self.log)) }, "integratedTime": time.to_string(),
            "kindVersion": { "kind": "dsse", "version": "0.0.1" }, "canonicalizedBody": encode(body),
            "inclusionPromise": { "signedEntryTimestamp": encode(promise) },
            "inclusionProof": {
                "logIndex": "1", "treeSize": "2", "rootHash": root, "hashes": [encode(other)],
                "checkpoint": { "envelope": format!("{note}\n\u{2014} log.example {signature}\n") },
            },
        })
    }

    fn certificate(&self, key: &KeyPair, signing: &Signing<'_>) -> Certificate {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, "");
        params.serial_number = Some(SerialNumber::from(1));
        params.not_before = date_time_ymd(2025, 6, 1);
        params.not_after = params.not_before + Duration::from_secs(600);
        params.subject_alt_names = vec![SanType::URI(signing.subject.try_into().expect("a URI"))];
        params.extended_key_usages = vec![match signing.for_code {
            true => ExtendedKeyUsagePurpose::CodeSigning,
            false => ExtendedKeyUsagePurpose::ServerAuth,
        }];
        // A UTF8String.
        let issuer = [&[0x0c, signing.issuer.len() as u8], signing.issuer.as_bytes()].concat();
        let extension = CustomExtension::from_oid_content(ISSUER, issuer);
        params.custom_extensions.push(extension);
        let made = params.signed_by(key, &self.authority).expect("a certificate");
        if !signing.logged {
            return made;
        }
        let proof = self.proof(&made);
        params
            .custom_extensions
            .push(CustomExtension::from_oid_content(PROOFS, proof));
        params.signed_by(key, &self.authority).expect("a certificate")
    }

    /// The proof that the certificate log has this one (RFC 6962 section 3.2), as in an extension.
    fn proof(&self, certificate: &Certificate) -> Vec<u8> {
        let whole = &certificate.der()[..];
        let inside = &whole[head(whole)..];
        let inside = &inside[..head(inside) + length(inside)];
        let time = (BEGIN as u64 * 1000).to_be_bytes();
        let issuer = hash(&[&self.authority.key().subject_public_key_info()]);
        let octets = (inside.len() as u32).to_be_bytes();
        // Version 1, the timestamp of a certificate (still without the proof), and no extensions.
        let message = [
            &[0, 0],
            &time[..],
            &[0, 1],
            &issuer,
            &octets[1..],
            inside,
            &[0, 0],
        ]
        .concat();
        let signature = self.certificate_log.sign(&message).expect("a signature");
        let log = id(&self.certificate_log);
        let long = (signature.len() as u16).to_be_bytes();
        // SHA-256 and ECDSA.
        let proof = [&[0], &log[..], &time, &[0, 0, 4, 3], &long, &signature].concat();
        let one = [&(proof.len() as u16).to_be_bytes()[..], &proof].concat();
        let list = [&(one.len() as u16).to_be_bytes()[..], &one].concat();
        [&[0x04, list.len() as u8], &list[..]].concat()
    }
}

impl Default for Sigstore {
    fn default() -> Sigstore {
        Sigstore::new()
    }
}

/// Returns the number of bytes before the content of a DER element.
fn head(der: &[u8]) -> usize {
    2 + if der[1] < 0x80 {
        0
    } else {
        usize::from(der[1] & 0x7f)
    }
}

/// The size of its content in bytes.
fn length(der: &[u8]) -> usize {
    match head(der) {
        2 => usize::from(der[1]),
        end => der[2..end]
            .iter()
            .fold(0, |sum, octet| sum << 8 | usize::from(*octet)),
    }
}

/// Returns a log's ID.
fn id(key: &KeyPair) -> Vec<u8> {
    hash(&[&key.subject_public_key_info()])
}

fn hash(parts: &[&[u8]]) -> Vec<u8> {
    digest(&SHA256, &parts.concat()).as_ref().to_vec()
}

fn hex(octets: &[u8]) -> String {
    octets.iter().map(|octet| format!("{octet:02x}")).collect()
}

fn encode(octets: impl AsRef<[u8]>) -> String {
    STANDARD.encode(octets)
}
