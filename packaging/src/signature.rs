//! Signs a release with an ECDSA P-256 key, by openssl: the checksums as `cosign sign-blob` does, the image
//! and chart by cosign's simple signing
//! (<https://github.com/sigstore/cosign/blob/main/specs/SIGNATURE_SPEC.md>). `dnsweir verify` and cosign
//! check them.

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::layout::{self, Layout};
use crate::source::Source;
use crate::{Failure, provenance, push, sums, write};

/// Media type of the signed payload, and the annotation with the signature.
const PAYLOAD: &str = "application/vnd.dev.cosign.simplesigning.v1+json";
const SIGNATURE: &str = "dev.cosignproject.cosign/signature";

/// Signs the checksums in a folder, and what will be pushed from it to a `registry`.
pub fn pack(
    source: &Source,
    key: &Path,
    registry: Option<&str>,
    folder: &Path,
) -> Result<Vec<String>, Failure> {
    let file = folder.join(sums::FILE);
    let text = crate::read(&file)?;
    let signature = folder.join(format!("{}.sig", sums::FILE));
    write(&signature, sign(key, &text)? + "\n")?;
    let mut made = vec![signature.display().to_string()];
    for (part, name) in registry.map(push::repositories).into_iter().flatten() {
        let part = folder.join(part);
        let mut layout = Layout::open(&part)?;
        let released = provenance::released(source, &layout);
        let released = released.ok_or_else(|| format!("{}: nothing of this version", part.display()))?;
        let inner = layout.document(&released)?;
        let inner = inner["manifests"].as_array().cloned().unwrap_or_default();
        for described in std::iter::once(&released).chain(&inner) {
            add(&mut layout, described, &name, key)?;
        }
        layout.write(&part)?;
        made.push(format!("{}: signed as {name}", part.display()));
    }
    Ok(made)
}

/// Adds the signature of a manifest for the repository `name`.
fn add(layout: &mut Layout, described: &Value, name: &str, key: &Path) -> Result<(), Failure> {
    let digest = described["digest"].as_str().unwrap_or_default();
    let payload = layout::encoded(&json!({
        "critical": {
            "identity": { "docker-reference": name },
            "image": { "docker-manifest-digest": digest },
            "type": "cosign container image signature",
        },
        "optional": null,
    }))?;
    let signed = sign(key, &payload)?;
    let mut layer = layout.add(PAYLOAD, payload);
    let config = json!({
        "architecture": "", "os": "", "config": {},
        "rootfs": { "type": "layers", "diff_ids": [layer["digest"]] },
    });
    layer["annotations"] = json!({ SIGNATURE: signed });
    let manifest = json!({
        "schemaVersion": 2,
        "mediaType": layout::MANIFEST,
        "config": layout.add_json("application/vnd.oci.image.config.v1+json", &config)?,
        "layers": [layer],
    });
    let manifest = layout.add_json(layout::MANIFEST, &manifest)?;
    layout.tag(&manifest, &format!("{}.sig", digest.replace(':', "-")), None);
    Ok(())
}

/// Returns a signature in base64. openssl asks for the key's password, if it has one.
fn sign(key: &Path, message: &[u8]) -> Result<String, Failure> {
    let failed = |error: std::io::Error| format!("cannot run openssl: {error}");
    let mut openssl = Command::new("openssl");
    openssl.args(["dgst", "-sha256", "-sign"]).arg(key);
    let mut child = openssl
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(failed)?;
    // Dropping it ends the message.
    if let Some(mut input) = child.stdin.take() {
        // On failure, openssl reports the reason itself.
        let _ = input.write_all(message);
    }
    let output = child.wait_with_output().map_err(failed)?;
    match output.status.success() {
        true => Ok(STANDARD.encode(output.stdout)),
        false => Err(format!("openssl does not sign with {}", key.display())),
    }
}
