//! The Helm chart, as an archive like that of `helm package` and an artifact like that of `helm push`
//! (<https://helm.sh/docs/topics/registries/>). Unlike helm's, both are reproducible.

use std::fs;
use std::path::Path;

use serde_json::{Map, Value, json};

use crate::layout::{self, Layout};
use crate::source::Source;
use crate::{Failure, copy, image, write};

/// Media types of the parts of helm's artifacts.
const CONFIG: &str = "application/vnd.cncf.helm.config.v1+json";
const CONTENT: &str = "application/vnd.cncf.helm.chart.content.v1.tar+gzip";

/// The chart's folder in the source.
const CHART: &str = "deploy/helm/dnsweir";

/// The image in its default values, which exists in no registry.
const IMAGE: &str = "repository: docker.io/library/dnsweir\n";

/// Writes the archive and the layout, and returns their paths. With a `registry`, pods use the image there.
pub fn pack(source: &Source, registry: Option<&str>, out: &Path) -> Result<Vec<String>, Failure> {
    let staged = tempfile::tempdir().map_err(|error| format!("no temporary folder: {error}"))?;
    let chart = staged.path().join("dnsweir");
    copy(&source.root.join(CHART), &chart)?;
    let described = describe(source, &chart.join("Chart.yaml"))?;
    if let Some(registry) = registry {
        name_image(registry, &chart.join("values.yaml"))?;
    }
    let archive = layout::compressed(&image::layer(staged.path(), source.time)?)?;
    let file = out.join(format!("dnsweir-{}.tgz", source.version));
    write(&file, &archive)?;

    let mut layout = Layout::default();
    let manifest = json!({
        "schemaVersion": 2,
        "mediaType": layout::MANIFEST,
        "config": layout.add_json(CONFIG, &described)?,
        "layers": [layout.add(CONTENT, archive)],
        "annotations": image::labels(source)?,
    });
    let manifest = layout.add_json(layout::MANIFEST, &manifest)?;
    layout.tag(&manifest, source.version, None);
    let folder = out.join("oci/chart");
    layout.write(&folder)?;
    Ok(vec![
        format!("{}: for helm install", file.display()),
        format!("{}: an OCI layout, {}", folder.display(), manifest["digest"]),
    ])
}

/// Adds the source's URL, and returns the artifact's configuration: the same in JSON.
fn describe(source: &Source, file: &Path) -> Result<Value, Failure> {
    let wrong = |error: &dyn std::fmt::Display| format!("{}: {error}", file.display());
    let mut text = fs::read_to_string(file).map_err(|error| wrong(&error))?;
    let mut described = read(&text).map_err(|error| wrong(&error))?;
    for key in ["version", "appVersion"] {
        if described[key] != source.version {
            let (here, wanted) = (&described[key], source.version);
            return Err(wrong(&format!("{key} is {here}, and what is packed is {wanted}")));
        }
    }
    if let Some(repository) = &source.repository {
        text += &format!("sources:\n  - {repository}\n");
        described["sources"] = json!([repository]);
        write(file, text)?;
    }
    Ok(described)
}

/// Parses a `Chart.yaml` that is a list of words and texts, as ours is.
fn read(text: &str) -> Result<Value, Failure> {
    let mut read = Map::new();
    for line in text
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
    {
        let pair = line
            .split_once(": ")
            .filter(|(key, _)| !key.starts_with([' ', '-']));
        let (key, value) = pair.ok_or_else(|| format!("{line:?} is not a word with a text"))?;
        read.insert(key.to_owned(), value.trim_matches('"').into());
    }
    Ok(Value::Object(read))
}

fn name_image(registry: &str, file: &Path) -> Result<(), Failure> {
    let text = fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))?;
    if text.matches(IMAGE).count() != 1 {
        return Err(format!("{}: not one {IMAGE:?}", file.display()));
    }
    write(
        file,
        text.replace(IMAGE, &format!("repository: {registry}/dnsweir\n")),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(repository: Option<&str>) -> Source {
        Source {
            time: 1,
            ..Source::read(repository.map(str::to_owned)).unwrap()
        }
    }

    /// The artifact has what helm expects in a registry and in the archive.
    #[test]
    fn the_artifact_is_one_of_helms() {
        let folder = tempfile::tempdir().unwrap();
        let source = source(Some("https://git.example/dnsweir"));
        pack(&source, Some("r.example/dns"), folder.path()).unwrap();
        let layout = Layout::open(&folder.path().join("oci/chart")).unwrap();
        assert_eq!(layout.tags().collect::<Vec<_>>(), [source.version]);
        let manifest = layout.document(&layout.tagged()[0]).unwrap();
        assert_eq!(manifest["config"]["mediaType"], CONFIG);
        assert_eq!(manifest["layers"][0]["mediaType"], CONTENT);
        let config = layout.document(&manifest["config"]).unwrap();
        assert_eq!(config["name"], "dnsweir");
        assert_eq!(config["kubeVersion"], ">= 1.27.0-0");
        assert_eq!(config["sources"], json!(["https://git.example/dnsweir"]));
        let archive = fs::read(folder.path().join(format!("dnsweir-{}.tgz", source.version))).unwrap();
        assert_eq!(layout.content(&manifest["layers"][0]).unwrap(), archive);
        let mut tar = tar::Archive::new(flate2::read::GzDecoder::new(&archive[..]));
        let mut values = String::new();
        for entry in tar.entries().unwrap() {
            let mut entry = entry.unwrap();
            if entry.path().unwrap() == Path::new("dnsweir/values.yaml") {
                std::io::Read::read_to_string(&mut entry, &mut values).unwrap();
            }
        }
        assert!(values.contains("repository: r.example/dns/dnsweir\n"), "{values}");
    }

    #[test]
    fn a_chart_is_the_same_each_time() {
        let packed = || {
            let folder = tempfile::tempdir().unwrap();
            let source = source(None);
            pack(&source, None, folder.path()).unwrap();
            Layout::open(&folder.path().join("oci/chart"))
                .unwrap()
                .files()
                .unwrap()
        };
        assert_eq!(packed(), packed());
    }

    #[test]
    fn what_is_no_list_of_words_is_refused() {
        assert!(read("name: a\nkeywords:\n  - dns\n").is_err());
        assert_eq!(
            read("# one\n\nname: \"a: b\"\n").unwrap(),
            json!({ "name": "a: b" })
        );
    }
}
