//! Signatures with certificates of identities.

use std::fs;
use std::path::Path;

use super::{run, said, status};
use crate::authors::swapping::build;
use crate::harness::registry::{CONFIG, LAYER, Registry, TOOLS};
use crate::harness::sigstore::{BUNDLE, Signing, Sigstore};
use crate::harness::{Proxy, Upstream, needs, until};

/// Puts a build of the filter into the registry, and returns its digest.
fn put(registry: &Registry, number: u32) -> String {
    registry.put("team/chain", "1", CONFIG, &[(LAYER, &build(number))])
}

/// Attaches a signature.
fn sign(registry: &Registry, sigstore: &Sigstore, signing: Signing<'_>) {
    let bundle = sigstore.bundle(&signing).to_string();
    registry.attach("team/chain", signing.digest, &bundle, Some(BUNDLE));
}

fn text(registry: &Registry, root: &Path, upstream: &Upstream) -> String {
    let who = Signing::default();
    let filter = |role: &str| {
        format!(
            "filter \"{role}\" {{ module \"{}\"; signed-by \"release\"; limits time=\"1s\"; config {{ {role} }} }}\n",
            registry.reference("team/chain:1")
        )
    };
    format!(
        "{}signatures {{ trust-root \"{}\"; identity \"release\" subject=\"{}\" issuer=\"{}\" }}\n{}{}\
         zone \".\" {{ use \"first\"; use \"last\"; forward \"{}\" }}",
        registry.section("interval \"1s\""),
        root.display(),
        who.subject,
        who.issuer,
        filter("first"),
        filter("last"),
        upstream.address
    )
}

/// The arguments of `filter verify`.
fn verify<'a>(reference: &'a str, root: &'a str, subject: &'a str) -> [&'a str; 9] {
    let issuer = Signing::default().issuer;
    let [a, b, c, d, e, f] = ["--trust-root", root, "--subject", subject, "--issuer", issuer];
    ["filter", "verify", reference, a, b, c, d, e, f]
}

/// A filter signed by the configured identity is verified, run and swapped; other signatures change nothing.
#[test]
fn an_identity_signs_a_filter() {
    if !needs(TOOLS) {
        return;
    }
    let (registry, ours, theirs) = (Registry::start(), Sigstore::new(), Sigstore::new());
    let upstream = Upstream::zone(&["test. 300 SOA ns.test. root.test. 1 2 3 4 5"]);
    let folder = tempfile::tempdir().expect("a folder");
    let root = folder.path().join("trusted_root.json");
    fs::write(&root, ours.trust_root().to_string()).expect("a file");
    let first = put(&registry, 0);
    let subject = Signing::default().subject;
    let by = |subject, digest| Signing {
        subject,
        digest,
        ..Signing::default()
    };
    sign(&registry, &ours, by(subject, &first));

    let (reference, path) = (registry.reference("team/chain:1"), root.display().to_string());
    let verified = said(&registry, folder.path(), &verify(&reference, &path, subject));
    assert!(
        verified.contains(&first) && verified.contains(subject),
        "{verified}"
    );
    let others = verify(&reference, &path, "https://git.example/others/*");
    let refused = run(&registry, folder.path(), &others);
    let complaint = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success(), "{complaint}");
    let expected = format!("a signature is by {subject:?}");
    assert!(complaint.contains(&expected), "{complaint}");

    let proxy = Proxy::start(&text(&registry, &root, &upstream));
    assert_eq!(proxy.query("www.test", "A").answers(), ["www.test. A 192.0.2.1"]);
    let filter = || status(&proxy)["filters"][0].clone();
    assert_eq!(filter()["signed_by"], "release");

    let refused = |why: &str| {
        until("it to be refused", || {
            filter()["pull_error"].to_string().contains(why)
        })
    };
    let second = put(&registry, 1);
    refused("is not signed, and must be by");
    sign(&registry, &theirs, by(subject, &second));
    refused("No log key valid");
    sign(&registry, &ours, by("https://git.example/evil", &second));
    refused("git.example/evil");
    assert_eq!(filter()["artifact"], first);
    sign(&registry, &ours, by(subject, &second));
    until("the new module to be in force", || filter()["artifact"] == second);
    assert_eq!(proxy.query("www.test", "A").answers(), ["www.test. A 192.0.2.1"]);
}

/// An index may lack a bundle's type, or have that of its configuration, as some cosign libraries write it.
#[test]
fn a_bundle_is_known_by_its_manifest() {
    if !needs(TOOLS) {
        return;
    }
    let (registry, sigstore) = (Registry::start(), Sigstore::new());
    let folder = tempfile::tempdir().expect("a folder");
    let root = folder.path().join("trusted_root.json");
    fs::write(&root, sigstore.trust_root().to_string()).expect("a file");
    let root = root.display().to_string();
    let reference = registry.reference("team/chain:1");
    for (number, said_type) in [None, Some("application/vnd.oci.empty.v1+json"), Some(BUNDLE)]
        .into_iter()
        .enumerate()
    {
        let digest = put(&registry, number as u32);
        let signing = Signing {
            digest: &digest,
            ..Signing::default()
        };
        let bundle = sigstore.bundle(&signing).to_string();
        registry.attach("team/chain", &digest, &bundle, said_type);
        let verified = said(
            &registry,
            folder.path(),
            &verify(&reference, &root, signing.subject),
        );
        assert!(
            verified.contains(&digest) && verified.contains("names no repository"),
            "{said_type:?}: {verified}"
        );
    }
}
