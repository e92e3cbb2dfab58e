//! An artifact as stored in a registry: a manifest of its parts, the module, and any signatures.
//!
//! Its layout is the CNCF's for WebAssembly:
//! <https://tag-runtime.cncf.io/wgs/wasm/deliverables/wasm-oci-artifact/>: a configuration of type [`CONFIG`]
//! and one layer of type [`LAYER`]. Everything else is refused, with its name. Nothing here uses the network:
//! the bytes come from a child process or from disk, and are checked against their digests.

use std::collections::BTreeMap;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::config::{Reference, hex, spell_size};

/// The media type of a manifest.
pub const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";

/// The media type of its configuration.
pub const CONFIG: &str = "application/vnd.wasm.config.v0+json";

/// The media type of its one layer.
pub const LAYER: &str = "application/wasm";

/// Written by a child process instead of an artifact if the tag has not moved.
pub const UNCHANGED: &[u8] = b"unchanged\n";

/// The largest manifest, in bytes.
pub const LARGEST_MANIFEST: usize = 1 << 20;

/// The largest module, in bytes.
pub const LARGEST_MODULE: usize = 64 << 20;

/// The largest signature with what it signs, in bytes.
pub const LARGEST_SIGNATURE: usize = 256 << 10;

/// The most signatures of each form that are checked.
pub const MOST_SIGNATURES: usize = 16;

/// A manifest, as far as it is used here.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Manifest {
    media_type: Option<String>,
    config: Option<Descriptor>,
    #[serde(default)]
    layers: Vec<Descriptor>,
}

impl Manifest {
    fn read(manifest: &[u8]) -> Result<Manifest, String> {
        serde_json::from_slice(manifest).map_err(|error| format!("its manifest is not valid: {error}"))
    }
}

/// A manifest's description of a part.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Descriptor {
    /// Its media type.
    pub media_type: String,
    /// Its digest, with the algorithm as prefix.
    pub digest: String,
    /// Its size in bytes.
    pub size: u64,
    /// What it is, if it is a manifest.
    pub artifact_type: Option<String>,
    annotations: Option<BTreeMap<String, String>>,
}

impl Descriptor {
    /// Returns an annotation.
    pub fn annotation(&self, name: &str) -> Option<&str> {
        Some(self.annotations.as_ref()?.get(name)?)
    }
}

/// Returns the digest of `octets`, in the notation of registries.
pub fn digest(octets: &[u8]) -> String {
    format!("sha256:{}", hex::digits(&Sha256::digest(octets)))
}

/// Returns a digest that a registry sent, if it is one, before it becomes part of a URL.
///
/// # Errors
/// When it is not.
pub fn checked(digest: &str) -> Result<&str, String> {
    let octets = digest.strip_prefix("sha256:").and_then(hex::octets);
    match octets {
        Some(octets) if octets.len() == 32 => Ok(digest),
        _ => Err(format!("the digest {digest:?} is not a SHA-256 digest")),
    }
}

/// Returns the layers of a `manifest`.
///
/// # Errors
/// How it differs from one.
pub fn layers(manifest: &[u8]) -> Result<Vec<Descriptor>, String> {
    Manifest::read(manifest).map(|manifest| manifest.layers)
}

/// Returns the one layer of a `manifest`, which holds the module.
///
/// # Errors
/// How it differs from the layout.
pub fn layer(manifest: &[u8]) -> Result<Descriptor, String> {
    let read = Manifest::read(manifest)?;
    if let Some(other) = read.media_type.filter(|media_type| media_type != MANIFEST) {
        return Err(format!(
            "its manifest has the media type {other:?}, not {MANIFEST:?}"
        ));
    }
    let config = read.config.ok_or("its manifest has no configuration")?;
    if config.media_type != CONFIG {
        let media_type = config.media_type;
        return Err(format!(
            "its configuration has the media type {media_type:?}, not {CONFIG:?}: push it with `dnsweir filter push`, `oras` or `wkg oci push`"
        ));
    }
    let [layer] = &read.layers[..] else {
        return Err(format!(
            "it has {} layers, and a module is one",
            read.layers.len()
        ));
    };
    if layer.media_type != LAYER {
        return Err(format!(
            "its layer has the media type {:?}, not {LAYER:?}",
            layer.media_type
        ));
    }
    if layer.size > LARGEST_MODULE as u64 {
        let largest = spell_size(LARGEST_MODULE);
        return Err(format!(
            "its module has {} bytes, but at most {largest} are accepted",
            layer.size
        ));
    }
    Ok(layer.clone())
}

