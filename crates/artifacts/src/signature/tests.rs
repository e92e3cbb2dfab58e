use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair as _};

use super::*;
use crate::key::{EDWARDS, P256, has_signed};
use crate::policy::Key;

/// The repository that signatures are for, if they name one.
const REPOSITORY: &str = "a";

mod identities;

/// The types of a simple signature, an envelope's payload, and a statement.
const SIMPLE_TYPE: &str = "cosign container image signature";
const STATEMENT: &str = "application/vnd.in-toto+json";
const SIGNED: &str = "https://sigstore.dev/cosign/sign/v1";

/// A signing key.
enum Pen {
    Ecdsa(EcdsaKeyPair),
    Edwards(Ed25519KeyPair),
}

impl Pen {
    fn ecdsa() -> Pen {
        let random = SystemRandom::new();
        let pair = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, &random).unwrap();
        Pen::Ecdsa(EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, pair.as_ref(), &random).unwrap())
    }

    fn edwards() -> Pen {
        let pair = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).unwrap();
        Pen::Edwards(Ed25519KeyPair::from_pkcs8(pair.as_ref()).unwrap())
    }

    fn key(&self, name: &str) -> Key {
        let (prefix, key) = match self {
            Pen::Ecdsa(pair) => (P256, pair.public_key().as_ref()),
            Pen::Edwards(pair) => (EDWARDS, pair.public_key().as_ref()),
        };
        let text = STANDARD.encode([prefix, key].concat());
        let pem = format!("-----BEGIN PUBLIC KEY-----\n{text}\n-----END PUBLIC KEY-----\n");
        Key {
            name: name.to_owned(),
            pem,
        }
    }

    fn sign(&self, message: &[u8]) -> String {
        STANDARD.encode(match self {
            Pen::Ecdsa(pair) => pair
                .sign(&SystemRandom::new(), message)
                .unwrap()
                .as_ref()
                .to_vec(),
            Pen::Edwards(pair) => pair.sign(message).as_ref().to_vec(),
        })
    }

    fn simple(&self, digest: &str, kind: &str) -> Signature {
        let payload = serde_json::json!({ "critical": {
            "identity": { "docker-reference": "r.example/a" },
            "image": { "docker-manifest-digest": digest }, "type": kind,
        }, "optional": null })
        .to_string();
        Signature {
            form: Form::Simple(self.sign(payload.as_bytes())),
            octets: payload.into(),
        }
    }

    fn bundle(&self, digest: &str, kind: &str, predicate: &str) -> Signature {
        let digits = digest.trim_start_matches("sha256:");
        let payload = serde_json::json!({
            "_type": "https://in-toto.io/Statement/v1", "subject": [{ "digest": { "sha256": digits } }],
            "predicateType": predicate, "predicate": {},
        })
        .to_string();
        let message = format!("DSSEv1 {} {kind} {} {payload}", kind.len(), payload.len());
        let bundle = serde_json::json!({
            "mediaType": "application/vnd.dev.sigstore.bundle.v0.3+json",
            "verificationMaterial": { "publicKey": { "hint": "" } },
            "dsseEnvelope": {
                "payload": STANDARD.encode(&payload), "payloadType": kind,
                "signatures": [{ "sig": self.sign(message.as_bytes()) }],
            },
        });
        Signature {
            form: Form::Bundle,
            octets: bundle.to_string().into(),
        }
    }
}

/// Returns an artifact with this module, without signatures.
fn artifact(module: &[u8]) -> Signed {
    Signed {
        digest: crate::artifact::digest(module),
        signatures: Vec::new(),
    }
}

/// Returns what is wanted of the artifacts of these tests.
fn wanted(names: &[&str]) -> Wanted {
    Wanted {
        names: names.iter().map(ToString::to_string).collect(),
        repository: REPOSITORY.into(),
    }
}

fn signer(signatures: Vec<Signature>, keys: &[Key], names: &[&str]) -> Result<String, String> {
    let mut artifact = artifact(b"module");
    artifact.signatures = signatures;
    let signer = signers(keys).signer(&artifact, &wanted(names))?;
    Ok(signer.name)
}

fn signers(keys: &[Key]) -> Signers {
    let policy = Policy {
        keys: keys.to_vec(),
        ..Policy::default()
    };
    Signers::new(&policy).unwrap()
}

