//! Tests of bundles with certificates, issued by the test's own sigstore.

use std::sync::OnceLock;

use proptest::prelude::*;
use proptest::sample::Index;
use serde_json::{Value, json};

use super::*;
use crate::policy::Identity;
use sigstore::{Signing, Sigstore};

#[path = "../../../../../tests/harness/sigstore.rs"]
mod sigstore;

const SUBJECT: &str = "https://git.example/filters/.github/workflows/release.yml@refs/tags/v1";
const ISSUER: &str = "https://issuer.example";

/// A policy that accepts signatures by one identity, "release".
fn policy(root: &Value, subject: &str, issuer: &str) -> Policy {
    Policy {
        trust_root: Some(root.to_string()),
        identities: vec![Identity {
            name: "release".into(),
            subject: subject.into(),
            issuer: issuer.into(),
        }],
        ..Policy::default()
    }
}

fn signed(bundle: &Value) -> Signature {
    Signature {
        form: Form::Bundle,
        octets: bundle.to_string().into(),
    }
}

/// Returns whether the artifact of these tests is accepted with that bundle, signed by "release", under that
/// trust root.
fn taken(root: &Value, bundle: &Value) -> Result<String, String> {
    by(&policy(root, SUBJECT, ISSUER), bundle, &[])
}

fn by(policy: &Policy, bundle: &Value, names: &[&str]) -> Result<String, String> {
    let mut artifact = artifact(b"module");
    artifact.signatures = vec![signed(bundle)];
    let signers = Signers::new(policy).unwrap();
    let signer = signers.signer(&artifact, &wanted(names))?;
    assert!(!signer.says_repository, "no bundle does");
    Ok(signer.name)
}

/// Replaces the JSON value at a pointer.
fn with(mut value: Value, pointer: &str, new: Value) -> Value {
    *value.pointer_mut(pointer).unwrap() = new;
    value
}

fn without(mut value: Value, pointer: &str) -> Value {
    let (owner, name) = pointer.rsplit_once('/').unwrap();
    let owner = value.pointer_mut(owner).unwrap().as_object_mut().unwrap();
    owner.remove(name).unwrap();
    value
}

#[test]
fn who_is_configured_is_taken_long_after() {
    let ours = Sigstore::new();
    let root = ours.trust_root();
    let digest = artifact(b"module").digest;
    let signing = Signing {
        digest: &digest,
        ..Signing::default()
    };
    let bundle = ours.bundle(&signing);
    let release = Ok("release".to_owned());
    assert_eq!(taken(&root, &bundle), release);
    // Subjects given by a prefix.
    for subject in [
        "https://git.example/filters/*",
        "https://git.example/filters/.github/workflows/release.yml@refs/tags/v1*",
    ] {
        assert_eq!(by(&policy(&root, subject, ISSUER), &bundle, &[]), release);
    }
    // The last minute of the certificate.
    let last = ours.bundle(&Signing {
        minute: 10,
        ..signing
    });
    assert_eq!(taken(&root, &last), release);
    // A trust root without a certificate log needs no proofs of one.
    let unlogged = ours.bundle(&Signing {
        logged: false,
        ..signing
    });
    assert_eq!(
        taken(&with(root.clone(), "/ctlogs", json!([])), &unlogged),
        release
    );
    // Beside a key; and neither stands for the other.
    let alice = Pen::ecdsa();
    let both = Policy {
        keys: vec![alice.key("alice")],
        ..policy(&root, SUBJECT, ISSUER)
    };
    assert_eq!(by(&both, &bundle, &[]), release);
    assert_eq!(by(&both, &bundle, &["release"]), release);
    let wrong = by(&both, &bundle, &["alice"]).unwrap_err();
    assert!(wrong.contains("is not signed by \"alice\""), "{wrong}");
    let by_key = alice.bundle(&digest, STATEMENT, SIGNED);
    let by_key: Value = serde_json::from_slice(&by_key.octets).unwrap();
    assert_eq!(by(&both, &by_key, &[]), Ok("alice".to_owned()));
    let wrong = by(&both, &by_key, &["release"]).unwrap_err();
    assert!(
        wrong.contains("a signature is wrong, or by another key"),
        "{wrong}"
    );
}

