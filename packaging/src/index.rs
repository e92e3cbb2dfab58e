//! A multi-platform image: an index of what `image` made for each processor, with the bills of materials.

use std::io::Read as _;
use std::path::{Path, PathBuf};

use flate2::read::GzDecoder;
use serde_json::{Value, json};

use crate::layout::{self, Layout};
use crate::source::Source;
use crate::{Failure, image};

/// The path of the bill of materials in an image.
const BILL: &str = "usr/share/doc/dnsweir/sbom.spdx.json";

/// Joins the layouts in these folders, and returns the path.
pub fn pack(source: &Source, images: &[PathBuf], name: &str, out: &Path) -> Result<Vec<String>, Failure> {
    let mut joined = Layout::default();
    let mut manifests = Vec::new();
    for folder in images {
        let layout = Layout::open(folder)?;
        let [tagged] = layout.tagged() else {
            return Err(format!("{}: not one image", folder.display()));
        };
        let mut described = layout::plain(tagged);
        described["platform"] = tagged["platform"].clone();
        let bill = bill(&layout, tagged)?;
        joined.take(layout);
        joined.refer(&described, "application/spdx+json", "sbom.spdx.json", bill)?;
        manifests.push(described);
    }
    let index = json!({
        "schemaVersion": 2,
        "mediaType": layout::INDEX,
        "manifests": manifests,
        "annotations": image::labels(source)?,
    });
    let index = joined.add_json(layout::INDEX, &index)?;
    joined.tag(&index, source.version, Some(name));
    let folder = out.join("oci/image");
    joined.write(&folder)?;
    let digest = &index["digest"];
    Ok(vec![format!("{}: an OCI layout, {digest}", folder.display())])
}

/// The bill of materials in an image.
fn bill(layout: &Layout, image: &Value) -> Result<Vec<u8>, Failure> {
    let manifest = layout.document(image)?;
    let layer = layout.content(&manifest["layers"][0])?;
    let mut tar = tar::Archive::new(GzDecoder::new(layer));
    for entry in tar.entries().map_err(|error| error.to_string())? {
        let mut entry = entry.map_err(|error| error.to_string())?;
        if entry.path().is_ok_and(|path| path == Path::new(BILL)) {
            let mut content = Vec::new();
            entry
                .read_to_end(&mut content)
                .map_err(|error| error.to_string())?;
            return Ok(content);
        }
    }
    Err(format!("an image without {BILL}"))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// An image that contains only a bill of materials.
    fn image(folder: &Path, processor: &str) -> PathBuf {
        let root = folder.join(format!("{processor}-root"));
        crate::write(&root.join(BILL), processor).unwrap();
        let mut layout = Layout::default();
        let layer = layout::compressed(&image::layer(&root, 1).unwrap()).unwrap();
        let manifest = json!({ "layers": [layout.add("layer", layer)] });
        let mut described = layout.add_json(layout::MANIFEST, &manifest).unwrap();
        described["platform"] = json!({ "architecture": processor, "os": "linux" });
        layout.tag(&described, "0.1.0", Some("r.example/dnsweir"));
        let to = folder.join(processor);
        layout.write(&to).unwrap();
        to
    }

    #[test]
    fn both_processors_are_in_one_index_with_their_bills() {
        let folder = tempfile::tempdir().unwrap();
        let images = ["amd64", "arm64"].map(|processor| image(folder.path(), processor));
        let source = Source::read(None).unwrap();
        pack(&source, &images, "r.example/dnsweir", folder.path()).unwrap();
        let layout = Layout::open(&folder.path().join("oci/image")).unwrap();
        let tagged = layout.tagged().last().unwrap().clone();
        assert_eq!(
            tagged["annotations"]["io.containerd.image.name"],
            format!("r.example/dnsweir:{}", source.version)
        );
        let index = layout.document(&tagged).unwrap();
        assert_eq!(index["mediaType"], layout::INDEX);
        for (number, processor) in ["amd64", "arm64"].into_iter().enumerate() {
            let described = &index["manifests"][number];
            assert_eq!(described["platform"]["architecture"], processor);
            let tag = described["digest"].as_str().unwrap().replace(':', "-");
            let of_it = layout
                .tagged()
                .iter()
                .find(|other| other["annotations"]["org.opencontainers.image.ref.name"] == tag.as_str());
            let referrers = layout.document(of_it.unwrap()).unwrap();
            let manifest = layout.document(&referrers["manifests"][0]).unwrap();
            assert_eq!(manifest["subject"], layout::plain(described));
            assert_eq!(
                layout.content(&manifest["layers"][0]).unwrap(),
                processor.as_bytes()
            );
        }
        // Each blob matches the digest in its name.
        for entry in fs::read_dir(folder.path().join("oci/image/blobs/sha256")).unwrap() {
            let path = entry.unwrap().path();
            assert_eq!(
                layout::digits(&fs::read(&path).unwrap()),
                path.file_name().unwrap().to_str().unwrap()
            );
        }
    }
}
