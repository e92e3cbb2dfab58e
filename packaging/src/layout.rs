//! An OCI layout: the contents of a registry's repository as files, with an index of tagged manifests.
//!
//! The layout contains every tag that the registry will have, including signatures and referrers of an image,
//! so that pushing means copying them one by one.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::path::Path;

use flate2::{Compression, GzBuilder};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::{Failure, read, write};

/// Media type of a manifest, in the OCI image specification.
pub const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
/// Media type of an index of manifests.
pub const INDEX: &str = "application/vnd.oci.image.index.v1+json";
/// Media type of an empty configuration.
const EMPTY: &str = "application/vnd.oci.empty.v1+json";

/// The annotation with a manifest's tag.
const TAG: &str = "org.opencontainers.image.ref.name";
/// The annotation with name and tag that containerd reads.
const NAME: &str = "io.containerd.image.name";

/// A layout.
#[derive(Debug, Default)]
pub struct Layout {
    /// Contents by hexadecimal digest.
    blobs: BTreeMap<String, Vec<u8>>,
    /// The descriptors in the index.
    tagged: Vec<Value>,
}

impl Layout {
    /// Reads a layout written by [`Layout::write`].
    ///
    /// # Errors
    /// When there is no layout in the folder.
    pub fn open(folder: &Path) -> Result<Layout, Failure> {
        let index = decoded(&read(&folder.join("index.json"))?)?;
        let mut layout = Layout {
            tagged: index["manifests"].as_array().cloned().unwrap_or_default(),
            ..Layout::default()
        };
        let blobs = folder.join("blobs/sha256");
        let entries = fs::read_dir(&blobs).map_err(|error| format!("{}: {error}", blobs.display()))?;
        for entry in entries {
            let path = entry.map_err(|error| error.to_string())?.path();
            layout.blob(read(&path)?);
        }
        Ok(layout)
    }

    /// Adds a blob, and returns its hexadecimal digest.
    pub fn blob(&mut self, content: Vec<u8>) -> String {
        let digest = digits(&content);
        self.blobs.insert(digest.clone(), content);
        digest
    }

    /// Adds a blob, and returns its descriptor.
    pub fn add(&mut self, media_type: &str, content: Vec<u8>) -> Value {
        let size = content.len();
        let digest = self.blob(content);
        json!({ "mediaType": media_type, "digest": format!("sha256:{digest}"), "size": size })
    }

    /// Adds a document, and returns its descriptor.
    ///
    /// # Errors
    /// Never for the documents of this program.
    pub fn add_json(&mut self, media_type: &str, document: &Value) -> Result<Value, Failure> {
        Ok(self.add(media_type, encoded(document)?))
    }

    /// Adds all blobs of another layout, but not its tags.
    pub fn take(&mut self, other: Layout) {
        self.blobs.extend(other.blobs);
    }

    /// Tags a descriptor; `name` is the repository's, if known.
    pub fn tag(&mut self, described: &Value, tag: &str, name: Option<&str>) {
        let mut described = described.clone();
        described["annotations"] = json!({ TAG: tag });
        if let Some(name) = name {
            described["annotations"][NAME] = format!("{name}:{tag}").into();
        }
        self.tagged.retain(|other| other["annotations"][TAG] != tag);
        self.tagged.push(described);
    }

    /// The tagged descriptors in the index.
    pub fn tagged(&self) -> &[Value] {
        &self.tagged
    }

    /// The tags, in order.
    pub fn tags(&self) -> impl Iterator<Item = &str> {
        self.tagged
            .iter()
            .filter_map(|described| described["annotations"][TAG].as_str())
    }

    /// Returns the content of a descriptor.
    ///
    /// # Errors
    /// When it is missing.
    pub fn content(&self, described: &Value) -> Result<&[u8], Failure> {
        let digest = described["digest"].as_str().unwrap_or_default();
        let found = self.blobs.get(digest.trim_start_matches("sha256:"));
        found
            .map(Vec::as_slice)
            .ok_or_else(|| format!("the layout has no blob {digest}"))
    }

    /// Returns the document of a descriptor.
    ///
    /// # Errors
    /// When it is missing or not JSON.
    pub fn document(&self, described: &Value) -> Result<Value, Failure> {
        decoded(self.content(described)?)
    }

    /// Adds a referrer of a manifest: an artifact of one file, and the index that makes it discoverable in
    /// registries without a referrers API
    /// (<https://github.com/opencontainers/distribution-spec/blob/main/spec.md>, "Referrers Tag Schema").
    ///
    /// # Errors
    /// Never for the documents of this program.
    pub fn refer(
        &mut self,
        subject: &Value,
        media_type: &str,
        name: &str,
        content: Vec<u8>,
    ) -> Result<(), Failure> {
        let mut layer = self.add(media_type, content);
        layer["annotations"] = json!({ "org.opencontainers.image.title": name });
        let manifest = json!({
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "artifactType": media_type,
            "config": self.add(EMPTY, b"{}".to_vec()),
            "layers": [layer],
            "subject": plain(subject),
        });
        // Without artifactType, which the manifest has: skopeo drops it from an index, changing the digest.
        let described = self.add_json(MANIFEST, &manifest)?;
        let tag = subject["digest"].as_str().unwrap_or_default().replace(':', "-");
        let before = self
            .tagged
            .iter()
            .find(|other| other["annotations"][TAG] == tag.as_str());
        let mut referrers = match before {
            Some(before) => self.document(before)?["manifests"]
                .as_array()
                .cloned()
                .unwrap_or_default(),
            None => Vec::new(),
        };
        referrers.push(described);
        let index = json!({ "schemaVersion": 2, "mediaType": INDEX, "manifests": referrers });
        let index = self.add_json(INDEX, &index)?;
        self.tag(&index, &tag, None);
        Ok(())
    }