#[test]
fn both_forms_by_both_algorithms_are_taken() {
    let digest = artifact(b"module").digest;
    for alice in [Pen::ecdsa(), Pen::edwards()] {
        let keys = [Pen::ecdsa().key("bob"), alice.key("alice")];
        for signature in [
            alice.simple(&digest, SIMPLE_TYPE),
            alice.bundle(&digest, STATEMENT, SIGNED),
        ] {
            let broken = Signature {
                form: Form::Bundle,
                octets: Bytes::from_static(b"{"),
            };
            // Other signatures beside it do no harm.
            assert_eq!(signer(vec![broken, signature], &keys, &[]), Ok("alice".into()));
        }
    }
}

/// Returns a signature with a part of its text replaced.
fn changed(mut signature: Signature, from: &str, to: &str) -> Signature {
    let text = String::from_utf8(signature.octets.to_vec()).unwrap();
    assert!(text.contains(from), "{text}");
    signature.octets = text.replace(from, to).into();
    signature
}

#[test]
fn other_signatures_are_refused_by_name() {
    let (alice, bob) = (Pen::ecdsa(), Pen::ecdsa());
    let (digest, other) = (artifact(b"module").digest, artifact(b"other").digest);
    let keys = [alice.key("alice"), bob.key("bob")];
    let of_simple = "a signature is wrong, or by another key";
    for (signatures, names, expected) in [
        (
            vec![],
            &[][..],
            "is not signed, and must be by \"alice\" or \"bob\"",
        ),
        (vec![Pen::ecdsa().simple(&digest, SIMPLE_TYPE)], &[], of_simple),
        (vec![bob.simple(&digest, SIMPLE_TYPE)], &["alice"], of_simple),
        (
            vec![changed(alice.simple(&other, SIMPLE_TYPE), &other, &digest)],
            &[],
            of_simple,
        ),
        (
            vec![alice.simple(&other, SIMPLE_TYPE)],
            &[],
            &format!("a signature by \"alice\" is for {other}"),
        ),
        (
            vec![alice.bundle(&other, STATEMENT, SIGNED)],
            &[],
            &format!("a signature by \"alice\" is for {other}"),
        ),
        (
            vec![alice.simple(&digest, "something else")],
            &[],
            "of the type \"something else\"",
        ),
        (
            vec![alice.bundle(&digest, "text/plain", SIGNED)],
            &[],
            "a payload of the type \"text/plain\"",
        ),
        (
            vec![alice.bundle(&digest, STATEMENT, "https://spdx.dev/Document")],
            &[],
            "a bundle says \"https://spdx.dev/Document\"",
        ),
        (
            vec![changed(
                alice.bundle(&digest, STATEMENT, SIGNED),
                "publicKey",
                "certificate",
            )],
            &[],
            "a bundle is signed with a certificate, and only keys are taken",
        ),
    ] {
        let wrong = signer(signatures, &keys, names).unwrap_err();
        assert!(wrong.contains(expected), "{wrong}\n{expected}");
    }
}

/// An artifact's signature is not accepted for another name, wherever its registry is.
#[test]
fn a_signature_is_for_the_repository_that_it_names() {
    let alice = Pen::ecdsa();
    let mut artifact = artifact(b"module");
    let of = |named: &str, digest: &str| {
        let payload = serde_json::json!({ "critical": {
            "identity": { "docker-reference": named },
            "image": { "docker-manifest-digest": digest }, "type": SIMPLE_TYPE,
        }, "optional": null })
        .to_string();
        Signature {
            form: Form::Simple(alice.sign(payload.as_bytes())),
            octets: payload.into(),
        }
    };
    let signers = signers(&[alice.key("alice")]);
    let taken = |artifact: &Signed, repository: Option<&str>| {
        let wanted = Wanted {
            names: Vec::new(),
            repository: repository.unwrap_or("dns/block-list").to_owned(),
        };
        let signer = signers.signer(artifact, &wanted)?;
        Ok::<_, String>(signer.says_repository)
    };
    artifact.signatures = vec![of("mirror.example:5000/dns/block-list", &artifact.digest)];
    assert_eq!(taken(&artifact, None), Ok(true));
    assert!(taken(&artifact, Some("dns/other")).is_err());
    artifact.signatures = vec![of("r.example/dns/other", &artifact.digest)];
    let wrong = taken(&artifact, None).unwrap_err();
    assert!(
        wrong.contains("is for \"dns/other\", not for \"dns/block-list\""),
        "{wrong}"
    );
    assert_eq!(taken(&artifact, Some("dns/other")), Ok(true));
    // Signatures that name no repository prove none.
    artifact.signatures = vec![of("", &artifact.digest)];
    assert_eq!(taken(&artifact, None), Ok(false));
    artifact.signatures = vec![alice.bundle(&artifact.digest, STATEMENT, SIGNED)];
    assert_eq!(taken(&artifact, None), Ok(false));
}