/// Two sigstores, for bundles that are then altered.
struct Forger {
    ours: Sigstore,
    root: Value,
    other_root: Value,
    digest: String,
}

impl Forger {
    fn new() -> Forger {
        let ours = Sigstore::new();
        Forger {
            root: ours.trust_root(),
            other_root: Sigstore::new().trust_root(),
            digest: artifact(b"module").digest,
            ours,
        }
    }

    fn signing(&self) -> Signing<'_> {
        Signing {
            digest: &self.digest,
            ..Signing::default()
        }
    }

    fn bundle(&self) -> Value {
        self.ours.bundle(&self.signing())
    }

    /// Returns its trust root with this part of the other's.
    fn with_other(&self, name: &str) -> Value {
        with(
            self.root.clone(),
            &format!("/{name}"),
            self.other_root[name].clone(),
        )
    }

    fn is_refused(&self, what: &str, bundle: &Value, expected: &str) {
        refused_by(&self.root, what, bundle, expected);
    }
}

fn refused_by(root: &Value, what: &str, bundle: &Value, expected: &str) {
    let wrong = taken(root, bundle).expect_err(what);
    assert!(wrong.contains(expected), "{what}: {wrong}\n{expected}");
}

/// Each case has one thing wrong.
#[test]
fn other_identities_are_refused_by_name() {
    let forger = Forger::new();
    let signing = forger.signing();
    for (what, signing, expected) in [
        (
            "another subject",
            Signing {
                subject: "https://git.example/evil",
                ..signing
            },
            "a signature is by \"https://git.example/evil\" of the issuer \"https://issuer.example\"",
        ),
        (
            "another issuer",
            Signing {
                issuer: "https://evil.example",
                ..signing
            },
            "of the issuer \"https://evil.example\"",
        ),
        (
            "before the certificate",
            Signing {
                minute: -1,
                ..signing
            },
            "CertNotValidYet",
        ),
        (
            "after the certificate",
            Signing {
                minute: 11,
                ..signing
            },
            "CertExpired",
        ),
        (
            "no certificate for code",
            Signing {
                for_code: false,
                ..signing
            },
            "RequiredEkuNotFound",
        ),
        (
            "a certificate in no log",
            Signing {
                logged: false,
                ..signing
            },
            "missing SCT",
        ),
    ] {
        forger.is_refused(what, &forger.ours.bundle(&signing), expected);
    }
}

/// Each case has one thing wrong.
#[test]
fn what_others_vouch_for_is_refused() {
    let forger = Forger::new();
    let bundle = forger.bundle();
    let later = with(
        forger.root.clone(),
        "/certificateAuthorities/0/validFor/start",
        json!("2025-06-02T00:00:00Z"),
    );
    for (what, root, expected) in [
        (
            "another authority",
            forger.with_other("certificateAuthorities"),
            "certificate chain is invalid",
        ),
        (
            "an authority that was trusted later",
            later,
            "no trusted certificate authority is valid at 2025-06-01T00:01:00Z",
        ),
        (
            "a certificate in another log",
            forger.with_other("ctlogs"),
            "SCT signature verification failed",
        ),
        ("another log", forger.with_other("tlogs"), "No log key valid"),
    ] {
        refused_by(&root, what, &bundle, expected);
    }
}

/// Each case has one thing wrong.
#[test]
fn signatures_that_no_log_has_are_refused() {
    const ENTRY: &str = "/verificationMaterial/tlogEntries/0";
    let forger = Forger::new();
    let (bundle, another) = (forger.bundle(), forger.bundle());
    let part = |path: &str| bundle.pointer(&format!("{ENTRY}{path}")).unwrap().clone();
    let changed = |path: &str, new: Value| with(bundle.clone(), &format!("{ENTRY}{path}"), new);
    let without = |path: &str| without(bundle.clone(), &format!("{ENTRY}{path}"));
    let note = part("/inclusionProof/checkpoint/envelope");
    let note = note.as_str().unwrap().replace("\n2\n", "\n3\n");
    for (what, bundle, expected) in [
        (
            "no log",
            with(bundle.clone(), "/verificationMaterial/tlogEntries", json!([])),
            "inclusion proof",
        ),
        ("no proof", without("/inclusionProof"), "inclusion proof"),
        ("no time", without("/inclusionPromise"), "no verified timestamp"),
        (
            "another time",
            changed("/integratedTime", json!("1748736061")),
            "SET verification failed",
        ),
        (
            "another path",
            changed("/inclusionProof/hashes/0", part("/logId/keyId")),
            "inclusion proof verification failed",
        ),
        (
            "a checkpoint that was changed",
            changed("/inclusionProof/checkpoint/envelope", json!(note)),
            "checkpoint",
        ),
        (
            "the entry of another signature",
            with(bundle.clone(), ENTRY, another.pointer(ENTRY).unwrap().clone()),
            "log entry does not match the bundle",
        ),
    ] {
        forger.is_refused(what, &bundle, expected);
    }
}