/// The format of a signature.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Form {
    /// cosign's simple signing: the bytes are what is signed, and this is the signature in base64.
    Simple(String),
    /// A sigstore bundle, which holds both.
    Bundle,
}

/// A signature found beside an artifact.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Signature {
    /// Its format.
    pub form: Form,
    /// Its contents.
    pub octets: Bytes,
}

/// An artifact whose parts match its digest.
#[derive(Debug, Clone)]
pub struct Artifact {
    /// The digest of its manifest.
    pub digest: String,
    /// The manifest.
    pub manifest: Bytes,
    /// The module.
    pub module: Bytes,
    /// Not verified yet.
    pub signatures: Vec<Signature>,
}

/// The lengths of the parts, in the first line of the output of [`Artifact::write`].
#[derive(Serialize, Deserialize)]
struct Lengths {
    manifest: usize,
    module: usize,
    signatures: Vec<(Form, usize)>,
}

impl Artifact {
    /// Assembles what was pulled.
    ///
    /// # Errors
    /// When the parts do not match the manifest or the layout.
    pub fn new(manifest: Bytes, module: Bytes, signatures: Vec<Signature>) -> Result<Artifact, String> {
        let layer = layer(&manifest)?;
        if layer.size != module.len() as u64 {
            let (said, there) = (layer.size, module.len());
            return Err(format!(
                "its module has {there} bytes, but its manifest says {said}"
            ));
        }
        let actual = digest(&module);
        if layer.digest != actual {
            let said = layer.digest;
            return Err(format!(
                "its module has the digest {actual}, but its manifest says {said}"
            ));
        }
        Ok(Artifact {
            digest: digest(&manifest),
            manifest,
            module,
            signatures,
        })
    }

    /// Checks that it is the one that `reference` names, if that has a digest.
    ///
    /// # Errors
    /// When it is not.
    pub(crate) fn hold_to(&self, reference: &Reference) -> Result<(), String> {
        match &reference.digest {
            Some(wanted) if *wanted != self.digest => Err(format!(
                "the registry sent a manifest with the digest {}",
                self.digest
            )),
            _ => Ok(()),
        }
    }

    /// Serializes it: a line with the lengths of the parts, then the parts.
    pub fn write(&self) -> Vec<Bytes> {
        let lengths = Lengths {
            manifest: self.manifest.len(),
            module: self.module.len(),
            signatures: self
                .signatures
                .iter()
                .map(|signature| (signature.form.clone(), signature.octets.len()))
                .collect(),
        };
        // Numbers and base64 always serialize.
        let mut line = serde_json::to_vec(&lengths).unwrap_or_default();
        line.push(b'\n');
        let mut parts = vec![Bytes::from(line), self.manifest.clone(), self.module.clone()];
        parts.extend(self.signatures.iter().map(|signature| signature.octets.clone()));
        parts
    }