    /// Returns its files, by relative path.
    ///
    /// # Errors
    /// Never for the documents of this program.
    pub fn files(&self) -> Result<Vec<(String, Vec<u8>)>, Failure> {
        let index = json!({ "schemaVersion": 2, "mediaType": INDEX, "manifests": self.tagged });
        let mut files = Vec::from_iter(
            self.blobs
                .iter()
                .map(|(digest, content)| (path_of(digest), content.clone())),
        );
        files.push(("index.json".into(), encoded(&index)?));
        files.push(("oci-layout".into(), br#"{"imageLayoutVersion":"1.0.0"}"#.to_vec()));
        Ok(files)
    }

    /// Writes it into a folder, replacing what was there.
    ///
    /// # Errors
    /// When the folder cannot be written.
    pub fn write(&self, folder: &Path) -> Result<(), Failure> {
        if folder.exists() {
            fs::remove_dir_all(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        }
        for (path, content) in self.files()? {
            write(&folder.join(path), content)?;
        }
        Ok(())
    }
}

/// A descriptor reduced to its required fields.
pub fn plain(described: &Value) -> Value {
    json!({ "mediaType": described["mediaType"], "digest": described["digest"], "size": described["size"] })
}

/// The path of a blob in a layout.
pub fn path_of(digest: &str) -> String {
    format!("blobs/sha256/{digest}")
}

/// The SHA-256 in hexadecimal.
pub fn digits(content: &[u8]) -> String {
    Sha256::digest(content)
        .iter()
        .map(|octet| format!("{octet:02x}"))
        .collect()
}

/// Compresses with gzip, without a name or time.
///
/// # Errors
/// Never: it writes to memory.
pub fn compressed(content: &[u8]) -> Result<Vec<u8>, Failure> {
    let mut encoder = GzBuilder::new().write(Vec::new(), Compression::default());
    let done = encoder.write_all(content).and_then(|()| encoder.finish());
    done.map_err(|error| error.to_string())
}

/// Serializes a document, with its keys in order.
///
/// # Errors
/// Never for the documents of this program.
pub fn encoded(document: &Value) -> Result<Vec<u8>, Failure> {
    serde_json::to_vec(document).map_err(|error| error.to_string())
}

fn decoded(content: &[u8]) -> Result<Value, Failure> {
    serde_json::from_slice(content).map_err(|error| format!("no JSON: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_again() {
        let mut layout = Layout::default();
        let image = layout.add_json(MANIFEST, &json!({ "layers": [] })).unwrap();
        layout.tag(&image, "0.1.0", Some("r.example/dnsweir"));
        layout.tag(&image, "0.1.0", None);
        let folder = tempfile::tempdir().unwrap();
        layout.write(&folder.path().join("image")).unwrap();
        let read = Layout::open(&folder.path().join("image")).unwrap();
        assert_eq!(read.tags().collect::<Vec<_>>(), ["0.1.0"], "a tag is for one");
        assert_eq!(read.document(&image).unwrap(), json!({ "layers": [] }));
        assert_eq!(read.files().unwrap(), layout.files().unwrap());
    }

    /// A second referrer of an image is added to the first.
    #[test]
    fn statements_are_found_by_what_they_are_about() {
        let mut layout = Layout::default();
        let image = layout.add_json(MANIFEST, &json!({})).unwrap();
        for (kind, content) in [
            ("application/spdx+json", "{}"),
            ("application/vnd.in-toto+json", "{ }"),
        ] {
            layout.refer(&image, kind, "file", content.into()).unwrap();
        }
        let tag = image["digest"].as_str().unwrap().replace(':', "-");
        assert_eq!(layout.tags().collect::<Vec<_>>(), [tag]);
        let index = layout.document(&layout.tagged()[0].clone()).unwrap();
        let kinds = [0, 1].map(|number| {
            let manifest = layout.document(&index["manifests"][number]).unwrap();
            manifest["artifactType"].clone()
        });
        assert_eq!(kinds, ["application/spdx+json", "application/vnd.in-toto+json"]);
        let manifest = layout.document(&index["manifests"][0]).unwrap();
        assert_eq!(manifest["subject"], plain(&image));
        assert_eq!(layout.content(&manifest["layers"][0]).unwrap(), b"{}");
    }

    #[test]
    fn compressed_twice_is_the_same() {
        let content = b"a".repeat(1000);
        let once = compressed(&content).unwrap();
        assert_eq!(once, compressed(&content).unwrap());
        assert!(once.len() < 100, "{}", once.len());
        // Flags and time (RFC 1952 section 2.3.1).
        assert_eq!(once[3..8], [0; 5]);
    }
}