/// A signature of a file, on its own.
#[test]
fn a_message_is_signed_by_the_key_that_signed_it() {
    for pen in [Pen::ecdsa(), Pen::edwards()] {
        let (key, other) = (pen.key("alice").pem, Pen::ecdsa().key("bob").pem);
        let signature = pen.sign(b"a list") + "\n";
        assert_eq!(has_signed(&key, b"a list", &signature), Ok(true));
        assert_eq!(has_signed(&key, b"a List", &signature), Ok(false));
        assert_eq!(has_signed(&other, b"a list", &signature), Ok(false));
        assert_eq!(has_signed(&key, b"a list", "?"), Ok(false));
        assert!(has_signed("", b"a list", &signature).is_err());
    }
}

/// Signed by cosign 3.1: its key, the manifest's digest, and both formats.
#[test]
fn what_cosign_has_signed_is_taken() {
    let key = Key {
        name: "cosign".into(),
        pem: "-----BEGIN PUBLIC KEY-----
MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEbx78avA85+2vurYBO2gixRb5az6g
7yQoadwjYttoTLCze51l+jEkbBBYwkCzDmMx4s6YkkN8FkFiUUgCbzy+KQ==
-----END PUBLIC KEY-----
"
        .into(),
    };
    let bundle = concat!(
        r#"{"mediaType":"application/vnd.dev.sigstore.bundle.v0.3+json", "verificationMaterial":{"publicKey":{""#,
        r#"hint":"GXIuZj6aa1VjU0ZUHVzdJxoCFYOn/XAl8LF8C+k/JmM="}}, "dsseEnvelope":{"payload":"eyJfdHlwZSI6Imh0d"#,
        r#"HBzOi8vaW4tdG90by5pby9TdGF0ZW1lbnQvdjEiLCAic3ViamVjdCI6W3siZGlnZXN0Ijp7InNoYTI1NiI6IjgxZjgzZTRlNWI4M"#,
        r#"zdjNjM2YzE0MzkxY2QxYWJiZmM0MWYxMjI2YTZiMzBiYzNiNTk2ZjU0NTUyOTJmOTk2ZTkifSwgImFubm90YXRpb25zIjp7fX1dL"#,
        r#"CAicHJlZGljYXRlVHlwZSI6Imh0dHBzOi8vc2lnc3RvcmUuZGV2L2Nvc2lnbi9zaWduL3YxIiwgInByZWRpY2F0ZSI6e319", "p"#,
        r#"ayloadType":"application/vnd.in-toto+json", "signatures":[{"sig":"MEYCIQCPuG3OeL+fiL+ZEv2HVvE2lZW2rl"#,
        r#"R4vUZ2x6yo+CudbwIhAMj3L5/3ZT1uuMe2KwjvY7n/z62nIwhEELaZx86Ps4SP"}]}}"#,
    );
    let (payload, signature) = (
        concat!(
            r#"{"critical":{"identity":{"docker-reference":"localhost:5443/filters/a"},"image":{"docker-manifest-di"#,
            r#"gest":"sha256:81f83e4e5b837c636c14391cd1abbfc41f1226a6b30bc3b596f5455292f996e9"},"type":"cosign cont"#,
            r#"ainer image signature"},"optional":null}"#,
        ),
        "MEYCIQDdQetogymk3CpBI7iTHTUqltrD2W1Fe+9qR6pDnLfLBAIhAJuDL83GwaWx8aY8oR+IQiwn6mZI2Y8Xc2oiyOf+KpDH",
    );
    let digest = "sha256:81f83e4e5b837c636c14391cd1abbfc41f1226a6b30bc3b596f5455292f996e9";
    let signers = signers(&[key]);
    for signature in [
        Signature {
            form: Form::Bundle,
            octets: Bytes::from_static(bundle.as_bytes()),
        },
        Signature {
            form: Form::Simple(signature.into()),
            octets: Bytes::from_static(payload.as_bytes()),
        },
    ] {
        let signer = signers.signer_of(&signature, &["cosign"], digest, "filters/a");
        assert_eq!(signer.unwrap().name, "cosign");
    }
}