    /// Parses the output of [`Artifact::write`].
    ///
    /// # Errors
    /// When it is damaged, or not of the layout.
    pub fn read(file: Bytes) -> Result<Artifact, String> {
        let damaged = || "it is damaged".to_owned();
        let end = file
            .iter()
            .position(|&octet| octet == b'\n')
            .ok_or_else(damaged)?;
        let lengths: Lengths = serde_json::from_slice(&file[..end]).map_err(|_| damaged())?;
        let mut rest = file.slice(end + 1..);
        let mut take = |length: usize, largest: usize| {
            (length <= rest.len().min(largest))
                .then(|| rest.split_to(length))
                .ok_or_else(damaged)
        };
        let manifest = take(lengths.manifest, LARGEST_MANIFEST)?;
        let module = take(lengths.module, LARGEST_MODULE)?;
        // Of both forms.
        let signatures = lengths.signatures.into_iter().take(2 * MOST_SIGNATURES);
        let signatures = signatures
            .map(|(form, length)| {
                let octets = take(length, LARGEST_SIGNATURE)?;
                Ok(Signature { form, octets })
            })
            .collect::<Result<_, String>>()?;
        Artifact::new(manifest, module, signatures)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub fn manifest(config: &str, layers: &[(&str, &[u8])]) -> Bytes {
        let layers = layers.iter().map(|(media_type, octets)| {
            serde_json::json!({ "mediaType": media_type, "digest": digest(octets), "size": octets.len() })
        });
        let config = serde_json::json!({ "mediaType": config, "digest": digest(b"{}"), "size": 2 });
        let all = serde_json::json!({
            "schemaVersion": 2, "mediaType": MANIFEST, "config": config, "layers": layers.collect::<Vec<_>>(),
        });
        serde_json::to_vec(&all).unwrap().into()
    }

    /// Creates an artifact with this module.
    pub fn artifact(module: &'static [u8]) -> Artifact {
        Artifact::new(
            manifest(CONFIG, &[(LAYER, module)]),
            Bytes::from_static(module),
            Vec::new(),
        )
        .unwrap()
    }

    #[test]
    fn other_layouts_are_refused_by_name() {
        let large = LARGEST_MODULE + 1;
        let too_large = format!(
            "{{\"config\":{{\"mediaType\":{CONFIG:?},\"digest\":\"\",\"size\":2}},\
             \"layers\":[{{\"mediaType\":{LAYER:?},\"digest\":\"\",\"size\":{large}}}]}}"
        );
        for (manifest, expected) in [
            (Bytes::from("no JSON"), "its manifest is not valid"),
            (Bytes::from("{}"), "its manifest has no configuration"),
            (
                Bytes::from("{\"mediaType\":\"application/vnd.oci.image.index.v1+json\"}"),
                "the media type \"application/vnd.oci.image.index.v1+json\"",
            ),
            (
                manifest("application/vnd.oci.image.config.v1+json", &[(LAYER, b"a")]),
                "its configuration has the media type \"application/vnd.oci.image.config.v1+json\"",
            ),
            (manifest(CONFIG, &[]), "it has 0 layers"),
            (
                manifest(CONFIG, &[(LAYER, b"a"), (LAYER, b"b")]),
                "it has 2 layers",
            ),
            (
                manifest(CONFIG, &[("application/vnd.wasm.content.layer.v1+wasm", b"a")]),
                "its layer has the media type \"application/vnd.wasm.content.layer.v1+wasm\"",
            ),
            (Bytes::from(too_large), "at most 64MiB are accepted"),
        ] {
            let wrong = layer(&manifest).unwrap_err();
            assert!(wrong.contains(expected), "{wrong}");
        }
    }

    #[test]
    fn other_octets_are_refused() {
        let manifest = manifest(CONFIG, &[(LAYER, b"abc")]);
        for (module, expected) in [(&b"abcd"[..], "4 bytes"), (b"abd", "has the digest sha256:")] {
            let wrong = Artifact::new(manifest.clone(), Bytes::from_static(module), Vec::new()).unwrap_err();
            assert!(wrong.contains(expected), "{wrong}");
        }
        let other = Reference::parse(&format!("oci://r.example/a@sha256:{}", "00".repeat(32)))
            .unwrap()
            .unwrap();
        assert!(
            artifact(b"abc")
                .hold_to(&other)
                .unwrap_err()
                .contains("digest sha256:")
        );
        let same = other.with_digest(&artifact(b"abc").digest);
        assert_eq!(artifact(b"abc").hold_to(&same), Ok(()));
    }

    /// Those of one form leave room for those of the other.
    #[test]
    fn signatures_of_both_forms_are_read() {
        let mut artifact = artifact(b"module");
        let octets = Bytes::from_static(b"{}");
        for form in [Form::Simple("c2ln".into()), Form::Bundle] {
            let octets = octets.clone();
            let signature = Signature { form, octets };
            artifact.signatures.extend(vec![signature; MOST_SIGNATURES]);
        }
        let read = Artifact::read(artifact.write().concat().into()).unwrap();
        assert_eq!(read.signatures, artifact.signatures);
    }

    #[test]
    fn a_file_is_read_as_it_was_written_and_refused_when_damaged() {
        let mut artifact = artifact(b"module");
        artifact.signatures = vec![
            Signature {
                form: Form::Simple("c2ln".into()),
                octets: Bytes::from_static(b"{}"),
            },
            Signature {
                form: Form::Bundle,
                octets: Bytes::from_static(b"{ }"),
            },
        ];
        let file = artifact.write().concat();
        let read = Artifact::read(file.clone().into()).unwrap();
        assert_eq!(
            (read.digest, read.module, read.signatures),
            (artifact.digest, artifact.module, artifact.signatures)
        );
        for end in 0..file.len() {
            assert!(
                Artifact::read(file[..end].to_vec().into()).is_err(),
                "cut at {end}"
            );
        }
        for at in file.len() - 9..file.len() - 5 {
            let mut changed = file.clone();
            changed[at] ^= 1;
            assert!(Artifact::read(changed.into()).is_err(), "changed at {at}");
        }
    }
}