/// Each case has one thing wrong.
#[test]
fn what_was_not_signed_is_refused() {
    let forger = Forger::new();
    let (bundle, another) = (forger.bundle(), forger.bundle());
    let other = artifact(b"other").digest;
    let with_digest = |digest| {
        forger.ours.bundle(&Signing {
            digest,
            ..forger.signing()
        })
    };
    let for_other = with_digest(&other);
    let document = forger.ours.bundle(&Signing {
        predicate: "https://spdx.dev/Document",
        ..forger.signing()
    });
    let certificate = "/verificationMaterial/certificate";
    let payload = "/dsseEnvelope/payload";
    let of = |bundle: &Value, part: &str| bundle.pointer(part).unwrap().clone();
    let unsigned = without(bundle.clone(), "/dsseEnvelope");
    let mut other_kind = unsigned.clone();
    other_kind["messageSignature"] = json!({ "signature": "AAAA" });
    for (what, bundle, expected) in [
        (
            "the certificate of another",
            with(bundle.clone(), certificate, of(&another, certificate)),
            "invalid signature",
        ),
        (
            "the statement of another",
            with(bundle.clone(), payload, of(&for_other, payload)),
            "invalid signature",
        ),
        (
            "another artifact",
            for_other,
            &format!("a signature by \"release\" is for {other}"),
        ),
        (
            "no signature",
            document,
            "a bundle says \"https://spdx.dev/Document\"",
        ),
        ("no artifact", with_digest("sha256:0"), "about nothing"),
        ("no envelope", unsigned, "a bundle is broken"),
        (
            "a signature of another kind",
            other_kind,
            "a bundle has no DSSE envelope",
        ),
    ] {
        forger.is_refused(what, &bundle, expected);
    }
}

#[test]
fn there_is_no_more_to_check_than_honest_bundles_have() {
    let ours = Sigstore::new();
    let digest = artifact(b"module").digest;
    let bundle = ours.bundle(&Signing {
        digest: &digest,
        ..Signing::default()
    });
    let entry = "/verificationMaterial/tlogEntries/0";
    let entries = vec![bundle.pointer(entry).unwrap().clone(); 9];
    let proof = format!("{entry}/inclusionProof");
    let hash = bundle.pointer(&format!("{proof}/hashes/0")).unwrap();
    let hashes = json!(vec![hash; 65]);
    let note = bundle
        .pointer(&format!("{proof}/checkpoint/envelope"))
        .unwrap()
        .as_str()
        .unwrap();
    let line = note.lines().last().unwrap();
    let lines = json!(format!("{note}{}", format!("{line}\n").repeat(60)));
    let timestamps = json!({ "rfc3161Timestamps": vec![json!({ "signedTimestamp": "MAA=" }); 9] });
    let mut stamped = bundle.clone();
    stamped["verificationMaterial"]["timestampVerificationData"] = timestamps;
    for (bundle, expected) in [
        (
            with(
                bundle.clone(),
                "/verificationMaterial/tlogEntries",
                json!(entries),
            ),
            "a bundle has 9 entries of logs, and at most 8 are read",
        ),
        (
            with(bundle.clone(), &format!("{proof}/hashes"), hashes),
            "65 hashes of a proof",
        ),
        (
            with(bundle.clone(), &format!("{proof}/checkpoint/envelope"), lines),
            "65 lines of a checkpoint",
        ),
        (stamped, "9 timestamps"),
    ] {
        let wrong = taken(&ours.trust_root(), &bundle).unwrap_err();
        assert!(wrong.contains(expected), "{wrong}");
    }
    let root = ours.trust_root();
    for (name, most) in [
        ("tlogs", "65 `tlogs`"),
        ("certificateAuthorities", "65 `certificateAuthorities`"),
    ] {
        let many = json!(vec![root[name][0].clone(); 65]);
        let many = with(root.clone(), &format!("/{name}"), many);
        let wrong = Signers::new(&policy(&many, SUBJECT, ISSUER)).unwrap_err();
        assert!(wrong.contains(most), "{wrong:?}");
    }
}

