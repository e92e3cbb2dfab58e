//! The provenance of a release: an in-toto statement with SLSA provenance, version 1
//! (<https://slsa.dev/spec/v1.0/provenance>). Without time or machine, so that rebuilding a commit reproduces
//! it.

use std::path::Path;

use serde_json::{Value, json};

use crate::layout::{self, Layout};
use crate::source::Source;
use crate::{Failure, sums, write};

/// Media type of an in-toto statement.
const STATEMENT: &str = "application/vnd.in-toto+json";

/// Writes the statement about all files in a folder and about the image and chart, to which it is also
/// attached. `builder` is a URI that identifies the builder.
pub fn pack(source: &Source, builder: &str, folder: &Path) -> Result<Vec<String>, Failure> {
    let name = format!("dnsweir-{}.provenance.json", source.version);
    let file = folder.join(&name);
    let files = sums::files(folder)?;
    let files = files.iter().filter(|(other, _)| *other != name);
    let mut subjects =
        Vec::from_iter(files.map(|(name, digest)| json!({ "name": name, "digest": { "sha256": digest } })));
    let mut layouts = Vec::new();
    for part in ["oci/image", "oci/chart"] {
        let part = folder.join(part);
        let layout = Layout::open(&part)?;
        let released = released(source, &layout)
            .ok_or_else(|| format!("{}: nothing of this version", part.display()))?;
        let digest = released["digest"].as_str().unwrap_or_default();
        let digest = digest.trim_start_matches("sha256:").to_owned();
        subjects.push(json!({ "name": part.file_name().map(|name| name.to_string_lossy()), "digest": { "sha256": digest } }));
        layouts.push((part, layout, released));
    }
    let statement = layout::encoded(&statement(source, builder, &subjects)?)?;
    for (part, mut layout, released) in layouts {
        layout.refer(&released, STATEMENT, &name, statement.clone())?;
        layout.write(&part)?;
    }
    write(&file, statement)?;
    Ok(vec![format!("{}: where all of it is from", file.display())])
}

/// The descriptor tagged with this version in a layout.
pub fn released(source: &Source, layout: &Layout) -> Option<Value> {
    let at = layout.tags().position(|tag| tag == source.version)?;
    layout.tagged().get(at).cloned()
}

fn statement(source: &Source, builder: &str, subjects: &[Value]) -> Result<Value, Failure> {
    let repository = source
        .repository
        .as_deref()
        .ok_or("provenance says where the source is: --repository URL")?;
    let commit = source
        .commit
        .as_deref()
        .ok_or("provenance names a commit, and this is not a git repository")?;
    let lock = source.root.join("Cargo.lock");
    let lock = crate::read(&lock)?;
    Ok(json!({
        "_type": "https://in-toto.io/Statement/v1",
        "subject": subjects,
        "predicateType": "https://slsa.dev/provenance/v1",
        "predicate": {
            "buildDefinition": {
                "buildType": format!("{repository}#cargo-xtask-release"),
                "externalParameters": { "version": source.version },
                "resolvedDependencies": [
                    { "uri": format!("git+{repository}@{commit}"), "digest": { "gitCommit": commit } },
                    { "name": "Cargo.lock", "digest": { "sha256": layout::digits(&lock) } },
                ],
            },
            "runDetails": { "builder": { "id": builder } },
        },
    }))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn everything_is_named_and_found_beside_image_and_chart() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        let source = Source::read(Some("https://git.example/dnsweir".into())).unwrap();
        write(&folder.join("dnsweir.tar.gz"), "program").unwrap();
        for part in ["oci/image", "oci/chart"] {
            let mut layout = Layout::default();
            let manifest = layout
                .add_json(layout::MANIFEST, &json!({ "for": part }))
                .unwrap();
            layout.tag(&manifest, source.version, None);
            layout.write(&folder.join(part)).unwrap();
        }
        pack(&source, "https://builder.example/1", folder).unwrap();
        let file = folder.join(format!("dnsweir-{}.provenance.json", source.version));
        let written = fs::read(&file).unwrap();
        let statement: Value = serde_json::from_slice(&written).unwrap();
        let names = [0, 1, 2].map(|number| statement["subject"][number]["name"].clone());
        assert_eq!(names, ["dnsweir.tar.gz", "image", "chart"]);
        let commit = source.commit.as_deref().unwrap();
        let from = &statement["predicate"]["buildDefinition"]["resolvedDependencies"][0]["uri"];
        assert_eq!(from, &format!("git+https://git.example/dnsweir@{commit}"));

        let layout = Layout::open(&folder.join("oci/chart")).unwrap();
        let released = released(&source, &layout).unwrap();
        let index = layout.document(&layout.tagged()[1]).unwrap();
        let manifest = layout.document(&index["manifests"][0]).unwrap();
        assert_eq!(manifest["subject"], layout::plain(&released));
        assert_eq!(layout.content(&manifest["layers"][0]).unwrap(), written);
    }

    #[test]
    fn nothing_is_made_up() {
        let source = Source::read(None).unwrap();
        let wrong = statement(&source, "https://builder.example/1", &[]).unwrap_err();
        assert!(wrong.contains("--repository"), "{wrong}");
    }
}