#[test]
fn trust_roots_that_are_none_are_told() {
    let root = Sigstore::new().trust_root();
    for root in [
        json!(null),
        json!({}),
        without(root.clone(), "/mediaType"),
        with(root.clone(), "/tlogs/0/publicKey/rawBytes", json!("AAAA")),
        with(root.clone(), "/tlogs/0/logId/keyId", json!("AAAA")),
        with(
            root.clone(),
            "/certificateAuthorities/0/certChain/certificates",
            json!([]),
        ),
        with(
            root,
            "/certificateAuthorities/0/certChain/certificates/0/rawBytes",
            json!("AAAA"),
        ),
    ] {
        let wrong = Signers::new(&policy(&root, SUBJECT, ISSUER)).unwrap_err();
        assert!(wrong.starts_with("the trust root cannot be used: "), "{wrong}");
    }
}

/// Returns a bundle with one byte changed in one of its texts, or in what that encodes.
fn mutated(bundle: &Value, which: Index, at: Index, octet: u8) -> (String, Value) {
    let mut texts = Vec::new();
    gather(bundle, String::new(), &mut texts);
    let (pointer, text) = &texts[which.index(texts.len())];
    let decoded = STANDARD.decode(text).ok().filter(|octets| octets.len() > 16);
    let mut octets = decoded.clone().unwrap_or_else(|| text.clone().into_bytes());
    let at = at.index(octets.len());
    octets[at] = octet;
    let new = match decoded {
        Some(_) => STANDARD.encode(octets),
        None => String::from_utf8_lossy(&octets).into_owned(),
    };
    (pointer.clone(), with(bundle.clone(), pointer, json!(new)))
}

fn gather(value: &Value, pointer: String, texts: &mut Vec<(String, String)>) {
    match value {
        Value::String(text) => texts.push((pointer, text.clone())),
        Value::Array(all) => (0..)
            .zip(all)
            .for_each(|(index, one)| gather(one, format!("{pointer}/{index}"), texts)),
        Value::Object(all) => all
            .iter()
            .for_each(|(name, one)| gather(one, format!("{pointer}/{name}"), texts)),
        _ => {}
    }
}

fn ours() -> &'static (Sigstore, Value) {
    static OURS: OnceLock<(Sigstore, Value)> = OnceLock::new();
    OURS.get_or_init(|| {
        let ours = Sigstore::new();
        let digest = artifact(b"module").digest;
        let bundle = ours.bundle(&Signing {
            digest: &digest,
            ..Signing::default()
        });
        (ours, bundle)
    })
}

proptest! {
    /// Whichever byte is changed, nothing panics, and the bundle is refused.
    #[test]
    fn bundles_that_were_changed_are_refused(which: Index, at: Index, octet: u8) {
        let (ours, bundle) = ours();
        let (pointer, changed) = mutated(bundle, which, at, octet);
        // The name of a checkpoint's signer is not signed itself, and not trusted.
        if changed != *bundle && !pointer.ends_with("/envelope") {
            prop_assert!(taken(&ours.trust_root(), &changed).is_err(), "{}", changed);
        }
    }

    #[test]
    fn trust_roots_that_were_changed_do_not_panic(which: Index, at: Index, octet: u8) {
        let (ours, bundle) = ours();
        let (_, root) = mutated(&ours.trust_root(), which, at, octet);
        if Signers::new(&policy(&root, SUBJECT, ISSUER)).is_ok() {
            let _ = taken(&root, bundle);
        }
    }
}
